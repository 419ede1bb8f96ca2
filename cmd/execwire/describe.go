package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// processObject is the JSON output for a process.
type processObject struct {
	ID                string         `json:"id"`
	Session           string         `json:"session"`
	State             string         `json:"state"`
	PID               int32          `json:"pid"`
	User              string         `json:"user"`
	Argv              []string       `json:"argv"`
	WorkingDirectory  string         `json:"working_directory"`
	Terminal          bool           `json:"terminal"`
	StartTime         time.Time      `json:"start_time"`
	LastSeq           uint64         `json:"last_seq"`
	FirstAvailableSeq uint64         `json:"first_available_seq"`
	Owned             bool           `json:"owned"`
	Sandbox           *sandboxObject `json:"sandbox,omitempty"`
	Exit              *exitObject    `json:"exit,omitempty"`
	LastOutput        []outputObject `json:"last_output,omitempty"`
}

// outputObject is the JSON output for output of a stream, with Text if it is UTF-8.
type outputObject struct {
	Stream string  `json:"stream"`
	Text   *string `json:"text,omitempty"`
	Base64 []byte  `json:"base64,omitempty"` // as encoding/json has it
}

func describeOutput(stream string, data []byte) outputObject {
	if utf8.Valid(data) {
		return outputObject{Stream: stream, Text: new(string(data))}
	}
	return outputObject{Stream: stream, Base64: data}
}

// describeTail describes the end of a stream from its first whole character on.
func describeTail(tail *execwirev1.StreamTail) outputObject {
	whole := tail.GetData()
	for i := 0; i < utf8.UTFMax && len(whole) > 0 && !utf8.RuneStart(whole[0]); i++ {
		whole = whole[1:]
	}
	if !utf8.Valid(whole) {
		whole = tail.GetData()
	}
	return describeOutput(enumWord(tail.GetStream(), "OUTPUT_STREAM_"), whole)
}

// exitObject is the JSON output for the end of a process, with ExitCode or Signal.
type exitObject struct {
	ExitCode    *int32    `json:"exit_code,omitempty"`
	Signal      string    `json:"signal,omitempty"`
	Cause       string    `json:"cause"`
	ExitTime    time.Time `json:"exit_time"`
	WallSeconds float64   `json:"wall_seconds"`
	// SandboxDenied is omitted if false.
	SandboxDenied bool `json:"sandbox_denied,omitempty"`
}

// sandboxObject is the JSON output for the sandbox of a process.
type sandboxObject struct {
	Backend         string `json:"backend"`
	Network         string `json:"network"`
	RestrictsFiles  bool   `json:"restricts_files"`
	HidesProcesses  bool   `json:"hides_processes"`
	FreezesMetadata bool   `json:"freezes_metadata"`
}

func describeSandbox(report *execwirev1.SandboxReport) *sandboxObject {
	if report == nil {
		return nil
	}
	return &sandboxObject{
		Backend:         enumWord(report.GetBackend(), "SANDBOX_BACKEND_"),
		Network:         enumWord(report.GetNetwork(), "NETWORK_ACCESS_"),
		RestrictsFiles:  report.GetRestrictsFiles(),
		HidesProcesses:  report.GetHidesProcesses(),
		FreezesMetadata: report.GetFreezesMetadata(),
	}
}

func describeProcess(p *execwirev1.Process) processObject {
	var tails []outputObject
	for _, tail := range p.GetLastOutput() {
		tails = append(tails, describeTail(tail))
	}
	return processObject{
		LastOutput:        tails,
		ID:                p.GetProcessId(),
		Session:           p.GetSessionId(),
		State:             enumWord(p.GetState(), "PROCESS_STATE_"),
		PID:               p.GetPid(),
		User:              p.GetUser(),
		Argv:              p.GetArgv(),
		WorkingDirectory:  p.GetWorkingDirectory(),
		Terminal:          p.GetHasTerminal(),
		StartTime:         p.GetStartTime().AsTime(),
		LastSeq:           p.GetLastSeq(),
		FirstAvailableSeq: p.GetFirstAvailableSeq(),
		Owned:             p.GetOwned(),
		Sandbox:           describeSandbox(p.GetSandbox()),
		Exit:              describeExit(p.GetExit()),
	}
}

// The values of run --json.
const (
	jsonEvents = "events"
	jsonResult = "result"
)

// runEvents prints the events of a run as JSON. Its methods may be called concurrently.
type runEvents struct {
	mu  sync.Mutex
	out io.Writer // guarded by mu
}

