package harness

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Leave closes the connection as recorded and waits for its end.
func (c *RPCClient) Leave(e TranscriptEvent) {
	c.Helper()
	var payload string
	if err := json.Unmarshal(e.Value, &payload); err != nil {
		c.Fatal(err)
	}
	raw, err := hex.DecodeString(payload)
	if err != nil {
		c.Fatal(err)
	}
	// What the reference did not answer, nobody waited for; it is answered by now
	// when this is.
	if c.End() == nil && c.Conn.Send([]byte(`{"id":"last","method":"no/such"}`)) == nil {
		c.settle("the last request is answered", func(frames []RPCFrame) bool { return CountReplies(frames, `"last"`) == 1 })
	}
	if c.End() == nil && c.Websocket().Frame(OpClose, true, raw) == nil {
		c.AwaitEnd()
	}
	c.Drop()
}

// frameKinds names the opcodes of what a server may send whole.
var frameKinds = map[byte]string{OpText: "text", OpBinary: "binary", OpClose: "close", OpPing: "ping", OpPong: "pong"}

// WebsocketConn is a websocket client that exposes frames, so that tests can send
// frames that no library would.
type WebsocketConn struct {
	Conn net.Conn
	in   *bufio.Reader

	// silent: pings and closes are not answered.
	Silent bool
	// parting: a close frame was sent.
	parting atomic.Bool

	mu sync.Mutex // keeps frames whole that are sent
}

// UpgradeHeaders returns the headers of an ordinary upgrade.
func UpgradeHeaders() http.Header {
	return http.Header{
		"Upgrade": {"websocket"}, "Connection": {"Upgrade"},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {base64.StdEncoding.EncodeToString(make([]byte, 16))},
	}
}

// RoundTrip sends one HTTP request on a connection of its own. The caller owns
// both results.
func RoundTrip(address, method, path string, header http.Header) (net.Conn, *bufio.Reader, *http.Response, error) {
	return roundTrip(address, method, path, header, 64<<10)
}

func roundTrip(address, method, path string, header http.Header, bufferBytes int) (net.Conn, *bufio.Reader, *http.Response, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, nil, nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", method, path)
	if header.Get("Host") == "" {
		fmt.Fprintf(&b, "Host: %s\r\n", address)
	}
	_ = header.Write(&b)
	b.WriteString("\r\n")
	_ = conn.SetDeadline(time.Now().Add(StepTimeout))
	if _, err := io.WriteString(conn, b.String()); err != nil {
		_ = conn.Close()
		return nil, nil, nil, err
	}
	in := bufio.NewReaderSize(conn, bufferBytes)
	response, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		_ = conn.Close()
		return nil, nil, nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, in, response, nil
}

// Upgrade opens a websocket; header adds to that of the request.
func Upgrade(address string, header http.Header) (*WebsocketConn, error) {
	return UpgradeAt(address, "/", header)
}

// UpgradeAt is Upgrade with a path.
func UpgradeAt(address, path string, header http.Header) (*WebsocketConn, error) {
	all := UpgradeHeaders()
	maps.Copy(all, header)
	conn, in, response, err := RoundTrip(address, "GET", path, all)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		defer conn.Close()
		body, _ := io.ReadAll(response.Body)
		return nil, fmt.Errorf("the upgrade was answered %s %q", response.Status, body)
	}
	return &WebsocketConn{Conn: conn, in: in}, nil
}

// Send sends a message as one text frame.
func (l *WebsocketConn) Send(message []byte) error { return l.Frame(OpText, true, message) }

// Frame sends one frame. Its mask is zero, which leaves the payload unchanged.
func (l *WebsocketConn) Frame(opcode byte, final bool, payload []byte) error {
	if opcode == OpClose {
		l.parting.Store(true)
	}
	if final {
		opcode |= 0x80
	}
	header := append([]byte{opcode}, FrameLength(0x80, len(payload))...)
	return l.Raw(append(header, 0, 0, 0, 0), payload)
}

// Raw sends bytes without a frame.
func (l *WebsocketConn) Raw(parts ...[]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.Conn.SetWriteDeadline(time.Now().Add(StepTimeout))
	buffers := net.Buffers(parts)
	_, err := buffers.WriteTo(l.Conn)
	return err
}

// Receive implements rpcConn. Fragments are put together.
func (l *WebsocketConn) Receive() (RPCFrame, error) {
	var message RPCFrame
	for {
		opcode, final, payload, err := l.receiveFrame()
		if err != nil {
			return RPCFrame{}, err
		}
		kind := frameKinds[opcode]
		switch {
		case opcode >= OpClose:
			l.answer(opcode, payload)
			return RPCFrame{Kind: kind, Data: payload}, nil
		case opcode != OpContinue:
			message = RPCFrame{Kind: kind, Data: payload}
		default:
			message.Data = append(message.Data, payload...)
		}
		if final {
			return message, nil
		}
	}
}

// answer answers control frames, unless the connection is silent; a close only if it
// is not itself an answer.
func (l *WebsocketConn) answer(opcode byte, payload []byte) {
	switch {
	case l.Silent:
	case opcode == OpPing:
		_ = l.Frame(OpPong, true, payload)
	case opcode == OpClose && !l.parting.Load():
		_ = l.Frame(OpClose, true, payload)
	}
}

// receiveFrame returns the next frame.
func (l *WebsocketConn) receiveFrame() (opcode byte, final bool, payload []byte, err error) {
	final, opcode, size, err := readFrameHeader(l.in)
	if err != nil {
		return 0, false, nil, err
	}
	payload = make([]byte, size)
	_, err = io.ReadFull(l.in, payload)
	return opcode, final, payload, err
}

// Drop implements rpcConn: data in flight is lost, as when a machine disappears.
func (l *WebsocketConn) Drop() {
	if tcp, ok := l.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = l.Conn.Close()
}

// WebsocketClient connects to a websocket listener.
func WebsocketClient(t testing.TB, address string) *RPCClient {
	t.Helper()
	return DialWebsocket(t, address, nil, nil)
}

// DialWebsocket is WebsocketClient with headers of the upgrade and, instead of
// the record, a function that gets every frame.
func DialWebsocket(t testing.TB, address string, header http.Header, taken func(RPCFrame)) *RPCClient {
	t.Helper()
	link, err := Upgrade(address, header)
	if err != nil {
		t.Fatal(err)
	}
	return NewRPCClient(t, link, taken)
}

// Websocket returns the connection of a client, which must be a websocket.
func (c *RPCClient) Websocket() *WebsocketConn { return c.Conn.(*WebsocketConn) }

// Shut closes a websocket normally and waits until the server has closed it.
func (c *RPCClient) Shut() {
	c.Helper()
	if err := c.Websocket().Frame(OpClose, true, ClosePayload(1000, "")); err != nil {
		c.Fatal(err)
	}
	c.Proceed()
	c.AwaitEnd()
	c.Drop()
}

// ClosePayload encodes the payload of a close frame.
func ClosePayload(code uint16, reason string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, code), reason...)
}
