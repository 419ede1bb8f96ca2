//go:build linux

package sockdiag

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Socket is an open TCP socket of a process of this host.
type Socket struct {
	// UID is the user that created the socket, in the user namespace of the caller: a user that is
	// not mapped there has the overflow UID.
	UID uint32
	// Inode identifies the socket in /proc/PID/fd. It is never 0.
	Inode uint32
	// Cgroup is the ID of the control group (version 2) in which the socket was created, which is
	// the inode of its directory; 0 if the kernel does not report it.
	Cgroup uint64
}

var (
	// ErrNoOwner means that no process has the socket of the peer open: it is in another network
	// namespace, or was closed.
	ErrNoOwner = errors.New("no process of this host has its socket open")
	// ErrDisconnected means that the connection ended during the search for its peer.
	ErrDisconnected = errors.New("the connection has ended")
)

// Peer returns the socket at the other end of conn, which has to be connected within this host. It
// asks the kernel and does not wait for the peer. It may be called concurrently. The error wraps
// [ErrNoOwner] or [ErrDisconnected], or is a system error; the owner is then unknown.
func Peer(conn *net.TCPConn) (Socket, error) {
	local, remote := addrPort(conn.LocalAddr()), addrPort(conn.RemoteAddr())
	if !local.IsValid() || !remote.IsValid() {
		return Socket{}, fmt.Errorf("failed to find the peer of a connection from %v to %v: not TCP addresses", conn.RemoteAddr(), conn.LocalAddr())
	}
	socket, err := find(tuple{local: remote, remote: local})
	if err == nil {
		err = checkConnected(conn)
	}
	if err != nil {
		return Socket{}, fmt.Errorf("failed to find the owner of %v: %w", remote, err)
	}
	return socket, nil
}

// tuple is the addresses of a connected socket, from its own side.
type tuple struct{ local, remote netip.AddrPort }

// record is a socket as the kernel reports it.
type record struct {
	tuple
	state  byte
	v6Only bool
	Socket
}

// diagWorks is whether sock_diag has ever found a socket. Before that ENOENT may mean that the
// kernel has no sock_diag for TCP.
var diagWorks atomic.Bool

// find returns the socket of t.
func find(t tuple) (Socket, error) {
	found, err := queryDiag(t)
	switch {
	case err == nil:
		diagWorks.Store(true)
	case errors.Is(err, unix.ENOENT) && diagWorks.Load():
		return Socket{}, ErrNoOwner
	default:
		var procErr error
		if found, procErr = readProc("/proc/net", t); procErr != nil {
			return Socket{}, errors.Join(procErr, err)
		}
	}
	return found.socketOf(t)
}

// socketOf returns the socket of a record if it belongs to t and a process has it open. A socket in
// TIME_WAIT, one without a process and a request that is not accepted have UID 0 and inode 0.
func (r record) socketOf(t tuple) (Socket, error) {
	if r.tuple != t || r.Inode == 0 {
		return Socket{}, ErrNoOwner
	}
	switch r.state {
	case unix.BPF_TCP_ESTABLISHED, unix.BPF_TCP_FIN_WAIT1, unix.BPF_TCP_FIN_WAIT2, unix.BPF_TCP_CLOSE_WAIT:
		return r.Socket, nil
	}
	return Socket{}, ErrNoOwner
}

// checkConnected returns an error unless this end of conn is connected. While it is, no other
// socket can have the address and port of the peer; after a reset one could.
func checkConnected(conn *net.TCPConn) error {
	state, err := State(conn)
	if err == nil && state != unix.BPF_TCP_ESTABLISHED && state != unix.BPF_TCP_CLOSE_WAIT {
		err = ErrDisconnected
	}
	return err
}

// State returns the state of this end of conn, as [unix.BPF_TCP_ESTABLISHED]. It does not block, and
// may be called concurrently. It fails if conn is closed.
func State(conn *net.TCPConn) (state uint8, err error) {
	info, err := Info(conn)
	if err != nil {
		return 0, err
	}
	return info.State, nil
}

// Info returns TCP_INFO of conn. It does not block, and may be called concurrently. It fails if conn
// is closed, or is no TCP connection.
func Info(conn syscall.Conn) (info *unix.TCPInfo, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var infoErr error
	err = raw.Control(func(fd uintptr) {
		info, infoErr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	return info, errors.Join(err, infoErr)
}

// addrPort returns a TCP address, unmapped if it is an IPv4 address in IPv6, or the invalid address
// for other types.
func addrPort(addr net.Addr) netip.AddrPort {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return unmapped(tcp.AddrPort())
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
