package wsconn

import "net"

// MaxPings is how many pings may be unanswered.
const MaxPings = maxPings

// Buffered is the most that one connection holds of what it sends.
const Buffered = 2 * bufferBytes

// FragmentBytes is the most that one frame of a message of Begin carries that is
// written in small parts.
const FragmentBytes = fragmentBytes

// Innermost is the connection that c looks at.
func Innermost(c *Conn) net.Conn { return c.raw }

// WindowClosed reports whether the peer's kernel takes nothing more, and there
// is something left to be sent.
func WindowClosed(c *Conn) bool {
	info, ok := tcpInfo(c.raw)
	return ok && info.Unacked == 0 && info.Notsent_bytes > 0
}
