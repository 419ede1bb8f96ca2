package gateway

import (
	"context"

	"github.com/execwire/execwire/gateway/param"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// resizeParams is the parameters of process/resize.
type resizeParams struct {
	onProcess
	Rows uint16 `param:"rows"`
	Cols uint16 `param:"cols"`
}

func (p *resizeParams) order() (processID, orderKind) { return p.ProcessID, orderResize }

func (p *resizeParams) Check() *jsonrpc.Error {
	_, err := terminalSize(&p.Rows, &p.Cols)
	return err
}

// run resizes the terminal. An exited process is no error.
func (p *resizeParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	id := p.ProcessID.server()
	r.gateForSignal(id)
	_, err := r.processes.ResizeTerminal(ctx, &execwirev1.ResizeTerminalRequest{
		SessionId: r.session.id, ProcessId: id,
		Size: &execwirev1.TerminalSize{Rows: uint32(p.Rows), Columns: uint32(p.Cols)},
	})
	if err != nil && errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_PROCESS_EXITED {
		return nil, processError(p.ProcessID, err)
	}
	return struct{}{}, nil
}

// newTerminalSize parses the size of a new terminal.
func newTerminalSize(tty bool, rows, cols *uint16) (*execwirev1.TerminalSize, *jsonrpc.Error) {
	switch {
	case !tty && rows != nil:
		return nil, param.Invalid("rows", "is for a process with a terminal: set tty, or leave it out")
	case !tty && cols != nil:
		return nil, param.Invalid("cols", "is for a process with a terminal: set tty, or leave it out")
	}
	return terminalSize(rows, cols)
}

// terminalSize returns the requested size; nil is the default.
func terminalSize(rows, cols *uint16) (*execwirev1.TerminalSize, *jsonrpc.Error) {
	switch {
	case rows == nil && cols == nil:
		return nil, nil
	case rows == nil:
		return nil, param.Invalid("rows", "is missing: give rows and cols, or neither")
	case cols == nil:
		return nil, param.Invalid("cols", "is missing: give rows and cols, or neither")
	case *rows == 0:
		return nil, param.Invalid("rows", "is 0: use 1 to 65535")
	case *cols == 0:
		return nil, param.Invalid("cols", "is 0: use 1 to 65535")
	}
	return &execwirev1.TerminalSize{Rows: uint32(*rows), Columns: uint32(*cols)}, nil
}
