package client

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

var errLeftIt = errors.New("enough")

// It was given up before the start was answered, and had closed by itself before it
// could be killed.
func TestAStartThatIsGivenUpWhenTheProcessHasClosedIsNoNilProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		f, c := newFake(t, func(stream serverStream) error {
			if _, err := stream.Recv(); err != nil {
				return err
			}
			<-answer
			if err := stream.Send(started(0)); err != nil {
				return err
			}
			return stream.Send(events(exited(1, 3), closed(2)))
		})
		f.onTerminate = func(*execwirev1.TerminateProcessRequest) { synctest.Wait() } // it has closed first
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			synctest.Wait()
			cancel(errLeftIt)
			synctest.Wait()
			close(answer)
		}()
		process, err := c.Start(ctx, StartOptions{Process: direct("x")})
		if err != nil || process == nil {
			t.Fatalf("got %v, %v", process, err)
		}
		if exit, err := process.Wait(t.Context()); err != nil || exit.Code != 3 {
			t.Errorf("it ended with %+v, %v", exit, err)
		}
	})
}

// What it told is whole, though the handle was closed before it was waited for.
func TestNothingFollowsTheClosedEvent(t *testing.T) {
	played(t, func(t *testing.T, p *puppet) {
		process := p.start(StartOptions{})
		p.fake.mu.Lock()
		p.fake.onTerminate = func(*execwirev1.TerminateProcessRequest) {
			end := exited(1, 0)
			end.GetExited().Exit.Cause = execwirev1.ExitCause_EXIT_CAUSE_TERMINATED
			stream := <-p.stream
			if err := stream.Send(events(end, closed(2))); err != nil {
				t.Error(err)
			}
			p.end <- nil
			time.Sleep(time.Second)
		}
		p.fake.mu.Unlock()
		if err := process.Close(); err != nil {
			t.Error(err)
		}
		r := reads(t.Context(), process, false)
		<-r.over
		r.expect(t, "exited closed")
		if r.err != nil {
			t.Error(r.err)
		}
		page, err := process.Read(t.Context(), ReadOptions{AfterSeq: 2, Wait: -1})
		if !page.Closed || err != nil {
			t.Errorf("read %+v, %v", page, err)
		}
		if _, err := process.Wait(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("waited and got %v", err)
		}
	})
}

// A server whose window is larger than what is received ahead tells that the process
// was given up behind what nobody reads.
func TestAProcessIsGivenUpThoughNobodyReadsIt(t *testing.T) {
	played(t, func(t *testing.T, p *puppet) {
		process := p.start(StartOptions{})
		var server sync.WaitGroup
		server.Go(func() {
			stream, size := <-p.stream, uint64(1<<20)
			for seq := uint64(1); seq <= MaxUntakenBytes/size+8; seq++ {
				if err := stream.Send(events(stdout(seq, (seq-1)*size, string(make([]byte, size))))); err != nil {
					t.Error(err)
					return
				}
			}
			p.end <- nil
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := process.Detach(ctx); err != nil {
			t.Error(err)
		}
		server.Wait()
	})
}

// giveUpBehindInput starts a process, gives it an "a" and the end, and begins to give it
// up. What is returned waits until that was done.
func (p *puppet) giveUpBehindInput(t *testing.T) (wait func()) {
	process := p.start(StartOptions{}, func(c *Command) { c.PipeStdin = true })
	if _, err := process.Write([]byte("a")); err != nil {
		t.Error(err)
	}
	if err := process.CloseStdin(); err != nil {
		t.Error(err)
	}
	var giving sync.WaitGroup
	giving.Go(func() {
		if err := process.Detach(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return giving.Wait
}

func TestInputAndItsEndArePassedOnBeforeAProcessIsGivenUp(t *testing.T) {
	for range 100 {
		played(t, func(t *testing.T, p *puppet) {
			givenUp := p.giveUpBehindInput(t)
			input, ended := "", false
			for request := range p.told {
				if stdin := request.GetStdin(); stdin != nil {
					input += string(stdin.GetData())
					ended = ended || stdin.GetEndOfFile()
					p.accept(uint64(len(input)), stdin.GetEndOfFile())
				}
				if request.GetDetach() != nil {
					break
				}
			}
			p.end <- nil
			givenUp()
			if input != "a" || !ended {
				t.Errorf("got %q, end %v", input, ended)
			}
		})
	}
}

// A server drops what it has of the input and not passed on when the process is
// given up: that includes the end, which has no bytes to be accepted.
func TestTheEndOfInputIsAcceptedBeforeAProcessIsGivenUp(t *testing.T) {
	played(t, func(t *testing.T, p *puppet) {
		givenUp := p.giveUpBehindInput(t)
		for request := range p.told {
			if request.GetStdin().GetEndOfFile() {
				break
			}
		}
		p.accept(1, false)
		select {
		case request := <-p.told:
			t.Errorf("told %v before the end was accepted", request)
		case <-time.After(detachTimeout / 2):
		}
		p.accept(1, true)
		if request := <-p.told; request.GetDetach() == nil {
			t.Errorf("told %v behind the end", request)
		}
		p.end <- nil
		givenUp()
	})
}

func (p *puppet) accept(offset uint64, end bool) {
	stream := <-p.stream
	if err := stream.Send(&execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_StdinAccepted{
		StdinAccepted: &execwirev1.RunStdinAccepted{Offset: offset, EndOfFile: end}}}); err != nil {
		p.t.Error(err)
	}
	p.stream <- stream
}
