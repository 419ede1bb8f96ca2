package wsconn_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/wsconn"
)

// Limits of the connections in FuzzReceive.
const (
	fuzzFrameBytes   = 1000
	fuzzMessageBytes = 1500
)

// simpleFrame is a frame as a simple parser finds it.
type simpleFrame struct {
	first    byte
	isMasked bool
	payload  []byte
	rest     int // bytes that follow
}

// simpleFrames splits a stream into frames, until one is incomplete or exceeds a
// limit, which it names.
func simpleFrames(b []byte) (frames []simpleFrame, tooLarge string) {
	message := uint64(0)
	for {
		if len(b) < 2 {
			return frames, ""
		}
		first, isMasked, length, rest := b[0], b[1]&0x80 != 0, uint64(b[1]&0x7f), b[2:]
		switch {
		case length == 126 && len(rest) >= 2:
			length, rest = uint64(binary.BigEndian.Uint16(rest)), rest[2:]
		case length == 127 && len(rest) >= 8:
			length, rest = binary.BigEndian.Uint64(rest), rest[8:]
		case length >= 126:
			return frames, ""
		}
		var mask []byte
		if isMasked {
			if len(rest) < 4 {
				return frames, ""
			}
			mask, rest = rest[:4], rest[4:]
		}
		if isControl := first&0x8 != 0 && length <= 125; !isControl {
			if length > fuzzFrameBytes {
				return frames, "frame"
			}
			if first&0xf != continuation {
				message = 0
			}
			if message += length; message > fuzzMessageBytes {
				return frames, "message"
			}
		}
		if uint64(len(rest)) < length {
			return frames, ""
		}
		payload := slices.Clone(rest[:length])
		for i := range payload {
			if isMasked {
				payload[i] ^= mask[i%4]
			}
		}
		frames = append(frames, simpleFrame{first, isMasked, payload, len(rest) - int(length)})
		b = rest[length:]
	}
}

// simpleReceive returns the expected messages of a stream, and the possible ends.
// If a frame violates the protocol, a later frame beyond a limit may be found
// first.
func simpleReceive(b []byte) (messages []string, ends []string) {
	frames, tooLarge := simpleFrames(b)
	ends = []string{"lost"}
	if tooLarge != "" {
		ends = append(ends, tooLarge+" too large")
	}
	var message []byte // nil between messages
	for _, f := range frames {
		opcode, isFinal := f.first&0xf, f.first&final != 0
		isControl := opcode&0x8 != 0
		known := opcode <= binaryData || closing <= opcode && opcode <= pong
		switch {
		case f.first&0x70 != 0, !f.isMasked, !known, isControl && (!isFinal || len(f.payload) > 125):
			return messages, ends
		case opcode == closing:
			if end, ok := simpleEnd(f.payload); ok {
				ends = []string{end}
			}
			return messages, ends
		case isControl:
			continue
		case (opcode == continuation) != (message != nil):
			return messages, ends
		}
		message = append(message, f.payload...)
		if message == nil {
			message = []byte{}
		}
		if isFinal {
			messages, message = append(messages, string(message)), nil
		}
	}
	return messages, ends[len(ends)-1:]
}

// simpleEnd is the end that a close frame means, if it is one.
func simpleEnd(payload []byte) (end string, ok bool) {
	if len(payload) == 0 {
		return "closed 1005 ", true
	}
	if len(payload) == 1 {
		return "", false
	}
	code := binary.BigEndian.Uint16(payload)
	switch {
	case code == 1004, code == 1005, code == 1006, code < 1000, code > 1014 && code < 3000, code >= 5000:
		return "", false
	case code == 1000:
		return "normal", true
	}
	return fmt.Sprintf("closed %d %s", code, payload[2:]), true
}

