package harness

import (
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testproc"
)

// Follower receives the events of one process and fails the test at the first that
// breaks the contract: a sequence number missing or repeated, a wrong offset, output
// after the end, wrong totals, a gap that was not announced exactly.
type Follower struct {
	T testing.TB
	// Receive returns the next events. While it is not called, the stream stalls.
	Receive func() ([]*execwirev1.ProcessEvent, error)

	Last    uint64 // the seq of the last event
	gap     *execwirev1.OutputGap
	Output  map[execwirev1.OutputStream][]byte // received and not yet expected
	Offsets map[execwirev1.OutputStream]uint64 // of each stream
	skipped uint64                             // bytes missing by the offsets
	Dropped uint64                             // bytes missing by the gaps
	Exit    *execwirev1.ExitRecord
	Totals  map[execwirev1.OutputStream]uint64 // set by the closed event
}

// NewFollower returns a follower that expects the event behind a sequence number.
func NewFollower(t testing.TB, after uint64) *Follower {
	return &Follower{T: t, Last: after,
		Output:  map[execwirev1.OutputStream][]byte{},
		Offsets: map[execwirev1.OutputStream]uint64{},
	}
}

// Step receives the next events and checks them. An error or the end of the stream
// fails the test.
func (f *Follower) Step() {
	f.T.Helper()
	events, err := f.Receive()
	if err != nil {
		f.T.Fatalf("the stream ended after seq %d: %v", f.Last, err)
	}
	for _, event := range events {
		f.Check(event)
	}
}

// Check checks the next event.
func (f *Follower) Check(event *execwirev1.ProcessEvent) {
	f.T.Helper()
	if gap := event.GetGap(); gap != nil {
		f.checkGap(event.GetSeq(), gap)
		return
	}
	if want := f.Last + 1; event.GetSeq() != want && (f.gap == nil || f.gap.GetFirstAvailableSeq() != event.GetSeq()) {
		f.T.Fatalf("seq %d came after %d (gap: %v)", event.GetSeq(), f.Last, f.gap)
	}
	if f.Totals != nil {
		f.T.Fatalf("received %v after the closed event", event)
	}
	f.Last = event.GetSeq()
	switch e := event.GetEvent().(type) {
	case *execwirev1.ProcessEvent_Output:
		f.checkOutput(e.Output)
	case *execwirev1.ProcessEvent_Exited:
		if f.Exit != nil {
			f.T.Fatalf("it exited twice: %v, %v", f.Exit, e)
		}
		f.Exit = e.Exited.GetExit()
	case *execwirev1.ProcessEvent_Closed:
		f.checkClosed(e.Closed)
	default:
		f.T.Fatalf("an event of no kind: %v", event)
	}
	f.gap = nil
}

func (f *Follower) checkGap(seq uint64, gap *execwirev1.OutputGap) {
	f.T.Helper()
	if seq != 0 || f.gap != nil || gap.GetFirstAvailableSeq() <= f.Last+1 || gap.GetDroppedBytes() == 0 {
		f.T.Fatalf("after seq %d came the gap %v with seq %d (before it: %v)", f.Last, gap, seq, f.gap)
	}
	f.gap = gap
	f.Dropped += gap.GetDroppedBytes()
}

func (f *Follower) checkOutput(output *execwirev1.ProcessOutput) {
	f.T.Helper()
	at, size := f.Offsets[output.GetStream()], len(output.GetData())
	if output.GetOffset() < at || output.GetOffset() > at && f.Dropped == 0 || size == 0 || size > 32700 {
		f.T.Fatalf("%d bytes of %v came at offset %d, want %d", size, output.GetStream(), output.GetOffset(), at)
	}
	f.skipped += output.GetOffset() - at
	f.Offsets[output.GetStream()] = output.GetOffset() + uint64(size)
	f.Output[output.GetStream()] = append(f.Output[output.GetStream()], output.GetData()...)
}

func (f *Follower) checkClosed(closed *execwirev1.ProcessClosed) {
	f.T.Helper()
	if f.Exit == nil {
		f.T.Fatal("it closed and never exited")
	}
	f.Totals = map[execwirev1.OutputStream]uint64{}
	for _, total := range closed.GetTotals() {
		f.Totals[total.GetStream()] = total.GetBytes()
		f.skipped += total.GetBytes() - f.Offsets[total.GetStream()]
	}
	if f.skipped != f.Dropped {
		f.T.Errorf("%d bytes are missing, and gaps announced %d; the totals are %v", f.skipped, f.Dropped, f.Totals)
	}
}

// ExpectOutput waits for exactly these bytes next on the stream.
func (f *Follower) ExpectOutput(stream execwirev1.OutputStream, want string) {
	f.T.Helper()
	for {
		got := f.Output[stream]
		if n := min(len(got), len(want)); string(got[:n]) != want[:n] {
			f.T.Fatalf("%v is %q, want %q", stream, got, want)
		}
		if len(got) >= len(want) {
			f.Output[stream] = got[len(want):]
			return
		}
		if f.Totals != nil {
			f.T.Fatalf("%v ended with %q, want %q", stream, got, want)
		}
		f.Step()
	}
}

// ExpectPattern waits for the end and then for exactly n bytes of the pattern on
// the stream.
func (f *Follower) ExpectPattern(stream execwirev1.OutputStream, pattern testproc.Pattern, n int) {
	f.T.Helper()
	f.AwaitClosed()
	verifier := pattern.NewVerifier()
	if _, err := verifier.Write(f.Output[stream]); err != nil || verifier.Offset() != uint64(n) {
		f.T.Errorf("%v has %d right bytes of %d: %v", stream, verifier.Offset(), n, err)
	}
	f.Output[stream] = nil
}

// AwaitClosed waits for the closed event, and for the end of the stream right
// after it.
func (f *Follower) AwaitClosed() {
	f.T.Helper()
	if f.Totals != nil {
		return
	}
	for f.Totals == nil {
		f.Step()
	}
	for {
		events, err := f.Receive() // messages without events may still follow
		if len(events) > 0 || err != nil && !IsEnd(err) {
			f.T.Fatalf("received %v after the closed event, %v; want the end", events, err)
		}
		if err != nil {
			return
		}
	}
}

// ExpectNothingMore waits for the end and fails if there is output that was not
// expected.
func (f *Follower) ExpectNothingMore() {
	f.T.Helper()
	f.AwaitClosed()
	for stream, rest := range f.Output {
		if len(rest) > 0 {
			f.T.Errorf("%v also has %q", stream, rest)
		}
	}
}

// ExpectEnd waits for the end and checks it: by a code, or by a signal if that
// is not 0.
func (f *Follower) ExpectEnd(s *Scenario, code int32, signal execwirev1.Signal, cause execwirev1.ExitCause) {
	f.T.Helper()
	f.AwaitClosed()
	s.ExpectEnd(f.Exit, code, signal, cause)
}

// Failure drops all events until the stream ends, and returns the error.
func (f *Follower) Failure() error {
	f.T.Helper()
	for {
		if _, err := f.Receive(); err != nil {
			return err
		}
	}
}
