package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// puppet is a process whose stream the test plays itself.
type puppet struct {
	t      *testing.T
	fake   *fakeServer
	client *Client
	// stream is that of now; told what came on all of them.
	stream chan serverStream
	told   chan *execwirev1.RunProcessRequest
	end    chan error // ends the stream of now
}

// newPuppet returns one whose start is answered at once. It must be made in a
// synctest bubble.
func newPuppet(t *testing.T) *puppet {
	p := &puppet{t: t, stream: make(chan serverStream, 1), told: make(chan *execwirev1.RunProcessRequest, 1000), end: make(chan error)}
	p.fake, p.client = newFake(t)
	p.fake.beyond = p.play
	return p
}

func (p *puppet) play(stream serverStream) error {
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
			p.told <- request
		}
	}()
	select {
	case err := <-p.end:
		return err
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

func (p *puppet) start(options StartOptions, change ...func(*Command)) *Process {
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

// say sends events and waits until they were received.
func (p *puppet) say(list ...*execwirev1.ProcessEvent) {
	p.t.Helper()
	stream := <-p.stream
	if err := stream.Send(events(list...)); err != nil {
		p.t.Error(err)
	}
	p.stream <- stream
	synctest.Wait()
}

// close says how the process ended, after which its stream ends.
func (p *puppet) close(seq uint64, totals ...uint64) {
	p.t.Helper()
	p.say(exited(seq, 0), closed(seq+1, totals...))
	p.end <- nil
	synctest.Wait()
}

// heard returns what was told since, by kind: the last acknowledgement, the input.
func (p *puppet) heard() (acknowledged uint64, input string, eof, detached bool) {
	time.Sleep(2 * acknowledgeIdle)
	synctest.Wait()
	for len(p.told) > 0 {
		request := <-p.told
		acknowledged = max(acknowledged, request.GetAcknowledge().GetSeq())
		input += string(request.GetStdin().GetData())
		eof = eof || request.GetStdin().GetEndOfFile()
		detached = detached || request.GetDetach() != nil
	}
	return acknowledged, input, eof, detached
}

func (p *puppet) acknowledged() uint64 {
	seq, _, _, _ := p.heard()
	return seq
}

// reading is what one reader got, as words.
type reading struct {
	words []string
	err   error
	next  chan struct{} // lets it go on; nil does not hold it
	over  chan struct{}
}

// reads ranges over the events of a process. One that is held stops after each
// event until it is let go on.
func reads(ctx context.Context, process *Process, held bool) *reading {
	r := &reading{over: make(chan struct{})}
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

// expect compares what was read up to now.
func (r *reading) expect(t *testing.T, want string) {
	t.Helper()
	if got := strings.Join(r.words, " "); got != want {
		t.Errorf("read %q, want %q", got, want)
	}
}

// played runs a test with a puppet in a synctest bubble.
func played(t *testing.T, test func(*testing.T, *puppet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newPuppet(t)) })
}

func TestNothingCountsAsTakenBeforeSomebodyAsks(t *testing.T) {
	played(t, func(t *testing.T, p *puppet) {
		process := p.start(StartOptions{})
		p.say(stdout(1, 0, "a"), stdout(2, 1, "b"))
		if seq := p.acknowledged(); seq != 0 {
			t.Errorf("seq %d was acknowledged", seq)
		}
		r := reads(t.Context(), process, false)
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

func TestASlowReaderPacesTheProcessAndNoOtherReader(t *testing.T) {
	played(t, func(t *testing.T, p *puppet) {
		process := p.start(StartOptions{})
		slow, fast := reads(t.Context(), process, true), reads(t.Context(), process, false)
		p.say(stdout(1, 0, "a"), stdout(2, 1, "b"), stdout(3, 2, "c"))
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

func TestALateReaderGetsEverythingThatIsKept(t *testing.T) {
	played(t, func(t *testing.T, p *puppet) {
		process := p.start(StartOptions{})
		reads(t.Context(), process, false)
		p.say(stdout(1, 0, "a"), stdout(2, 1, "b"))
		late := reads(t.Context(), process, false)
		late.expect(t, "a b")
		p.close(3, 2)
		late.expect(t, "a b exited closed")
		after := reads(t.Context(), process, false)
		after.expect(t, "a b exited closed")
		<-after.over
	})
}

func TestALateReaderIsToldExactlyWhatIsNotKept(t *testing.T) {
	played(t, func(t *testing.T, p *puppet) {
		process := p.start(StartOptions{KeepBytes: 1100})
		reads(t.Context(), process, false)
		p.say(stdout(1, 0, "abc"), gap(4, 10), stdout(4, 13, strings.Repeat("x", 500)), stdout(5, 513, "d"))
		for event, err := range process.Events(t.Context()) {
			gap, ok := event.(*GapEvent)
			if err != nil || !ok || gap.FirstAvailableSeq != 4 || gap.DroppedBytes != 13 || gap.UpperBound {
				t.Errorf("begins with %+v, %v", event, err)
			}
			break
		}
		p.close(6, 514)
	})
}

func TestAReaderGoesOnWhereItLeftTheLoop(t *testing.T) {
	played(t, func(t *testing.T, p *puppet) {
		process := p.start(StartOptions{})
		p.say(stdout(1, 0, "a"), stdout(2, 1, "b"))
		var seq uint64
		for event := range process.Events(t.Context()) {
			seq = event.After()
			break
		}
		if acknowledged := p.acknowledged(); seq != 1 || acknowledged != 1 {
			t.Errorf("left behind %d, acknowledged %d", seq, acknowledged)
		}
		p.say(stdout(3, 2, "c"))
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

func TestWaitTakesWhatNobodyReads(t *testing.T) {
	played(t, func(t *testing.T, p *puppet) {
		process := p.start(StartOptions{})
		p.say(stdout(1, 0, "a"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := process.Wait(ctx)
		if seq := p.acknowledged(); seq != 1 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("acknowledged %d, %v", seq, err)
		}
		p.say(stdout(2, 1, "b"))
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

func TestAReaderDoesNotHoldUpTheEnd(t *testing.T) {
	played(t, func(t *testing.T, p *puppet) {
		process := p.start(StartOptions{})
		held := reads(t.Context(), process, true)
		p.say(stdout(1, 0, "a"))
		p.close(2, 1)
		if exit, err := process.Wait(t.Context()); err != nil || exit.StdoutBytes != 1 {
			t.Errorf("got %+v, %v", exit, err)
		}
		close(held.next)
		<-held.over
		held.expect(t, "a exited closed")
	})
}

// What nobody has taken stays with the server, too: a new connection brings it
// again, and no more than that.
func TestAResumeAsksForWhatNobodyHasTaken(t *testing.T) {
	played(t, func(t *testing.T, p *puppet) {
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
		p.say(gap(2, 1), stdout(2, 1, "b"), stdout(3, 2, "c"))
		r := reads(t.Context(), process, false)
		p.close(4, 3)
		r.expect(t, "a b c exited closed")
	})
}

func TestAStartThatIsRefusedIsAnError(t *testing.T) {
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

func TestAStartThatIsGivenUpLeavesNothing(t *testing.T) {
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

// A reader takes everything after a new connection has asked for it again, and before
// that is answered: what it took is told on that connection, or the process would wait.
func TestWhatWasTakenWhileTheConnectionWasMadeIsAcknowledged(t *testing.T) {
	played(t, func(t *testing.T, p *puppet) {
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
		r := reads(t.Context(), process, false)
		r.expect(t, "a b")
		close(answer)
		synctest.Wait()
		if seq := p.acknowledged(); seq != 2 {
			t.Errorf("acknowledged %d", seq)
		}
		p.close(3, 2)
	})
}

func TestWhatALateReaderHasNotReachedIsNotDropped(t *testing.T) {
	played(t, func(t *testing.T, p *puppet) {
		process := p.start(StartOptions{KeepBytes: 1100})
		reads(t.Context(), process, false)
		p.say(stdout(1, 0, "a"), stdout(2, 1, "b"))
		late := reads(t.Context(), process, true)
		for seq := uint64(3); seq < 20; seq++ {
			p.say(stdout(seq, seq-1, "c"))
		}
		p.close(20, 19)
		close(late.next)
		<-late.over
		late.expect(t, "a b"+strings.Repeat(" c", 17)+" exited closed")
	})
}
