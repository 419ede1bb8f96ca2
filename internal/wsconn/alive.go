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

// deadQuestions is how many retransmissions or probes in a row have to be without
// an answer, too: the kernel waits longer each time, and then nothing is to be
// heard in between.
const deadQuestions = 3

// lookSlack is how exact the kernel's times are taken to be.
const lookSlack = 50 * time.Millisecond

// lookForDeath returns what ends the connection as lost when the peer's kernel
// has acknowledged nothing for DeadAfter although it was asked to. A peer that
// only does not read acknowledges the probes of its closed window, which is why
// TCP_USER_TIMEOUT is of no use: for it they count for nothing.
func (c *Conn) lookForDeath() func() {
	var before time.Time // when it was looked last
	var answered uint8   // retransmissions when something was heard last
	return func() {
		info, ok := tcpInfo(c.raw)
		if !ok {
			return
		}
		now := time.Now()
		silent := time.Duration(info.Last_ack_recv) * time.Millisecond
		heard := silent <= now.Sub(before)+lookSlack
		before = now
		if heard {
			answered = info.Retransmits
			return
		}
		questions := int(info.Retransmits) - int(answered) + int(info.Probes)
		if questions >= deadQuestions && silent >= c.options.DeadAfter {
			c.lose(&DeadPeerError{Silent: silent})
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
