package inproc_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
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
