package inproc_test

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

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
			ctx := metadata.NewOutgoingContext(e.ctx, metadata.MD{"trace": {"t1"}, "raw-bin": {"\x00\xff"}})
			ctx = metadata.AppendToOutgoingContext(ctx, "trace", "t2")
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
		name: "metadata/of a unary response", stub: func(*env) *stub { return respondingWith(nil) },
		client:     invokeForMetadata,
		wantClient: []string{`ok "answer"`, `header {one=["1" "2"] raw-bin=["\x00\xff"]}`, `trailer {last=["z"] one=["3"]}`},
	},
	{
		name: "metadata/of a unary error", stub: func(*env) *stub { return respondingWith(status.Error(codes.NotFound, "gone")) },
		client:     invokeForMetadata,
		wantClient: []string{`NotFound "gone" ""`, `header {one=["1" "2"] raw-bin=["\x00\xff"]}`, `trailer {last=["z"] one=["3"]}`},
	},
	{
		name: "metadata/of a stream, the header first",
		stub: func(e *env) *stub {
			return &stub{stream: func(ss grpc.ServerStream) error {
				e.server.note("%v", ss.SetHeader(metadata.Pairs("early", "1")))
				e.server.note("%v", ss.SendHeader(metadata.Pairs("early", "2")))
				<-e.gone // the client has received the header
				e.server.note("%v", ss.SendHeader(nil))
				e.server.note("%v", ss.SetHeader(metadata.Pairs("late", "3")))
				ss.SetTrailer(metadata.Pairs("end", "4"))
				e.server.note("%v", ss.SendMsg(txt("one")))
				ss.SetTrailer(metadata.Pairs("end", "5"))
				return status.Error(codes.Aborted, "enough")
			}}
		},
		client: func(e *env) {
			cs := open(e.t, e.ctx, e.cc, serverMethod)
			_ = cs.SendMsg(txt(""))
			_ = cs.CloseSend()
			header, err := cs.Header()
			close(e.gone)
			e.client.note("%v %v", showMD(header), err)
			e.client.note("%s", recv(cs))
			e.client.note("%s", recv(cs))
			e.client.note("trailer %s", showMD(cs.Trailer()))
		},
		wantClient: []string{`{early=["1" "2"]} <nil>`, `"one"`, `Aborted "enough"`, `trailer {end=["4" "5"]}`},
		wantServer: []string{
			"<nil>", "<nil>", "rpc error: code = Internal desc = transport: SendHeader called multiple times",
			"rpc error: code = Internal desc = transport: SendHeader called multiple times", "<nil>",
		},
	},
	{
		name: "metadata/header with the first message",
		stub: func(e *env) *stub {
			return &stub{stream: func(ss grpc.ServerStream) error {
				md := metadata.Pairs("header", "1")
				e.server.note("%v", ss.SetHeader(md))
				md["header"][0] = "changed"
				e.server.note("%v", ss.SendMsg(txt("one")))
				e.server.note("%v", ss.SetHeader(metadata.Pairs("late", "3")))
				return nil
			}}
		},
		client: func(e *env) {
			cs := open(e.t, e.ctx, e.cc, serverMethod)
			_ = cs.SendMsg(txt(""))
			_ = cs.CloseSend()
			header, err := cs.Header()
			e.client.note("%v %v", showMD(header), err)
			e.client.note("%s %s", recv(cs), recv(cs))
			header, err = cs.Header()
			e.client.note("%v %v %v", showMD(header), err, showMD(cs.Trailer()))
		},
		wantClient: []string{`{header=["1"]} <nil>`, `"one" EOF`, `{header=["1"]} <nil> {}`},
		wantServer: []string{"<nil>", "<nil>", "rpc error: code = Internal desc = transport: SendHeader called multiple times"},
	},
	{
		name: "metadata/only a trailer",
		stub: func(*env) *stub {
			return &stub{stream: func(ss grpc.ServerStream) error {
				ss.SetTrailer(metadata.Pairs("end", "1"))
				return status.Error(codes.Aborted, "at once")
			}}
		},
		client: func(e *env) {
			cs := open(e.t, e.ctx, e.cc, serverMethod)
			_ = cs.SendMsg(txt(""))
			_ = cs.CloseSend()
			header, err := cs.Header()
			e.client.note("%v %v %s", showMD(header), err, recv(cs))
			e.client.note("trailer %s", showMD(cs.Trailer()))
		},
		wantClient: []string{`none <nil> Aborted "at once"`, `trailer {end=["1"]}`},
	},
	{
		name: "metadata/of a canceled stream",
		stub: func(e *env) *stub {
			return &stub{stream: func(ss grpc.ServerStream) error {
				ss.SetTrailer(metadata.Pairs("end", "1"))
				e.server.note("%v", ss.SendHeader(metadata.Pairs("header", "2")))
				<-ss.Context().Done()
				close(e.gone)
				return nil
			}}
		},
		client: func(e *env) {
			ctx, cancel := context.WithCancel(e.ctx)
			cs := open(e.t, ctx, e.cc, serverMethod)
			_ = cs.SendMsg(txt(""))
			_ = cs.CloseSend()
			header, err := cs.Header()
			cancel()
			e.client.note("%v %v %s", showMD(header), err, recv(cs))
			wait(e.t, "end of the handler", e.gone)
			e.client.note("trailer %s", showMD(cs.Trailer()))
		},
		wantClient: []string{`{header=["2"]} <nil> Canceled "context canceled"`, `trailer {}`},
		wantServer: []string{"<nil>"},
	},
}

// respondingWith returns a stub whose unary method has a header and a trailer.
func respondingWith(err error) *stub {
	return &stub{unary: func(ctx context.Context, _ *text) (*text, error) {
		for _, md := range []metadata.MD{metadata.Pairs("one", "1"), metadata.Pairs("one", "2", "raw-bin", "\x00\xff")} {
			if err := grpc.SetHeader(ctx, md); err != nil {
				return nil, err
			}
		}
		for _, md := range []metadata.MD{metadata.Pairs("one", "3"), metadata.Pairs("last", "z")} {
			if err := grpc.SetTrailer(ctx, md); err != nil {
				return nil, err
			}
		}
		return txt("answer"), err
	}}
}

func invokeForMetadata(e *env) {
	var header, trailer metadata.MD
	e.invoke(e.ctx, unaryMethod, txt(""), grpc.Header(&header), grpc.Trailer(&trailer))
	e.client.note("header %s", showMD(header))
	e.client.note("trailer %s", showMD(trailer))
}
