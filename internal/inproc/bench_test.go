package inproc_test

import (
	"context"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func BenchmarkUnary(b *testing.B) {
	s := &stub{unary: func(_ context.Context, in *text) (*text, error) { return in, nil }}
	for _, c := range carriers {
		b.Run(c.name, func(b *testing.B) {
			cc := c.connect(b, s, chain{})
			b.ReportAllocs()
			for b.Loop() {
				if err := cc.Invoke(b.Context(), unaryMethod, txt("hello"), new(text)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkServerStream sends chunks of the size of process output.
func BenchmarkServerStream(b *testing.B) {
	const chunk = 64 << 10
	data := make([]byte, chunk)
	for _, c := range carriers {
		b.Run(c.name, func(b *testing.B) {
			s := &stub{stream: func(ss grpc.ServerStream) error {
				for range b.N {
					if err := ss.SendMsg(wrapperspb.Bytes(data)); err != nil {
						return err
					}
				}
				return nil
			}}
			cs := open(b, b.Context(), c.connect(b, s, chain{}), serverMethod)
			b.SetBytes(chunk)
			b.ReportAllocs()
			b.ResetTimer()
			_ = cs.SendMsg(txt(""))
			for {
				err := cs.RecvMsg(new(wrapperspb.BytesValue))
				if err == io.EOF {
					return
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
