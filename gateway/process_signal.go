package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// signalParams are the parameters of process/signal.
type signalParams struct {
	ProcessID string          `param:"processId"`
	Signal    json.RawMessage `param:"signal"`
	Target    *signalTarget   `param:"target,named"`

	signal execwirev1.Signal
	// interrupts is for the only signal of the reference, which it has by a name of
	// its own: it goes to whom a key press would, and to nobody after the exit.
	interrupts bool
}

// signalTarget says who gets a signal.
type signalTarget execwirev1.SignalTarget

func (t *signalTarget) UnmarshalText(text []byte) error {
	switch string(text) {
	case "group":
		*t = signalTarget(execwirev1.SignalTarget_SIGNAL_TARGET_GROUP)
	case "process":
		*t = signalTarget(execwirev1.SignalTarget_SIGNAL_TARGET_PROCESS)
	case "foreground":
		*t = signalTarget(execwirev1.SignalTarget_SIGNAL_TARGET_FOREGROUND)
	default:
		return jsonrpc.UnknownVariant(string(text), "group", "process", "foreground")
	}
	return nil
}

func (p *signalParams) order() (string, place) { return p.ProcessID, placeAny }

// maxSignal is the highest number of a signal.
const maxSignal = 64

func (p *signalParams) check() *jsonrpc.Error {
	said := p.Signal
	p.Signal = nil // part of the message
	var (
		number int64
		name   string
	)
	switch {
	case json.Unmarshal(said, &number) == nil && string(said) != "null":
		if number < 1 || number > maxSignal {
			return invalidMember("signal", fmt.Sprintf("is %d: use 1 to %d", number, maxSignal))
		}
		p.signal = execwirev1.Signal(number)
		return nil
	case json.Unmarshal(said, &name) == nil && string(said) != "null":
		return p.named(name)
	}
	return invalidMember("signal", "is neither a string nor an integer")
}

// named finds a signal by its name: interrupt, or as SIGTERM or TERM.
func (p *signalParams) named(name string) *jsonrpc.Error {
	if p.interrupts = name == "interrupt"; p.interrupts {
		p.signal = execwirev1.Signal_SIGNAL_INT
		return nil
	}
	number := execwirev1.Signal_value["SIGNAL_"+strings.TrimPrefix(name, "SIG")]
	if number == 0 {
		return &jsonrpc.Error{
			Code: jsonrpc.CodeInvalidParams,
			Message: fmt.Sprintf("unknown variant `%s`, expected `interrupt`, a number from 1 to %d, or a name: %s",
				shorten(name), maxSignal, strings.Join(signalNames(), ", ")),
			Data: jsonrpc.InvalidField{Reason: "INVALID_FIELD", Field: "signal"},
		}
	}
	p.signal = execwirev1.Signal(number)
	return nil
}

// signalNames are the names of signals, by their numbers.
func signalNames() []string {
	var names []string
	for _, number := range slices.Sorted(maps.Keys(execwirev1.Signal_name)) {
		if number > 0 {
			names = append(names, "SIG"+strings.TrimPrefix(execwirev1.Signal_name[number], "SIGNAL_"))
		}
	}
	return names
}

// run sends the signal. It is no error that there is nobody to signal.
func (p *signalParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	described, failed := r.describe(ctx, p.ProcessID)
	if failed != nil || described == nil || p.interrupts && described.GetExit() != nil {
		return struct{}{}, failed
	}
	id := coreProcessID(p.ProcessID)
	r.holdForSignal(id)
	_, err := r.processes.SignalProcess(ctx, &execwirev1.SignalProcessRequest{
		SessionId: r.session.id, ProcessId: id, Signal: p.signal, Target: p.target(described)})
	if err != nil && !isGone(err) {
		return nil, failureOf(err)
	}
	return struct{}{}, nil
}

// target is who gets the signal: the group, unless the client said or what a key
// press would do is wanted.
func (p *signalParams) target(described *execwirev1.Process) execwirev1.SignalTarget {
	switch {
	case p.Target != nil:
		return execwirev1.SignalTarget(*p.Target)
	case p.interrupts && described.GetHasTerminal():
		return execwirev1.SignalTarget_SIGNAL_TARGET_FOREGROUND
	}
	return execwirev1.SignalTarget_SIGNAL_TARGET_GROUP
}
