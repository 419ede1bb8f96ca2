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
		name: "metadata/header goes with the status", stub: func(*env) *stub {
			return &stub{stream: func(ss grpc.ServerStream) error {
				_ = ss.SetHeader(metadata.Pairs("h", "1"))
				return status.Error(codes.NotFound, "gone")
			}}
		},
		client: func(e *env) {
			cs := open(e.t, e.ctx, e.cc, bidiMethod)
			md, err := cs.Header()
			e.client.note("header %s %s", showMD(md), show(err))
			e.client.note("recv %s", recv(cs))
		},
		wantClient: []string{`header {h=["1"]} ok`, `recv NotFound "gone"`},
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
