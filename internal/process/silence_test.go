package process

import (
	"testing"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
)

func TestLastOutputFollowsEveryStream(t *testing.T) {
	spec := shell("read x; echo out; read x; echo err >&2; read x")
	spec.PipeStdin = true
	p := start(t, spec)
	if !p.LastOutput().Equal(p.StartedAt()) {
		t.Errorf("without output LastOutput is %v after the start", p.LastOutput().Sub(p.StartedAt()))
	}
	before, heard := p.LastOutput(), listen(t, p)
	for _, text := range []string{"out", "err"} {
		said := time.Now()
		if err := p.WriteStdin(testContext(t), []byte("\n")); err != nil {
			t.Fatal(err)
		}
		heard.until(text)
		poll(t, "the time of the output", func() bool { return p.LastOutput().After(before) })
		if before = p.LastOutput(); before.Before(said) || before.After(time.Now()) {
			t.Errorf("LastOutput is %v before the output", said.Sub(before))
		}
	}
	if err := p.CloseStdin(testContext(t)); err != nil {
		t.Fatal(err)
	}
	exit(t, p)
	if !p.LastOutput().Equal(before) {
		t.Error("the end counted as output")
	}
}

// startOwned starts a shell script that waits for a line of input, and owns its output with a window of 64 KiB before
// it gets one.
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

func TestHeldBackIsOutputThatFindsNoRoom(t *testing.T) {
	p, owner := startOwned(t, shell("read x; head -c 500000 /dev/zero"))
	poll(t, "output to be held back", p.HeldBack)
	if total, _ := drain(t, owner); total != 500_000 {
		t.Errorf("the owner got %d bytes", total)
	}
	exit(t, p)
	if p.HeldBack() {
		t.Error("held back although the owner took all")
	}
}

func TestSilenceIsNotHeldBack(t *testing.T) {
	p, owner := startOwned(t, shell("read x; echo out; read x"))
	if _, err := owner.Next(testContext(t), 0); err != nil {
		t.Fatal(err)
	}
	if p.HeldBack() {
		t.Error("held back although the window is open")
	}
}
