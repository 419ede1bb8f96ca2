package conformance

import (
	"bytes"
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"slices"
	"strings"
	"testing"
)

// The message of the recorded scenarios about frames.
var askForP = []byte(`{"id":1,"method":"process/read","params":{"processId":"p"}}`)

// Frames of every kind have the same effect as with the reference, which never sends a close
// frame; ours may.
func TestFrames_MatchTheReference(t *testing.T) {
	address := harness.NewServer(t, nil).Address(harness.WebsocketTransport)
	connect := func(t *testing.T) (*harness.RPCClient, *harness.WebsocketConn) {
		c := harness.WebsocketClient(t, address).Initialize("")
		return c, c.Websocket()
	}
	for name, send := range map[string]func(*harness.WebsocketConn) error{
		"binary":     func(l *harness.WebsocketConn) error { return l.Frame(harness.OpBinary, true, askForP) },
		"fragmented": func(l *harness.WebsocketConn) error { return sendFragments(l, askForP, 20) },
		"with a ping between fragments": func(l *harness.WebsocketConn) error {
			err := l.Frame(harness.OpText, false, askForP[:20])
			if err == nil {
				err = l.Frame(harness.OpPing, true, []byte("hello"))
			}
			if err == nil {
				err = l.Frame(harness.OpContinue, true, askForP[20:])
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, link := connect(t)
			c.LastID = 40
			if err := send(link); err != nil {
				t.Fatal(err)
			}
			c.Until("the request is answered", func(frames []harness.RPCFrame) bool { return harness.CountReplies(frames, "1") == 2 }) // the handshake had 1, too
			c.Refused("process/read", harness.RPCParams{"processId": "alive?"}, -32600)
			for _, frame := range c.Record() {
				if frame.Kind == "binary" {
					t.Errorf("an answer is a binary frame: %s", frame.Data)
				}
			}
		})
	}
	for name, payload := range map[string]string{"junk": "\xff\xfe\x00", "nothing": ""} {
		t.Run("binary "+name, func(t *testing.T) {
			c, link := connect(t)
			if err := link.Frame(harness.OpBinary, true, []byte(payload)); err != nil {
				t.Fatal(err)
			}
			c.Until("the message is refused", func(frames []harness.RPCFrame) bool { return harness.CountReplies(frames, "-1") == 1 })
			c.Refused("process/read", harness.RPCParams{"processId": "alive?"}, -32600)
		})
	}
	t.Run("ping", func(t *testing.T) {
		c, link := connect(t)
		if err := link.Frame(harness.OpPing, true, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		c.Until("the ping is answered", func(frames []harness.RPCFrame) bool {
			return slices.ContainsFunc(frames, func(f harness.RPCFrame) bool { return f.Kind == "pong" && string(f.Data) == "hello" })
		})
	})
	t.Run("pong", func(t *testing.T) {
		c, link := connect(t)
		if err := link.Frame(harness.OpPong, true, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		c.Refused("process/read", harness.RPCParams{"processId": "alive?"}, -32600)
	})
	for name, send := range map[string]func(*harness.WebsocketConn) error{
		"close 1000": func(l *harness.WebsocketConn) error {
			return l.Frame(harness.OpClose, true, harness.ClosePayload(1000, ""))
		},
		"close": func(l *harness.WebsocketConn) error { return l.Frame(harness.OpClose, true, nil) },
		"close 4000": func(l *harness.WebsocketConn) error {
			return l.Frame(harness.OpClose, true, harness.ClosePayload(4000, "bye"))
		},
		"reserved opcode": func(l *harness.WebsocketConn) error { return l.Frame(3, true, []byte("x")) },
		"unmasked":        func(l *harness.WebsocketConn) error { return l.Raw([]byte{0x81, byte(len(askForP))}, askForP) },
		"reserved bit": func(l *harness.WebsocketConn) error {
			return l.Raw([]byte{0xC1, 0x80 | byte(len(askForP)), 0, 0, 0, 0}, askForP)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, link := connect(t)
			if err := send(link); err != nil {
				t.Fatal(err)
			}
			c.AwaitEnd()
			if n := harness.CountReplies(c.Record(), "1"); n != 1 {
				t.Errorf("the server answered %d times, want the handshake alone", n)
			}
		})
	}
}

// sendFragments sends a message in frames of a size.
func sendFragments(l *harness.WebsocketConn, message []byte, size int) error {
	opcode := byte(harness.OpText)
	for len(message) > 0 {
		n := min(size, len(message))
		if err := l.Frame(opcode, n == len(message), message[:n]); err != nil {
			return err
		}
		opcode, message = harness.OpContinue, message[n:]
	}
	return nil
}

// padded is a request of exactly so many bytes.
func padded(size int) []byte {
	const before, after = `{"id":1001,"method":"process/read","params":{"processId":"p","pad":"`, `"}}`
	return fmt.Appendf(nil, "%s%s%s", before, bytes.Repeat([]byte("a"), size-len(before)-len(after)), after)
}

// A frame of 16 MiB and a message of 64 MiB are accepted.
func TestFrames_LargeMessages_AreAccepted(t *testing.T) {
	harness.Slow(t)
	address := harness.NewServer(t, nil).Address(harness.WebsocketTransport)
	for _, test := range []struct{ size, fragment int }{
		{1 << 20, 1 << 20}, {16 << 20, 16 << 20}, {32 << 20, 8 << 20}, {64 << 20, 8 << 20},
	} {
		c := harness.WebsocketClient(t, address).Initialize("")
		if err := sendFragments(c.Websocket(), padded(test.size), test.fragment); err != nil {
			t.Fatal(err)
		}
		if answer := c.Reply(1001); answer.Error == nil || answer.Error.Message != "unknown process id p" {
			t.Errorf("the answer to %d bytes is %+v", test.size, answer)
		}
	}
}

// Larger ones are not. Where the reference resets the connection, ours sends the reason before
// closing it.
func TestFrames_SizeLimits_MatchTheReference(t *testing.T) {
	address := harness.NewServer(t, nil).Address(harness.WebsocketTransport)
	for name, send := range map[string]func(*harness.WebsocketConn) error{
		"frame": func(l *harness.WebsocketConn) error {
			return l.Raw([]byte{0x81, 0x80 | 127, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0}) // the header alone
		},
		"message": func(l *harness.WebsocketConn) error {
			piece := bytes.Repeat([]byte(" "), 16<<20)
			err := l.Frame(harness.OpText, false, piece)
			for range 3 {
				if err == nil {
					err = l.Frame(harness.OpContinue, false, piece)
				}
			}
			if err == nil {
				err = l.Frame(harness.OpContinue, false, []byte(" "))
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := harness.WebsocketClient(t, address).Initialize("")
			if err := send(c.Websocket()); err != nil {
				t.Fatal(err)
			}
			c.AwaitEnd()
			if !slices.ContainsFunc(c.Record(), func(f harness.RPCFrame) bool {
				return string(f.ID) == "-1" && f.Error != nil && strings.Contains(f.Error.Message, "bytes")
			}) {
				t.Errorf("the size was accepted; the server sent:\n%s", c.LastFrames())
			}
		})
	}
}
