package client

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// pendingCalls makes every call that can block, and returns functions that wait for
// their errors.
func pendingCalls(t *testing.T, process *Process, reader *recordedReader) map[string]func() error {
	t.Helper()
	calls := map[string]func() error{
		"Wait":  func() error { _, err := process.Wait(t.Context()); return err },
		"Read":  func() error { _, err := process.Read(t.Context(), ReadOptions{AfterSeq: 1, Wait: -1}); return err },
		"Write": func() error { _, err := process.Write(make([]byte, 10<<20)); return err },
		"Communicate": func() error {
			_, _, _, err := process.Communicate(t.Context(), nil)
			return err
		},
		"Signal": func() error { return process.Signal(t.Context(), 1) },
		"Resize": func() error { return process.Resize(t.Context(), 1, 1) },
		"Terminate": func() error {
			_, err := process.Terminate(t.Context(), Termination{})
			return err
		},
	}
	ended := map[string]func() error{"Events": func() error { <-reader.over; return reader.err }}
	for name, call := range calls {
		if name == "Communicate" {
			continue // it would end the input of Write
		}
		result := make(chan error, 1)
		go func() { result <- call() }()
		ended[name] = func() error { return <-result }
	}
	synctest.Wait()
	for name, call := range calls {
		ended[name+" afterwards"] = call
	}
	return ended
}

// delayAnswers makes the server delay its answers to Terminate.
func (p *scriptedProcess) delayAnswers() {
	over := make(chan struct{})
	p.fake.onTerminate = func(*execwirev1.TerminateProcessRequest) { <-over }
	p.t.Cleanup(func() { close(over) })
}

func TestProcess_NoLongerFollowed_FailsCalls(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(*scriptedProcess, *Process)
		is      func(error) bool
	}{
		"its server has lost it": {
			func(p *scriptedProcess, _ *Process) {
				p.fake.beyond = sends(serverError(codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND))
				p.end <- errCut
			},
			func(err error) bool { return errors.Is(err, ErrLost) },
		},
		"another client took it over": {
			func(p *scriptedProcess, _ *Process) {
				p.end <- serverError(codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_PROCESS_TAKEN_OVER)
			},
			func(err error) bool { return Reason(err) == execwirev1.ErrorReason_ERROR_REASON_PROCESS_TAKEN_OVER },
		},
		"its client was closed": {
			func(p *scriptedProcess, _ *Process) {
				if err := p.client.Close(); err != nil {
					p.t.Error(err)
				}
			},
			func(err error) bool { return errors.Is(err, ErrClosed) },
		},
		"it was closed": {
			func(p *scriptedProcess, process *Process) {
				p.fake.mu.Lock()
				p.fake.onTerminate = nil
				p.fake.mu.Unlock()
				if err := process.Close(); err != nil {
					p.t.Error(err)
				}
			},
			func(err error) bool { return errors.Is(err, ErrClosed) },
		},
		"it was given up": {
			func(p *scriptedProcess, process *Process) {
				go func() {
					for {
						if request := <-p.requests; request.GetDetach() != nil {
							p.end <- nil
							return
						}
					}
				}()
				if err := process.Detach(p.t.Context()); err != nil {
					p.t.Error(err)
				}
			},
			func(err error) bool { return errors.Is(err, ErrDetached) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
				p.delayAnswers()
				p.client = NewOwning(p.client.channel.ClientConnInterface, closerFunc(func() error { return nil }))
				process := p.start(StartOptions{}, func(c *Command) { c.PipeStdin = true })
				p.sendEvents(stdout(1, 0, "a"))
				reader := startReader(t.Context(), process, false)
				calls := pendingCalls(t, process, reader)
				test.happens(p, process)
				<-reader.over
				for call, err := range calls {
					if err := err(); !test.is(err) && !answersAtOnce(call) {
						t.Errorf("%s: %v", call, err)
					}
				}
				reader.expect(t, "a failed")
				if page, err := process.Read(t.Context(), ReadOptions{}); err != nil || len(page.Events) != 1 {
					t.Errorf("what was received is %+v, %v", page, err)
				}
			})
		})
	}
}

// answersAtOnce reports whether the fake answered the call before it could fail.
func answersAtOnce(call string) bool { return call == "Signal" || call == "Resize" }

func TestProcess_Close_KillsStarted(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{})
		before := time.Now()
		if err := process.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(before); took > endTimeout {
			t.Errorf("it took %v", took)
		}
		ended := p.fake.terminations()
		if len(ended) != 1 || ended[0].GetTermination().GetForce() == nil || ended[0].GetProcessId() != "p" || ended[0].GetSessionId() != "s" {
			t.Errorf("terminated %v", ended)
		}
	})
}

func TestProcess_Close_AfterEnd_DoesNothing(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{})
		p.close(1)
		for range 2 {
			if err := process.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := process.Wait(t.Context()); err != nil || len(p.fake.terminations()) != 0 {
			t.Errorf("%v, terminated %v", err, p.fake.terminations())
		}
	})
}

