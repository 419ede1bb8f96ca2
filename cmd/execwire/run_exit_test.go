package main

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// The hint for a longer grace period must not appear if the command may not have been
// kept.
func TestExplainRun_LostProcess_Hints(t *testing.T) {
	gone := (&client.Error{Reason: execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND})
	for want, lost := range map[string]*client.LostError{
		"--grace":                 {ProcessID: "p", Started: true, Err: gone},
		"whether the server runs": {ProcessID: "p", Started: true, Err: io.EOF},
		"whether the command ran": {ProcessID: "p", Err: io.EOF},
	} {
		err := explainRun(lost, runFlags{})
		var exit *exitError
		if !errors.As(err, &exit) || exit.code != codeFailed || !strings.Contains(exit.hint, want) {
			t.Errorf("%+v: got %+v, want a hint about %q", lost, err, want)
		}
	}
}

// A user who repeated a signal is not told of another client.
func TestExplainExit_RepeatedSignal_NamesIt(t *testing.T) {
	ended := client.Exit{Signal: syscall.SIGKILL, Cause: execwirev1.ExitCause_EXIT_CAUSE_TERMINATED}
	for killed, want := range map[syscall.Signal]string{
		0: "another client requested it", syscall.SIGINT: "you pressed Ctrl-C three times", syscall.SIGTERM: "you sent SIGTERM twice",
	} {
		if err := explainExit(ended, killed); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("signal %d: %v, want %q", killed, err, want)
		}
	}
}

func TestNameFlags(t *testing.T) {
	own := runFlags{limits: []string{"nice=1", "open-files=$1"}}.fieldNames()
	for _, test := range []struct{ message, field, description, want string }{
		{"start.process.limits.nice: 500 is not between", "start.process.limits.nice", "500 is not between", "--nice: 500 is not between"},
		{"a: start.process.command.direct.argv[2]: has NUL", "start.process.command.direct.argv[2]", "has NUL", "a: argument 2: has NUL"},
		{`command.direct.env["A"] is bad`, `command.direct.env["A"]`, "is bad", "--env A is bad"},
		{"limits.resource_limits[1].hard is 1", "limits.resource_limits[1].hard", "is 1", "--limit open-files=$1 is 1"},
		{"process_id is empty", "process_id", "is empty", "--id is empty"},
		{"grace for \"grace x\" is too long", "grace", "grace for \"grace x\" is too long", "--grace for \"grace x\" is too long"},
		{"refused", "command.direct.sandbox.managed.entries[0].path", "is relative", "refused (--sandbox, managed.entries[0].path: is relative)"},
		{"new_field is bad", "new_field", "is bad", "new_field is bad"},
	} {
		err := &client.Error{Message: test.message, Fields: []client.FieldViolation{{Field: test.field, Description: test.description}}}
		named := nameFlags(err, own)
		if named.Error() != test.want || !errors.Is(named, error(err)) {
			t.Errorf("%q: %q, want %q", test.message, named, test.want)
		}
		if again := nameFlags(named, nil); again != named {
			t.Errorf("%q was changed again: %q", named, again)
		}
	}
}
