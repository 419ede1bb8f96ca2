package process

import (
	"errors"
	"io"
	"testing"

	"github.com/execwire/execwire/internal/eventlog"
)

// drain reads and acknowledges everything as the owner, and returns the number of bytes of output
// and the kinds of events.
func drain(t testing.TB, owner *eventlog.Owner) (total int, kinds []string) {
	t.Helper()
	var output transcript
	for {
		batch, err := owner.Next(testContext(t), 0)
		if errors.Is(err, io.EOF) {
			return total, output.kinds
		}
		if err != nil || batch.Gap != nil {
			t.Fatalf("%v, gap %v", err, batch.Gap)
		}
		for _, event := range batch.Events {
			total += len(event.Data)
			event.Data = nil
			output.add(event)
			if err := owner.Acknowledge(event.Seq); err != nil {
				t.Fatal(err)
			}
		}
	}
}
