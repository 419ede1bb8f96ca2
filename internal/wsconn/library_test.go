package wsconn

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/coder/websocket"
)

// comparedBytes is the maximum size of a frame and of a message in
// TestReceive_ComparedWithLibrary.
const comparedBytes = 6000

// scriptedConn reads what a test has prepared and records what is written.
type scriptedConn struct {
	io.Reader

	mu      sync.Mutex
	written bytes.Buffer // guarded by mu
}

// Write implements net.Conn.
func (c *scriptedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.written.Write(b)
}

func (*scriptedConn) Close() error                     { return nil }
func (*scriptedConn) LocalAddr() net.Addr              { return nil }
func (*scriptedConn) RemoteAddr() net.Addr             { return nil }
func (*scriptedConn) SetDeadline(time.Time) error      { return nil }
func (*scriptedConn) SetReadDeadline(time.Time) error  { return nil }
func (*scriptedConn) SetWriteDeadline(time.Time) error { return nil }

// Hijack implements http.Hijacker, for the library as a server.
func (c *scriptedConn) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return c, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c)), nil
}

// RoundTrip implements http.RoundTripper, for the library as a client.
func (c *scriptedConn) RoundTrip(r *http.Request) (*http.Response, error) {
	accept := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: c, Request: r, Header: http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"},
		"Sec-Websocket-Accept": {base64.StdEncoding.EncodeToString(accept[:])},
	}}, nil
}

// endingReader returns the end of its data together with the last bytes, as TLS 1.2 does.
type endingReader struct{ rest []byte }

func (r *endingReader) Read(p []byte) (n int, err error) {
	n = copy(p, r.rest)
	if r.rest = r.rest[n:]; len(r.rest) == 0 {
		err = io.EOF
	}
	return n, err
}

// conversation is what an end of a websocket made of the bytes of its peer.
type conversation struct {
	messages []string // with their opcodes
	end      string   // how receiving ended
	sent     []string // the frames that it sent
}

func (c conversation) String() string {
	return fmt.Sprintf("received %.60q, ended with %q, sent %.60q", c.messages, c.end, c.sent)
}

// Ends of a conversation, other than by the peer's close frame.
const (
	endLost      = "lost"
	endViolation = "violation"
	endTooLarge  = "too large"
)

// ownConversation uses a Conn.
func ownConversation(t *testing.T, isClient bool, peer io.Reader) (got conversation) {
	conn := &scriptedConn{Reader: peer}
	options := Options{FrameBytes: comparedBytes, MessageBytes: comparedBytes}
	c := newConn(conn, conn, conn, isClient, false, "peer", options.withDefaults())
	var err error
	for err == nil {
		var message []byte
		if message, err = c.Receive(); err == nil {
			got.messages = append(got.messages, string(message))
		}
	}
	code := CodeInternalError // not sent: the answer to the peer takes precedence
	closed, isClosed := errors.AsType[*ClosedError](err)
	_, isTooLarge := errors.AsType[*TooLargeError](err)
	_, isViolation := errors.AsType[protocolError](err)
	switch {
	case err == io.EOF:
		got.end = "closed with 1000"
	case isClosed:
		got.end = fmt.Sprintf("closed with %d", closed.Code)
	case isTooLarge:
		got.end, code = endTooLarge, CodeTooLarge
	case isViolation:
		got.end = endViolation
	case errors.Is(err, io.ErrUnexpectedEOF):
		got.end = endLost
	default:
		t.Errorf("Receive fails with %v", err)
	}
	_ = c.Close(code, "")
	got.sent = sentFrames(t, isClient, conn)
	return got
}

// libraryConversation uses the library.
func libraryConversation(t *testing.T, isClient bool, peer io.Reader) (got conversation) {
	conn := &scriptedConn{Reader: peer}
	c, err := libraryConn(t, isClient, conn)
	if err != nil {
		t.Fatal(err)
	}
	c.SetReadLimit(comparedBytes)
	for err == nil {
		var message []byte
		if _, message, err = c.Read(context.Background()); err == nil {
			got.messages = append(got.messages, string(message))
		}
	}
	_ = c.CloseNow()
	switch code := websocket.CloseStatus(err); {
	case code >= 0:
		got.end = fmt.Sprintf("closed with %d", code)
	case errors.Is(err, websocket.ErrMessageTooBig):
		got.end = endTooLarge
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		got.end = endLost
	default:
		got.end = endViolation
	}
	got.sent = sentFrames(t, isClient, conn)
	return got
}

