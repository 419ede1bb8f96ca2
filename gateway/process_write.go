package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// writeParams are the parameters of process/write.
type writeParams struct {
	ProcessID string         `param:"processId"`
	Chunk     jsonrpc.Base64 `param:"chunk"`
	WriteID   *string        `param:"writeId,optional"`
}

// writeResult is the result of process/write.
type writeResult struct {
	Status string `json:"status"`
}

// The statuses of a write. A write to a process that cannot take any is no error.
var (
	writeAccepted       = writeResult{Status: "accepted"}
	writeUnknownProcess = writeResult{Status: "unknownProcess"}
	writeStdinClosed    = writeResult{Status: "stdinClosed"}
)

func (p *writeParams) order() (string, place) { return p.ProcessID, placeWrite }

func (p *writeParams) check() *jsonrpc.Error {
	if p.WriteID != nil && *p.WriteID == "" {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "writeId must not be empty")
	}
	return nil
}

// run writes the chunk, in pieces if it is larger than the core takes at once.
// It waits for room, which delays later writes to the same process and nothing
// else.
func (p *writeParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	if checkProcessID(p.ProcessID) != nil {
		return writeUnknownProcess, nil
	}
	if err := r.writeStdin(ctx, coreProcessID(p.ProcessID), p.Chunk, p.pieceID); err != nil {
		return p.outcome(ctx, r, err)
	}
	return writeAccepted, nil
}

// writeStdin writes data to the process with the core's id, each piece under the
// id that pieceID returns for its number.
func (r *request) writeStdin(ctx context.Context, id string, data []byte, pieceID func(int) string) error {
	r.hold(id, false, r.gateway.holds.output)
	most := max(int(r.environment.native.GetLimits().GetStdinWriteBytes()), 1)
	for piece, rest := 0, data; piece == 0 || len(rest) > 0; piece++ {
		data := rest[:min(most, len(rest))]
		rest = rest[len(data):]
		_, err := r.processes.WriteStdin(ctx, &execwirev1.WriteStdinRequest{
			SessionId: r.session.id, ProcessId: id, Data: data, WriteId: pieceID(piece)})
		if err != nil {
			return err
		}
	}
	return nil
}

// longestWriteID is the longest id of a client that is part of those that the
// core gets; the core takes 128 bytes.
const longestWriteID = 100

// pieceID returns the core's id for a piece of the write, so that a write that
// is repeated repeats none of its pieces. Different ids of the client never make
// the same.
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

// outcome is the answer to a write that the core refused.
func (p *writeParams) outcome(ctx context.Context, r *request, err error) (any, *jsonrpc.Error) {
	switch reasonOf(err) {
	case execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND:
		return writeUnknownProcess, nil
	case execwirev1.ErrorReason_ERROR_REASON_STDIN_NOT_PIPED:
		return writeStdinClosed, nil
	case execwirev1.ErrorReason_ERROR_REASON_STDIN_CLOSED, execwirev1.ErrorReason_ERROR_REASON_PROCESS_EXITED:
		return p.closedOutcome(ctx, r, err)
	}
	return nil, failureOf(err)
}

// closedOutcome is the answer to a write to a process that had a stdin: a
// terminal swallows what is written after the exit, a pipe does not.
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
		return nil, failureWithCode(err, jsonrpc.CodeInternal, "failed to write to process stdin")
	}
	return writeStdinClosed, nil
}
