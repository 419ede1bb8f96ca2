package wsconn

import (
	"encoding/binary"
	"net"
	"sync"
	"time"
	"unicode/utf8"
)

// Close codes of RFC 6455, section 7.4.1.
const (
	CodeNormal        = 1000
	CodeGoingAway     = 1001
	codeProtocol      = 1002
	CodePolicy        = 1008
	CodeTooLarge      = 1009
	CodeInternalError = 1011
)

// maxReason is the maximum length of a reason in bytes.
const maxReason = maxControlPayload - 2

// Close closes the connection: it sends what is still buffered and a close frame
// with code and the first 123 bytes of reason, and waits for the peer to close
// its side, for at most Options.CloseTimeout each. Code 0 sends no close frame; a
// code that must not be sent becomes 1011. Data that the peer still sends is
// discarded, so that it can read what it was sent. Close returns when no
// goroutine of the connection is left. The error says why not everything could be
// sent. Further calls return the same.
func (c *Conn) Close(code int, reason string) error {
	c.closeOnce.Do(func() { c.closeErr = c.close(closeFrame(c.wire.outbox, code, reason)) })
	return c.closeErr
}

func (c *Conn) close(frame []byte) error {
	c.end(net.ErrClosed)
	for _, b := range c.tickers {
		b.stop()
	}
	// Writing ends first: TLS may write while reading, for a key update.
	_ = c.wire.SetWriteDeadline(time.Now().Add(c.options.CloseTimeout))
	c.wire.stopReading()
	_ = c.wire.SetReadDeadline(time.Now().Add(2 * c.options.CloseTimeout))
	var wg sync.WaitGroup
	wg.Go(c.wire.drain)
	c.wire.outbox.sendClose(frame)
	err := c.wire.outbox.wait()
	if err == nil {
		c.endWriting()
		_ = c.wire.SetReadDeadline(time.Now().Add(c.options.CloseTimeout))
	} else {
		_ = c.wire.SetReadDeadline(pastTime)
	}
	wg.Wait()
	c.share.End()
	_ = c.ws.CloseNow() // closes nothing, since the wire ignores it
	_ = c.wire.Conn.Close()
	if err != nil {
		return c.wrapError("send what was left when closing", err)
	}
	return nil
}

// endWriting shuts down the sending side.
func (c *Conn) endWriting() {
	type halfCloser interface{ CloseWrite() error }
	if outer, ok := c.wire.Conn.(halfCloser); ok {
		_ = outer.CloseWrite()
	}
	if inner, ok := c.raw.(halfCloser); ok && c.raw != c.wire.Conn {
		_ = inner.CloseWrite()
	}
}

// closeFrame returns a close frame with code and reason; nil for code 0.
func closeFrame(out *outbox, code int, reason string) []byte {
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
	return out.control(opClose, append(binary.BigEndian.AppendUint16(nil, uint16(code)), reason...))
}

// sendable reports whether RFC 6455 and its registry allow code in a close frame.
func sendable(code int) bool {
	switch code {
	case 1004, 1005, 1006:
		return false
	}
	return code >= 1000 && code <= 1014 || code >= 3000 && code <= 4999
}
