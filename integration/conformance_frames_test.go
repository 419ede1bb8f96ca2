package integration

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The message of the recorded scenarios about frames.
var askForP = []byte(`{"id":1,"method":"process/read","params":{"processId":"p"}}`)

// Frames of every kind have the effect they had with the reference. (It never
// sends a close frame; we may.)
func TestFramesAreTakenAsTheReferenceTakesThem(t *testing.T) {
	address := newServer(t, nil).address(websocketDoor)
	connect := func(t *testing.T) (*rpcClient, *websocketLink) {
		c := websocketClient(t, address).initialize("")
		return c, c.websocket()
	}
	for name, send := range map[string]func(*websocketLink) error{
		"binary":     func(l *websocketLink) error { return l.frame(opBinary, true, askForP) },
		"fragmented": func(l *websocketLink) error { return sendFragments(l, askForP, 20) },
		"with a ping between fragments": func(l *websocketLink) error {
			err := l.frame(opText, false, askForP[:20])
			if err == nil {
				err = l.frame(opPing, true, []byte("hello"))
			}
			if err == nil {
				err = l.frame(opContinue, true, askForP[20:])
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, link := connect(t)
			c.lastID = 40
			if err := send(link); err != nil {
				t.Fatal(err)
			}
			c.until("the request is answered", func(frames []rpcFrame) bool { return countReplies(frames, "1") == 2 }) // the handshake had 1, too
			c.refused("process/read", rpcParams{"processId": "alive?"}, -32600)
			for _, frame := range c.record() {
				if frame.kind == "binary" {
					t.Errorf("an answer is a binary frame: %s", frame.data)
				}
			}
		})
	}
	for name, payload := range map[string]string{"junk": "\xff\xfe\x00", "nothing": ""} {
		t.Run("binary "+name, func(t *testing.T) {
			c, link := connect(t)
			if err := link.frame(opBinary, true, []byte(payload)); err != nil {
				t.Fatal(err)
			}
			c.until("the message is refused", func(frames []rpcFrame) bool { return countReplies(frames, "-1") == 1 })
			c.refused("process/read", rpcParams{"processId": "alive?"}, -32600)
		})
	}
	t.Run("ping", func(t *testing.T) {
		c, link := connect(t)
		if err := link.frame(opPing, true, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		c.until("the ping is answered", func(frames []rpcFrame) bool {
			return slices.ContainsFunc(frames, func(f rpcFrame) bool { return f.kind == "pong" && string(f.data) == "hello" })
		})
	})
	t.Run("pong", func(t *testing.T) {
		c, link := connect(t)
		if err := link.frame(opPong, true, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		c.refused("process/read", rpcParams{"processId": "alive?"}, -32600)
	})
	for name, send := range map[string]func(*websocketLink) error{
		"close 1000":      func(l *websocketLink) error { return l.frame(opClose, true, closePayload(1000, "")) },
		"close":           func(l *websocketLink) error { return l.frame(opClose, true, nil) },
		"close 4000":      func(l *websocketLink) error { return l.frame(opClose, true, closePayload(4000, "bye")) },
		"reserved opcode": func(l *websocketLink) error { return l.frame(3, true, []byte("x")) },
		"unmasked":        func(l *websocketLink) error { return l.raw([]byte{0x81, byte(len(askForP))}, askForP) },
		"reserved bit": func(l *websocketLink) error {
			return l.raw([]byte{0xC1, 0x80 | byte(len(askForP)), 0, 0, 0, 0}, askForP)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, link := connect(t)
			if err := send(link); err != nil {
				t.Fatal(err)
			}
			c.awaitEnd()
			if n := countReplies(c.record(), "1"); n != 1 {
				t.Errorf("the server answered %d times, want the handshake alone", n)
			}
		})
	}
}

// sendFragments sends a message in frames of a size.
func sendFragments(l *websocketLink, message []byte, size int) error {
	opcode := byte(opText)
	for len(message) > 0 {
		n := min(size, len(message))
		if err := l.frame(opcode, n == len(message), message[:n]); err != nil {
			return err
		}
		opcode, message = opContinue, message[n:]
	}
	return nil
}

// padded is a request of exactly so many bytes.
func padded(size int) []byte {
	const before, after = `{"id":1001,"method":"process/read","params":{"processId":"p","pad":"`, `"}}`
	return fmt.Appendf(nil, "%s%s%s", before, bytes.Repeat([]byte("a"), size-len(before)-len(after)), after)
}

// A frame of 16 MiB and a message of 64 MiB are taken.
func TestBigMessagesAreTaken(t *testing.T) {
	slow(t)
	address := newServer(t, nil).address(websocketDoor)
	for _, test := range []struct{ size, fragment int }{
		{1 << 20, 1 << 20}, {16 << 20, 16 << 20}, {32 << 20, 8 << 20}, {64 << 20, 8 << 20},
	} {
		c := websocketClient(t, address).initialize("")
		if err := sendFragments(c.websocket(), padded(test.size), test.fragment); err != nil {
			t.Fatal(err)
		}
		if answer := c.reply(1001); answer.Error == nil || answer.Error.Message != "unknown process id p" {
			t.Errorf("the answer to %d bytes is %+v", test.size, answer)
		}
	}
}

// Nothing longer is. Where the reference resets the connection, we say why
// before we close it.
func TestSizesAreLimitedAsTheReferenceLimitsThem(t *testing.T) {
	address := newServer(t, nil).address(websocketDoor)
	for name, send := range map[string]func(*websocketLink) error{
		"frame": func(l *websocketLink) error {
			return l.raw([]byte{0x81, 0x80 | 127, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0}) // the header alone
		},
		"message": func(l *websocketLink) error {
			piece := bytes.Repeat([]byte(" "), 16<<20)
			err := l.frame(opText, false, piece)
			for range 3 {
				if err == nil {
					err = l.frame(opContinue, false, piece)
				}
			}
			if err == nil {
				err = l.frame(opContinue, false, []byte(" "))
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := websocketClient(t, address).initialize("")
			if err := send(c.websocket()); err != nil {
				t.Fatal(err)
			}
			c.awaitEnd()
			if !slices.ContainsFunc(c.record(), func(f rpcFrame) bool {
				return string(f.ID) == "-1" && f.Error != nil && strings.Contains(f.Error.Message, "bytes")
			}) {
				t.Errorf("the size was not refused; the server said:\n%s", c.said())
			}
		})
	}
}
