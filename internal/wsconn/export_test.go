package wsconn

import "net"

// MaxPings is the limit of unanswered pings.
const MaxPings = maxPings

// Buffered is the maximum of outgoing data that a connection buffers.
const Buffered = 2 * bufferBytes

// FragmentBytes is the frame size of a message of Begin that is written in small
// parts.
const FragmentBytes = fragmentBytes

// Innermost returns the innermost connection of c.
func Innermost(c *Conn) net.Conn { return c.raw }

// WindowClosed reports whether the peer's receive window is closed and unsent
// data is left.
func WindowClosed(c *Conn) bool {
	info, ok := tcpInfo(c.raw)
	return ok && info.Unacked == 0 && info.Notsent_bytes > 0
}

// IsChecked reports whether the peer of a connection is being checked.
func (c *Conn) IsChecked() bool { return c.tickers[1].armed.Load() }