// startedEvent, outputEvent and exitedEvent are those of run --json.
type startedEvent struct {
	Event string `json:"event"`
	ID    string `json:"id"`
	PID   int32  `json:"pid"`
}

type outputEvent struct {
	Event string `json:"event"`
	outputObject
}

type exitedEvent struct {
	Event         string  `json:"event,omitempty"`
	ID            string  `json:"id"`
	ExitCode      *int    `json:"exit_code,omitempty"`
	Signal        string  `json:"signal,omitempty"`
	Cause         string  `json:"cause"`
	WallSeconds   float64 `json:"wall_seconds"`
	SandboxDenied bool    `json:"sandbox_denied,omitempty"`
	DroppedBytes  uint64  `json:"dropped_bytes,omitempty"`
}

func (e *runEvents) print(event any) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return printJSON(e.out, event)
}

// started prints that a process has started. An error of the output shows at the next one.
func (e *runEvents) started(p *execwirev1.Process) {
	_ = e.print(startedEvent{"started", p.GetProcessId(), p.GetPid()})
}

// stream returns a writer that prints what it gets as events of a stream.
func (e *runEvents) stream(name string) io.Writer { return eventWriter{e, name} }

type eventWriter struct {
	events *runEvents
	stream string
}

// Write implements io.Writer.
func (w eventWriter) Write(p []byte) (int, error) {
	if err := w.events.print(outputEvent{"output", describeOutput(w.stream, p)}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// describeEnd describes the end of a run, with the names of exitObject.
func describeEnd(event string, exit client.Exit) exitedEvent {
	end := exitedEvent{Event: event, ID: exit.ProcessID, Cause: enumWord(exit.Cause, "EXIT_CAUSE_"), WallSeconds: exit.WallTime.Seconds(),
		SandboxDenied: exit.SandboxDenied, DroppedBytes: exit.DroppedBytes}
	switch {
	case exit.Signal != 0:
		end.Signal = signalName(execwirev1.Signal(exit.Signal))
	case exit.HasStatus():
		end.ExitCode = &exit.Code
	}
	return end
}

func describeExit(exit *execwirev1.ExitRecord) *exitObject {
	if exit == nil {
		return nil
	}
	object := &exitObject{
		Cause:       enumWord(exit.GetCause(), "EXIT_CAUSE_"),
		ExitTime:    exit.GetExitTime().AsTime(),
		WallSeconds: exit.GetWallTime().AsDuration().Seconds(),

		SandboxDenied: exit.GetSandboxDenied(),
	}
	switch status := exit.GetStatus().(type) {
	case *execwirev1.ExitRecord_ExitCode:
		object.ExitCode = &status.ExitCode
	case *execwirev1.ExitRecord_Signal:
		object.Signal = signalName(status.Signal)
	}
	return object
}

// enumWord returns the name of an enum value in lower case, without its prefix.
func enumWord(value fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(value.String(), prefix))
}

// signalPrefix begins the names of signals in the contract, which has those of Linux.
const signalPrefix = "SIGNAL_"

// signalName returns the name of a signal as in kill(1), or its number.
func signalName(signal execwirev1.Signal) string {
	if name, known := strings.CutPrefix(signal.String(), signalPrefix); known && signal != 0 {
		return "SIG" + name
	}
	return strconv.Itoa(int(signal))
}

// parseSignal accepts TERM, SIGTERM and 15.
func parseSignal(name string) (execwirev1.Signal, error) {
	const highest = 64
	number, err := strconv.Atoi(name)
	if err != nil {
		upper := strings.ToUpper(name)
		number = int(execwirev1.Signal_value[signalPrefix+strings.TrimPrefix(upper, "SIG")])
	}
	if number < 1 || number > highest {
		return 0, fmt.Errorf("%q is not a signal: use a name such as TERM, or a number from 1 to %d", name, highest)
	}
	return execwirev1.Signal(number), nil
}

// exitWord describes the end of a process: its code or signal, and the cause if it did
// not end by itself.
func exitWord(exit *execwirev1.ExitRecord) string {
	object := describeExit(exit)
	if object == nil {
		return "-"
	}
	word := "lost"
	switch {
	case object.ExitCode != nil:
		word = strconv.Itoa(int(*object.ExitCode))
	case object.Signal != "":
		word = object.Signal
	}
	if cause := exit.GetCause(); cause != execwirev1.ExitCause_EXIT_CAUSE_EXITED && object.Cause != word {
		word += " (" + strings.ReplaceAll(object.Cause, "_", " ") + ")"
	}
	if object.SandboxDenied {
		word += " (sandbox denied)"
	}
	return word
}
