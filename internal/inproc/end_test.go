package inproc_test

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// untilEnded waits for the end of the handler's context. Over a network it is
// random which end's timer fires first, so it does not record the cause; see
// TestDeadline_AppliesToHandler for what the channel guarantees.
func untilEnded(e *env) *stub {
	return &stub{
		unary: func(ctx context.Context, _ *text) (*text, error) {
			defer close(e.gone)
			<-ctx.Done()
			return nil, ctx.Err()
		},
		stream: func(ss grpc.ServerStream) error {
			defer close(e.gone)
			<-ss.Context().Done()
			e.server.note("recv fails %v", ss.RecvMsg(new(text)) != nil)
			return ss.Context().Err()
		},
	}
}

// untilGone waits for the end of the handler's context and records what its
// stream returns then.
func untilGone(e *env) *stub {
	return &stub{stream: func(ss grpc.ServerStream) error {
		defer close(e.gone)
		_ = ss.SendMsg(txt("running"))
		<-ss.Context().Done()
		e.server.note("context %v", ss.Context().Err())
		e.server.note("send %s", show(ss.SendMsg(txt("late"))))
		e.server.note("recv %s", recv(ss))
		return ss.Context().Err()
	}}
}

var endScenarios = []scenario{
	{
		name: "end/cancelled before the call", stub: answering(nil),
		client: func(e *env) {
			ctx, cancel := context.WithCancel(e.ctx)
			cancel()
			e.invoke(ctx, unaryMethod, txt(""))
			_, err := e.cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, serverMethod)
			e.client.note("%s", show(err))
		},
		wantClient: []string{`Canceled "context canceled" ""`, `Canceled "context canceled"`},
	},
	{
		name: "end/deadline passed before the call", stub: answering(nil),
		client: func(e *env) {
			ctx, cancel := context.WithDeadline(e.ctx, time.Now().Add(-time.Second))
			defer cancel()
			e.invoke(ctx, unaryMethod, txt(""))
		},
		wantClient: []string{`DeadlineExceeded "context deadline exceeded" ""`},
	},
	{
		name: "end/deadline of a unary call", stub: untilEnded,
		client: func(e *env) {
			ctx, cancel := context.WithTimeout(e.ctx, 50*time.Millisecond)
			defer cancel()
			e.client.note("%v", status.Code(e.cc.Invoke(ctx, unaryMethod, txt(""), new(text))))
			wait(e.t, "end of the handler", e.gone)
		},
		wantClient: []string{"DeadlineExceeded"},
	},
	{
		name: "end/deadline of a stream", stub: untilEnded,
		client: func(e *env) {
			ctx, cancel := context.WithTimeout(e.ctx, 50*time.Millisecond)
			defer cancel()
			cs := open(e.t, ctx, e.cc, bidiMethod)
			e.client.note("%v", status.Code(cs.RecvMsg(new(text))))
			wait(e.t, "end of the handler", e.gone)
		},
		wantClient: []string{"DeadlineExceeded"},
		wantServer: []string{"recv fails true"},
	},
	{
		name: "end/the caller cancels a stream", stub: untilGone,
		client: func(e *env) {
			ctx, cancel := context.WithCancel(e.ctx)
			defer cancel()
			cs := open(e.t, ctx, e.cc, bidiMethod)
			e.client.note("recv %s", recv(cs)) // the handler is running
			cancel()
			e.client.note("recv %s", recv(cs))
			e.client.note("again %s", recv(cs))
			e.client.note("send %s", show(cs.SendMsg(txt("late"))))
			wait(e.t, "end of the handler", e.gone)
		},
		wantClient: []string{`recv "running"`, `recv Canceled "context canceled"`, `again Canceled "context canceled"`, "send EOF"},
		wantServer: []string{"context context canceled", `send Canceled "context canceled"`, `recv Canceled "context canceled"`},
	},
	{
		name: "end/what was sent before the cancellation still arrives",
		stub: func(e *env) *stub {
			return &stub{stream: func(ss grpc.ServerStream) error {
				_ = ss.SendMsg(txt("a"))
				_ = ss.SendMsg(txt("b"))
				_ = ss.SendMsg(txt("c"))
				<-ss.Context().Done()
				return nil
			}}
		},
		client: func(e *env) {
			ctx, cancel := context.WithCancel(e.ctx)
			defer cancel()
			cs := open(e.t, ctx, e.cc, bidiMethod)
			e.client.note("recv %s", recv(cs))
			e.client.note("recv %s", recv(cs))
			e.client.note("recv %s", recv(cs))
			cancel()
			e.client.note("recv %s", recv(cs))
		},
		wantClient: []string{`recv "a"`, `recv "b"`, `recv "c"`, `recv Canceled "context canceled"`},
	},
	{
		name: "end/a client that goes away frees a blocked sender",
		stub: func(e *env) *stub {
			return &stub{stream: func(ss grpc.ServerStream) error {
				defer close(e.gone)
				big := txt(strings.Repeat("x", 64<<10)) // exceeds any window
				for {
					if err := ss.SendMsg(big); err != nil {
						e.server.note("send %s", show(err))
						return err
					}
				}
			}}
		},
		client: func(e *env) {
			ctx, cancel := context.WithCancel(e.ctx)
			defer cancel()
			cs := open(e.t, ctx, e.cc, serverMethod)
			_ = cs.SendMsg(txt(""))
			_ = cs.RecvMsg(new(text))
			cancel()
			wait(e.t, "end of the handler", e.gone)
		},
		wantServer: []string{`send Canceled "context canceled"`},
	},
	{
		name: "end/a handler that returns frees a blocked client",
		stub: func(e *env) *stub {
			return &stub{stream: func(ss grpc.ServerStream) error {
				_ = ss.RecvMsg(new(text))
				return status.Error(codes.ResourceExhausted, "full")
			}}
		},
		client: func(e *env) {
			cs := open(e.t, e.ctx, e.cc, clientMethod)
			big := txt(strings.Repeat("x", 64<<10))
			err := cs.SendMsg(big)
			for err == nil {
				err = cs.SendMsg(big)
			}
			e.client.note("send %s", show(err))
			e.client.note("recv %s", recv(cs))
		},
		wantClient: []string{"send EOF", `recv ResourceExhausted "full"`},
	},
	{
		name: "end/the handler's context ends with the handler",
		stub: func(e *env) *stub {
			return &stub{stream: func(ss grpc.ServerStream) error {
				go func() { // the test waits for it with gone
					defer close(e.gone)
					<-ss.Context().Done()
					e.server.note("context %v", ss.Context().Err())
					e.server.note("send %s", show(ss.SendMsg(txt("late"))))
				}()
				return nil
			}}
		},
		client: func(e *env) {
			cs := open(e.t, e.ctx, e.cc, bidiMethod)
			e.client.note("recv %s", recv(cs))
			wait(e.t, "end of the handler", e.gone)
			e.client.note("stream's context %v", cs.Context().Err())
		},
		wantClient: []string{"recv EOF", "stream's context context canceled"},
		wantServer: []string{"context context canceled", `send Canceled "context canceled"`},
	},
}
