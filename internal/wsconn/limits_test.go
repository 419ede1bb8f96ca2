package wsconn_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/testrace"
	"github.com/execwire/execwire/internal/wsconn"
)

// tooLarge serves connections, closes them with the reason, and returns the URL
// and the final errors of Receive.
func tooLarge(t *testing.T, o wsconn.Options) (url string, ends <-chan error) {
	t.Helper()
	all := make(chan error, 10)
	return listen(t, o, func(c *wsconn.Conn) {
		for {
			message, err := c.Receive()
			if err == nil {
				if err := c.Send(fmt.Appendf(nil, "got %d", len(message))); err != nil {
					t.Error(err)
				}
				continue
			}
			if _, again := c.Receive(); again == nil || again.Error() != err.Error() {
				t.Errorf("after %v Receive returned %v", err, again)
			}
			if err := c.Send([]byte("explained")); err != nil {
				t.Error(err)
			}
			if err := c.Close(wsconn.CodeTooLarge, "too large"); err != nil {
				t.Error(err)
			}
			all <- err
			return
		}
	}), all
}

func expectTooLarge(t *testing.T, err error, what string, limit int64) {
	t.Helper()
	var large interface {
		error
		TooLarge() (string, int64)
	}
	if !errors.As(err, &large) {
		t.Fatalf("the end is %v", err)
	}
	if gotWhat, gotLimit := large.TooLarge(); gotWhat != what || gotLimit != limit {
		t.Errorf("%v: %s beyond %d, want %s beyond %d", err, gotWhat, gotLimit, what, limit)
	}
}

// A frame is rejected by its header. The peer receives the reason although it is
// still sending.
func TestReceive_FrameLimit(t *testing.T) {
	const limit = 1000
	url, ends := tooLarge(t, wsconn.Options{FrameBytes: limit})
	for name, sent := range map[string][]byte{
		"header alone": header(final|text, limit+1),
		"sixty-four":   header(final|text, 1<<40),
		"impossible":   header(final|binaryData, 1<<64-1),
		"continuation": append(frame(text, "x"), header(final|continuation, limit+1)...),
	} {
		t.Run(name, func(t *testing.T) {
			c := raw(t, url)
			c.send(t, frame(final|text, strings.Repeat("x", limit)))
			c.expect(t, final|text, "got 1000")
			c.send(t, sent)
			c.expect(t, final|text, "explained")
			c.expect(t, final|closing, closePayload(wsconn.CodeTooLarge, "too large"))
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			expectTooLarge(t, <-ends, "frame", limit)
		})
	}
}

func TestReceive_TooLarge_SlowPeerGetsReason(t *testing.T) {
	url, ends := tooLarge(t, wsconn.Options{})
	c := raw(t, url)
	const size = wsconn.DefaultFrameBytes + 1
	c.send(t, huge(final|text, strings.Repeat("x", size)))
	c.expect(t, final|text, "explained")
	c.expect(t, final|closing, closePayload(wsconn.CodeTooLarge, "too large"))
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	expectTooLarge(t, <-ends, "frame", wsconn.DefaultFrameBytes)
}

func TestReceive_MessageLimit(t *testing.T) {
	const limit = 1000
	url, ends := tooLarge(t, wsconn.Options{FrameBytes: 600, MessageBytes: limit})
	c := raw(t, url)
	half := strings.Repeat("x", limit/2)
	for range 2 { // the limit applies to each message separately
		c.send(t, frame(text, half), frame(final|ping, "p"), frame(continuation, half), frame(final|continuation, ""))
		c.expect(t, final|pong, "p")
		c.expect(t, final|text, "got 1000")
	}
	c.send(t, frame(text, half), frame(continuation, half), header(continuation, 1))
	c.expect(t, final|text, "explained")
	c.expect(t, final|closing, closePayload(wsconn.CodeTooLarge, "too large"))
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	expectTooLarge(t, <-ends, "message", limit)
}

func TestReceive_LargestFrameAndMessage(t *testing.T) {
	testrace.Slow(t)
	url := listen(t, wsconn.Options{}, echo)
	c := raw(t, url)
	largest := strings.Repeat("x", wsconn.DefaultFrameBytes)
	frames := wsconn.DefaultMessageBytes / wsconn.DefaultFrameBytes
	for i := range frames {
		switch i {
		case 0:
			c.send(t, huge(text, largest))
		case frames - 1:
			c.send(t, huge(final|continuation, largest))
		default:
			c.send(t, huge(continuation, largest))
		}
	}
	got := 0
	for {
		first, payload, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		got += len(payload)
		if first&final != 0 {
			break
		}
	}
	if got != wsconn.DefaultMessageBytes {
		t.Errorf("%d bytes came back", got)
	}
	c.send(t, normalClose)
	c.expect(t, final|closing, closePayload(1000, ""))
}
