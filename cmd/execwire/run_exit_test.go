package main

import (
	"errors"
	"io"
	"strings"
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
