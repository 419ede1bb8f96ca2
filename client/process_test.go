package client

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// scriptedProcess is a process whose stream is controlled by the test.
type scriptedProcess struct {
	t      *testing.T
	fake   *fakeServer
	client *Client
	// stream is the current stream; requests receives those of all streams.
	stream   chan serverStream
	requests chan *execwirev1.RunProcessRequest
	end      chan error // ends the current stream
	// script has the goroutines of the server whose effects a test does not wait for.
	script sync.WaitGroup
}

// newScriptedProcess returns a process whose start is answered at once. It must be
// called in a synctest bubble.
func newScriptedProcess(t *testing.T) *scriptedProcess {
	p := &scriptedProcess{t: t, stream: make(chan serverStream, 1), requests: make(chan *execwirev1.RunProcessRequest, 1000), end: make(chan error)}
	p.fake, p.client = newFake(t)
	p.fake.beyond = p.play
	return p
}

func (p *scriptedProcess) play(stream serverStream) error {
	select {
	case <-p.stream:
	default:
	}
	if err := stream.Send(started(0)); err != nil {
		return err
	}
	p.stream <- stream
	go func() {
		for {
			request, err := stream.Recv()
			if err != nil {
				return
			}
			p.requests <- request
		}
	}()
	select {
	case err := <-p.end:
		return err
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

func (p *scriptedProcess) start(options StartOptions, change ...func(*Command)) *Process {
	p.t.Helper()
	command := Command{Argv: []string{"x"}, ID: "p", SessionID: "s"}
	for _, c := range change {
		c(&command)
	}
	options.Process = command.Request()
	process, err := p.client.Start(p.t.Context(), options)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = process.Close() })
	return process
}

// sendEvents sends events and waits until they were received.
func (p *scriptedProcess) sendEvents(list ...*execwirev1.ProcessEvent) {
	p.t.Helper()
	stream := <-p.stream
	if err := stream.Send(events(list...)); err != nil {
		p.t.Error(err)
	}
	p.stream <- stream
	synctest.Wait()
}

// close sends the exit and closed events, and ends the stream.
func (p *scriptedProcess) close(seq uint64, totals ...uint64) {
	p.t.Helper()
	p.sendEvents(exited(seq, 0), closed(seq+1, totals...))
	p.end <- nil
	synctest.Wait()
}

// received returns what was received since the last call: the last acknowledgement, the
// input, its end, and a detach.
func (p *scriptedProcess) received() (acknowledged uint64, input string, eof, detached bool) {
	time.Sleep(2 * acknowledgeIdle)
	synctest.Wait()
	for len(p.requests) > 0 {
		request := <-p.requests
		acknowledged = max(acknowledged, request.GetAcknowledge().GetSeq())
		input += string(request.GetStdin().GetData())
		eof = eof || request.GetStdin().GetEndOfFile()
		detached = detached || request.GetDetach() != nil
	}
	return acknowledged, input, eof, detached
}

func (p *scriptedProcess) acknowledged() uint64 {
	seq, _, _, _ := p.received()
	return seq
}

// recordedReader records what one reader received, as words.
type recordedReader struct {
	words []string
	err   error
	next  chan struct{} // resumes it; nil does not block
	over  chan struct{}
}

// startReader ranges over the events of a process. If held, it stops after each event
// until resumed.
func startReader(ctx context.Context, process *Process, held bool) *recordedReader {
	r := &recordedReader{over: make(chan struct{})}
	if held {
		r.next = make(chan struct{})
	}
	go func() {
		defer close(r.over)
		for event, err := range process.Events(ctx) {
			r.err = err
			switch e := event.(type) {
			case *OutputEvent:
				r.words = append(r.words, string(e.Data))
			case *GapEvent:
				r.words = append(r.words, "gap")
			case *ExitedEvent:
				r.words = append(r.words, "exited")
			case *ClosedEvent:
				r.words = append(r.words, "closed")
			case *FailedEvent:
				r.words = append(r.words, "failed")
			}
			if held {
				<-r.next
			}
		}
	}()
	synctest.Wait()
	return r
}

// expect compares what was read so far.
func (r *recordedReader) expect(t *testing.T, want string) {
	t.Helper()
	if got := strings.Join(r.words, " "); got != want {
		t.Errorf("read %q, want %q", got, want)
	}
}

