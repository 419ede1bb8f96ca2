package wsconn

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// looksPerDeath is how often, in the time that a peer may be silent, it is looked
// whether it is.
const looksPerDeath = 4

// keepAlive returns what pings the peer, if it has answered the ping before.
func (c *Conn) keepAlive() func() {
	answered := make(<-chan struct{})
	first := true
	return func() {
		if !first {
			select {
			case <-answered:
			default:
				return
			}
		}
		if _, next, err := c.prover.send(c.wire.out); err == nil {
			answered, first = next, false
		}
	}
}

// lookForDeath returns what ends the connection as lost when the peer's kernel
// has acknowledged nothing for DeadAfter although it was asked to. A peer that
// only does not read acknowledges the probes of its closed window, which is why
// TCP_USER_TIMEOUT is of no use: it counts them for nothing.
func (c *Conn) lookForDeath() func() {
	var asked time.Time // since when nothing was acknowledged; zero: nothing is waited for
	return func() {
		info, ok := tcpInfo(c.raw)
		if !ok {
			return
		}
		now := time.Now()
		acknowledged := now.Add(-time.Duration(info.Last_ack_recv) * time.Millisecond)
		switch {
		case info.Retransmits == 0 && info.Probes == 0:
			asked = time.Time{}
		case asked.IsZero() || acknowledged.After(asked):
			asked = now
		case now.Sub(asked) >= c.options.DeadAfter:
			c.lose(&DeadPeerError{Silent: now.Sub(acknowledged).Round(time.Millisecond)})
		}
	}
}

// tcpInfo returns what the kernel knows of a connection, if that is TCP.
func tcpInfo(conn any) (*unix.TCPInfo, bool) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil, false
	}
	descriptor, err := socket.SyscallConn()
	if err != nil {
		return nil, false
	}
	var info *unix.TCPInfo
	var infoErr error
	err = descriptor.Control(func(fd uintptr) {
		info, infoErr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	return info, err == nil && infoErr == nil
}
