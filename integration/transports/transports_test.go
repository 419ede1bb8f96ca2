package transports

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// scenario is an operation of clients with the same result at every endpoint.
type scenario struct {
	name string
	// do runs it. It returns the error of the SDK, and fails the test if the SDK behaves
	// otherwise than expected.
	do func(v *scenarioRun) error
	// except lists where it is not possible.
	except []exception
	// only lists where it runs; empty means everywhere.
	only []protocol
}

// exception is the error of an operation that is not possible: its code, its reason, and parts
// of its text, which names the operation and the alternative.
type exception struct {
	protocol protocol
	code     codes.Code
	reason   execwirev1.ErrorReason
	text     string
	// instead is the scenario that shows the behavior there, if it is no error.
	instead string
}

// references are the servers that have only what the reference has.
var references = []protocol{protocolReferenceOld, protocolReferenceNew}

// overJSON lists where the exec-server protocol is used.
var overJSON = []protocol{protocolReferenceOld, protocolReferenceNew, protocolJSONRPC}

// notWithReferences is for operations that servers of the reference do not have. says is in
// the error.
func notWithReferences(says string) (all []exception) {
	for _, p := range references {
		all = append(all, exception{protocol: p, code: codes.Unimplemented, reason: execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED, text: says})
	}
	return all
}

// notWithOlder is for operations that the older version does not have. They fail because of
// the sandbox, as on a server without one.
func notWithOlder(says string) []exception {
	return []exception{{protocol: protocolReferenceOld, code: codes.FailedPrecondition, reason: execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE, text: says}}
}

// notWithJSON is for operations that the exec-server protocol does not have.
func notWithJSON(says string) []exception {
	ours := notWithReferences(says)[0]
	ours.protocol = protocolJSONRPC
	return append(notWithReferences(says), ours)
}

// otherwiseWithJSON names the scenario with the behavior over the exec-server protocol.
func otherwiseWithJSON(instead string) []exception {
	return append(otherwiseWithReferences(instead), exception{protocol: protocolJSONRPC, instead: instead})
}

// otherwiseWithReferences names the scenario with the behavior of the reference.
func otherwiseWithReferences(instead string) (all []exception) {
	for _, p := range references {
		all = append(all, exception{protocol: p, instead: instead})
	}
	return all
}

// endpoint returns the exception declared for an endpoint, if any.
func (s *scenario) at(e *endpoint) (exception, bool) {
	i := slices.IndexFunc(s.except, func(x exception) bool { return x.protocol == e.protocol })
	if i < 0 {
		return exception{}, false
	}
	return s.except[i], true
}

// scenarioRun is one scenario at one endpoint.
type scenarioRun struct {
	testing.TB
	ctx      context.Context
	endpoint *endpoint
	site     *site
	// client is for this run alone, and dir is an empty directory.
	client *client.Client
	dir    string
	ids    int
}

// TestTransports checks that a client of the SDK behaves equally over every transport, except
// for the declared differences.
func TestTransports(t *testing.T) {
	for _, e := range endpoints {
		t.Run(e.name, func(t *testing.T) {
			if e.distant {
				harness.Slow(t)
			}
			site := e.open(t)
			for _, s := range scenariosAt(&e) {
				t.Run(s.name, func(t *testing.T) { s.play(newRun(t, &e, site)) })
			}
		})
	}
}

func everyScenario() []scenario {
	return slices.Concat(processScenarios, handleScenarios, heldScenarios, outputScenarios, fileScenarios, transferScenarios, portScenarios, referenceScenarios)
}

// scenariosAt are those of an endpoint.
func scenariosAt(e *endpoint) []scenario {
	return slices.DeleteFunc(everyScenario(), func(s scenario) bool {
		x, excepted := s.at(e)
		return excepted && x.instead != "" || len(s.only) > 0 && !slices.Contains(s.only, e.protocol)
	})
}

