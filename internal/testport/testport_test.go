//go:build linux

package testport

import (
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The test listens on a reserved port again and again, and nobody else can get it.
func TestReserve(t *testing.T) {
	port := Reserve(t)
	for _, host := range []string{"127.0.0.1", "::1", "0.0.0.0", "::", ""} {
		at := net.JoinHostPort(host, strconv.Itoa(int(port)))
		if c, err := net.Dial("tcp", at); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v, %v, want it to be refused", at, c, err)
		}
		for range 2 {
			l, err := net.Listen("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Where a socket may have only this port, it gets none.
	only := &net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_LOCAL_PORT_RANGE, int(port)<<16|int(port))
		}), err)
	}}
	if l, err := only.Listen(t.Context(), "tcp", "127.0.0.1:0"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("another listener: %v, %v", l, err)
	}
	peer, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = peer.Close() }()
	client := &net.Dialer{Control: only.Control}
	if c, err := client.Dial("tcp", peer.Addr().String()); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("another client: %v, %v", c, err)
	}
}
