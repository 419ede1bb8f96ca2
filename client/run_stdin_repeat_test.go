package client

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// repeated answers a start that an earlier run made.
func repeated(offset uint64) *execwirev1.RunProcessResponse {
	answer := started(offset)
	answer.GetStarted().Resumed = true
	return answer
}

// The process has consumed a part of the input of an earlier run, and consumes more
// while the repetition begins.
func TestRun_Repeated_DropsConsumedInput(t *testing.T) {
	const window = 64 << 10 // the window in started
	input := pattern(5 * window)
	for name, test := range map[string]struct{ taken, late int }{
		"none":                    {0, 0},
		"a part":                  {100_000, 0},
		"all":                     {len(input), 0},
		"more on its way":         {100_000, 70_000},
		"none, some on its way":   {0, 70_000},
		"a part, all on its way":  {100, len(input) - 100},
		"less than a read by one": {stdinBlockBytes - 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := &stdinSink{t: t}
				sink.data.Write(input[:test.taken])
				fake, c := newFake(t, func(stream serverStream) error {
					if err := sends(nil, repeated(uint64(test.taken)))(stream); err != nil {
						return err
					}
					sink.data.Write(input[test.taken : test.taken+test.late])
					if err := stream.Send(accepted(uint64(sink.data.Len()))); err != nil {
						return err
					}
					if err := sink.drain(stream, true, sink.ended); err != nil {
						return err
					}
					return finish(stream)
				})
				reader := &randomReader{data: bytes.Clone(input), random: rand.New(rand.NewPCG(1, 1))}
				if _, err := c.Run(t.Context(), RunOptions{Process: direct("x"), Stdin: reader}); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(sink.data.Bytes(), input) {
					t.Errorf("got %d bytes of stdin, want the %d of the input once", sink.data.Len(), len(input))
				}
				if n := len(fake.terminations()); n != 0 {
					t.Errorf("terminated %d times", n)
				}
			})
		})
	}
}

// The stream breaks before the input to be dropped was read.
func TestRun_Repeated_DropsInputAcrossResume(t *testing.T) {
	input := pattern(200_000)
	synctest.Test(t, func(t *testing.T) {
		sink := &stdinSink{t: t}
		sink.data.Write(input[:150_000])
		_, c := newFake(t,
			sends(errCut, repeated(150_000)),
			func(stream serverStream) error {
				sink.data.Write(input[150_000:160_000])
				if err := sends(nil, repeated(160_000))(stream); err != nil {
					return err
				}
				if err := sink.drain(stream, true, sink.ended); err != nil {
					return err
				}
				return finish(stream)
			})
		if _, err := c.Run(t.Context(), RunOptions{Process: direct("x"), Stdin: bytes.NewReader(input)}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(sink.data.Bytes(), input) {
			t.Errorf("got %d bytes of stdin, want the %d of the input once", sink.data.Len(), len(input))
		}
	})
}

// A part of the end-of-file sequence was already accepted.
func TestRun_Repeated_CountsEndOfTerminalInput(t *testing.T) {
	const typed = "half\x04\x04"
	for taken := range len(typed) + 1 {
		synctest.Test(t, func(t *testing.T) {
			sink := &stdinSink{t: t}
			sink.data.WriteString(typed[:taken])
			_, c := newFake(t, func(stream serverStream) error {
				if err := sends(nil, repeated(uint64(taken)))(stream); err != nil {
					return err
				}
				if err := sink.drain(stream, true, func() bool { return sink.data.Len() >= len(typed) }); err != nil {
					return err
				}
				synctest.Wait()
				return finish(stream)
			})
			process := direct("x")
			process.Io = &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Terminal{Terminal: &execwirev1.TerminalIo{}}}
			_, err := c.Run(t.Context(), RunOptions{Process: process, Stdin: strings.NewReader("half")})
			if err != nil || sink.data.String() != typed {
				t.Errorf("%d bytes taken: got %q, %v; want %q", taken, &sink.data, err, typed)
			}
		})
	}
}

// The shorter input is detected wherever it can be.
func TestRun_RepeatedWithLessInput_DoesNotTerminate(t *testing.T) {
	hang := func(stream serverStream) error {
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	for name, scripts := range map[string][]script{
		"at once": {func(stream serverStream) error {
			if err := sends(nil, repeated(4))(stream); err != nil {
				return err
			}
			return hang(stream)
		}},
		"when it is accepted": {func(stream serverStream) error {
			if err := sends(nil, repeated(1))(stream); err != nil {
				return err
			}
			synctest.Wait()
			if err := stream.Send(accepted(4)); err != nil {
				return err
			}
			return hang(stream)
		}},
		"after a resume": {
			func(stream serverStream) error {
				if err := sends(nil, repeated(1))(stream); err != nil {
					return err
				}
				synctest.Wait()
				return errCut
			},
			sends(nil, repeated(4)),
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake, c := newFake(t, scripts...)
				_, err := c.Run(t.Context(), RunOptions{Process: direct("x"), Stdin: strings.NewReader("abc")})
				var input *InputError
				if !errors.As(err, &input) || !errors.Is(err, ErrInputDiffers) {
					t.Errorf("got %v, want an InputError with ErrInputDiffers", err)
				}
				if n := len(fake.terminations()); n != 0 {
					t.Errorf("terminated %d times for the run's own mistake", n)
				}
			})
		})
	}
}