func libraryConn(t *testing.T, isClient bool, conn *scriptedConn) (*websocket.Conn, error) {
	if isClient {
		c, _, err := websocket.Dial(t.Context(), "ws://peer", &websocket.DialOptions{HTTPClient: &http.Client{Transport: conn}})
		return c, err
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket",
		"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
		r.Header.Set(name, value)
	}
	return websocket.Accept(struct {
		http.ResponseWriter
		http.Hijacker
	}{httptest.NewRecorder(), conn}, r, nil)
}

// sentFrames returns the frames that were written. Of a close frame that refuses a
// message it has only the code: the reason is free.
func sentFrames(t *testing.T, isClient bool, conn *scriptedConn) (frames []string) {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	peer := newFrameReader(&conn.written, isClient, Options{FrameBytes: comparedBytes, MessageBytes: comparedBytes}, func(opcode byte, payload []byte) {
		frames = append(frames, fmt.Sprintf("%x %s", opcode, payload))
	})
	_, err := peer.next()
	if closed, ok := errors.AsType[*ClosedError](err); ok {
		if closed.Code == codeProtocol || closed.Code == CodeTooLarge {
			closed.Reason = ""
		}
		frames = append(frames, fmt.Sprintf("8 %d %s", closed.Code, closed.Reason))
	} else if err != io.ErrUnexpectedEOF {
		t.Errorf("sent something that is no control frame: %v", err)
	}
	if rest, _ := io.ReadAll(peer.src); len(rest) > 0 {
		t.Errorf("sent %q after the close frame", rest)
	}
	return frames
}

// peerFrames makes frames of the peer: masked ones if it is the client.
type peerFrames struct{ masked bool }

func (p peerFrames) key() []byte {
	if p.masked {
		return []byte{1, 2, 3, 4}
	}
	return nil
}

func (p peerFrames) head(first byte, length int) []byte {
	return appendHeader(nil, first, length, p.key())
}

func (p peerFrames) whole(first byte, payload string) []byte {
	return p.payload(p.head(first, len(payload)), payload)
}

func (p peerFrames) payload(head []byte, payload string) []byte {
	b := append(head, payload...)
	if p.masked {
		mask(b[len(head):], p.key(), 0)
	}
	return b
}

// length16 and length64 announce the length in more bytes than necessary.
func (p peerFrames) length16(first byte, payload string) []byte {
	head := append([]byte{first, p.maskBit() | length16}, binary.BigEndian.AppendUint16(nil, uint16(len(payload)))...)
	return p.payload(append(head, p.key()...), payload)
}

func (p peerFrames) length64(first byte, length uint64, payload string) []byte {
	head := append([]byte{first, p.maskBit() | length64}, binary.BigEndian.AppendUint64(nil, length)...)
	return p.payload(append(head, p.key()...), payload)
}

func (p peerFrames) maskBit() byte {
	if p.masked {
		return bitMasked
	}
	return 0
}

func closePayload(code uint16, reason string) string {
	return string(binary.BigEndian.AppendUint16(nil, code)) + reason
}

// comparedCase is a sequence of frames and what RFC 6455 requires of their receiver.
type comparedCase struct {
	name   string
	frames [][]byte
	want   conversation
	// library is what the library makes of it where it deviates from the RFC, or from
	// our limits.
	library *conversation
}

