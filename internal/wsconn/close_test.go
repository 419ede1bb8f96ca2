package wsconn_test

import (
	"io"
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
