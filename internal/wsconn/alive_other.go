//go:build !linux

package wsconn

// deadPeerCheck returns a function that does nothing: without the TCP_INFO of Linux, a dead
// peer cannot be told from a slow one while data is in flight. Keepalive still finds it while
// none is, and the system when it gives up retransmitting.
func (c *Conn) deadPeerCheck() func() (again bool) { return func() bool { return false } }