// withScriptedProcess runs a test with a scripted process in a synctest bubble.
func withScriptedProcess(t *testing.T, test func(*testing.T, *scriptedProcess)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newScriptedProcess(t)
		defer p.script.Wait()
		test(t, p)
	})
}

func TestProcess_WithoutReader_AcknowledgesNothing(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{})
		p.sendEvents(stdout(1, 0, "a"), stdout(2, 1, "b"))
		if seq := p.acknowledged(); seq != 0 {
			t.Errorf("seq %d was acknowledged", seq)
		}
		r := startReader(t.Context(), process, false)
		r.expect(t, "a b")
		if seq := p.acknowledged(); seq != 2 {
			t.Errorf("seq %d was acknowledged once 2 were read", seq)
		}
		p.close(3, 2)
		r.expect(t, "a b exited closed")
		<-r.over
		if r.err != nil {
			t.Error(r.err)
		}
	})
}

func TestProcess_SlowReader_BlocksProcessOnly(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{})
		slow, fast := startReader(t.Context(), process, true), startReader(t.Context(), process, false)
		p.sendEvents(stdout(1, 0, "a"), stdout(2, 1, "b"), stdout(3, 2, "c"))
		slow.expect(t, "a")
		fast.expect(t, "a b c")
		if seq := p.acknowledged(); seq != 0 {
			t.Errorf("seq %d was acknowledged, of which the slow reader has none", seq)
		}
		slow.next <- struct{}{}
		synctest.Wait()
		if seq := p.acknowledged(); seq != 1 {
			t.Errorf("seq %d was acknowledged, of which the slow reader has 1", seq)
		}
		close(slow.next)
		synctest.Wait()
		if seq := p.acknowledged(); seq != 3 {
			t.Errorf("seq %d was acknowledged", seq)
		}
		p.close(4, 3)
		slow.expect(t, "a b c exited closed")
	})
}

func TestProcess_LateReader_GetsKeptEvents(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{})
		startReader(t.Context(), process, false)
		p.sendEvents(stdout(1, 0, "a"), stdout(2, 1, "b"))
		late := startReader(t.Context(), process, false)
		late.expect(t, "a b")
		p.close(3, 2)
		late.expect(t, "a b exited closed")
		after := startReader(t.Context(), process, false)
		after.expect(t, "a b exited closed")
		<-after.over
	})
}

func TestProcess_LateReader_GetsExactGap(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{KeepBytes: 1100})
		startReader(t.Context(), process, false)
		p.sendEvents(stdout(1, 0, "abc"), gap(4, 10), stdout(4, 13, strings.Repeat("x", 500)), stdout(5, 513, "d"))
		for event, err := range process.Events(t.Context()) {
			gap, ok := event.(*GapEvent)
			if err != nil || !ok || gap.FirstAvailableSeq != 4 || gap.DroppedBytes != 13 || gap.UpperBound {
				t.Errorf("begins with %+v, %v", event, err)
			}
			break
		}
		for event, err := range process.Output(t.Context()) {
			if event != nil || err == nil || !strings.Contains(err.Error(), "13 bytes") {
				t.Errorf("output begins with %+v, %v", event, err)
			}
		}
		p.close(6, 514)
	})
}

func TestProcess_EventsAfter_Continues(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{})
		p.sendEvents(stdout(1, 0, "a"), stdout(2, 1, "b"))
		var seq uint64
		for event := range process.Events(t.Context()) {
			seq = event.After()
			break
		}
		if acknowledged := p.acknowledged(); seq != 1 || acknowledged != 1 {
			t.Errorf("left behind %d, acknowledged %d", seq, acknowledged)
		}
		p.sendEvents(stdout(3, 2, "c"))
		if acknowledged := p.acknowledged(); acknowledged != 0 {
			t.Errorf("acknowledged %d while nobody reads", acknowledged)
		}
		for event := range process.EventsAfter(t.Context(), seq) {
			if output, ok := event.(*OutputEvent); !ok || string(output.Data) != "b" {
				t.Errorf("goes on with %+v", event)
			}
			break
		}
	})
}

func TestProcess_Wait_WithoutReader_ConsumesEvents(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{})
		p.sendEvents(stdout(1, 0, "a"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := process.Wait(ctx)
		if seq := p.acknowledged(); seq != 1 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("acknowledged %d, %v", seq, err)
		}
		p.sendEvents(stdout(2, 1, "b"))
		if seq := p.acknowledged(); seq != 0 {
			t.Errorf("acknowledged %d when nobody waits any more", seq)
		}
		p.close(3, 2)
		for range 2 {
			exit, err := process.Wait(t.Context())
			if err != nil || exit.StdoutBytes != 2 || exit.ProcessID != "p" {
				t.Errorf("got %+v, %v", exit, err)
			}
		}
	})
}

