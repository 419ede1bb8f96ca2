package gateway

import (
	"context"
	"slices"
	"strconv"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// snapshotParams are the parameters of process/snapshot.
type snapshotParams struct {
	ProcessID string `param:"processId"`
}

func (p *snapshotParams) order() (string, place) { return p.ProcessID, placeAny }

func (p *snapshotParams) check() *jsonrpc.Error { return checkProcessID(p.ProcessID) }

// run asks for the head and the tail of what the process said.
func (p *snapshotParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	leave, failed := r.reads.enter(ctx)
	if failed != nil {
		return nil, failed
	}
	response, err := r.processes.SnapshotOutput(ctx, &execwirev1.SnapshotOutputRequest{
		SessionId: r.session.id, ProcessId: coreProcessID(p.ProcessID)}, grpc.MaxCallRecvMsgSize(maxCoreMessage))
	if err != nil {
		leave()
		return nil, processFailure(p.ProcessID, err)
	}
	return &snapshot{response: response, leave: leave}, nil
}

// snapshot is the result of process/snapshot.
type snapshot struct {
	response *execwirev1.SnapshotOutputResponse
	leave    func()
}

var (
	_ appendable = (*snapshot)(nil)
	_ noted      = (*snapshot)(nil)
)

// snapshotStreams are the members of a snapshot that have output.
var snapshotStreams = []struct {
	member string
	stream execwirev1.OutputStream
}{
	{"stdout", execwirev1.OutputStream_OUTPUT_STREAM_STDOUT},
	{"stderr", execwirev1.OutputStream_OUTPUT_STREAM_STDERR},
	{"terminal", execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL},
}

func (s *snapshot) appendTo(dst []byte) []byte {
	var omitted []byte
	dst = append(dst, '{')
	for _, m := range snapshotStreams {
		said := s.stream(m.stream)
		dst = append(dst, '"')
		dst = append(dst, m.member...)
		dst = append(dst, `":`...)
		dst = jsonrpc.AppendBase64(dst, slices.Concat(said.GetHead(), said.GetTail()))
		dst = append(dst, ',')
		if said.GetOmittedBytes() > 0 {
			omitted = appendOmitted(omitted, m.member, said)
		}
	}
	process := s.response.GetProcess()
	dst = append(dst, `"truncated":`...)
	dst = strconv.AppendBool(dst, len(omitted) > 0)
	dst = append(dst, `,"omitted":{`...)
	dst = append(dst, omitted...)
	dst = append(dst, `},"running":`...)
	dst = strconv.AppendBool(dst, process.GetExit() == nil)
	dst = append(dst, `,"exitCode":`...)
	if process.GetExit() == nil {
		dst = append(dst, `null`...)
	} else {
		dst = strconv.AppendInt(dst, exitCode(process.GetExit()), 10)
	}
	dst = append(dst, `,"closed":`...)
	dst = strconv.AppendBool(dst, hasClosed(process))
	return append(dst, '}')
}

// appendOmitted appends what of a stream is left out, and where.
func appendOmitted(dst []byte, member string, said *execwirev1.StreamSnapshot) []byte {
	if len(dst) > 0 {
		dst = append(dst, ',')
	}
	dst = append(dst, '"')
	dst = append(dst, member...)
	dst = append(dst, `":{"offset":`...)
	dst = strconv.AppendInt(dst, int64(len(said.GetHead())), 10)
	dst = append(dst, `,"bytes":`...)
	dst = strconv.AppendUint(dst, said.GetOmittedBytes(), 10)
	return append(dst, '}')
}

// stream is what is known of a stream, nil for one that the process does not
// have.
func (s *snapshot) stream(stream execwirev1.OutputStream) *execwirev1.StreamSnapshot {
	for _, said := range s.response.GetStreams() {
		if said.GetStream() == stream {
			return said
		}
	}
	return nil
}

func (s *snapshot) wasSaid() { s.leave() }

// hasClosed reports whether nothing more comes of a process.
func hasClosed(described *execwirev1.Process) bool {
	return described.GetState() == execwirev1.ProcessState_PROCESS_STATE_CLOSED
}
