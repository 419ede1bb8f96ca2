//go:build !linux

package tcpconn

// lockFailure locks writing, unless a Write is in progress: whether the connection is open
// cannot be asked, and a Write may wait for as long as it is.
func (c *Conn) lockFailure() bool { return c.writing.TryLock() }
