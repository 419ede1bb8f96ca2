package inproc_test

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// echo records and returns every message until the client's end.
func echo(e *env) *stub {
	return &stub{stream: func(ss grpc.ServerStream) error {
		for {
			m := new(text)
			if err := ss.RecvMsg(m); err != nil {
				e.server.note("recv %s", show(err))
				return nil
			}
			e.server.note("recv %q", m.GetValue())
			if err := ss.SendMsg(txt("re: " + m.GetValue())); err != nil {
				return err
			}
		}
	}}
}

// saying sends the messages and ends with err.
func saying(err error, messages ...string) func(e *env) *stub {
	return func(*env) *stub {
		return &stub{stream: func(ss grpc.ServerStream) error {
			for _, m := range messages {
				if err := ss.SendMsg(txt(m)); err != nil {
					return err
				}
			}
			return err
		}}
	}
}

// listenTo opens a stream, sends one request and records the responses until the
// end and once more after it.
func listenTo(method string) func(e *env) {
	return func(e *env) {
		cs := open(e.t, e.ctx, e.cc, method)
		e.client.note("send %s", show(cs.SendMsg(txt("go"))))
		e.client.note("close %s", show(cs.CloseSend()))
		for range 16 {
			got := recv(cs)
			e.client.note("recv %s", got)
			if got[0] != '"' {
				e.client.note("again %s", recv(cs))
				return
			}
		}
	}
}

var streamScenarios = []scenario{
	{
		name: "server stream/in order to the end", stub: saying(nil, "a", "b", "c"), client: listenTo(serverMethod),
		wantClient: []string{"send ok", "close ok", `recv "a"`, `recv "b"`, `recv "c"`, "recv EOF", "again EOF"},
	},
	{
		name: "server stream/error after messages", stub: saying(status.Error(codes.Aborted, "enough"), "a", "b"), client: listenTo(serverMethod),
		wantClient: []string{"send ok", "close ok", `recv "a"`, `recv "b"`, `recv Aborted "enough"`, `again Aborted "enough"`},
	},
	{
		name: "server stream/empty", stub: saying(nil), client: listenTo(serverMethod),
		wantClient: []string{"send ok", "close ok", "recv EOF", "again EOF"},
	},
	{
		name: "server stream/the handler hides that there was no request",
		stub: func(e *env) *stub {
			return &stub{stream: func(ss grpc.ServerStream) error {
				defer close(e.gone)
				e.server.note("recv %s", recv(ss))
				return nil
			}}
		},
		client: func(e *env) {
			cs := open(e.t, e.ctx, e.cc, serverMethod)
			_ = cs.CloseSend()
			e.client.note("recv %s", recv(cs))
			wait(e.t, "end of the handler", e.gone)
		},
		wantClient: []string{`recv Internal "cardinality violation: received no request message from non-client-streaming RPC"`},
		wantServer: []string{`recv Internal "cardinality violation: received no request message from non-client-streaming RPC"`},
	},
	{
		name: "server stream/the handler hides that its message is none",
		stub: func(e *env) *stub {
			return &stub{stream: func(ss grpc.ServerStream) error {
				defer close(e.gone)
				e.server.note("send %v", status.Code(ss.SendMsg(7)))
				return nil
			}}
		},
		client: func(e *env) {
			cs := open(e.t, e.ctx, e.cc, serverMethod)
			e.client.note("recv %s", recv(cs))
			wait(e.t, "end of the handler", e.gone)
		},
		wantClient: []string{`recv Internal "grpc: error while marshaling: proto: failed to marshal, message is int, want proto.Message"`},
		wantServer: []string{"send Internal"},
	},
	{
		name: "client stream/all then one",
		stub: func(e *env) *stub {
			return &stub{stream: func(ss grpc.ServerStream) error {
				all := ""
				for {
					m := new(text)
					if err := ss.RecvMsg(m); err != nil {
						e.server.note("recv %s", show(err))
						break
					}
					all += m.GetValue()
				}
				return ss.SendMsg(txt(all))
			}}
		},
		client: func(e *env) {
			cs := open(e.t, e.ctx, e.cc, clientMethod)
			for _, m := range []string{"x", "y", "z"} {
				e.client.note("send %s", show(cs.SendMsg(txt(m))))
			}
			e.client.note("close %s, again %s", show(cs.CloseSend()), show(cs.CloseSend()))
			e.client.note("recv %s", recv(cs))
		},
		wantClient: []string{"send ok", "send ok", "send ok", "close ok, again ok", `recv "xyz"`},
		wantServer: []string{"recv EOF"},
	},
	{
		name: "client stream/no answer", stub: saying(nil),
		client: func(e *env) {
			cs := open(e.t, e.ctx, e.cc, clientMethod)
			_ = cs.CloseSend()
			e.client.note("recv %s", recv(cs))
		},
		wantClient: []string{`recv Internal "cardinality violation: received no response message from non-server-streaming RPC"`},
	},
	{
		name: "client stream/two answers", stub: saying(nil, "one", "two"),
		client: func(e *env) {
			cs := open(e.t, e.ctx, e.cc, clientMethod)
			_ = cs.CloseSend()
			e.client.note("recv %s", recv(cs))
		},
		wantClient: []string{`recv Internal "cardinality violation: expected <EOF> for non server-streaming RPCs, but received another message"`},
	},
	{
		name: "client stream/answer then error", stub: saying(status.Error(codes.DataLoss, "torn"), "one"),
		client: func(e *env) {
			cs := open(e.t, e.ctx, e.cc, clientMethod)
			_ = cs.CloseSend()
			e.client.note("recv %s", recv(cs))
		},
		wantClient: []string{`recv DataLoss "torn"`},
	},
	{
		name: "bidi/ping pong", stub: echo,
		client: func(e *env) {
			cs := open(e.t, e.ctx, e.cc, bidiMethod)
			for _, m := range []string{"1", "2"} {
				e.client.note("send %s", show(cs.SendMsg(txt(m))))
				e.client.note("recv %s", recv(cs))
			}
			e.client.note("close %s", show(cs.CloseSend()))
			e.client.note("recv %s", recv(cs))
		},
		wantClient: []string{"send ok", `recv "re: 1"`, "send ok", `recv "re: 2"`, "close ok", "recv EOF"},
		wantServer: []string{`recv "1"`, `recv "2"`, "recv EOF"},
	},
	{
		name: "bidi/the server ends first", stub: saying(status.Error(codes.FailedPrecondition, "not now")),
		client: func(e *env) {
			cs := open(e.t, e.ctx, e.cc, bidiMethod)
			e.client.note("recv %s", recv(cs))
			e.client.note("send %s", show(cs.SendMsg(txt("late"))))
			e.client.note("close %s", show(cs.CloseSend()))
		},
		wantClient: []string{`recv FailedPrecondition "not now"`, "send EOF", "close ok"},
	},
	{
		name: "bidi/send after close",
		stub: func(e *env) *stub {
			return &stub{stream: func(ss grpc.ServerStream) error {
				<-ss.Context().Done()
				close(e.gone)
				return nil
			}}
		},
		client: func(e *env) {
			cs := open(e.t, e.ctx, e.cc, bidiMethod)
			_ = cs.CloseSend()
			e.client.note("send %s", show(cs.SendMsg(txt("late"))))
			e.client.note("recv %s", recv(cs))
			wait(e.t, "end of the handler", e.gone)
		},
		wantClient: []string{`send Internal "SendMsg called after CloseSend"`, `recv Internal "SendMsg called after CloseSend"`},
	},
}
