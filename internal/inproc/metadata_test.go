package inproc_test

import (
	"context"

	"google.golang.org/grpc/metadata"
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
}
