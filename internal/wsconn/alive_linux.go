package wsconn

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/sockdiag"
)

// minUnanswered is how many consecutive retransmissions or probes must be
// unanswered as well: their intervals grow, and nothing is received in between.
const minUnanswered = 3

// timeSlack is the tolerance for the kernel's times.
const timeSlack = 50 * time.Millisecond

// deadPeerCheck returns a function that ends the connection when the peer's
// kernel has acknowledged nothing for DeadAfter despite retransmissions or
// probes. It returns false when everything is acknowledged: checking 200 idle
// connections every ten seconds took 11 ms of CPU.
//
// TCP_USER_TIMEOUT is no alternative: it also ends connections to peers
// that do not read but acknowledge the probes of their closed window.
func (c *Conn) deadPeerCheck() func() (again bool) {
	var lastCheck time.Time // when it was checked last; zero: everything was acknowledged then
	var retransmits uint8   // retransmissions when an acknowledgement was last received
	return func() bool {
		idle := c.out.isIdle() // first: what is written from now on resumes the checks
		info, ok := tcpInfo(c.raw)
		if !ok {
			return false
		}
		if idle && info.Unacked == 0 && info.Notsent_bytes == 0 {
			lastCheck, retransmits = time.Time{}, 0
			return false
		}
		now := time.Now()
		since := c.options.DeadAfter / deadChecks
		if !lastCheck.IsZero() {
			since = now.Sub(lastCheck)
		}
		lastCheck = now
		silent := time.Duration(info.Last_ack_recv) * time.Millisecond
		if silent <= since+timeSlack {
			retransmits = info.Retransmits
			return true
		}
		unanswered := int(info.Retransmits) - int(retransmits) + int(info.Probes)
		if unanswered >= minUnanswered && silent >= c.options.DeadAfter {
			c.fail(fmt.Errorf("the peer has acknowledged nothing for %v", silent))
		}
		return true
	}
}

// tcpInfo returns TCP_INFO of a TCP connection.
func tcpInfo(conn any) (*unix.TCPInfo, bool) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil, false
	}
	info, err := sockdiag.Info(socket)
	return info, err == nil
}
