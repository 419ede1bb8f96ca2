package integration

import (
	"bytes"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testproc"
)

// follower takes the events of one process and fails the test as soon as they
// break a promise: a seq missing or twice, bytes at the wrong offset, output
// after the end, totals that do not add up, a gap that was not announced
// exactly.
type follower struct {
	t testing.TB
	// receive returns the next events; one that nobody calls stalls.
	receive func() ([]*execwirev1.ProcessEvent, error)

	last    uint64 // the seq of the last event
	gap     *execwirev1.OutputGap
	output  map[execwirev1.OutputStream][]byte // what came, less what was expected
	offsets map[execwirev1.OutputStream]uint64 // where each stream is
	skipped uint64                             // bytes that offsets jumped over
	dropped uint64                             // bytes that gaps announced
	exit    *execwirev1.ExitRecord
	totals  map[execwirev1.OutputStream]uint64 // set by the closed event
}

func newFollower(t testing.TB, after uint64) *follower {
	return &follower{t: t, last: after,
		output:  map[execwirev1.OutputStream][]byte{},
		offsets: map[execwirev1.OutputStream]uint64{},
	}
}

// step takes what comes next. An end of the stream before the closed event, or
// an error, fails the test.
func (f *follower) step() {
	f.t.Helper()
	events, err := f.receive()
	if err != nil {
		f.t.Fatalf("the stream ended after seq %d: %v", f.last, err)
	}
	for _, event := range events {
		f.take(event)
	}
}

func (f *follower) take(event *execwirev1.ProcessEvent) {
	f.t.Helper()
	if gap := event.GetGap(); gap != nil {
		f.takeGap(event.GetSeq(), gap)
		return
	}
	if want := f.last + 1; event.GetSeq() != want && (f.gap == nil || f.gap.GetFirstAvailableSeq() != event.GetSeq()) {
		f.t.Fatalf("seq %d came after %d (gap: %v)", event.GetSeq(), f.last, f.gap)
	}
	if f.totals != nil {
		f.t.Fatalf("after the closed event came %v", event)
	}
	f.last = event.GetSeq()
	switch e := event.GetEvent().(type) {
	case *execwirev1.ProcessEvent_Output:
		f.takeOutput(e.Output)
	case *execwirev1.ProcessEvent_Exited:
		if f.exit != nil {
			f.t.Fatalf("it exited twice: %v, %v", f.exit, e)
		}
		f.exit = e.Exited.GetExit()
	case *execwirev1.ProcessEvent_Closed:
		f.takeClosed(e.Closed)
	default:
		f.t.Fatalf("an event of no kind: %v", event)
	}
	f.gap = nil
}

func (f *follower) takeGap(seq uint64, gap *execwirev1.OutputGap) {
	f.t.Helper()
	if seq != 0 || f.gap != nil || gap.GetFirstAvailableSeq() <= f.last+1 || gap.GetDroppedBytes() == 0 {
		f.t.Fatalf("after seq %d came the gap %v with seq %d (before it: %v)", f.last, gap, seq, f.gap)
	}
	f.gap = gap
	f.dropped += gap.GetDroppedBytes()
}

func (f *follower) takeOutput(output *execwirev1.ProcessOutput) {
	f.t.Helper()
	at, size := f.offsets[output.GetStream()], len(output.GetData())
	if output.GetOffset() < at || output.GetOffset() > at && f.dropped == 0 || size == 0 || size > 32700 {
		f.t.Fatalf("%d bytes of %v came at offset %d, want %d", size, output.GetStream(), output.GetOffset(), at)
	}
	f.skipped += output.GetOffset() - at
	f.offsets[output.GetStream()] = output.GetOffset() + uint64(size)
	f.output[output.GetStream()] = append(f.output[output.GetStream()], output.GetData()...)
}

func (f *follower) takeClosed(closed *execwirev1.ProcessClosed) {
	f.t.Helper()
	if f.exit == nil {
		f.t.Fatal("it closed and never exited")
	}
	f.totals = map[execwirev1.OutputStream]uint64{}
	for _, total := range closed.GetTotals() {
		f.totals[total.GetStream()] = total.GetBytes()
		f.skipped += total.GetBytes() - f.offsets[total.GetStream()]
	}
	if f.skipped != f.dropped {
		f.t.Errorf("%d bytes are missing, and gaps announced %d; the totals are %v", f.skipped, f.dropped, f.totals)
	}
}

// expectOutput waits for exactly these bytes next on the stream.
func (f *follower) expectOutput(stream execwirev1.OutputStream, want string) {
	f.t.Helper()
	for {
		got := f.output[stream]
		if n := min(len(got), len(want)); string(got[:n]) != want[:n] {
			f.t.Fatalf("%v says %q, want %q", stream, got, want)
		}
		if len(got) >= len(want) {
			f.output[stream] = got[len(want):]
			return
		}
		if f.totals != nil {
			f.t.Fatalf("%v ended with %q, want %q", stream, got, want)
		}
		f.step()
	}
}

// expectSomewhere waits until the text comes on the stream, and drops what came
// before it: terminals echo and programs draw.
func (f *follower) expectSomewhere(stream execwirev1.OutputStream, text string) {
	f.t.Helper()
	for {
		if _, after, found := bytes.Cut(f.output[stream], []byte(text)); found {
			f.output[stream] = after
			return
		}
		if f.totals != nil {
			f.t.Fatalf("%v ended without %q: %q", stream, text, f.output[stream])
		}
		f.step()
	}
}

// expectPattern waits for the end and then for exactly n bytes of the pattern on
// the stream.
func (f *follower) expectPattern(stream execwirev1.OutputStream, pattern testproc.Pattern, n int) {
	f.t.Helper()
	f.awaitClosed()
	verifier := pattern.NewVerifier()
	if _, err := verifier.Write(f.output[stream]); err != nil || verifier.Offset() != uint64(n) {
		f.t.Errorf("%v has %d right bytes of %d: %v", stream, verifier.Offset(), n, err)
	}
	f.output[stream] = nil
}

// awaitExit waits for the exited event.
func (f *follower) awaitExit() *execwirev1.ExitRecord {
	f.t.Helper()
	for f.exit == nil {
		f.step()
	}
	return f.exit
}

// awaitClosed waits for the closed event, and for the end of the stream right
// after it.
func (f *follower) awaitClosed() {
	f.t.Helper()
	if f.totals != nil {
		return
	}
	for f.totals == nil {
		f.step()
	}
	for {
		events, err := f.receive() // what is not an event may still come
		if len(events) > 0 || err != nil && !isEnd(err) {
			f.t.Fatalf("after the closed event came %v, %v; want the end", events, err)
		}
		if err != nil {
			return
		}
	}
}

// expectNothingMore waits for the end and fails if there is output that was not
// expected.
func (f *follower) expectNothingMore() {
	f.t.Helper()
	f.awaitClosed()
	for stream, rest := range f.output {
		if len(rest) > 0 {
			f.t.Errorf("%v also says %q", stream, rest)
		}
	}
}

// expectEnd waits for the end and checks it: by a code, or by a signal if that
// is not 0.
func (f *follower) expectEnd(s *story, code int32, signal execwirev1.Signal, cause execwirev1.ExitCause) {
	f.t.Helper()
	f.awaitClosed()
	s.expectEnd(f.exit, code, signal, cause)
}

// failure drops what comes until the stream ends, and returns how it does.
func (f *follower) failure() error {
	f.t.Helper()
	for {
		if _, err := f.receive(); err != nil {
			return err
		}
	}
}