func TestProcess_Reader_DoesNotDelayEnd(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{})
		held := startReader(t.Context(), process, true)
		p.sendEvents(stdout(1, 0, "a"))
		p.close(2, 1)
		if exit, err := process.Wait(t.Context()); err != nil || exit.StdoutBytes != 1 {
			t.Errorf("got %+v, %v", exit, err)
		}
		close(held.next)
		<-held.over
		held.expect(t, "a exited closed")
	})
}

// Unconsumed events stay on the server too: a new stream sends them again, and no more.
func TestProcess_Resume_RepeatsUnconsumedEvents(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		resumed := make(chan *execwirev1.RunResume, 1)
		p.fake.scripts = []script{sends(errCut, started(0), events(stdout(1, 0, "a"), stdout(2, 1, "b"))),
			func(stream serverStream) error {
				request, err := stream.Recv()
				if err != nil {
					return err
				}
				resumed <- request.GetResume()
				return p.play(stream)
			}}
		process := p.start(StartOptions{})
		if resume := <-resumed; resume.GetAfterSeq() != 0 || resume.GetSessionId() != "s" {
			t.Errorf("resumed with %v", resume)
		}
		p.sendEvents(gap(2, 1), stdout(2, 1, "b"), stdout(3, 2, "c"))
		r := startReader(t.Context(), process, false)
		p.close(4, 3)
		r.expect(t, "a b c exited closed")
	})
}

func TestStart_Rejected_Fails(t *testing.T) {
	_, c := newFake(t, sends(serverError(codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND)))
	process, err := c.Start(t.Context(), StartOptions{Process: direct("x")})
	if process != nil || Reason(err) != execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND {
		t.Errorf("got %v, %v", process, err)
	}
	if _, err := c.Start(t.Context(), StartOptions{}); err == nil {
		t.Error("nothing was started")
	}
	if _, err := c.Attach(t.Context(), ProcessRef{}, StartOptions{}); err == nil {
		t.Error("attached to nothing")
	}
}

func TestStart_Cancelled_KillsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, c := newFake(t, func(stream serverStream) error { <-stream.Context().Done(); return nil })
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
		defer cancel()
		process, err := c.Start(ctx, StartOptions{Process: direct("x")})
		if process != nil || err == nil || !strings.Contains(err.Error(), "enough") {
			t.Errorf("got %v, %v", process, err)
		}
		if len(fake.terminations()) > 1 {
			t.Errorf("terminated %d times", len(fake.terminations()))
		}
	})
}

// A reader consumes everything after a new stream has asked for it again, and before
// the answer: it must be acknowledged on that stream, or the process would block.
func TestProcess_ConsumedWhileReconnecting_IsAcknowledged(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		asked, answer := make(chan uint64, 1), make(chan struct{})
		p.fake.scripts = []script{sends(errCut, started(0), events(stdout(1, 0, "a"), stdout(2, 1, "b"))),
			func(stream serverStream) error {
				request, err := stream.Recv()
				if err != nil {
					return err
				}
				asked <- request.GetResume().GetAfterSeq()
				<-answer
				return p.play(stream)
			}}
		process := p.start(StartOptions{})
		if after := <-asked; after != 0 {
			t.Errorf("asked for what is behind %d", after)
		}
		r := startReader(t.Context(), process, false)
		r.expect(t, "a b")
		close(answer)
		synctest.Wait()
		if seq := p.acknowledged(); seq != 2 {
			t.Errorf("acknowledged %d", seq)
		}
		p.close(3, 2)
	})
}

func TestProcess_LateReader_KeepsUnreadEvents(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{KeepBytes: 1100})
		startReader(t.Context(), process, false)
		p.sendEvents(stdout(1, 0, "a"), stdout(2, 1, "b"))
		late := startReader(t.Context(), process, true)
		for seq := uint64(3); seq < 20; seq++ {
			p.sendEvents(stdout(seq, seq-1, "c"))
		}
		p.close(20, 19)
		close(late.next)
		<-late.over
		late.expect(t, "a b"+strings.Repeat(" c", 17)+" exited closed")
	})
}
