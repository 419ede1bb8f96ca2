package process

import (
	"testing"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
)

func TestLastOutput_CountsAllStreams(t *testing.T) {
	spec := shell("read x; echo out; read x; echo err >&2; read x")
	spec.PipeStdin = true
	p := start(t, spec)
	if !p.LastOutput().Equal(p.StartedAt()) {
		t.Errorf("without output LastOutput is %v after the start", p.LastOutput().Sub(p.StartedAt()))
	}
	before, output := p.LastOutput(), readLog(t, p)
	for _, text := range []string{"out", "err"} {
		writtenAt := time.Now()
		if err := p.WriteStdin(testContext(t), []byte("\n")); err != nil {
			t.Fatal(err)
		}
		output.until(text)
		poll(t, "the time of the output", func() bool { return p.LastOutput().After(before) })
		if before = p.LastOutput(); before.Before(writtenAt) || before.After(time.Now()) {
			t.Errorf("LastOutput is %v before the output", writtenAt.Sub(before))
		}
	}
	if err := p.CloseStdin(testContext(t)); err != nil {
		t.Fatal(err)
	}
	waitClosed(t, p)
	if !p.LastOutput().Equal(before) {
		t.Error("the end counts as output")
	}
}

// startOwned starts a shell script that waits for a line of input, owns its output with a window of
// 64 KiB, and writes the line.
func startOwned(t *testing.T, spec Spec) (*Process, *eventlog.Owner) {
	t.Helper()
	spec.PipeStdin = true
	spec.Output = eventlog.Limits{WindowBytes: 64 << 10}
	p := start(t, spec)
	owner, err := p.Log().Own(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { owner.Release(false) })
	if err := p.WriteStdin(testContext(t), []byte("\n")); err != nil {
		t.Fatal(err)
	}
	return p, owner
}

func TestOutputBlocked_FullWindow(t *testing.T) {
	p, owner := startOwned(t, shell("read x; head -c 500000 /dev/zero"))
	poll(t, "output to be blocked", p.OutputBlocked)
	if total, _ := drain(t, owner); total != 500_000 {
		t.Errorf("the owner got %d bytes", total)
	}
	waitClosed(t, p)
	if p.OutputBlocked() {
		t.Error("blocked although the owner read everything")
	}
}

func TestOutputBlocked_NoOutput_IsFalse(t *testing.T) {
	p, owner := startOwned(t, shell("read x; echo out; read x"))
	if _, err := owner.Next(testContext(t), 0); err != nil {
		t.Fatal(err)
	}
	if p.OutputBlocked() {
		t.Error("blocked although the window is open")
	}
}
