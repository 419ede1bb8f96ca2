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

// takeFlood takes all output as the owner, calling pause after each batch, and checks every byte.
func takeFlood(t *testing.T, p *Process, pause func()) (stdout, stderr uint64) {
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

func TestASlowOwnerGetsEveryByteOnce(t *testing.T) {
	const size = 64 << 20
	p := start(t, program("flood", "-bytes", strconv.Itoa(size)))
	batches := 0
	stdout, _ := takeFlood(t, p, func() {
		if batches++; batches%50 == 0 {
			time.Sleep(time.Millisecond) // the window fills meanwhile
		}
	})
	if stdout != size {
		t.Errorf("%d bytes", stdout)
	}
	if record := exit(t, p); record.Code != 0 {
		t.Errorf("%+v", record)
	}
}

func TestBothStreamsArriveWhole(t *testing.T) {
	for _, window := range []int{0, 5000} {
		const out, err = 3_000_001, 2_000_003
		spec := program("flood", "-bytes", strconv.Itoa(out), "-stderr", strconv.Itoa(err), "-chunk", "10007")
		spec.Output.WindowBytes = window
		p := start(t, spec)
		stdout, stderr := takeFlood(t, p, func() {})
		if stdout != out || stderr != err {
			t.Errorf("window %d: %d and %d bytes", window, stdout, stderr)
		}
	}
}

func TestAChildNeverWaitsWhenNobodyOwnsItsOutput(t *testing.T) {
	const size = 16 << 20
	p := start(t, program("flood", "-bytes", strconv.Itoa(size), "-stderr", strconv.Itoa(size)))
	if record := exit(t, p); record.Code != 0 {
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

func TestOutputThatIsClosedEarlyDoesNotEndTheProcess(t *testing.T) {
	p := start(t, piped(program("close-stdout")))
	l := listen(t, p)
	l.until("ready")
	poll(t, "the end of the streams", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.open == 0
	})
	if state := p.State(); state != StateRunning {
		t.Errorf("state %v", state)
	}
	if err := p.CloseStdin(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if record := exit(t, p); record.Code != 0 {
		t.Errorf("%+v", record)
	}
}
