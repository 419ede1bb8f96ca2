package wsconn

import (
	"encoding/binary"
	"net"
	"sync"
	"time"
	"unicode/utf8"
)

// Close closes the connection: it sends what is still buffered and a close frame
// with code and the first 123 bytes of reason, and waits for the peer to close
// its side, for at most Options.CloseTimeout each. Code 0 sends no close frame; a
// code that must not be sent becomes 1011. Data that the peer still sends is
// discarded, so that it can read what it was sent. Close returns when no
// goroutine of the connection is left. The error says why not everything could be
// sent. Further calls return the same.
func (c *Conn) Close(code int, reason string) error {
	c.closeOnce.Do(func() { c.closeErr = c.close(code, reason) })
	return c.closeErr
}

func (c *Conn) close(code int, reason string) error {
	c.end(net.ErrClosed)
	for _, b := range c.tickers {
		b.stop()
	}
	// Writing ends first: TLS may write while reading, for a key update.
	_ = c.conn.SetWriteDeadline(time.Now().Add(c.options.CloseTimeout))
	_ = c.conn.SetReadDeadline(pastTime)
	c.in.stop()
	frame := c.closeFrame(code, reason) // before drain, which locks the reader
	_ = c.conn.SetReadDeadline(time.Now().Add(2 * c.options.CloseTimeout))
	var wg sync.WaitGroup
	wg.Go(c.in.drain)
	c.out.sendClose(frame)
	err := c.out.wait()
	if err == nil {
		c.endWriting()
		_ = c.conn.SetReadDeadline(time.Now().Add(c.options.CloseTimeout))
	} else {
		_ = c.conn.SetReadDeadline(pastTime)
	}
	wg.Wait()
	c.share.End()
	_ = c.conn.Close()
	if err != nil {
		return c.wrapError("send what was left when closing", err)
	}
	return nil
}

// endWriting shuts down the sending side.
func (c *Conn) endWriting() {
	type halfCloser interface{ CloseWrite() error }
	if outer, ok := c.conn.(halfCloser); ok {
		_ = outer.CloseWrite()
	}
	if inner, ok := c.raw.(halfCloser); ok && c.raw != c.conn {
		_ = inner.CloseWrite()
	}
}

// closeFrame returns the close frame to send: the answer to the peer, if there is
// one, otherwise with code and reason; nil for code 0.
func (c *Conn) closeFrame(code int, reason string) []byte {
	if reply := c.in.reply(); reply != nil {
		return c.out.control(opClose, reply)
	}
	if code == 0 {
		return nil
	}
	if !sendable(code) {
		code = CodeInternalError
	}
	if len(reason) > maxReason {
		cut := maxReason
		for cut > 0 && !utf8.RuneStart(reason[cut]) {
			cut--
		}
		reason = reason[:cut]
	}
	return c.out.control(opClose, append(binary.BigEndian.AppendUint16(nil, uint16(code)), reason...))
}
