package wsconn_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/testrace"
	"github.com/execwire/execwire/internal/wsconn"
)

// The next ping is sent when the previous one is answered, and not before.
func TestPings_AreSentWhenAnswered(t *testing.T) {
	c, server := open(t, wsconn.Options{PingInterval: time.Millisecond, CloseTimeout: 50 * time.Millisecond})
	end := receiving(server)
	for range 5 {
		c.send(t, frame(final|pong, c.question(t)))
	}
	c.question(t)
	if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if first, _, err := c.next(); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("without an answer came frame %#x, %v", first, err)
	}
	if err := server.Close(0, ""); err != nil {
		t.Error(err)
	}
	if err := <-end; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// vanish makes the kernel drop incoming packets of c, as if its host were gone.
func vanish(t *testing.T, c *rawConn) {
	t.Helper()
	descriptor, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	var attachErr error
	err = descriptor.Control(func(fd uintptr) {
		attachErr = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop})
	})
	if err := errors.Join(err, attachErr); err != nil {
		t.Fatal(err)
	}
}

const deadAfter = 300 * time.Millisecond

func TestDeadPeer_EndsConnection(t *testing.T) {
	testrace.Slow(t)
	for name, makeWait := range map[string]func(*testing.T) (*rawConn, *wsconn.Conn){
		"with data on the way": func(t *testing.T) (*rawConn, *wsconn.Conn) {
			c, server := open(t, wsconn.Options{DeadAfter: deadAfter, CloseTimeout: deadAfter})
			vanish(t, c)
			if err := server.Send([]byte("probe")); err != nil {
				t.Fatal(err)
			}
			return c, server
		},
		"with data on the way after it was idle": func(t *testing.T) (*rawConn, *wsconn.Conn) {
			c, server := open(t, wsconn.Options{DeadAfter: deadAfter, CloseTimeout: deadAfter})
			for server.IsChecked() {
				time.Sleep(time.Millisecond)
			}
			vanish(t, c)
			if err := server.Send([]byte("probe")); err != nil {
				t.Fatal(err)
			}
			if !server.IsChecked() {
				t.Error("nothing checks that the data arrives")
			}
			return c, server
		},
		"with a closed window": func(t *testing.T) (*rawConn, *wsconn.Conn) {
			c, server, _ := blockedSender(t, wsconn.Options{DeadAfter: deadAfter, CloseTimeout: deadAfter})
			vanish(t, c)
			return c, server
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, server := makeWait(t)
			isDead := func(err error) bool { return err != nil && strings.Contains(err.Error(), "acknowledged nothing for") }
			if err := <-receiving(server); !isDead(err) {
				t.Errorf("receiving ends with %v", err)
			}
			if err := server.Send([]byte("probe")); !isDead(err) {
				t.Errorf("sending ends with %v", err)
			}
			if err := server.Prove(t.Context()); !isDead(err) {
				t.Errorf("proving ends with %v", err)
			}
		})
	}
}

// A peer that does not read never counts as dead.
func TestSlowPeer_IsNotDead(t *testing.T) {
	testrace.Slow(t)
	c, server, _ := blockedSender(t, wsconn.Options{DeadAfter: deadAfter, PingInterval: deadAfter / 10})
	end := receiving(server)
	select {
	case err := <-end:
		t.Fatalf("the connection ended: %v", err)
	case <-time.After(10 * deadAfter):
	}
	c.send(t, frame(final|ping, "alive"))
	for {
		first, payload, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if first == final|pong && payload == "alive" {
			break
		}
	}
}
