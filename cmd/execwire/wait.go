package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type waitFlags struct {
	session      string
	exit, closed bool
	pattern      string
	stream       string
	since        uint64
	port         uint32
	idle         time.Duration
	screen       string
	screenIdle   time.Duration
	timeout      time.Duration
	json         bool
}

func newWaitCommand(std streams) *cobra.Command {
	var flags waitFlags
	var request *execwirev1.WaitProcessRequest
	command := &cobra.Command{
		Use:   "wait [--exit|--closed|--pattern RE|--port N|--idle DURATION|--screen RE] [--timeout DURATION] [--json] ID...",
		Short: "Wait for the exit, output, a port or silence of processes",
		Long: `wait waits until a condition is true for every process, by default its exit. It
continues after a lost connection.

  --exit     the process has exited; output may still follow
  --closed   it has exited and no more output follows
  --pattern  its output, retained or new, matches a regular expression (RE2); prints
             the match on its own line
  --port     it or a descendant listens on a TCP port
  --idle     it has written nothing for this long
  --screen   the lines of its terminal's screen match a regular expression (RE2); with
             --screen-idle also the screen has not changed for this long, or only that

With --json each process is an object on its own line: id, satisfied, state, exit as
in ps; for a pattern, match: stream, offset, data (base64), seq; for a screen, screen
as in screen --json.

Exit codes:
    0  the condition is true for every process; with --exit and --closed the exit
       code of the process instead, or 128+n if signal n killed it; of several codes
       the first that is not 0
    1  a process closed before the condition was true
    2  the command line is wrong
  124  --timeout expired
  125  wait failed: no server, no such process`,
		Example: `  execwire wait build && echo passed
  execwire wait --timeout 30s --port 8080 server
  execwire wait --pattern 'listening on \S+' server
  execwire wait --screen '(?m)^password:$' --screen-idle 200ms login`,
		Args: cobra.MatchAll(ids("process", unlimited), exclusive("exit", "closed", "pattern", "port", "idle", "screen"), exclusive("exit", "closed", "pattern", "port", "idle", "screen-idle"),
			nonNegative("timeout"), positive("idle"), positive("screen-idle"),
			valid(func(command *cobra.Command, _ []string) (err error) {
				request, err = waitRequest(command, flags)
				return err
			})),
	}
	f := command.Flags()
	f.BoolVar(&flags.exit, "exit", false, "wait for the exit (the default)")
	f.BoolVar(&flags.closed, "closed", false, "wait for the end of the output")
	f.StringVar(&flags.pattern, "pattern", "", "wait for output that matches this `expression`")
	f.StringVar(&flags.stream, "stream", "", "with --pattern: search only this `stream`: stdout, stderr or terminal")
	f.Uint64Var(&flags.since, "since-seq", 0, "with --pattern: search after the event with this `number`")
	f.Uint32Var(&flags.port, "port", 0, "wait until it or a descendant listens on this TCP `port`")
	addDuration(f, &flags.idle, "idle", 0, "wait until the process has written nothing for this long")
	f.StringVar(&flags.screen, "screen", "", "wait until the screen of its terminal matches this `expression`")
	addDuration(f, &flags.screenIdle, "screen-idle", 0, "wait until the screen has not changed for this long")
	addDuration(f, &flags.timeout, "timeout", 0, "how long to wait at most; 0 only checks (default unlimited)")
	f.BoolVar(&flags.json, "json", false, "print JSON objects, one per line")
	addSessionFlag(command, &flags.session)
	onServer(command, serverUse{persistent: true, completes: complete.Records}, func(ctx context.Context, c *client.Client, arguments []string) error {
		return wait(ctx, c, flags, request, arguments, std)
	})
	return command
}

// waitRequest returns the condition, without a process.
func waitRequest(command *cobra.Command, flags waitFlags) (*execwirev1.WaitProcessRequest, error) {
	request := &execwirev1.WaitProcessRequest{SessionId: flags.session}
	given := command.Flags().Changed
	if given("timeout") {
		request.Wait = durationpb.New(flags.timeout)
	}
	if !given("pattern") && (given("stream") || given("since-seq")) {
		return nil, fmt.Errorf("--stream and --since-seq are for --pattern")
	}
	switch {
	case given("closed"):
		request.Condition = &execwirev1.WaitProcessRequest_Closed{Closed: &execwirev1.WaitForClosed{}}
	case given("pattern"):
		stream := execwirev1.OutputStream_value["OUTPUT_STREAM_"+strings.ToUpper(flags.stream)]
		if flags.stream != "" && stream == 0 {
			return nil, fmt.Errorf("--stream is %q: use stdout, stderr or terminal", flags.stream)
		}
		request.Condition = &execwirev1.WaitProcessRequest_Pattern{Pattern: &execwirev1.WaitForPattern{
			RegularExpression: flags.pattern, Stream: execwirev1.OutputStream(stream), AfterSeq: flags.since}}
	case given("port"):
		if flags.port < 1 || flags.port > 1<<16-1 {
			return nil, fmt.Errorf("--port is %d: use 1 to 65535", flags.port)
		}
		request.Condition = &execwirev1.WaitProcessRequest_Port{Port: &execwirev1.WaitForPort{Port: flags.port}}
	case given("idle"):
		request.Condition = &execwirev1.WaitProcessRequest_Idle{Idle: &execwirev1.WaitForIdle{Silence: durationpb.New(flags.idle)}}
	case given("screen") && flags.screen == "":
		return nil, fmt.Errorf("--screen is empty: give an expression, or only --screen-idle")
	case given("screen"), given("screen-idle"):
		request.Condition = &execwirev1.WaitProcessRequest_Screen{Screen: &execwirev1.WaitForScreen{
			RegularExpression: flags.screen, Idle: durationpb.New(flags.screenIdle)}}
	}
	return request, nil
}

