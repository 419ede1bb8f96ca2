package gateway

import (
	"context"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/call"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// snapshotParams is the parameters of process/snapshot.
type snapshotParams struct{ onProcess }

// snapshot is the result of process/snapshot.
type snapshot struct {
	Stdout    []byte             `json:"stdout"`
	Stderr    []byte             `json:"stderr"`
	Terminal  []byte             `json:"terminal"`
	Truncated bool               `json:"truncated"`
	Omitted   map[string]omitted `json:"omitted"` // by member
	Running   bool               `json:"running"`
	ExitCode  *int64             `json:"exitCode"`
	Closed    bool               `json:"closed"`

	release func()
}

// omitted is the part of a stream that a snapshot lacks.
type omitted struct {
	Offset int    `json:"offset"`
	Bytes  uint64 `json:"bytes"`
}

func (p *snapshotParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	return r.outputAnswers.Prepare(ctx, func(release func()) (any, *jsonrpc.Error) { return p.query(ctx, r, release) })
}

// query queries the head and the tail of the retained output.
func (p *snapshotParams) query(ctx context.Context, r *request, release func()) (any, *jsonrpc.Error) {
	response, err := r.processes.SnapshotOutput(ctx, &execwirev1.SnapshotOutputRequest{
		SessionId: r.session.id, ProcessId: p.ProcessID.server()}, grpc.MaxCallRecvMsgSize(call.MaxServerMessage))
	if err != nil {
		return nil, processError(p.ProcessID, err)
	}
	exit := response.GetProcess().GetExit()
	s := &snapshot{Stdout: []byte{}, Stderr: []byte{}, Terminal: []byte{}, Omitted: map[string]omitted{}, release: release,
		Running: exit == nil, ExitCode: exitCodeOrNil(exit), Closed: hasClosed(response.GetProcess())}
	for _, stream := range response.GetStreams() {
		s.add(stream)
	}
	s.Truncated = len(s.Omitted) > 0
	return s, nil
}

func (s *snapshot) add(stream *execwirev1.StreamSnapshot) {
	member, content := "stdout", &s.Stdout
	switch stream.GetStream() {
	case execwirev1.OutputStream_OUTPUT_STREAM_STDERR:
		member, content = "stderr", &s.Stderr
	case execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL:
		member, content = "terminal", &s.Terminal
	}
	*content = append(append(*content, stream.GetHead()...), stream.GetTail()...)
	if stream.GetOmittedBytes() > 0 {
		s.Omitted[member] = omitted{Offset: len(stream.GetHead()), Bytes: stream.GetOmittedBytes()}
	}
}

// Sent implements [call.SendObserver].
func (s *snapshot) Sent() { s.release() }
