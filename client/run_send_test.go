package client

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// nextRequest returns the next message other than an acknowledgement.
func nextRequest(stream serverStream) (*execwirev1.RunProcessRequest, error) {
	for {
		request, err := stream.Recv()
		if err != nil || request.GetAcknowledge() == nil {
			return request, err
		}
	}
}

func TestRun_Controls_RepeatSizeAndTermination(t *testing.T) {
	resize := make(chan *execwirev1.TerminalSize, 2)
	signals := make(chan *execwirev1.RunSignal, 1)
	terminate := make(chan *execwirev1.Termination, 1)
	expect := func(stream serverStream, want func(*execwirev1.RunProcessRequest) bool) error {
		request, err := nextRequest(stream)
		if err == nil && !want(request) {
			t.Errorf("told %v", request)
		}
		return err
	}
	isSize := func(rows uint32) func(*execwirev1.RunProcessRequest) bool {
		return func(r *execwirev1.RunProcessRequest) bool { return r.GetResize().GetRows() == rows }
	}
	isTermination := func(r *execwirev1.RunProcessRequest) bool { return r.GetTerminate().GetForce() != nil }
	steps := func(stream serverStream, list ...func() error) error {
		if err := sends(nil, started(0))(stream); err != nil {
			return err
		}
		for _, step := range list {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	}
	first := func(stream serverStream) error {
		return steps(stream,
			func() error { resize <- &execwirev1.TerminalSize{Rows: 1}; return expect(stream, isSize(1)) },
			func() error { resize <- &execwirev1.TerminalSize{Rows: 2}; return expect(stream, isSize(2)) },
			func() error {
				signals <- &execwirev1.RunSignal{Signal: execwirev1.Signal_SIGNAL_INT}
				close(signals)
				return expect(stream, func(r *execwirev1.RunProcessRequest) bool {
					return r.GetSignal().GetSignal() == execwirev1.Signal_SIGNAL_INT
				})
			},
			func() error {
				terminate <- &execwirev1.Termination{Mode: &execwirev1.Termination_Force{Force: &execwirev1.ForcedTermination{}}}
				return expect(stream, isTermination)
			},
			func() error { return errCut })
	}
	second := func(stream serverStream) error {
		return steps(stream,
			func() error { return expect(stream, isSize(2)) },
			func() error { return expect(stream, isTermination) },
			func() error { return finish(stream) })
	}
	synctest.Test(t, func(t *testing.T) {
		_, c := newFake(t, first, second)
		_, err := c.Run(t.Context(), RunOptions{
			Process: direct("x"), Resize: resize, Signals: signals, Terminate: terminate,
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// acknowledged returns the next acknowledgement.
func acknowledged(stream serverStream) (uint64, error) {
	for {
		request, err := stream.Recv()
		if err != nil {
			return 0, err
		}
		if a := request.GetAcknowledge(); a != nil {
			return a.GetSeq(), nil
		}
	}
}

func TestRun_AcknowledgesAtQuarterOfWindow(t *testing.T) {
	const quarter = 256 << 10 // of the window in started
	data := string(make([]byte, 32<<10))
	tests := map[string]struct {
		events []*execwirev1.ProcessEvent
		window uint64 // of events
		within time.Duration
	}{
		"a byte after a moment": {[]*execwirev1.ProcessEvent{stdout(1, 0, "a")}, 0, acknowledgeIdle},
		"a quarter of the window at once": {func() (list []*execwirev1.ProcessEvent) {
			for sent := 0; sent <= quarter; sent += len(data) {
				list = append(list, stdout(uint64(len(list)+1), uint64(sent), data))
			}
			return list
		}(), 0, 0},
		"many events at once":                          {bytewise(acknowledgeEvents), 0, 0},
		"almost many events after a moment":            {bytewise(acknowledgeEvents - 1), 0, acknowledgeIdle},
		"a quarter of a small window of events":        {bytewise(16), 64, 0},
		"almost a quarter of it after a moment":        {bytewise(15), 64, acknowledgeIdle},
		"almost a quarter of a large window of events": {bytewise(2 * acknowledgeEvents), 9 * acknowledgeEvents, acknowledgeIdle},
		"each event of the smallest window":            {bytewise(1), 1, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				last := uint64(len(test.events))
				var total uint64
				for _, e := range test.events {
					total += uint64(len(e.GetOutput().GetData()))
				}
				_, c := newFake(t, func(stream serverStream) error {
					begin := time.Now()
					answer := started(0)
					answer.GetStarted().OutputWindowEvents = test.window
					if err := sends(nil, answer, events(test.events...))(stream); err != nil {
						return err
					}
					seq, err := acknowledged(stream)
					if err != nil {
						return err
					}
					if took := time.Since(begin); seq != last || took != test.within {
						t.Errorf("acknowledged %d after %v, want %d after %v", seq, took, last, test.within)
					}
					return stream.Send(events(exited(last+1, 0), closed(last+2, total)))
				})
				if _, err := c.Run(t.Context(), RunOptions{Process: direct("x")}); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// bytewise returns output of n bytes, one event each.
func bytewise(n int) (list []*execwirev1.ProcessEvent) {
	for i := range uint64(n) {
		list = append(list, stdout(i+1, i, "a"))
	}
	return list
}

// The stream stays open until the closed event was acknowledged, while there is an
// unlimited amount of input to send.
func TestRun_AcknowledgesEndAtOnce(t *testing.T) {
	for name, input := range map[string]io.Reader{"no input": nil, "endless input": endless{}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, c := newFake(t, func(stream serverStream) error {
					answer := started(0)
					answer.GetStarted().StdinWindowBytes = 1 << 40
					if err := sends(nil, answer, events(stdout(1, 0, "a"), exited(2, 0)))(stream); err != nil {
						return err
					}
					begin := time.Now()
					if err := stream.Send(events(closed(3, 1))); err != nil {
						return err
					}
					for seq := uint64(0); seq < 3; {
						var err error
						if seq, err = acknowledged(stream); err != nil {
							t.Errorf("the closed event was not acknowledged: %v", err)
							return err
						}
					}
					if took := time.Since(begin); took != 0 {
						t.Errorf("acknowledged the closed event after %v", took)
					}
					return nil
				})
				if _, err := c.Run(t.Context(), RunOptions{Process: direct("x"), Stdin: input}); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// Run does not wait for the answer to the last acknowledgement. Close does.
func TestRun_Closed_ReturnsBeforeStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		acknowledges, end := make(chan uint64, 1), make(chan struct{})
		_, plain := newFake(t, func(stream serverStream) error {
			if err := sends(nil, started(0), events(exited(1, 0), closed(2)))(stream); err != nil {
				return err
			}
			seq, err := acknowledged(stream)
			acknowledges <- seq
			<-end
			return err
		})
		connected := true
		c := NewOwning(plain.channel.ClientConnInterface, closerFunc(func() error { connected = false; return nil }))
		if _, err := c.Run(t.Context(), RunOptions{Process: direct("x")}); err != nil {
			t.Fatal(err)
		}
		if seq := <-acknowledges; seq != 2 {
			t.Errorf("acknowledged %d, want 2", seq)
		}
		var closing sync.WaitGroup
		closing.Go(func() { _ = c.Close() }) // its closer returns nil
		synctest.Wait()
		if !connected {
			t.Error("Close did not wait for the end of the stream")
		}
		close(end)
		closing.Wait()
	})
}

// The stream is cut while an acknowledgement is due.
func TestRun_AcknowledgesAfterResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newFake(t,
			sends(errCut, started(0), events(stdout(1, 0, "a"))),
			func(stream serverStream) error {
				if err := sends(nil, started(0), events(stdout(2, 1, "b")))(stream); err != nil {
					return err
				}
				if seq, err := acknowledged(stream); err != nil || seq != 2 {
					t.Errorf("acknowledged %d, %v, want 2", seq, err)
				}
				return stream.Send(events(exited(3, 0), closed(4, 2)))
			})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := c.Run(ctx, RunOptions{Process: direct("x")}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRun_AcknowledgesWrittenOutputOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writing := make(blockingWriter)
		_, c := newFake(t, func(stream serverStream) error {
			if err := sends(nil, started(0), events(stdout(1, 0, "a"), stdout(2, 1, "b")))(stream); err != nil {
				return err
			}
			acks := make(chan uint64, 1)
			go func() {
				seq, _ := acknowledged(stream)
				acks <- seq
			}()
			time.Sleep(time.Minute)
			select {
			case seq := <-acks:
				t.Errorf("acknowledged %d while the first Write was going on", seq)
			default:
			}
			close(writing)
			if seq := <-acks; seq != 2 {
				t.Errorf("acknowledged %d, want 2", seq)
			}
			return stream.Send(events(exited(3, 0), closed(4, 2)))
		})
		if _, err := c.Run(t.Context(), RunOptions{Process: direct("x"), Stdout: writing}); err != nil {
			t.Fatal(err)
		}
	})
}

// blockingWriter blocks until it is closed.
type blockingWriter chan struct{}

func (w blockingWriter) Write(p []byte) (int, error) {
	<-w
	return len(p), nil
}
