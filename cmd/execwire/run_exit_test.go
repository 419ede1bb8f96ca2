package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/execwire/execwire/client"
)

// TestExplainRunHintsByWhatWasLost checks that nobody whose command may have run
// is told that it would have been kept.
func TestExplainRunHintsByWhatWasLost(t *testing.T) {
	for started, want := range map[bool]string{true: "--grace", false: "whether the command ran"} {
		err := explainRun(&client.LostError{ProcessID: "p", Started: started, Err: io.EOF}, runFlags{})
		var exit *exitError
		if !errors.As(err, &exit) || exit.code != codeFailed || !strings.Contains(exit.hint, want) {
			t.Errorf("started %v: got %+v, want a hint about %q", started, err, want)
		}
	}
}
