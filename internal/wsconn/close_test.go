package wsconn_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/wsconn"
)

// A peer that has closed still gets the answers to what it asked before, and
// then the answer to its close.
func TestThePeersCloseIsAnsweredLast(t *testing.T) {
	client, server := open(t, wsconn.Options{})
	client.send(t, frame(final|text, "question"), goodbye)
	if message, err := server.Receive(); err != nil || string(message) != "question" {
		t.Fatalf("received %q, %v", message, err)
	}
	if _, err := server.Receive(); err != io.EOF {
		t.Fatalf("a normal close is %v, want the end of the file", err)
	}
	if err := server.Send([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	if err := server.Close(wsconn.CodeInternalError, "not what the peer said"); err != nil {
		t.Error(err)
	}
	client.expect(t, final|text, "answer")
	client.expect(t, final|closing, parting(1000, ""))
}

// A peer that broke the protocol gets to read the close although there is more
// of it, and may go on until it has seen that.
func TestBrokenProtocolIsExplained(t *testing.T) {
	for name, broken := range map[string][]byte{
		"reserved opcode": frame(final|0x3, "with a payload"),
		"reserved bit":    frame(final|0x40|text, "with a payload"),
		"unmasked":        {final | text, 2, 'n', 'o'},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := open(t, wsconn.Options{})
			client.send(t, broken)
			if _, err := server.Receive(); err == nil || errors.Is(err, io.EOF) {
				t.Fatalf("received with %v", err)
			}
			closed := make(chan error, 1)
			go func() { closed <- server.Close(wsconn.CodePolicy, "") }()
			first, payload, err := client.next()
			if first != final|closing || !strings.HasPrefix(payload, parting(1002, "")) || err != nil {
				t.Fatalf("got frame %#x %q, %v", first, payload, err)
			}
			if _, _, err := client.next(); err != io.EOF {
				t.Errorf("after the close: %v", err)
			}
			client.send(t, frame(final|text, "did that work?"), goodbye)
			if err := <-closed; err != nil {
				t.Error(err)
			}
		})
	}
}
