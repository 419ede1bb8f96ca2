package inproc_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
)

// env is the environment of a scenario: the client's and the server's journals
// are separate, because the two ends are not ordered.
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
	// expected over both carriers
	wantClient []string
	wantServer []string
}

// TestScenarios runs every scenario over a real gRPC server and over the channel,
// with the same literal expectations: they hold for grpc-go, and for the channel
// as well.
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

// invoke makes a unary call and records its result.
func (e *env) invoke(ctx context.Context, method string, req any, opts ...grpc.CallOption) {
	out := new(text)
	err := e.cc.Invoke(ctx, method, req, out, opts...)
	e.client.note("%s %q", show(err), out.GetValue())
}
