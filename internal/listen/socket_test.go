package listen_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/listen"
)

// While a listener is paused clients wait, and no connection is lost that came meanwhile.
// Another listener goes on with its socket.
func TestListener_GoesOnWithAnotherOne(t *testing.T) {
	path := socketPath(t)
	for _, raw := range []string{"grpc://127.0.0.1:0", "unix://" + path} {
		first := mustListen(t, raw)
		roundTrip(t, first)
		if first.URL().Scheme == listen.SchemeUnix { // of which the first bytes tell the protocol
			silent := dial(t, first.Listener)
			roundTrip(t, first) // so that silent was accepted
			defer expectClosed(t, silent)
		}
		if err := first.Pause(); err != nil {
			t.Fatal(err)
		}
		<-first.ended
		early := dialFor(t, first)
		if err := first.Resume(); err != nil {
			t.Fatal(err)
		}
		resumed := dispatch(first.Listener)
		answer(t, resumed, early)

		if err := resumed.Pause(); err != nil {
			t.Fatal(err)
		}
		<-resumed.ended
		early = dialFor(t, resumed)
		second := takeOver(t, resumed.Socket())
		answer(t, second, early)
		if got, want := second.URL(), first.URL(); got != want {
			t.Errorf("the second listener is %v, want %v", got, want)
		}
		busy := dialFor(t, second)
		accepted := acceptFrom(t, second)
		second.Disconnect()
		if _, err := accepted.Write([]byte("x")); err == nil {
			t.Error("after Disconnect a connection is open")
		}
		_ = busy.Close()
		if err := second.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the file of the socket is left")
	}
}

// Sockets of listeners that are not asked for any more are closed, with their files.
func TestTaken_ClosesTheRest(t *testing.T) {
	path := socketPath(t)
	l := mustListen(t, "unix://"+path)
	socket := copySocket(t, l.Socket())
	if err := listen.NewTaken([]listen.Socket{socket}).Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the file of the socket is left")
	}
	if _, err := socket.Listener.Accept(); err == nil {
		t.Error("the socket is open")
	}
}

// takeOver opens a listener with the socket of another one.
func takeOver(t *testing.T, socket listen.Socket) *dispatched {
	t.Helper()
	l, err := listen.Listen(t.Context(), socket.Asked, listen.Options{Taken: listen.NewTaken([]listen.Socket{copySocket(t, socket)})})
	if err != nil {
		t.Fatal(err)
	}
	return dispatch(l)
}

// copySocket returns a socket as it is in the program that goes on with it.
func copySocket(t *testing.T, socket listen.Socket) listen.Socket {
	t.Helper()
	file, err := socket.Listener.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if socket.Listener, err = net.FileListener(file); err != nil {
		t.Fatal(err)
	}
	return socket
}

// expectClosed checks that a connection was closed.
func expectClosed(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(hangGuard))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection without a request is open: %v", err)
	}
}

func dial(t *testing.T, l listen.Listener) net.Conn {
	t.Helper()
	conn, err := net.Dial(l.Addr().Network(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// answer accepts a connection and checks that the client gets what is written.
func answer(t *testing.T, l *dispatched, client net.Conn) {
	t.Helper()
	server := acceptFrom(t, l)
	if _, err := server.Write([]byte("hello")); err != nil {
		t.Error(err)
	}
	_ = server.Close()
	if got, err := io.ReadAll(client); string(got) != "hello" || err != nil {
		t.Errorf("the client read %q, %v, want hello", got, err)
	}
}
