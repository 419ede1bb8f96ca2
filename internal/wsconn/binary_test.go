package wsconn_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/wsconn"
)

// A peer in binary mode receives text messages as nil.
func TestBinary(t *testing.T) {
	received := make(chan bool, 10)
	url := listen(t, wsconn.Options{Binary: true}, func(c *wsconn.Conn) {
		for {
			message, err := c.Receive()
			if err != nil {
				return
			}
			received <- message == nil
			if err := c.Send([]byte("whole")); err != nil {
				return
			}
			parts, _ := c.Begin()
			_, _ = io.WriteString(parts, "in parts")
			if err := parts.Close(); err != nil {
				return
			}
		}
	})
	c := raw(t, url)
	for _, sent := range []struct {
		frames [][]byte
		text   bool
	}{
		{[][]byte{frame(final|binaryData, "binary")}, false},
		{[][]byte{frame(final|text, "text")}, true},
		{[][]byte{frame(text, "text in "), frame(final|ping, ""), frame(final|continuation, strings.Repeat("parts", 50_000))}, true},
		{[][]byte{frame(final|text, "")}, true},
		{[][]byte{frame(final|binaryData, "")}, false},
		{[][]byte{frame(binaryData, "binary in "), frame(final|continuation, "parts")}, false},
	} {
		c.send(t, sent.frames...)
		if len(sent.frames) == 3 {
			c.expect(t, final|pong, "")
		}
		c.expect(t, final|binaryData, "whole")
		c.expect(t, final|binaryData, "in parts")
		if isText := <-received; isText != sent.text {
			t.Errorf("%.40q was received as nil: %t", sent.frames, isText)
		}
	}
}

// The limits also apply to discarded text.
func TestBinary_TextBeyondLimit_Fails(t *testing.T) {
	ends := make(chan error, 1)
	url := listen(t, wsconn.Options{Binary: true, MessageBytes: 10}, func(c *wsconn.Conn) {
		_, err := c.Receive()
		ends <- err
	})
	c := raw(t, url)
	c.send(t, frame(text, "12345"), frame(final|continuation, "678901"))
	if err := <-ends; !isTooLarge(err) {
		t.Errorf("the end was %v, want a *TooLargeError", err)
	}
}

func isTooLarge(err error) bool {
	_, is := errors.AsType[*wsconn.TooLargeError](err)
	return is
}

// Both ends may be binary; messages of many frames and the close arrive.
func TestBinary_BothEnds(t *testing.T) {
	url := listen(t, wsconn.Options{Binary: true}, echo)
	c := dial(t, url, wsconn.DialOptions{Options: wsconn.Options{Binary: true}})
	sent := strings.Repeat("0123456789abcdef", 300_000)
	failed := make(chan error, 1)
	go func() { failed <- c.Send([]byte(sent)) }()
	got, err := c.Receive()
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != sent {
		t.Errorf("%d bytes came back as %d others", len(sent), len(got))
	}
	if err := <-failed; err != nil {
		t.Error(err)
	}
}
