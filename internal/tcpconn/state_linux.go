package tcpconn

import (
	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/sockdiag"
)

// lockFailure locks writing, unless the connection is known to be open.
func (c *Conn) lockFailure() bool {
	state, err := sockdiag.State(c.tcp)
	if err == nil && state != unix.BPF_TCP_CLOSE {
		return false
	}
	c.writing.Lock() // no Write waits on a connection that is closed
	return true
}
