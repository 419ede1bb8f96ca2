package inproc_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// marking returns interceptors that record calls.
func marking(j *journal, name string) (grpc.UnaryServerInterceptor, grpc.StreamServerInterceptor) {
	unary := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		j.note("%s in %s", name, info.FullMethod)
		defer j.note("%s out", name)
		return next(ctx, req)
	}
	stream := func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		j.note("%s in %s %v %v", name, info.FullMethod, info.IsClientStream, info.IsServerStream)
		defer j.note("%s out", name)
		return next(srv, ss)
	}
	return unary, stream
}

func TestInterceptors(t *testing.T) {
	want := []string{
		"outer in /test.Stub/Unary", "inner in /test.Stub/Unary", "inner out", "outer out",
		"outer in /test.Stub/Bidi true true", "inner in /test.Stub/Bidi true true", "inner out", "outer out",
	}
	for _, c := range carriers {
		t.Run(c.name, func(t *testing.T) {
			var j journal
			u1, s1 := marking(&j, "outer")
			u2, s2 := marking(&j, "inner")
			s := echo(&env{})
			s.unary = func(context.Context, *text) (*text, error) { return txt(""), nil }
			cc := c.connect(t, s, chain{
				unary:  []grpc.UnaryServerInterceptor{u1, u2},
				stream: []grpc.StreamServerInterceptor{s1, s2},
			})
			if err := cc.Invoke(guarded(t), unaryMethod, txt(""), new(text)); err != nil {
				t.Fatal(err)
			}
			cs := open(t, guarded(t), cc, bidiMethod)
			_ = cs.CloseSend()
			if got := recv(cs); got != "EOF" {
				t.Fatalf("recv = %s, want EOF", got)
			}
			if err := cc.Invoke(guarded(t), "/test.Stub/Other", txt(""), new(text)); status.Code(err) != codes.Unimplemented {
				t.Errorf("an unknown method = %v, want Unimplemented", err)
			}
			if diff := cmp.Diff(want, j.taken()); diff != "" {
				t.Errorf("interceptors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInterceptor_Rejects(t *testing.T) {
	refusal := status.Error(codes.PermissionDenied, "not you")
	refuse := chain{
		unary: []grpc.UnaryServerInterceptor{func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
			return nil, refusal
		}},
		stream: []grpc.StreamServerInterceptor{func(any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler) error {
			return refusal
		}},
	}
	for _, c := range carriers {
		t.Run(c.name, func(t *testing.T) {
			cc := c.connect(t, &stub{}, refuse) // whose handlers would panic
			if err := cc.Invoke(guarded(t), unaryMethod, txt(""), new(text)); status.Code(err) != codes.PermissionDenied {
				t.Errorf("Invoke = %v, want PermissionDenied", err)
			}
			if got, want := recv(open(t, guarded(t), cc, bidiMethod)), `PermissionDenied "not you"`; got != want {
				t.Errorf("recv = %s, want %s", got, want)
			}
		})
	}
}
