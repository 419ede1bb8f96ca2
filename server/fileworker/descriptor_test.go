package fileworker

import (
	"errors"
	"net"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// socketPair returns two connected sockets.
func socketPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	listener, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	first, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	second, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = first.Close(), second.Close() })
	return first.(*net.UnixConn), second.(*net.UnixConn)
}

// receiving runs receiveDescriptors on one end of a connection until the test closes the
// other end, which it returns.
func receiving(t *testing.T, adopt func(fd int)) *net.UnixConn {
	t.Helper()
	ours, theirs := socketPair(t)
	var serving sync.WaitGroup
	serving.Go(func() {
		receiveDescriptors(theirs, adopt, nil)
		_ = theirs.Close()
	})
	t.Cleanup(func() {
		_ = ours.Close()
		serving.Wait()
	})
	return ours
}

func TestSendDescriptor_WorkerOwnsDescriptor(t *testing.T) {
	path := t.TempDir() + "/lent"
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	got := make(chan string, 1)
	conn := receiving(t, func(fd int) {
		content := make([]byte, 100)
		n, err := unix.Pread(fd, content, 0)
		got <- string(content[:max(n, 0)])
		if err := errors.Join(err, unix.Close(fd)); err != nil {
			t.Error(err)
		}
	})
	for range 3 {
		if err := sendDescriptor(conn, int(file.Fd())); err != nil {
			t.Fatal(err)
		}
		if content := <-got; content != "content" {
			t.Errorf("the descriptor reads %q", content)
		}
	}
}

func TestReceiveDescriptors_NoDescriptor_Answers(t *testing.T) {
	conn := receiving(t, func(int) { t.Error("a descriptor was received") })
	message := []byte{0}
	if _, err := conn.Write(message); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(message); err != nil || message[0] != notReceived {
		t.Errorf("the answer is %v, %v", message, err)
	}
}

func TestSendDescriptor_WorkerFails_ReturnsError(t *testing.T) {
	for name, test := range map[string]struct {
		answer []byte // nil closes the connection
		want   error
	}{
		"not received": {[]byte{notReceived}, errNotReceived},
		"garbage":      {[]byte("nonsense"), errNotReceived},
		"ended":        {nil, errWorkerEnded},
	} {
		ours, theirs := socketPair(t)
		if test.answer == nil {
			_ = theirs.Close()
		} else if _, err := theirs.Write(test.answer); err != nil {
			t.Fatal(err)
		}
		if err := sendDescriptor(ours, int(os.Stdin.Fd())); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// A server that closes its end before it has read an answer resets the connection, and
// recvmsg(2) returns -1.
func TestReceiveDescriptors_ConnectionReset_Returns(t *testing.T) {
	ours, theirs := socketPair(t)
	if _, err := theirs.Write([]byte("an answer")); err != nil {
		t.Fatal(err)
	}
	if err := ours.Close(); err != nil {
		t.Fatal(err)
	}
	receiveDescriptors(theirs, nil, nil)
}

// A worker that does not receive must not block calls.
func TestOfferDescriptor_FullSocket_ReturnsError(t *testing.T) {
	ours, _ := socketPair(t)
	var err error
	for err == nil {
		err = offerDescriptor(ours, int(os.Stdin.Fd()))
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Error(err)
	}
}
