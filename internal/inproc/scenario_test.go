package inproc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// env is what a scenario runs in: the client's and the server's journals are
// separate, because the two ends have no order between them.
type env struct {
	t      *testing.T
	ctx    context.Context
	cc     grpc.ClientConnInterface
	client journal
	server journal
	gone   chan struct{} // scenarios may close it when the handler has seen its end
}

type scenario struct {
	name   string
	stub   func(e *env) *stub
	client func(e *env)
	// what both carriers must observe
	wantClient []string
	wantServer []string
}

// TestScenarios runs every scenario over a real grpc server and over the
// channel, and holds both to the same literal observations: the wire proves
// that the expectation is grpc-go's, the channel that it is ours too.
func TestScenarios(t *testing.T) {
	var all []scenario
	for _, table := range [][]scenario{unaryScenarios, streamScenarios, metadataScenarios, endScenarios} {
		all = append(all, table...)
	}
	for _, s := range all {
		for _, c := range carriers {
			t.Run(s.name+"/"+c.name, func(t *testing.T) { s.run(t, c) })
		}
	}
}

func (s scenario) run(t *testing.T, c carrier) {
	e := &env{t: t, ctx: guarded(t), gone: make(chan struct{})}
	e.cc = c.connect(t, s.stub(e), chain{})
	s.client(e)
	if diff := cmp.Diff(s.wantClient, e.client.taken()); diff != "" {
		t.Errorf("the client observed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(s.wantServer, e.server.taken()); diff != "" {
		t.Errorf("the server observed (-want +got):\n%s", diff)
	}
}

// invoke makes a unary call and notes its outcome.
func (e *env) invoke(ctx context.Context, method string, req any, opts ...grpc.CallOption) {
	out := new(text)
	err := e.cc.Invoke(ctx, method, req, out, opts...)
	e.client.note("%s %q", show(err), out.GetValue())
}

func answering(err error) func(*env) *stub {
	return func(*env) *stub {
		return &stub{unary: func(_ context.Context, in *text) (*text, error) {
			if err != nil {
				return nil, err
			}
			return txt("re: " + in.GetValue()), nil
		}}
	}
}

func asking(e *env) { e.invoke(e.ctx, unaryMethod, txt("hello")) }

var unaryScenarios = []scenario{
	{name: "unary/answer", stub: answering(nil), client: asking, wantClient: []string{`ok "re: hello"`}},
	{
		name: "unary/status", stub: answering(status.Error(codes.NotFound, "no such process")), client: asking,
		wantClient: []string{`NotFound "no such process" ""`},
	},
	{
		name: "unary/wrapped status", stub: answering(fmt.Errorf("start: %w", status.Error(codes.NotFound, "gone"))), client: asking,
		wantClient: []string{`NotFound "start: rpc error: code = NotFound desc = gone" ""`},
	},
	{
		name: "unary/plain error", stub: answering(errors.New("broken")), client: asking,
		wantClient: []string{`Unknown "broken" ""`},
	},
	{
		name: "unary/context error", stub: answering(fmt.Errorf("waiting: %w", context.DeadlineExceeded)), client: asking,
		wantClient: []string{`DeadlineExceeded "waiting: context deadline exceeded" ""`},
	},
	{
		name: "unary/end of file as error", stub: answering(io.EOF), client: asking,
		wantClient: []string{`Unknown "EOF" ""`},
	},
	{
		name: "unary/status with details", stub: answering(detailed()),
		client: func(e *env) {
			err := e.cc.Invoke(e.ctx, unaryMethod, txt(""), new(text))
			for _, d := range status.Convert(err).Details() {
				info, _ := d.(*errdetails.ErrorInfo)
				e.client.note("%s: %s", info.GetDomain(), info.GetReason())
			}
		},
		wantClient: []string{"execwire.v1: PROCESS_NOT_FOUND"},
	},
	{
		name: "unary/no such service", stub: answering(nil),
		client:     func(e *env) { e.invoke(e.ctx, "/test.Other/Unary", txt("")) },
		wantClient: []string{`Unimplemented "unknown service test.Other" ""`},
	},
	{
		name: "unary/no such method", stub: answering(nil),
		client:     func(e *env) { e.invoke(e.ctx, "/test.Stub/Other", txt("")) },
		wantClient: []string{`Unimplemented "unknown method Other for service test.Stub" ""`},
	},
	{
		name: "unary/malformed method", stub: answering(nil),
		client:     func(e *env) { e.invoke(e.ctx, "/Unary", txt("")) },
		wantClient: []string{`Unimplemented "malformed method name: \"/Unary\"" ""`},
	},
	{
		name: "unary/not a message", stub: answering(nil),
		client:     func(e *env) { e.invoke(e.ctx, unaryMethod, 7) },
		wantClient: []string{`Internal "grpc: error while marshaling: proto: failed to marshal, message is int, want proto.Message" ""`},
	},
	{
		name: "unary/nil message", stub: answering(nil),
		client:     func(e *env) { e.invoke(e.ctx, unaryMethod, (*text)(nil)) },
		wantClient: []string{`ok "re: "`},
	},
	{
		name: "unary/called as a stream that sends twice", stub: answering(nil),
		client: func(e *env) {
			cs, err := e.cc.NewStream(e.ctx, &grpc.StreamDesc{ClientStreams: true}, unaryMethod)
			if err != nil {
				e.t.Fatal(err)
			}
			_ = cs.SendMsg(txt("one"))
			_ = cs.SendMsg(txt("two"))
			e.client.note("%s", recv(cs))
		},
		wantClient: []string{`Internal "cardinality violation: received multiple request messages for non-client-streaming RPC"`},
	},
	{
		name: "unary/called as a stream that sends nothing", stub: answering(nil),
		client: func(e *env) {
			cs, err := e.cc.NewStream(e.ctx, &grpc.StreamDesc{ClientStreams: true}, unaryMethod)
			if err != nil {
				e.t.Fatal(err)
			}
			_ = cs.CloseSend()
			e.client.note("%s", recv(cs))
		},
		wantClient: []string{`Internal "cardinality violation: received no request message from non-client-streaming RPC"`},
	},
}

func detailed() error {
	st, err := status.New(codes.NotFound, "gone").WithDetails(&errdetails.ErrorInfo{Domain: "execwire.v1", Reason: "PROCESS_NOT_FOUND"})
	if err != nil {
		panic(err)
	}
	return st.Err()
}

// echo notes and returns every message until the client's end.
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

// listen opens a stream, sends one request and notes what comes until the end
// and once more after it.
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

var metadataScenarios = []scenario{
	{
		name: "metadata/to the handler",
		stub: func(e *env) *stub {
			return &stub{unary: func(ctx context.Context, _ *text) (*text, error) {
				md, ok := metadata.FromIncomingContext(ctx)
				e.server.note("%v %s", ok, showMD(md))
				_, leaked := metadata.FromOutgoingContext(ctx)
				e.server.note("outgoing %v", leaked)
				return txt(""), nil
			}}
		},
		client: func(e *env) {
			ctx := metadata.NewOutgoingContext(e.ctx, metadata.MD{"trace": {"t1"}, "user-agent": {"mine"}, "raw-bin": {"\x00\xff"}})
			ctx = metadata.AppendToOutgoingContext(ctx, "trace", "t2", "te", "x")
			e.invoke(ctx, unaryMethod, txt(""))
		},
		wantClient: []string{`ok ""`},
		wantServer: []string{`true {raw-bin=["\x00\xff"] trace=["t1" "t2"]}`, "outgoing false"},
	},
	{
		name: "metadata/none", stub: func(e *env) *stub {
			return &stub{unary: func(ctx context.Context, _ *text) (*text, error) {
				md, ok := metadata.FromIncomingContext(ctx)
				e.server.note("%v %s", ok, showMD(md))
				return txt(""), nil
			}}
		},
		client: asking, wantClient: []string{`ok ""`}, wantServer: []string{"true {}"},
	},
	{
		name: "metadata/refused", stub: answering(nil),
		client: func(e *env) {
			e.invoke(metadata.AppendToOutgoingContext(e.ctx, "bad key", "v"), unaryMethod, txt(""))
			e.invoke(metadata.AppendToOutgoingContext(e.ctx, "key", "v\n"), unaryMethod, txt(""))
			e.invoke(metadata.AppendToOutgoingContext(e.ctx, "", "v"), unaryMethod, txt(""))
		},
		wantClient: []string{
			`Internal "header key \"bad key\" contains illegal characters not in [0-9a-z-_.]" ""`,
			`Internal "header key \"key\" contains value with non-printable ASCII characters" ""`,
			`Internal "there is an empty key in the header" ""`,
		},
	},
	{
		name: "metadata/header and trailer of a unary call", stub: headers(nil),
		client: func(e *env) {
			var header, trailer metadata.MD
			e.invoke(e.ctx, unaryMethod, txt(""), grpc.Header(&header), grpc.Trailer(&trailer))
			e.client.note("header %s trailer %s", showMD(header), showMD(trailer))
		},
		wantClient: []string{`ok ""`, `header {h=["1" "2"]} trailer {t=["1" "2"]}`},
		wantServer: []string{"send ok", `set late Internal "transport: SendHeader called multiple times"`, `send twice Internal "transport: SendHeader called multiple times"`},
	},
	{
		name: "metadata/header and trailer of a failed call", stub: headers(status.Error(codes.Internal, "no")),
		client: func(e *env) {
			var header, trailer metadata.MD
			e.invoke(e.ctx, unaryMethod, txt(""), grpc.Header(&header), grpc.Trailer(&trailer))
			e.client.note("header %s trailer %s", showMD(header), showMD(trailer))
		},
		wantClient: []string{`Internal "no" ""`, `header {h=["1" "2"]} trailer {t=["1" "2"]}`},
		wantServer: []string{"send ok", `set late Internal "transport: SendHeader called multiple times"`, `send twice Internal "transport: SendHeader called multiple times"`},
	},
	{
		name: "metadata/header of a stream before its first message",
		stub: func(e *env) *stub {
			return &stub{stream: func(ss grpc.ServerStream) error {
				e.server.note("bad %s", show(ss.SetHeader(metadata.MD{"Bad": {"v"}})))
				_ = ss.SetHeader(metadata.Pairs("h", "1", "content-type", "mine"))
				e.server.note("send %s", show(ss.SendHeader(metadata.Pairs("h", "2"))))
				ss.SetTrailer(metadata.Pairs("t", "1"))
				_ = ss.RecvMsg(new(text))
				ss.SetTrailer(metadata.Pairs("t", "2"))
				return ss.SendMsg(txt("m"))
			}}
		},
		client: func(e *env) {
			cs := open(e.t, e.ctx, e.cc, bidiMethod)
			md, err := cs.Header()
			e.client.note("header %s %s", showMD(md), show(err))
			_ = cs.SendMsg(txt("go on"))
			e.client.note("recv %s", recv(cs))
			e.client.note("recv %s", recv(cs))
			e.client.note("trailer %s", showMD(cs.Trailer()))
		},
		wantClient: []string{`header {h=["1" "2"]} ok`, `recv "m"`, "recv EOF", `trailer {t=["1" "2"]}`},
		wantServer: []string{`bad Internal "header key \"Bad\" contains illegal characters not in [0-9a-z-_.]"`, "send ok"},
	},
	{
		name: "metadata/header goes with the first message", stub: func(*env) *stub {
			return &stub{stream: func(ss grpc.ServerStream) error {
				_ = ss.SetHeader(metadata.Pairs("h", "1"))
				if err := ss.SendMsg(txt("m")); err != nil {
					return err
				}
				return ss.SetHeader(metadata.Pairs("h", "2"))
			}}
		},
		client: func(e *env) {
			cs := open(e.t, e.ctx, e.cc, bidiMethod)
			e.client.note("recv %s", recv(cs))
			md, err := cs.Header()
			e.client.note("header %s %s", showMD(md), show(err))
			e.client.note("recv %s", recv(cs))
		},
		wantClient: []string{`recv "m"`, `header {h=["1"]} ok`, `recv Internal "transport: SendHeader called multiple times"`},
	},
	{
		name: "metadata/no header at all", stub: saying(status.Error(codes.NotFound, "gone")),
		client: func(e *env) {
			cs := open(e.t, e.ctx, e.cc, bidiMethod)
			md, err := cs.Header()
			e.client.note("header %s %s", showMD(md), show(err))
			e.client.note("recv %s", recv(cs))
		},
		wantClient: []string{"header none ok", `recv NotFound "gone"`},
	},
}

// headers sets, sends and sets again through the functions for unary handlers.
func headers(err error) func(e *env) *stub {
	return func(e *env) *stub {
		return &stub{unary: func(ctx context.Context, _ *text) (*text, error) {
			_ = grpc.SetHeader(ctx, metadata.Pairs("h", "1"))
			e.server.note("send %s", show(grpc.SendHeader(ctx, metadata.Pairs("h", "2"))))
			e.server.note("set late %s", show(grpc.SetHeader(ctx, metadata.Pairs("h", "3"))))
			e.server.note("send twice %s", show(grpc.SendHeader(ctx, metadata.Pairs("h", "4"))))
			_ = grpc.SetTrailer(ctx, metadata.Pairs("t", "1"))
			_ = grpc.SetTrailer(ctx, metadata.Pairs("t", "2"))
			return txt(""), err
		}}
	}
}
