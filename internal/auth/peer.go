package auth

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Peer is the process at the other end of a unix socket or a loopback connection,
// as the kernel saw it when it connected. The zero value is root's.
type Peer struct {
	UID uint32 // effective user
	GID uint32 // effective group; 0 on loopback
	// PID is 0 on loopback, and if the process is not visible from here. The
	// process may have ended and its number been reused: use it for logs, not for
	// decisions.
	PID int32
	// Socket is the inode of its socket on loopback; otherwise 0.
	Socket uint32
	// Cgroup is the id of its cgroup v2 on loopback; 0 if the kernel does not
	// report it.
	Cgroup uint64
	// Unknown means that the kernel did not find the socket on loopback. All
	// other fields are zero.
	Unknown bool
}

// Principal returns the peer's user, as "uid:1000".
func (p Peer) Principal() Principal {
	return Principal{Name: fmt.Sprintf("uid:%d", p.UID)}
}

// UnixPeer asks the kernel which process connected conn; nothing is sent to the
// peer. The error is an *[Error] of kind [KindPeerUnknown].
func UnixPeer(conn *net.UnixConn) (Peer, error) {
	var cred *unix.Ucred
	err := control(conn, func(fd int) (err error) {
		cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	})
	if err != nil {
		return Peer{}, &Error{Kind: KindPeerUnknown, Subject: "peer of the unix socket", Err: err}
	}
	return Peer{UID: cred.Uid, GID: cred.Gid, PID: cred.Pid}, nil
}

// control calls do with the descriptor of a connection, unless it is closed.
func control(conn *net.UnixConn, do func(fd int) error) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = do(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// PeerEnded reports whether the process that connected conn has ended, so that
// its PID may have been reused. It is always false before Linux 6.5.
func PeerEnded(conn *net.UnixConn) bool {
	pidfd := -1
	err := control(conn, func(fd int) (err error) {
		pidfd, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		return err
	})
	if err != nil {
		return !errors.Is(err, unix.ENOPROTOOPT)
	}
	defer func() { _ = unix.Close(pidfd) }()
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err != nil || n > 0
}
