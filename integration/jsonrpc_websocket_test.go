package integration

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// frameKinds names the opcodes of what a server may send whole.
var frameKinds = map[byte]string{opText: "text", opBinary: "binary", opClose: "close", opPing: "ping", opPong: "pong"}

// websocketLink is the client's side of a websocket, written out so that tests
// see frames as they are and can send what no library would.
type websocketLink struct {
	conn net.Conn
	in   *bufio.Reader

	// silent leaves pings and closes unanswered.
	silent bool
	// parting says that a close frame was sent.
	parting atomic.Bool

	mu sync.Mutex // keeps frames whole that are sent
}

// upgradeHeaders are those of an ordinary upgrade.
func upgradeHeaders() http.Header {
	return http.Header{
		"Upgrade": {"websocket"}, "Connection": {"Upgrade"},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {base64.StdEncoding.EncodeToString(make([]byte, 16))},
	}
}

// exchange sends one HTTP request on a connection of its own. The caller owns
// both results.
func exchange(address, method, path string, header http.Header) (net.Conn, *bufio.Reader, *http.Response, error) {
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
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, b.String()); err != nil {
		_ = conn.Close()
		return nil, nil, nil, err
	}
	in := bufio.NewReaderSize(conn, 64<<10)
	response, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		_ = conn.Close()
		return nil, nil, nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, in, response, nil
}

// upgrade opens a websocket; header adds to that of the request.
func upgrade(address string, header http.Header) (*websocketLink, error) {
	return upgradeAt(address, "/", header)
}

// upgradeAt is upgrade with a path.
func upgradeAt(address, path string, header http.Header) (*websocketLink, error) {
	all := upgradeHeaders()
	for name, values := range header {
		all[name] = values
	}
	conn, in, response, err := exchange(address, "GET", path, all)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		defer conn.Close()
		said, _ := io.ReadAll(response.Body)
		return nil, fmt.Errorf("the upgrade was answered %s %q", response.Status, said)
	}
	return &websocketLink{conn: conn, in: in}, nil
}

func (l *websocketLink) send(message []byte) error { return l.frame(opText, true, message) }

// frame sends one frame. Its mask is zero, which leaves the payload as it is.
func (l *websocketLink) frame(opcode byte, final bool, payload []byte) error {
	if opcode == opClose {
		l.parting.Store(true)
	}
	header := make([]byte, 2, 14)
	header[0] = opcode
	if final {
		header[0] |= 0x80
	}
	switch n := len(payload); {
	case n < 126:
		header[1] = byte(n)
	case n < 1<<16:
		header[1] = 126
		header = binary.BigEndian.AppendUint16(header, uint16(n))
	default:
		header[1] = 127
		header = binary.BigEndian.AppendUint64(header, uint64(n))
	}
	header[1] |= 0x80
	return l.raw(append(header, 0, 0, 0, 0), payload)
}

// raw sends bytes as they are.
func (l *websocketLink) raw(parts ...[]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.conn.SetWriteDeadline(time.Now().Add(patience))
	buffers := net.Buffers(parts)
	_, err := buffers.WriteTo(l.conn)
	return err
}

// receive implements rpcLink. Fragments are put together.
func (l *websocketLink) receive() (rpcFrame, error) {
	var message rpcFrame
	for {
		opcode, final, payload, err := l.receiveFrame()
		if err != nil {
			return rpcFrame{}, err
		}
		kind := frameKinds[opcode]
		switch {
		case opcode >= opClose:
			l.answer(opcode, payload)
			return rpcFrame{kind: kind, data: payload}, nil
		case opcode != opContinue:
			message = rpcFrame{kind: kind, data: payload}
		default:
			message.data = append(message.data, payload...)
		}
		if final {
			return message, nil
		}
	}
}

var errMasked = errors.New("a server masked a frame")

// answer answers control frames, unless the link is silent; a close only if it
// is not itself an answer.
func (l *websocketLink) answer(opcode byte, payload []byte) {
	switch {
	case l.silent:
	case opcode == opPing:
		_ = l.frame(opPong, true, payload)
	case opcode == opClose && !l.parting.Load():
		_ = l.frame(opClose, true, payload)
	}
}

// receiveFrame returns the next frame of the wire.
func (l *websocketLink) receiveFrame() (opcode byte, final bool, payload []byte, err error) {
	var header [8]byte
	if _, err := io.ReadFull(l.in, header[:2]); err != nil {
		return 0, false, nil, err
	}
	opcode, final = header[0]&15, header[0]&0x80 != 0
	size := uint64(header[1] & 127)
	if header[1]&0x80 != 0 {
		return 0, false, nil, errMasked
	}
	switch size {
	case 126:
		_, err = io.ReadFull(l.in, header[:2])
		size = uint64(binary.BigEndian.Uint16(header[:]))
	case 127:
		_, err = io.ReadFull(l.in, header[:8])
		size = binary.BigEndian.Uint64(header[:])
	}
	if err != nil {
		return 0, false, nil, err
	}
	payload = make([]byte, size)
	_, err = io.ReadFull(l.in, payload)
	return opcode, final, payload, err
}

// drop implements rpcLink: what is on its way is lost, as when a machine
// disappears.
func (l *websocketLink) drop() {
	if tcp, ok := l.conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = l.conn.Close()
}

// websocketClient connects to a websocket door.
func websocketClient(t testing.TB, address string) *rpcClient {
	t.Helper()
	return dialWebsocket(t, address, nil, nil)
}

// dialWebsocket is websocketClient with headers of the upgrade and, instead of
// the record, a function that gets every frame.
func dialWebsocket(t testing.TB, address string, header http.Header, taken func(rpcFrame)) *rpcClient {
	t.Helper()
	link, err := upgrade(address, header)
	if err != nil {
		t.Fatal(err)
	}
	return newRPCClient(t, link, taken)
}

// websocket is the link of a client that has such a one.
func (c *rpcClient) websocket() *websocketLink { return c.link.(*websocketLink) }

// shut ends a websocket normally and waits until the server has gone.
func (c *rpcClient) shut() {
	c.Helper()
	if err := c.websocket().frame(opClose, true, closePayload(1000, "")); err != nil {
		c.Fatal(err)
	}
	c.proceed()
	c.awaitEnd()
	c.drop()
}

// closePayload is that of a close frame.
func closePayload(code uint16, reason string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, code), reason...)
}
