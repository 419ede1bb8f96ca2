package inproc_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/internal/inproc"
)

func TestInCaller(t *testing.T) {
	for _, c := range carriers {
		conn := c.connect(t, &stub{unary: func(_ context.Context, in *text) (*text, error) {
			if in.GetValue() == "" {
				return nil, status.Error(codes.DataLoss, "nothing")
			}
			return in, nil
		}}, chain{})
		reply := new(text)
		if err := conn.Invoke(guarded(t), unaryMethod, txt("x"), reply, inproc.InCaller{}); err != nil || reply.GetValue() != "x" {
			t.Errorf("%s: %q, %v", c.name, reply.GetValue(), err)
		}
		if err := conn.Invoke(guarded(t), unaryMethod, txt(""), reply, inproc.InCaller{}); status.Code(err) != codes.DataLoss {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// The call returns after its handler, whose context ends with that of the caller.
func TestInCaller_Canceled_WaitsForHandler(t *testing.T) {
	ctx, cancel := context.WithCancel(guarded(t))
	returned := false
	ch := serve(t, &stub{unary: func(ctx context.Context, in *text) (*text, error) {
		cancel()
		<-ctx.Done()
		returned = true
		return in, nil
	}})
	err := ch.Invoke(ctx, unaryMethod, txt(""), new(text), inproc.InCaller{})
	if status.Code(err) != codes.Canceled || !returned {
		t.Errorf("%v, and the handler has returned: %v", err, returned)
	}
}