// TestExceptions_NameExistingScenarios checks that the scenarios named by exceptions exist.
func TestExceptions_NameExistingScenarios(t *testing.T) {
	for _, e := range endpoints {
		there := scenariosAt(&e)
		for _, s := range everyScenario() {
			x, excepted := s.at(&e)
			named := func(s scenario) bool { return s.name == x.instead }
			if excepted && x.instead != "" && !slices.ContainsFunc(there, named) {
				t.Errorf("%q is done otherwise at %s, and nothing there is called %q", s.name, e.name, x.instead)
			}
		}
	}
}

func newRun(t testing.TB, e *endpoint, s *site) *scenarioRun {
	return &scenarioRun{TB: t, ctx: harness.Context(t), endpoint: e, site: s, client: s.dial(t), dir: harness.ShortDir(t)}
}

// play runs a scenario and checks the declared result.
func (s *scenario) play(v *scenarioRun) {
	v.Helper()
	err := s.do(v)
	if v.site.reference != nil {
		for _, name := range v.site.reference.blamed() {
			v.Errorf("the reference has no place for %s", name)
		}
	}
	want, excepted := s.at(v.endpoint)
	var typed *client.Error
	switch {
	case !excepted && err != nil:
		v.Errorf("failed: %v", err)
	case excepted && err == nil:
		v.Errorf("it can be done, though it is declared that it cannot: %+v", want)
	case excepted && (!errors.As(err, &typed) || typed.Code != want.code || typed.Reason != want.reason || !strings.Contains(typed.Message, want.text)):
		v.Errorf("failed with %v, want %+v", err, want)
	}
}

// newID returns an id that is new to the server.
func (v *scenarioRun) newID() string {
	v.ids++
	return fmt.Sprintf("%s %s %d", v.Name(), v.dir, v.ids)
}

// process returns the description of a process.
func (v *scenarioRun) process(argv []string, options ...harness.Option) *execwirev1.StartProcessRequest {
	r := &execwirev1.RunStart{Process: &execwirev1.StartProcessRequest{
		ProcessId: v.newID(),
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
			Direct: &execwirev1.DirectCommand{Argv: argv, WorkingDirectory: v.dir, Env: harness.Environment()}}},
	}}
	for _, option := range options {
		option(r)
	}
	return r.GetProcess()
}

// start starts a process without an owner, and returns its ID.
func (v *scenarioRun) start(argv []string, options ...harness.Option) (string, error) {
	v.Helper()
	response, err := v.client.Processes().StartProcess(v.ctx, v.process(argv, options...))
	return response.GetProcess().GetProcessId(), client.FromRPC(err)
}

// run runs a process to its end, with this input; nil means none.
func (v *scenarioRun) run(argv []string, input io.Reader, options ...harness.Option) (exit client.Exit, stdout, stderr string, err error) {
	v.Helper()
	var out, complaint bytes.Buffer
	exit, err = v.client.Run(v.ctx, client.RunOptions{
		Process: v.process(argv, options...), Stdin: input, Stdout: &out, Stderr: &complaint})
	return exit, out.String(), complaint.String(), err
}

// expectExit checks how a process ended: by a code, or by a signal if that is not 0.
func (v *scenarioRun) expectExit(exit client.Exit, code int, signal syscall.Signal, cause execwirev1.ExitCause) {
	v.Helper()
	if exit.Code != code || exit.Signal != signal || exit.Cause != cause || exit.DroppedBytes != 0 {
		v.Errorf("it ended with %+v, want code %d, signal %d, cause %v and nothing dropped", exit, code, signal, cause)
	}
}

// expectReason fails unless err has the type of server errors and this reason, by its name on
// the wire.
func (v *scenarioRun) expectReason(what string, err error, want string) {
	v.Helper()
	var typed *client.Error
	if !errors.As(err, &typed) || harness.ReasonOf(err) != want {
		v.Errorf("%s: the reason is %s, want %s: %v", what, harness.ReasonOf(err), want, err)
	}
}

// expectText fails unless the output of a stream is exactly this.
func (v *scenarioRun) expectText(what, got, want string) {
	v.Helper()
	if got != want {
		v.Errorf("%s is %d bytes, %.200q; want %d, %.200q", what, len(got), got, len(want), want)
	}
}
