package wsconn

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// deadChecks is how many checks for a dead peer there are per DeadAfter.
const deadChecks = 4

// watch starts the checks of a connection.
func (c *Conn) watch() *Conn {
	c.tickers = []*ticker{startTicker(c.options.PingInterval, c.pinger()), startTicker(c.options.DeadAfter/deadChecks, c.deadPeerCheck())}
	return c
}

// Prove blocks until the peer has read everything that was sent before, as shown
// by its pong. Another goroutine must be receiving meanwhile. It may be called
// concurrently with all other methods. It returns the cause of ctx if that ends,
// or the error that ended the connection.
func (c *Conn) Prove(ctx context.Context) error {
	p := c.pings
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.ended.Done():
		return c.endedError("prove")
	}
	number, answered, err := p.send(c.out)
	if err != nil {
		return c.wrapError("ping", err)
	}
	defer p.remove(number)
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.ended.Done():
		return c.endedError("prove")
	}
}

// pinger returns a function that sends a ping if the previous one was answered.
func (c *Conn) pinger() func() {
	retransmits := make(<-chan struct{})
	first := true
	return func() {
		if !first {
			select {
			case <-retransmits:
			default:
				return
			}
		}
		if _, next, err := c.pings.send(c.out); err == nil {
			retransmits, first = next, false
		}
	}
}

// minUnanswered is how many consecutive retransmissions or probes must be
// unanswered as well: their intervals grow, and nothing is received in between.
const minUnanswered = 3

// timeSlack is the tolerance for the kernel's times.
const timeSlack = 50 * time.Millisecond

// deadPeerCheck returns a function that ends the connection when the peer's
// kernel has acknowledged nothing for DeadAfter despite retransmissions or
// probes. TCP_USER_TIMEOUT is no alternative: it also ends connections to peers
// that do not read but acknowledge the probes of their closed window.
func (c *Conn) deadPeerCheck() func() {
	var lastCheck time.Time // when it was checked last
	var retransmits uint8   // retransmissions when an acknowledgement was last received
	return func() {
		info, ok := tcpInfo(c.raw)
		if !ok {
			return
		}
		now := time.Now()
		silent := time.Duration(info.Last_ack_recv) * time.Millisecond
		acknowledged := silent <= now.Sub(lastCheck)+timeSlack
		lastCheck = now
		if acknowledged {
			retransmits = info.Retransmits
			return
		}
		unanswered := int(info.Retransmits) - int(retransmits) + int(info.Probes)
		if unanswered >= minUnanswered && silent >= c.options.DeadAfter {
			c.fail(fmt.Errorf("the peer has acknowledged nothing for %v", silent))
		}
	}
}

// tcpInfo returns TCP_INFO of a TCP connection.
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
