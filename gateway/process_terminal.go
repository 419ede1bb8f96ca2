package gateway

import (
	"context"
	"fmt"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// resizeParams are the parameters of process/resize.
type resizeParams struct {
	ProcessID string `param:"processId"`
	Rows      uint16 `param:"rows"`
	Cols      uint16 `param:"cols"`
}

func (p *resizeParams) order() (string, place) { return p.ProcessID, placeResize }

func (p *resizeParams) check() *jsonrpc.Error {
	if err := checkProcessID(p.ProcessID); err != nil {
		return err
	}
	_, err := terminalSize(&p.Rows, &p.Cols)
	return err
}

// run gives the terminal its size. It is no error that the process has exited.
func (p *resizeParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	id := coreProcessID(p.ProcessID)
	r.holdForSignal(id)
	_, err := r.processes.ResizeTerminal(ctx, &execwirev1.ResizeTerminalRequest{
		SessionId: r.session.id, ProcessId: id,
		Size: &execwirev1.TerminalSize{Rows: uint32(p.Rows), Columns: uint32(p.Cols)},
	})
	if err != nil && reasonOf(err) != execwirev1.ErrorReason_ERROR_REASON_PROCESS_EXITED {
		return nil, processFailure(p.ProcessID, err)
	}
	return struct{}{}, nil
}

// checkSize reads the size that the terminal of a new process is to have.
func (p *startParams) checkSize() (err *jsonrpc.Error) {
	switch {
	case !p.Tty && p.Rows != nil:
		return invalidMember("rows", "is for a process with a terminal: set tty, or leave it out")
	case !p.Tty && p.Cols != nil:
		return invalidMember("cols", "is for a process with a terminal: set tty, or leave it out")
	}
	p.size, err = terminalSize(p.Rows, p.Cols)
	return err
}

// terminalSize is the size that a client asks for, nil for the standard one.
func terminalSize(rows, cols *uint16) (*execwirev1.TerminalSize, *jsonrpc.Error) {
	switch {
	case rows == nil && cols == nil:
		return nil, nil
	case rows == nil:
		return nil, invalidMember("rows", "is missing: give rows and cols, or neither")
	case cols == nil:
		return nil, invalidMember("cols", "is missing: give rows and cols, or neither")
	case *rows == 0:
		return nil, invalidMember("rows", "is 0: use 1 to 65535")
	case *cols == 0:
		return nil, invalidMember("cols", "is 0: use 1 to 65535")
	}
	return &execwirev1.TerminalSize{Rows: uint32(*rows), Columns: uint32(*cols)}, nil
}

// invalidMember is the refusal of a member of the parameters for what it says.
func invalidMember(name, problem string) *jsonrpc.Error {
	return &jsonrpc.Error{
		Code:    jsonrpc.CodeInvalidParams,
		Message: fmt.Sprintf("`%s` %s", name, problem),
		Data:    jsonrpc.InvalidField{Reason: "INVALID_FIELD", Field: name},
	}
}