// wait waits for all processes concurrently and prints the results in order.
func wait(
	ctx context.Context, c *client.Client, flags waitFlags, request *execwirev1.WaitProcessRequest, ids []string, std streams,
) error {
	responses := make([]*execwirev1.WaitProcessResponse, len(ids))
	failures := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() {
			request := proto.CloneOf(request)
			request.ProcessId = id
			responses[i], failures[i] = c.Wait(ctx, request)
		})
	}
	all.Wait()
	var first error
	for i, response := range responses {
		err := failures[i]
		if err == nil {
			err = printWaited(response, flags, std)
		}
		if err == nil {
			err = explainWait(response, request)
		}
		switch {
		case err == nil:
		case first == nil:
			first = err // reported by the command
		default:
			report(std.err, explain(err, nil))
		}
	}
	return first
}

// explainWait converts the end of a wait to that of this program.
func explainWait(response *execwirev1.WaitProcessResponse, request *execwirev1.WaitProcessRequest) error {
	id, exit := printable(response.GetProcess().GetProcessId()), response.GetProcess().GetExit()
	closed := response.GetProcess().GetState() == execwirev1.ProcessState_PROCESS_STATE_CLOSED
	switch request.GetCondition().(type) {
	case nil, *execwirev1.WaitProcessRequest_Closed:
		if response.GetSatisfied() {
			return exitCode(id, exit)
		}
	}
	switch {
	case response.GetSatisfied():
		return nil
	case closed && request.GetIdle() == nil:
		return &exitError{code: codeSomeFailed, err: fmt.Errorf("%s closed first (%s)", id, exitWord(exit))}
	default:
		return &exitError{code: codeTimeout, err: fmt.Errorf("%s: timed out", id)}
	}
}

// exitCode converts the exit code of a process to that of this program; nil for 0.
func exitCode(id string, exit *execwirev1.ExitRecord) error {
	code := int(exit.GetExitCode())
	switch {
	case exit.GetStatus() == nil:
		return &exitError{code: codeFailed, err: fmt.Errorf("%s has no exit code: %s", id, exitWord(exit))}
	case exit.GetSignal() != 0:
		code = 128 + int(exit.GetSignal())
	}
	if code == 0 {
		return nil
	}
	return &exitError{code: code}
}

// waitedObject is the JSON output for a wait.
type waitedObject struct {
	ID        string       `json:"id"`
	Satisfied bool         `json:"satisfied"`
	State     string       `json:"state"`
	Exit      *exitObject  `json:"exit,omitempty"`
	Match     *matchObject `json:"match,omitempty"`

	Screen *screenObject `json:"screen,omitempty"`
}

type matchObject struct {
	Stream string `json:"stream"`
	Offset uint64 `json:"offset"`
	Data   []byte `json:"data"`
	Seq    uint64 `json:"seq"`
}

func printWaited(response *execwirev1.WaitProcessResponse, flags waitFlags, std streams) error {
	match := response.GetMatch()
	if !flags.json {
		if match == nil {
			return nil
		}
		_, err := fmt.Fprintf(std.out, "%s\n", match.GetData())
		return err
	}
	object := waitedObject{
		ID:        response.GetProcess().GetProcessId(),
		Satisfied: response.GetSatisfied(),
		State:     enumWord(response.GetProcess().GetState(), "PROCESS_STATE_"),
		Exit:      describeExit(response.GetProcess().GetExit()),
	}
	if shown := response.GetScreen(); shown != nil {
		object.Screen = describeScreen(shown)
	}
	if match != nil {
		object.Match = &matchObject{
			Stream: enumWord(match.GetStream(), "OUTPUT_STREAM_"), Offset: match.GetOffset(), Data: match.GetData(), Seq: match.GetSeq()}
	}
	return printJSON(std.out, object)
}
