package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// processObject is a process as --json prints it.
type processObject struct {
	ID                string         `json:"id"`
	Session           string         `json:"session"`
	State             string         `json:"state"`
	PID               int32          `json:"pid"`
	Argv              []string       `json:"argv"`
	WorkingDirectory  string         `json:"working_directory"`
	Terminal          bool           `json:"terminal"`
	StartTime         time.Time      `json:"start_time"`
	LastSeq           uint64         `json:"last_seq"`
	FirstAvailableSeq uint64         `json:"first_available_seq"`
	Owned             bool           `json:"owned"`
	Sandbox           *sandboxObject `json:"sandbox,omitempty"`
	Exit              *exitObject    `json:"exit,omitempty"`
}

// exitObject is the end of a process as --json prints it: ExitCode or Signal is
// there.
type exitObject struct {
	ExitCode    *int32    `json:"exit_code,omitempty"`
	Signal      string    `json:"signal,omitempty"`
	Cause       string    `json:"cause"`
	ExitTime    time.Time `json:"exit_time"`
	WallSeconds float64   `json:"wall_seconds"`
	// SandboxDenied is there if it is true.
	SandboxDenied bool `json:"sandbox_denied,omitempty"`
}

// sandboxObject is what is enforced on a process as --json prints it.
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
	return processObject{
		ID:                p.GetProcessId(),
		Session:           p.GetSessionId(),
		State:             enumWord(p.GetState(), "PROCESS_STATE_"),
		PID:               p.GetPid(),
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

// enumWord is the name of an enum's value without its prefix, in lower case.
func enumWord(value fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(value.String(), prefix))
}

// signalName is a signal as kill(1) knows it, or its number.
func signalName(signal execwirev1.Signal) string {
	if name := unix.SignalName(unix.Signal(signal)); name != "" {
		return name
	}
	return strconv.Itoa(int(signal))
}

// parseSignal takes TERM, SIGTERM and 15.
func parseSignal(name string) (execwirev1.Signal, error) {
	const highest = 64
	number, err := strconv.Atoi(name)
	if err != nil {
		upper := strings.ToUpper(name)
		number = int(unix.SignalNum("SIG" + strings.TrimPrefix(upper, "SIG")))
	}
	if number < 1 || number > highest {
		return 0, fmt.Errorf("%q is not a signal: use a name such as TERM, or a number from 1 to %d", name, highest)
	}
	return execwirev1.Signal(number), nil
}

// exitWord says in a word how a process ended: by a code, by a signal, and why
// if that was not its own doing.
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

// age is how long ago something was, in its largest unit.
func age(since time.Duration) string {
	switch since = max(since, 0); {
	case since < time.Minute:
		return fmt.Sprintf("%ds", int(since.Seconds()))
	case since < time.Hour:
		return fmt.Sprintf("%dm", int(since.Minutes()))
	case since < 48*time.Hour:
		return fmt.Sprintf("%dh", int(since.Hours()))
	default:
		return fmt.Sprintf("%dd", int(since.Hours()/24))
	}
}

// plainWord needs no quotes in a shell.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// commandLine is what to type into a shell to run argv. It has no control
// characters.
func commandLine(argv []string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		switch {
		case plainWord.MatchString(word):
			words[i] = word
		case strings.ContainsFunc(word, func(r rune) bool { return !unicode.IsPrint(r) }):
			quoted := strconv.Quote(word)
			words[i] = "$'" + strings.NewReplacer(`\"`, `"`, `'`, `\'`).Replace(quoted[1:len(quoted)-1]) + "'"
		default:
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}
