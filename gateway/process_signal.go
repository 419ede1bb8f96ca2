package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// signalParams is the parameters of process/signal.
type signalParams struct {
	onProcess
	Signal json.RawMessage `param:"signal"`
	Target *signalTarget   `param:"target,named"`

	signal execwirev1.Signal
	// interrupts marks the reference's only signal. It has the target of a key press,
	// and none after the exit.
	interrupts bool
}

// signalTarget is the recipient of a signal.
type signalTarget execwirev1.SignalTarget

func (t *signalTarget) UnmarshalText(text []byte) error {
	return param.Variant((*execwirev1.SignalTarget)(t), text, []string{"group", "process", "foreground"},
		execwirev1.SignalTarget_SIGNAL_TARGET_GROUP, execwirev1.SignalTarget_SIGNAL_TARGET_PROCESS, execwirev1.SignalTarget_SIGNAL_TARGET_FOREGROUND)
}

// maxSignal is the highest signal number.
const maxSignal = 64

func (p *signalParams) Check() *jsonrpc.Error {
	raw := p.Signal
	p.Signal = nil // it aliases the message
	var (
		number int64
		name   string
	)
	switch {
	case json.Unmarshal(raw, &number) == nil && string(raw) != "null":
		if number < 1 || number > maxSignal {
			return param.Invalid("signal", fmt.Sprintf("is %d: use 1 to %d", number, maxSignal))
		}
		p.signal = execwirev1.Signal(number)
		return nil
	case json.Unmarshal(raw, &name) == nil && string(raw) != "null":
		return p.named(name)
	}
	return param.Invalid("signal", "is neither a string nor an integer")
}

// named sets a signal by its name: interrupt, SIGTERM or TERM.
func (p *signalParams) named(name string) *jsonrpc.Error {
	if p.interrupts = name == "interrupt"; p.interrupts {
		p.signal = execwirev1.Signal_SIGNAL_INT
		return nil
	}
	number := execwirev1.Signal_value["SIGNAL_"+strings.TrimPrefix(name, "SIG")]
	if number == 0 {
		return param.NewError(jsonrpc.CodeInvalidParams, "signal", fmt.Sprintf(
			"unknown variant `%s`, expected `interrupt`, a number from 1 to %d, or a name: %s",
			param.Shorten(name), maxSignal, strings.Join(signalNames(), ", ")))
	}
	p.signal = execwirev1.Signal(number)
	return nil
}

// signalNames returns the names of signals by number.
func signalNames() []string {
	var names []string
	for _, number := range slices.Sorted(maps.Keys(execwirev1.Signal_name)) {
		if number > 0 {
			names = append(names, "SIG"+strings.TrimPrefix(execwirev1.Signal_name[number], "SIGNAL_"))
		}
	}
	return names
}

// run sends the signal. A process without a recipient is no error.
func (p *signalParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	described, failed := r.describe(ctx, p.ProcessID)
	if failed != nil || described == nil || p.interrupts && described.GetExit() != nil {
		return struct{}{}, failed
	}
	id := p.ProcessID.server()
	r.gateForSignal(id)
	_, err := r.processes.SignalProcess(ctx, &execwirev1.SignalProcessRequest{
		SessionId: r.session.id, ProcessId: id, Signal: p.signal, Target: p.target(described)})
	if err != nil && !isGone(err) {
		return nil, rpcerror.Of(err)
	}
	return struct{}{}, nil
}

// target returns the recipient: the group, unless the client chose one or wants the
// effect of a key press.
func (p *signalParams) target(described *execwirev1.Process) execwirev1.SignalTarget {
	switch {
	case p.Target != nil:
		return execwirev1.SignalTarget(*p.Target)
	case p.interrupts && described.GetHasTerminal():
		return execwirev1.SignalTarget_SIGNAL_TARGET_FOREGROUND
	}
	return execwirev1.SignalTarget_SIGNAL_TARGET_GROUP
}
