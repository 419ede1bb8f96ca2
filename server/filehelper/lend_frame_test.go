package filehelper

import (
	"errors"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// lentFile is a file that can be read, and what a lent of Serve reads of it.
func lentFile(t *testing.T) (file *os.File, lent func(fd int), got chan string) {
	t.Helper()
	path := t.TempDir() + "/lent"
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	got = make(chan string, 2)
	return file, func(fd int) {
		content := make([]byte, 100)
		n, err := unix.Pread(fd, content, 0)
		got <- string(content[:max(n, 0)])
		if err := errors.Join(err, unix.Close(fd)); err != nil {
			t.Error(err)
		}
	}, got
}

func TestLend_WithoutRoomOnTheConnection_Arrives(t *testing.T) {
	ours, theirs := socketPair(t)
	file, lent, got := lentFile(t)
	a, err := newAnswerer(theirs, testMessage, lent, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := linkTo(t, ours)
	var failed error
	if err := l.frames.raw.Write(func(fd uintptr) bool {
		for failed == nil { // of a call that is not there
			_, failed = unix.Write(int(fd), finish(begun(1, kindCancel, 0)))
		}
		return true
	}); err != nil || failed != unix.EAGAIN {
		t.Fatal(err, failed)
	}
	var lending sync.WaitGroup
	lending.Go(func() {
		if err := l.lend(within(t), int(file.Fd())); err != nil {
			t.Error(err)
		}
	})
	for busy := false; !busy; {
		l.frames.mu.Lock()
		busy = l.frames.busy != nil
		l.frames.mu.Unlock()
	}
	var serving sync.WaitGroup
	serving.Go(a.serve)
	defer serving.Wait()
	defer l.Close()
	lending.Wait()
	if content := <-got; content != "content" {
		t.Errorf("the descriptor reads %q", content)
	}
	for range 2 { // with room
		if err := l.lend(within(t), int(file.Fd())); err != nil || <-got != "content" {
			t.Error(err)
		}
	}
}

func TestLend_WithoutADescriptor_Fails(t *testing.T) {
	ours, theirs := socketPair(t)
	a, err := newAnswerer(theirs, testMessage, func(int) { t.Error("a descriptor was received") }, nil)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(a.serve)
	t.Cleanup(serving.Wait)
	err = linkTo(t, ours).exchange(within(t), nil, nil, func(call uint64) ([]byte, error) { return finish(begun(call, kindLend, 0)), nil })
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("it fails with %v", err)
	}
}

// A server that closes its end with an answer unread resets the connection, for which recvmsg(2) returns -1.
func TestServe_OfAConnectionThatIsReset_Returns(t *testing.T) {
	ours, theirs := socketPair(t)
	a, err := newAnswerer(theirs, testMessage, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Write([]byte("an answer")); err != nil {
		t.Fatal(err)
	}
	if err := ours.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := a.incoming.Read(make([]byte, 1)); n != 0 || !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("a connection that was reset reads %d bytes and %v", n, err)
	}
	a.serve() // which returns
}
