package process

import (
	"bytes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// expectSomewhere waits until the text appears on the stream, and drops the output before it:
// terminals echo and programs draw.
func expectSomewhere(f *harness.Follower, stream execwirev1.OutputStream, text string) {
	f.T.Helper()
	for {
		if _, after, found := bytes.Cut(f.Output[stream], []byte(text)); found {
			f.Output[stream] = after
			return
		}
		if f.Totals != nil {
			f.T.Fatalf("%v ended without %q: %q", stream, text, f.Output[stream])
		}
		f.Step()
	}
}

// awaitExitEvent waits for the exited event.
func awaitExitEvent(f *harness.Follower) *execwirev1.ExitRecord {
	f.T.Helper()
	for f.Exit == nil {
		f.Step()
	}
	return f.Exit
}
