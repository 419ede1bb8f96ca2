package wsconn_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// First bytes of frames.
const (
	final        = 0x80
	continuation = 0x0
	text         = 0x1
	binaryData   = 0x2
	closing      = 0x8
	ping         = 0x9
	pong         = 0xa
)

// rawConn is a client that writes frames by hand.
type rawConn struct {
	*net.TCPConn
	in *bufio.Reader
}

// dialRaw opens a websocket to an address.
func dialRaw(address string) (*rawConn, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	c := &rawConn{TCPConn: conn.(*net.TCPConn), in: bufio.NewReader(conn)}
	if err := upgrade(c, c.in); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// upgrade sends the handshake request and reads the response.
func upgrade(out io.Writer, in *bufio.Reader) error {
	_, err := io.WriteString(out, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	if err != nil {
		return err
	}
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("answered %s", response.Status)
	}
	return nil
}

// raw opens a websocket to a URL of listen.
func raw(t testing.TB, url string) *rawConn {
	t.Helper()
	c, err := dialRaw(strings.TrimPrefix(url, "ws://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// header is the header of a masked frame.
func header(first byte, length uint64) []byte { return append(unkeyed(first, length), key...) }

// unkeyed is a header that must be followed by the key.
func unkeyed(first byte, length uint64) []byte {
	b := []byte{first}
	switch {
	case length < 126:
		b = append(b, 0x80|byte(length))
	case length < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(length))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), length)
	}
	return b
}

var key = []byte{1, 2, 3, 4}

// huge is a frame that needs no masking: its key is zero.
func huge(first byte, payload string) []byte {
	return append(append(unkeyed(first, uint64(len(payload))), 0, 0, 0, 0), payload...)
}

// frame is a masked frame.
func frame(first byte, payload string) []byte {
	b := header(first, uint64(len(payload)))
	for i := range len(payload) {
		b = append(b, payload[i]^key[i%len(key)])
	}
	return b
}

// closePayload is the payload of a close frame.
func closePayload(code uint16, reason string) string {
	return string(binary.BigEndian.AppendUint16(nil, code)) + reason
}

func (c *rawConn) send(t testing.TB, frames ...[]byte) {
	t.Helper()
	for _, f := range frames {
		if _, err := c.Write(f); err != nil {
			t.Fatal(err)
		}
	}
}

// next reads one frame.
func (c *rawConn) next() (first byte, payload string, err error) {
	var head [2]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return 0, "", err
	}
	length := uint64(head[1])
	for code, size := range map[uint64]int{126: 2, 127: 8} {
		if uint64(head[1]) != code {
			continue
		}
		var b [8]byte
		if _, err := io.ReadFull(c.in, b[8-size:]); err != nil {
			return 0, "", err
		}
		length = binary.BigEndian.Uint64(b[:])
	}
	b := make([]byte, length)
	_, err = io.ReadFull(c.in, b)
	return head[0], string(b), err
}

// expect expects a frame.
func (c *rawConn) expect(t testing.TB, first byte, payload string) {
	t.Helper()
	gotFirst, got, err := c.next()
	if err != nil {
		t.Fatalf("waiting for frame %#x %.40q: %v", first, payload, err)
	}
	if gotFirst != first || got != payload {
		t.Fatalf("got frame %#x of %d bytes %.40q, want %#x of %d bytes %.40q", gotFirst, len(got), got, first, len(payload), payload)
	}
}
