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

// The context ended before the start was answered, and the process closed before it
// could be killed.
func TestStart_CancelledAfterClosed_ReturnsError(t *testing.T) {
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

// The events are complete although the process was closed before Wait.
func TestProcess_Events_EndWithClosedEvent(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
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
		r := startReader(t.Context(), process, false)
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

// detachAfterInput starts a process, writes "a" and the end, and begins to detach. The
// returned function waits for the detach.
func (p *scriptedProcess) detachAfterInput(t *testing.T) (wait func()) {
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

func TestProcess_Detach_DeliversInputAndEnd(t *testing.T) {
	for range 100 {
		withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
			givenUp := p.detachAfterInput(t)
			input, ended := "", false
			for request := range p.requests {
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

// On a detach the server drops input that the process has not accepted, including the
// end, which has no bytes.
func TestProcess_Detach_WaitsForEndOfInput(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		givenUp := p.detachAfterInput(t)
		for request := range p.requests {
			if request.GetStdin().GetEndOfFile() {
				break
			}
		}
		p.accept(1, false)
		select {
		case request := <-p.requests:
			t.Errorf("told %v before the end was accepted", request)
		case <-time.After(detachTimeout / 2):
		}
		p.accept(1, true)
		if request := <-p.requests; request.GetDetach() == nil {
			t.Errorf("told %v behind the end", request)
		}
		p.end <- nil
		givenUp()
	})
}

func (p *scriptedProcess) accept(offset uint64, end bool) {
	stream := <-p.stream
	if err := stream.Send(&execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_StdinAccepted{
		StdinAccepted: &execwirev1.RunStdinAccepted{Offset: offset, EndOfFile: end}}}); err != nil {
		p.t.Error(err)
	}
	p.stream <- stream
}