// nameOfEnd is the error that ended receiving, in the terms of simpleReceive.
func nameOfEnd(err error) string {
	if tooLarge, ok := errors.AsType[*wsconn.TooLargeError](err); ok {
		return tooLarge.What + " too large"
	}
	if closed, ok := errors.AsType[*wsconn.ClosedError](err); ok {
		return fmt.Sprintf("closed %d %s", closed.Code, closed.Reason)
	}
	if err == io.EOF {
		return "normal"
	}
	return "lost"
}

// FuzzReceive sends arbitrary bytes after the handshake on a real connection.
func FuzzReceive(f *testing.F) {
	for _, frames := range [][][]byte{
		{frame(final|text, "hello"), normalClose},
		{frame(text, "he"), frame(final|ping, "p"), frame(continuation, ""), frame(final|continuation, "llo"), frame(final|closing, "")},
		{huge(text, string(make([]byte, 1000))), huge(continuation, string(make([]byte, 501)))},
		{huge(final|binaryData, string(make([]byte, 1000))), frame(final|closing, closePayload(1001, "go"))},
		{header(final|text, 1<<63), frame(final|text, "x")},
		{{final | text, 1, 'x'}},
		{frame(final|0x3, ""), header(final|text, 1001)},
		{frame(final|closing, closePayload(1005, ""))}, {frame(final|closing, "x")},
		{frame(final|ping, string(make([]byte, 126)))}, {frame(ping, "")},
		{frame(final|0x3, ""), frame(final|0x78, ""), make([]byte, 20_000)},
		{frame(final|continuation, "x")}, {frame(text, ""), frame(text, "")},
	} {
		f.Add(bytes.Join(frames, nil))
	}
	connect, got := receiver(f)
	f.Fuzz(func(t *testing.T, sent []byte) {
		if len(sent) > 64<<10 {
			return
		}
		c := connect(t)
		if err := sendAll(c, sent); err != nil && !sendsAfterClose(sent) {
			t.Errorf("%x: %v", sent, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		r := <-got
		messages, ends := simpleReceive(sent)
		if !slices.Equal(r.messages, messages) || !slices.Contains(ends, nameOfEnd(r.err)) {
			t.Errorf("%x: received %q and %v, want %q and one of %q", sent, r.messages, r.err, messages, ends)
		}
	})
}

// sendAll sends everything and reads until the end.
func sendAll(c *net.UnixConn, sent []byte) error {
	if _, err := c.Write(sent); err != nil {
		return err
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, c)
	return err
}

// sendsAfterClose reports whether data follows a close frame: the server does
// not read it, so the connection is reset.
func sendsAfterClose(b []byte) bool {
	frames, _ := simpleFrames(b)
	i := slices.IndexFunc(frames, func(f simpleFrame) bool { return f.first&0xf == closing })
	return i >= 0 && (i < len(frames)-1 || frames[i].rest > 0)
}

// receiver serves websockets on a unix socket, which cannot run out of ports, and
// returns a dial function and what each connection received.
func receiver(f *testing.F) (connect func(*testing.T) *net.UnixConn, got <-chan received) {
	f.Helper()
	all := make(chan received, 1)
	path := filepath.Join(f.TempDir(), "socket")
	listener, err := net.Listen("unix", path)
	if err != nil {
		f.Fatal(err)
	}
	var serving sync.WaitGroup
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := wsconn.Accept(w, r, wsconn.Options{FrameBytes: fuzzFrameBytes, MessageBytes: fuzzMessageBytes})
		if err != nil {
			return
		}
		serving.Add(1)
		defer serving.Done()
		done := receiveAll(c)
		_ = c.Close(wsconn.CodeNormal, "")
		all <- done
	})}
	serving.Go(func() { _ = server.Serve(listener) })
	f.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return func(t *testing.T) *net.UnixConn { return upgraded(t, path) }, all
}

func receiveAll(c *wsconn.Conn) (r received) {
	for {
		message, err := c.Receive()
		if err != nil {
			r.err = err
			return r
		}
		r.messages = append(r.messages, string(message))
	}
}

// upgraded opens a websocket by hand.
func upgraded(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if err := upgrade(conn, bufio.NewReader(conn)); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.UnixConn)
}
