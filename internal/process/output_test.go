package process

import (
	"errors"
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/testproc"
)

// readFlood reads all output as the owner, calls pause after each batch, and checks every byte. The
// output is held from the start: without an owner the log drops what it cannot retain.
func readFlood(t *testing.T, p *Process, pause func()) (stdout, stderr uint64) {
	t.Helper()
	owner, err := p.Log().Own(0)
	if err != nil {
		t.Fatal(err)
	}
	verifiers := map[eventlog.Stream]*testproc.Verifier{
		eventlog.Stdout: testproc.StdoutPattern.NewVerifier(),
		eventlog.Stderr: testproc.StderrPattern.NewVerifier(),
	}
	for {
		batch, err := owner.Next(testContext(t), 0)
		if errors.Is(err, io.EOF) {
			return verifiers[eventlog.Stdout].Offset(), verifiers[eventlog.Stderr].Offset()
		}
		if err != nil || batch.Gap != nil {
			t.Fatalf("%v, gap %v", err, batch.Gap)
		}
		for _, event := range batch.Events {
			if event.Kind != eventlog.Output {
				continue
			}
			if _, err := verifiers[event.Stream].Write(event.Data); err != nil {
				t.Fatalf("%v: %v", event.Stream, err)
			}
		}
		pause()
		if err := owner.Acknowledge(batch.Events[len(batch.Events)-1].Seq); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOutput_SlowOwner_GetsEveryByteOnce(t *testing.T) {
	const size = 64 << 20
	spec := program("flood", "-bytes", strconv.Itoa(size))
	spec.Output.Held = true
	p := start(t, spec)
	batches := 0
	stdout, _ := readFlood(t, p, func() {
		if batches++; batches%50 == 0 {
			time.Sleep(time.Millisecond) // the window fills meanwhile
		}
	})
	if stdout != size {
		t.Errorf("%d bytes", stdout)
	}
	if record := waitClosed(t, p); record.Code != 0 {
		t.Errorf("%+v", record)
	}
}

func TestOutput_BothStreamsAreComplete(t *testing.T) {
	for _, window := range []int{0, 5000} {
		const out, err = 3_000_001, 2_000_003
		spec := program("flood", "-bytes", strconv.Itoa(out), "-stderr", strconv.Itoa(err), "-chunk", "10007")
		spec.Output.WindowBytes, spec.Output.Held = window, true
		p := start(t, spec)
		stdout, stderr := readFlood(t, p, func() {})
		if stdout != out || stderr != err {
			t.Errorf("window %d: %d and %d bytes", window, stdout, stderr)
		}
	}
}

func TestOutput_NoOwner_DoesNotBlock(t *testing.T) {
	const size = 16 << 20
	p := start(t, program("flood", "-bytes", strconv.Itoa(size), "-stderr", strconv.Itoa(size)))
	if record := waitClosed(t, p); record.Code != 0 {
		t.Errorf("%+v", record)
	}
	stats := p.Log().Stats()
	if stats.Totals[eventlog.Stdout] != size || stats.Totals[eventlog.Stderr] != size {
		t.Errorf("totals %v", stats.Totals)
	}
	if stats.RetainedBytes > p.Log().Limits().RetainedBytes {
		t.Errorf("%d bytes retained", stats.RetainedBytes)
	}
}

func TestOutput_ClosedEarly_ProcessKeepsRunning(t *testing.T) {
	p := start(t, piped(program("close-stdout")))
	l := readLog(t, p)
	l.until("ready")
	poll(t, "the end of the streams", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.openStreams == 0
	})
	if state := p.State(); state != StateRunning {
		t.Errorf("state %v", state)
	}
	if err := p.CloseStdin(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if record := waitClosed(t, p); record.Code != 0 {
		t.Errorf("%+v", record)
	}
}
