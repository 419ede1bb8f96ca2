package wsconn

import (
	"encoding/binary"
	"net"
	"sync"
	"time"
	"unicode/utf8"
)

// Close codes of RFC 6455, section 7.4.1, that callers of [Conn.Close] need.
const (
	CodeNormal        = 1000
	CodeGoingAway     = 1001
	codeProtocol      = 1002
	CodePolicy        = 1008
	CodeTooLarge      = 1009
	CodeInternalError = 1011
)

// maxReason is how much of a reason fits beside the code.
const maxReason = maxControlPayload - 2

// Close ends the connection: it sends what was sent before and a close frame
// with code and reason, of which the first 123 bytes count, and waits for the
// peer to end its side, for at most Options.CloseTimeout each. Code 0 sends no
// close frame; one that may not be sent becomes 1011. What the peer still sends
// is thrown away, so that it gets to read what it was sent. Close returns when no
// goroutine of the connection is left, with the error that kept it from sending
// everything. Calls after the first return what that does.
func (c *Conn) Close(code int, reason string) error {
	c.closing.Do(func() { c.closed = c.close(closeFrame(c.wire.out, code, reason)) })
	return c.closed
}

func (c *Conn) close(frame []byte) error {
	c.end(net.ErrClosed)
	for _, b := range c.beats {
		b.stop()
	}
	// Writing first: TLS writes while it reads, when the peer asks for new keys.
	_ = c.wire.SetWriteDeadline(time.Now().Add(c.options.CloseTimeout))
	c.wire.endReading()
	_ = c.wire.SetReadDeadline(time.Now().Add(2 * c.options.CloseTimeout))
	var draining sync.WaitGroup
	draining.Go(c.wire.drain)
	c.wire.out.part(frame)
	err := c.wire.out.wait()
	if err == nil {
		c.endWriting()
		_ = c.wire.SetReadDeadline(time.Now().Add(c.options.CloseTimeout))
	} else {
		_ = c.wire.SetReadDeadline(past)
	}
	draining.Wait()
	c.share.End()
	_ = c.ws.CloseNow() // closes nothing: the wire is ours
	_ = c.wire.Conn.Close()
	if err != nil {
		return c.failed("send what was left when closing", err)
	}
	return nil
}

// endWriting tells the peer that nothing more comes.
func (c *Conn) endWriting() {
	type halfCloser interface{ CloseWrite() error }
	if outer, ok := c.wire.Conn.(halfCloser); ok {
		_ = outer.CloseWrite()
	}
	if inner, ok := c.raw.(halfCloser); ok && c.raw != c.wire.Conn {
		_ = inner.CloseWrite()
	}
}

// closeFrame returns the close frame that tells code and reason, nil for code 0.
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

// sendable reports whether RFC 6455 and its registry allow a close frame with
// code.
func sendable(code int) bool {
	switch code {
	case 1004, 1005, 1006:
		return false
	}
	return code >= 1000 && code <= 1014 || code >= 3000 && code <= 4999
}
