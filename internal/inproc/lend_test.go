package inproc_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/internal/inproc"
)

// A handler finds the memory that the caller lends; over a network there is none.
func TestLends_HandlerFindsMemory(t *testing.T) {
	for _, c := range carriers {
		found := make(chan []byte, 1)
		s := &stub{unary: func(ctx context.Context, _ *text) (*text, error) {
			var lent []byte
			if stream, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ Lent() []byte }); ok {
				lent = stream.Lent()
			}
			found <- lent
			return txt(""), nil
		}}
		conn, memory := c.connect(t, s, chain{}), make([]byte, 8)
		for _, opts := range [][]grpc.CallOption{{inproc.Lend{Memory: memory}}, nil, {inproc.Lend{}}} {
			if err := conn.Invoke(guarded(t), unaryMethod, txt(""), new(text), opts...); err != nil {
				t.Fatal(err)
			}
			lent := <-found
			if want := len(opts) > 0 && opts[0].(inproc.Lend).Memory != nil && c.name == "inproc"; want != (lent != nil) || want && &lent[0] != &memory[0] {
				t.Errorf("%s: with %d options the handler finds %v", c.name, len(opts), lent)
			}
		}
	}
}
