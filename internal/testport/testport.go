//go:build linux

// Package testport reserves TCP ports for tests that listen on a port whose number they must know
// before, or that listen on it again.
package testport

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Reserve returns a TCP port on which nothing listens. Until the test ends, the kernel gives it to no
// other socket by itself. Connections to it are refused, until the test, or a program that it starts,
// listens on it by number, with SO_REUSEADDR, as Go, Python and Node.js do.
//
// A listener that is closed to free its port does not do: the kernel may give the port to another test.
func Reserve(t testing.TB) uint16 {
	t.Helper()
	// For all addresses of both versions of IP.
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	for _, option := range []struct{ level, name, value int }{
		{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1},
		{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0},
	} {
		if err := unix.SetsockoptInt(fd, option.level, option.name, option.value); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrInet6{}); err != nil {
		t.Fatal(err)
	}
	address, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(address.(*unix.SockaddrInet6).Port)
}
