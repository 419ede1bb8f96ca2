package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/inproc"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// writeParams is the parameters of process/write.
type writeParams struct {
	onProcess
	Chunk   jsonrpc.Base64 `param:"chunk"`
	WriteID *string        `param:"writeId,optional"`
}

// writeResult is the result of process/write.
type writeResult struct {
	Status string `json:"status"`
}

// Statuses of a write. A process without stdin is no error.
var (
	writeAccepted       = writeResult{Status: "accepted"}
	writeUnknownProcess = writeResult{Status: "unknownProcess"}
	writeStdinClosed    = writeResult{Status: "stdinClosed"}
)

func (p *writeParams) order() (processID, orderKind) { return p.ProcessID, orderWrite }

func (p *writeParams) Check() *jsonrpc.Error {
	if p.WriteID != nil && *p.WriteID == "" {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "writeId must not be empty")
	}
	return nil
}

// run writes the chunk, in pieces if it exceeds the server's limit. It blocks while the
// process does not read, which delays later writes to the same process only.
func (p *writeParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	if err := r.writeStdin(ctx, p.ProcessID.server(), p.Chunk, p.pieceID); err != nil {
		return p.outcome(ctx, r, err)
	}
	return writeAccepted, nil
}

// writeStdin writes data to the process with the server's id, each piece under the id
// that pieceID returns for its number.
func (r *request) writeStdin(ctx context.Context, id string, data []byte, pieceID func(int) string) error {
	r.gateOutput(id, r.gateLimits.output)
	most := max(int(r.environment.native.GetLimits().GetStdinWriteBytes()), 1)
	for piece, rest := 0, data; piece == 0 || len(rest) > 0; piece++ {
		data := rest[:min(most, len(rest))]
		rest = rest[len(data):]
		_, err := r.processes.WriteStdin(ctx, &execwirev1.WriteStdinRequest{
			SessionId: r.session.id, ProcessId: id, Data: data, WriteId: pieceID(piece)}, inproc.InCaller{})
		if err != nil {
			return err
		}
	}
	return nil
}

// longestWriteID is the longest client's id that is used as it is; the server's limit
// is 128 bytes.
const longestWriteID = 100

// pieceID returns the server's write id of a piece, so that a retried write does not
// repeat its pieces. Different ids of the client give different results.
func (p *writeParams) pieceID(piece int) string {
	if p.WriteID == nil {
		return ""
	}
	if len(*p.WriteID) <= longestWriteID {
		return fmt.Sprintf("%d:%s", piece, *p.WriteID)
	}
	sum := sha256.Sum256([]byte(*p.WriteID))
	return fmt.Sprintf("%d#%s", piece, hex.EncodeToString(sum[:]))
}

// outcome converts an error of a write.
func (p *writeParams) outcome(ctx context.Context, r *request, err error) (any, *jsonrpc.Error) {
	switch errorinfo.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND:
		return writeUnknownProcess, nil
	case execwirev1.ErrorReason_ERROR_REASON_STDIN_NOT_PIPED:
		return writeStdinClosed, nil
	case execwirev1.ErrorReason_ERROR_REASON_STDIN_CLOSED, execwirev1.ErrorReason_ERROR_REASON_PROCESS_EXITED:
		return p.closedOutcome(ctx, r, err)
	}
	return nil, rpcerror.Of(err)
}

// closedOutcome is the result of a write to a process that had stdin: after the exit, a
// terminal discards input and a pipe rejects it.
func (p *writeParams) closedOutcome(ctx context.Context, r *request, err error) (any, *jsonrpc.Error) {
	described, failed := r.describe(ctx, p.ProcessID)
	switch {
	case failed != nil:
		return nil, failed
	case described == nil:
		return writeUnknownProcess, nil
	case described.GetHasTerminal():
		return writeAccepted, nil
	case described.GetExit() != nil:
		return nil, rpcerror.WithCode(err, jsonrpc.CodeInternal, "failed to write to process stdin")
	}
	return writeStdinClosed, nil
}

// closeStdinParams is the parameters of process/closeStdin.
type closeStdinParams struct{ onProcess }

// order puts the end of input after earlier writes, which may block. Therefore the
// method is not a control method.
func (p *closeStdinParams) order() (processID, orderKind) { return p.ProcessID, orderWrite }

// run closes stdin. A process without stdin is no error, as with a write.
func (p *closeStdinParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	id := p.ProcessID.server()
	r.gateForSignal(id)
	_, err := r.processes.CloseStdin(ctx, &execwirev1.CloseStdinRequest{SessionId: r.session.id, ProcessId: id})
	switch errorinfo.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND:
		return writeUnknownProcess, nil
	case execwirev1.ErrorReason_ERROR_REASON_STDIN_NOT_PIPED:
		return writeStdinClosed, nil
	}
	if err != nil {
		return nil, rpcerror.Of(err)
	}
	return writeAccepted, nil
}
