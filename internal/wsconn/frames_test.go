package wsconn_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/wsconn"
)

// received is what Receive returned on a connection until it failed.
type received struct {
	messages []string
	err      error
}

// collect serves connections that only receive, and returns the URL and what each
// received.
func collect(t *testing.T, o wsconn.Options) (url string, got <-chan received) {
	t.Helper()
	all := make(chan received, 100)
	return listen(t, o, func(c *wsconn.Conn) {
		var r received
		for {
			message, err := c.Receive()
			if err != nil {
				r.err = err
				all <- r
				return
			}
			r.messages = append(r.messages, string(message))
		}
	}), all
}

// normalClose is a close frame that ends a connection normally.
var normalClose = frame(final|closing, closePayload(1000, ""))

func TestReceive_Frames(t *testing.T) {
	url, got := collect(t, wsconn.Options{})
	for name, c := range map[string]struct {
		frames [][]byte
		want   []string
	}{
		"text":            {[][]byte{frame(final|text, "hello")}, []string{"hello"}},
		"binary":          {[][]byte{frame(final|binaryData, "hello")}, []string{"hello"}},
		"empty":           {[][]byte{frame(final|text, ""), frame(final|binaryData, "")}, []string{"", ""}},
		"empty fragments": {[][]byte{frame(text, ""), frame(continuation, ""), frame(final|continuation, "")}, []string{""}},
		"fragments":       {[][]byte{frame(text, "he"), frame(continuation, "l"), frame(final|continuation, "lo")}, []string{"hello"}},
		"ping within": {[][]byte{frame(text, "he"), frame(final|ping, "p"), frame(continuation, "l"),
			frame(final|pong, "unsolicited"), frame(final|continuation, "lo")}, []string{"hello"}},
		"invalid UTF-8":       {[][]byte{frame(final|text, "\xff\xfe")}, []string{"\xff\xfe"}},
		"UTF-8 cut":           {[][]byte{frame(text, "\xc3"), frame(final|continuation, "\xa4")}, []string{"ä"}},
		"sixteen bit length":  {[][]byte{frame(final|text, strings.Repeat("x", 126)), frame(final|text, "y")}, []string{strings.Repeat("x", 126), "y"}},
		"sixty-four bit":      {[][]byte{frame(final|text, strings.Repeat("x", 1<<16))}, []string{strings.Repeat("x", 1<<16)}},
		"longest ping":        {[][]byte{frame(final|ping, strings.Repeat("x", 125)), frame(final|text, "y")}, []string{"y"}},
		"many in one segment": {[][]byte{bytes.Repeat(frame(final|text, "x"), 3)}, []string{"x", "x", "x"}},
	} {
		for _, slowly := range []bool{false, true} {
			if slowly && name == "sixty-four bit" {
				continue // one system call per byte
			}
			t.Run(fmt.Sprintf("%s/slowly=%v", name, slowly), func(t *testing.T) {
				c1 := raw(t, url)
				sent := append(bytes.Join(c.frames, nil), normalClose...)
				if slowly {
					for i := range sent {
						c1.send(t, sent[i:i+1])
					}
				} else {
					c1.send(t, sent)
				}
				r := <-got
				if r.err != io.EOF || fmt.Sprintf("%q", r.messages) != fmt.Sprintf("%q", c.want) {
					t.Errorf("received %.80q, %v, want %.80q", r.messages, r.err, c.want)
				}
			})
		}
	}
}

// Frames sent together with the handshake request are not lost.
func TestAccept_FramesWithRequest_AreReceived(t *testing.T) {
	url, got := collect(t, wsconn.Options{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "ws://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	request := "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	early := append(frame(final|text, "early"), normalClose...)
	if _, err := conn.Write(append([]byte(request), early...)); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.err != io.EOF || fmt.Sprint(r.messages) != "[early]" {
		t.Errorf("received %q, %v", r.messages, r.err)
	}
}

func TestReceive_Ends(t *testing.T) {
	url, got := collect(t, wsconn.Options{})
	for name, c := range map[string]struct {
		sent     []byte
		wantCode int // of a ClosedError; 0 for none
	}{
		"closed with 1001":     {frame(final|closing, closePayload(1001, "")), 1001},
		"closed with 4000":     {frame(final|closing, closePayload(4000, "bye")), 4000},
		"closed without code":  {frame(final|closing, ""), 1005},
		"dropped":              {nil, 0},
		"dropped in a header":  {frame(final|text, "hello")[:1], 0},
		"dropped in a frame":   {frame(final|text, "hello")[:8], 0},
		"dropped in a message": {frame(text, "hello"), 0},
		"dropped in a ping":    {frame(final|ping, "hello")[:8], 0},
		"close frame cut":      {normalClose[:7], 0},
		"close code cut":       {frame(final|closing, "\x03"), 0},
		"impossible code":      {frame(final|closing, closePayload(1006, "")), 0},
		"unmasked":             {[]byte{final | text, 1, 'x'}, 0},
		"reserved bit":         {frame(final|0x40|text, "x"), 0},
		"reserved opcode":      {frame(final|0x3, "x"), 0},
		"reserved control":     {frame(final|0xb, "x"), 0},
		"continues nothing":    {frame(final|continuation, "x"), 0},
		"begins in a message":  {append(frame(text, "x"), frame(final|text, "y")...), 0},
		"fragmented ping":      {frame(ping, "x"), 0},
		"long ping":            {frame(final|ping, strings.Repeat("x", 126)), 0},
		"negative length":      {header(final|text, 1<<63), 0},
	} {
		t.Run(name, func(t *testing.T) {
			c1 := raw(t, url)
			c1.send(t, c.sent)
			if err := c1.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			r := <-got
			if errors.Is(r.err, io.EOF) {
				t.Errorf("the end looks normal: %v", r.err)
			}
			var closed *wsconn.ClosedError
			if errors.As(r.err, &closed) != (c.wantCode != 0) || closed != nil && closed.Code != c.wantCode {
				t.Errorf("the end is %v, want code %d", r.err, c.wantCode)
			}
			if len(r.messages) > 0 {
				t.Errorf("received %q", r.messages)
			}
		})
	}
}

func TestReceive_Reset_IsLost(t *testing.T) {
	url, got := collect(t, wsconn.Options{})
	c := raw(t, url)
	if err := c.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if r := <-got; errors.Is(r.err, io.EOF) || r.err == nil {
		t.Errorf("the end is %v", r.err)
	}
}

// A close frame is answered with the same code, and then the connection ends.
func TestReceive_Close_IsAnswered(t *testing.T) {
	url, _ := collect(t, wsconn.Options{})
	c := raw(t, url)
	c.send(t, frame(final|closing, closePayload(4321, "why")))
	c.expect(t, final|closing, closePayload(4321, "why"))
	if _, _, err := c.next(); err != io.EOF {
		t.Errorf("after the close: %v", err)
	}
}

func TestReceive_Ping_IsAnswered(t *testing.T) {
	url, _ := collect(t, wsconn.Options{})
	c := raw(t, url)
	for _, payload := range []string{"", "x", strings.Repeat("y", 125)} {
		c.send(t, frame(final|ping, payload))
		c.expect(t, final|pong, payload)
	}
	c.send(t, frame(text, "fragment"), frame(final|ping, "within"))
	c.expect(t, final|pong, "within")
}
