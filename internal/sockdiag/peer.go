package sockdiag

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Socket is a TCP socket of this host that a process has open.
type Socket struct {
	// UID is the user who made the socket, as the user namespace of the caller
	// names it: a user that is not mapped there has the overflow uid.
	UID uint32
	// Inode identifies the socket in /proc/PID/fd. It is never 0.
	Inode uint32
	// Cgroup is the id of the control group of version 2 in which the socket was
	// made, which is the inode of its directory; 0 if the kernel does not report
	// it.
	Cgroup uint64
}

var (
	// ErrNoOwner means that no process has the peer's socket open: it is in
	// another network namespace, or was closed.
	ErrNoOwner = errors.New("no process of this host has its socket open")
	// ErrLost means that the connection ended while its peer was looked for.
	ErrLost = errors.New("the connection has ended")
)

// Peer returns the socket at the other end of conn, which has to be connected
// within this host. It asks the kernel and does not wait for the peer. It may be
// called concurrently. The error wraps [ErrNoOwner] or [ErrLost], or is the
// system's; then the owner is unknown, and nothing may be concluded from that.
func Peer(conn *net.TCPConn) (Socket, error) {
	local, remote := addrPort(conn.LocalAddr()), addrPort(conn.RemoteAddr())
	if !local.IsValid() || !remote.IsValid() {
		return Socket{}, fmt.Errorf("failed to find the peer of a connection from %v to %v: not TCP addresses", conn.RemoteAddr(), conn.LocalAddr())
	}
	socket, err := find(tuple{local: remote, remote: local})
	if err == nil {
		err = connected(conn)
	}
	if err != nil {
		return Socket{}, fmt.Errorf("failed to find the owner of %v: %w", remote, err)
	}
	return socket, nil
}

// tuple names a connected socket from its own side.
type tuple struct{ local, remote netip.AddrPort }

// record is what the kernel reports of a socket.
type record struct {
	tuple
	state byte
	Socket
}

// diagWorks is whether sock_diag has found a socket: before that ENOENT may mean
// that the kernel has no sock_diag for TCP.
var diagWorks atomic.Bool

// find returns the socket that t names.
func find(t tuple) (Socket, error) {
	found, err := diag(t)
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
	return found.open(t)
}

// open returns the socket of a record that is of t, if a process has it open. A
// socket in TIME_WAIT, one without a process and a request that is not accepted
// are reported with uid 0 and inode 0.
func (r record) open(t tuple) (Socket, error) {
	if r.tuple != t || r.Inode == 0 {
		return Socket{}, ErrNoOwner
	}
	switch r.state {
	case unix.BPF_TCP_ESTABLISHED, unix.BPF_TCP_FIN_WAIT1, unix.BPF_TCP_FIN_WAIT2, unix.BPF_TCP_CLOSE_WAIT:
		return r.Socket, nil
	}
	return Socket{}, ErrNoOwner
}

// connected returns an error unless this end of conn is connected. While it is,
// no other socket can have the address and port of the peer; after a reset it
// could.
func connected(conn *net.TCPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var info *unix.TCPInfo
	var infoErr error
	err = raw.Control(func(fd uintptr) {
		info, infoErr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	switch {
	case err != nil:
		return err
	case infoErr != nil:
		return infoErr
	case info.State != unix.BPF_TCP_ESTABLISHED && info.State != unix.BPF_TCP_CLOSE_WAIT:
		return ErrLost
	}
	return nil
}

// addrPort returns a TCP address, that of IPv4 where it is mapped into IPv6; the
// invalid one of others.
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