func TestProcess_Close_Attached_DoesNotKill(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		p.fake.scripts = []script{func(stream serverStream) error {
			request, err := stream.Recv()
			if resume := request.GetResume(); err != nil || resume.GetProcessId() != "p" || resume.GetAfterSeq() != 7 {
				t.Errorf("attached with %v, %v", request, err)
			}
			return p.play(stream)
		}}
		gaveUp := make(chan bool, 1)
		process, err := p.client.Attach(t.Context(), ProcessRef{SessionID: "s", ProcessID: "p", AfterSeq: 7}, StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r := startReader(t.Context(), process, false)
		p.sendEvents(stdout(8, 100, "late"))
		r.expect(t, "late")
		if ref := process.Ref(); ref.AfterSeq != 8 || ref.SessionID != "s" {
			t.Errorf("it is %+v", ref)
		}
		p.fake.mu.Lock()
		p.fake.beyond = func(stream serverStream) error {
			if _, err := stream.Recv(); err != nil {
				return err
			}
			if err := stream.Send(started(0)); err != nil {
				return err
			}
			request, err := stream.Recv()
			gaveUp <- request.GetDetach() != nil
			return err
		}
		p.fake.mu.Unlock()
		if err := process.Close(); err != nil || !<-gaveUp || len(p.fake.terminations()) != 0 {
			t.Errorf("%v, terminated %v", err, p.fake.terminations())
		}
	})
}

func TestProcess_Detach_Unanswered_EndsWithContext(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := process.Detach(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if _, _, _, detached := p.received(); !detached {
			t.Error("nobody was told")
		}
		p.end <- nil
		if err := process.Detach(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestProcess_Write_SendsInput(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{}, func(c *Command) { c.PipeStdin = true })
		for _, text := range []string{"a", "", "bc"} {
			if n, err := process.Write([]byte(text)); n != len(text) || err != nil {
				t.Errorf("wrote %d, %v", n, err)
			}
		}
		if _, input, eof, _ := p.received(); input != "abc" || eof {
			t.Errorf("got %q, end %v", input, eof)
		}
		if err := process.CloseStdin(); err != nil {
			t.Error(err)
		}
		if _, _, eof, _ := p.received(); !eof {
			t.Error("it did not end")
		}
		if _, err := process.Write([]byte("d")); !errors.Is(err, ErrStdinClosed) {
			t.Errorf("got %v", err)
		}
		p.close(1)
		if _, err := process.Write([]byte("e")); !errors.Is(err, ErrStdinClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestProcess_Write_ProcessEnds_Fails(t *testing.T) {
	for name, end := range map[string]func(*scriptedProcess, *Process){
		"when stdin is closed":           func(_ *scriptedProcess, process *Process) { _ = process.CloseStdin() },
		"when the process takes no more": func(p *scriptedProcess, _ *Process) { p.reject(execwirev1.ErrorReason_ERROR_REASON_STDIN_CLOSED) },
		"when it never took any":         func(p *scriptedProcess, _ *Process) { p.reject(execwirev1.ErrorReason_ERROR_REASON_STDIN_NOT_PIPED) },
		"when the process has closed":    func(p *scriptedProcess, _ *Process) { p.close(1) },
	} {
		t.Run(name, func(t *testing.T) {
			withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
				process := p.start(StartOptions{}, func(c *Command) { c.PipeStdin = true })
				result := make(chan error)
				for range 2 { // one writes, one waits for the other
					go func() { _, err := process.Write(make([]byte, 10<<20)); result <- err }()
				}
				synctest.Wait()
				p.script.Go(func() { end(p, process) })
				for range 2 {
					if err := <-result; !errors.Is(err, ErrStdinClosed) {
						t.Errorf("got %v", err)
					}
				}
			})
		})
	}
}

func (p *scriptedProcess) reject(reason execwirev1.ErrorReason) {
	stream := <-p.stream
	if err := stream.Send(&execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Rejected{
		Rejected: &execwirev1.RunRejected{Reason: reason}}}); err != nil {
		p.t.Error(err)
	}
	p.stream <- stream
}

func TestProcess_Write_WithoutStdin_Fails(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{})
		var w io.Writer = process
		if _, err := w.Write([]byte("x")); !errors.Is(err, ErrNoStdin) {
			t.Errorf("Write: %v", err)
		}
		if err := process.CloseStdin(); !errors.Is(err, ErrNoStdin) {
			t.Errorf("CloseStdin: %v", err)
		}
		if _, _, _, err := process.Communicate(t.Context(), []byte("x")); !errors.Is(err, ErrNoStdin) {
			t.Errorf("Communicate: %v", err)
		}
	})
}

func TestProcess_Wait_EndedAndContextDone_ReturnsExit(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{})
		p.close(1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 {
			if _, err := process.Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
	})
}