func comparedCases(p peerFrames) []comparedCase {
	long := strings.Repeat("0123456789abcdef", 320) // is read past the read-ahead buffer
	bye := p.whole(bitFinal|opClose, closePayload(1000, "bye"))
	normal := func(messages ...string) conversation {
		return conversation{messages, "closed with 1000", []string{"8 1000 bye"}}
	}
	violation := conversation{end: endViolation, sent: []string{"8 1002 "}}
	silent := &conversation{end: endViolation} // the library sends no close frame
	tooLarge := conversation{end: endTooLarge, sent: []string{"8 1009 "}}
	lost := conversation{end: endLost}
	other := peerFrames{masked: !p.masked}
	wrongMask := comparedCase{name: "the mask of the other role", frames: [][]byte{other.whole(bitFinal|opText, "hi"), bye}, want: violation, library: silent}
	if !p.masked { // a client of the library ignores the mask
		wrongMask.library = &conversation{messages: []string{"ik"}, end: "closed with 1000", sent: []string{"8 1000 bye"}}
	}
	cases := []comparedCase{
		wrongMask,
		{name: "messages", frames: [][]byte{p.whole(bitFinal|opText, "a"), p.whole(bitFinal|opBinary, "\xff"), p.whole(bitFinal|opText, ""), bye}, want: normal("a", "\xff", "")},
		{name: "a long message", frames: [][]byte{p.whole(bitFinal|opText, long), bye}, want: normal(long)},
		{name: "fragments", frames: [][]byte{p.whole(opText, "a"), p.whole(opContinuation, ""), p.whole(opContinuation, long), p.whole(bitFinal|opContinuation, "c"), bye}, want: normal("a" + long + "c")},
		{name: "empty fragments", frames: [][]byte{p.whole(opBinary, ""), p.whole(opContinuation, ""), p.whole(bitFinal|opContinuation, ""), bye}, want: normal("")},
		{name: "control frames between fragments", frames: [][]byte{p.whole(opText, "a"), p.whole(bitFinal|opPing, "1"), p.whole(bitFinal|opPong, "2"), p.whole(bitFinal|opPing, ""), p.whole(bitFinal|opContinuation, "b"), bye},
			want: conversation{[]string{"ab"}, "closed with 1000", []string{"a 1", "a ", "8 1000 bye"}}},
		{name: "the longest ping", frames: [][]byte{p.whole(bitFinal|opPing, long[:125]), bye}, want: conversation{nil, "closed with 1000", []string{"a " + long[:125], "8 1000 bye"}}},
		{name: "a long ping", frames: [][]byte{p.whole(bitFinal|opPing, long[:126]), bye}, want: violation},
		{name: "a long close frame", frames: [][]byte{p.whole(bitFinal|opClose, closePayload(1000, long[:124]))}, want: violation},
		{name: "a fragmented ping", frames: [][]byte{p.whole(opPing, "1"), bye}, want: violation},
		{name: "a fragmented close frame", frames: [][]byte{p.whole(opClose, closePayload(1000, ""))}, want: violation},
		{name: "a continuation of nothing", frames: [][]byte{p.whole(bitFinal|opContinuation, "a"), bye}, want: violation},
		{name: "a continuation of a whole message", frames: [][]byte{p.whole(bitFinal|opText, "a"), p.whole(bitFinal|opContinuation, "b"), bye},
			want: conversation{[]string{"a"}, endViolation, []string{"8 1002 "}}},
		{name: "a message within another", frames: [][]byte{p.whole(opText, "a"), p.whole(bitFinal|opText, "b"), bye}, want: violation},
		{name: "a binary message within another", frames: [][]byte{p.whole(opText, "a"), p.whole(opBinary, "b"), bye}, want: violation},
		{name: "text that is not UTF-8", frames: [][]byte{p.whole(bitFinal|opText, "\xff\xc3"), bye}, want: normal("\xff\xc3")}, // the callers check
		{name: "a character in two fragments", frames: [][]byte{p.whole(opText, "\xc3"), p.whole(bitFinal|opContinuation, "\xa4"), bye}, want: normal("ä")},
		{name: "lengths in more bytes than necessary", frames: [][]byte{p.length16(bitFinal|opText, "a"), p.length64(bitFinal|opText, 1, "b"), p.length16(bitFinal|opPing, "c"), bye},
			want: conversation{[]string{"a", "b"}, "closed with 1000", []string{"a c", "8 1000 bye"}}},
		{name: "a length of 64 bits", frames: [][]byte{p.length64(bitFinal|opText, 1<<63|1, "a"), bye}, want: tooLarge, library: silent},
		{name: "a ping with a length of 64 bits", frames: [][]byte{p.length64(bitFinal|opPing, 1<<63|1, "a"), bye}, want: tooLarge, library: silent},
		{name: "the largest frame", frames: [][]byte{p.whole(bitFinal|opText, strings.Repeat("x", comparedBytes)), bye}, want: normal(strings.Repeat("x", comparedBytes))},
		{name: "a frame beyond the limit", frames: [][]byte{p.whole(bitFinal|opText, strings.Repeat("x", comparedBytes+1)), bye}, want: tooLarge},
		{name: "the header of a frame beyond the limit", frames: [][]byte{p.head(bitFinal|opText, comparedBytes+1)}, want: tooLarge, library: &conversation{[]string{""}, endLost, nil}},
		{name: "a message beyond the limit", frames: [][]byte{p.whole(opText, long), p.whole(bitFinal|opContinuation, long), bye}, want: tooLarge},
		{name: "a close frame without a code", frames: [][]byte{p.whole(bitFinal|opClose, "")}, want: conversation{nil, "closed with 1005", []string{"8 1005 "}}},
		{name: "a close frame with half a code", frames: [][]byte{p.whole(bitFinal|opClose, "\x03")}, want: violation},
		{name: "the longest reason", frames: [][]byte{p.whole(bitFinal|opClose, closePayload(1001, long[:123]))}, want: conversation{nil, "closed with 1001", []string{"8 1001 " + long[:123]}}},
		{name: "a reason that is not UTF-8", frames: [][]byte{p.whole(bitFinal|opClose, closePayload(1001, "\xff"))},
			want:    conversation{nil, "closed with 1001", []string{"8 1001 "}},
			library: &conversation{nil, "closed with 1001", []string{"8 1001 \xff"}}},
		{name: "a close frame between fragments", frames: [][]byte{p.whole(opText, "a"), bye}, want: normal()},
		{name: "frames after a close frame", frames: [][]byte{bye, p.whole(bitFinal|opText, "a"), p.whole(bitFinal|opPing, "1"), bye}, want: normal()},
		{name: "frames after a violation", frames: [][]byte{p.whole(bitFinal|0x3, "a"), p.whole(bitFinal|opPing, "1"), bye}, want: violation},
		{name: "the end before a close frame", frames: [][]byte{p.whole(bitFinal|opText, long)}, want: conversation{[]string{long}, endLost, nil}},
		{name: "the end between fragments", frames: [][]byte{p.whole(opText, "a")}, want: lost, library: &conversation{[]string{"a"}, endViolation, nil}},
	}
	for name, frame := range map[string][]byte{
		"a header":      p.whole(bitFinal|opText, long)[:3],
		"a frame":       p.whole(bitFinal|opText, long)[:2000],
		"a ping":        p.whole(bitFinal|opPing, "12345678")[:8],
		"a close frame": bye[:len(bye)-1],
	} {
		cases = append(cases, comparedCase{name: "the end within " + name, frames: [][]byte{frame}, want: lost})
	}
	for opcode := range byte(16) {
		if opcode > opBinary && opcode < opClose || opcode > opPong {
			cases = append(cases, comparedCase{name: fmt.Sprintf("the opcode %#x", opcode), frames: [][]byte{p.whole(bitFinal|opcode, "a"), bye}, want: violation})
		}
	}
	for _, bit := range []byte{0x40, 0x20, 0x10} {
		for _, opcode := range []byte{opText, opPing, opClose} {
			cases = append(cases, comparedCase{name: fmt.Sprintf("the reserved bit %#x with the opcode %#x", bit, opcode), frames: [][]byte{p.whole(bitFinal|bit|opcode, ""), bye}, want: violation})
		}
		cases = append(cases, comparedCase{name: fmt.Sprintf("the reserved bit %#x in a continuation", bit), frames: [][]byte{p.whole(opText, "a"), p.whole(bitFinal|bit|opContinuation, "b"), bye}, want: violation})
	}
	for _, code := range []uint16{0, 999, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 1015, 1016, 1100, 2000, 2999, 3000, 3999, 4000, 4999, 5000, 65535} {
		want := violation
		if code >= 1000 && code <= 1003 || code >= 1007 && code <= 1014 || code >= 3000 && code <= 4999 {
			want = conversation{end: fmt.Sprintf("closed with %d", code), sent: []string{fmt.Sprintf("8 %d ", code)}}
		}
		cases = append(cases, comparedCase{name: fmt.Sprintf("the code %d", code), frames: [][]byte{p.whole(bitFinal|opClose, closePayload(code, ""))}, want: want})
	}
	return cases
}

// TestReceive_ComparedWithLibrary gives the same frames to a Conn and to the library,
// in both roles, and compares what they receive and answer.
func TestReceive_ComparedWithLibrary(t *testing.T) {
	for _, isClient := range []bool{false, true} {
		for _, c := range comparedCases(peerFrames{masked: !isClient}) {
			t.Run(fmt.Sprintf("client=%v/%s", isClient, c.name), func(t *testing.T) {
				stream := bytes.Join(c.frames, nil)
				for reads, peer := range map[string]io.Reader{
					"whole":          bytes.NewReader(stream),
					"single bytes":   iotest.OneByteReader(bytes.NewReader(stream)),
					"halves":         iotest.HalfReader(bytes.NewReader(stream)),
					"with the error": &endingReader{stream},
				} {
					if got := ownConversation(t, isClient, peer); got.String() != c.want.String() {
						t.Errorf("%s: %v, want: %v", reads, got, c.want)
					}
				}
				want := c.want
				if c.library != nil {
					want = *c.library
				}
				if got := libraryConversation(t, isClient, bytes.NewReader(stream)); got.String() != want.String() {
					t.Errorf("the library: %v, want: %v", got, want)
				}
			})
		}
	}
}
