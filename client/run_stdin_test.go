package client

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func accepted(offset uint64) *execwirev1.RunProcessResponse {
	return &execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_StdinAccepted{
		StdinAccepted: &execwirev1.RunStdinAccepted{Offset: offset}}}
}

func rejected(reason execwirev1.ErrorReason) *execwirev1.RunProcessResponse {
	return &execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Rejected{
		Rejected: &execwirev1.RunRejected{Reason: reason}}}
}

// stdinSink is the stdin of a fake process across streams.
type stdinSink struct {
	t    *testing.T
	data bytes.Buffer
	eof  bool
}

// take adds a message according to the contract: already accepted bytes are skipped, a
// hole is an error.
func (s *stdinSink) take(stdin *execwirev1.RunStdin) {
	have := uint64(s.data.Len())
	if stdin.GetOffset() > have {
		s.t.Errorf("stdin at offset %d when %d bytes were accepted", stdin.GetOffset(), have)
		return
	}
	if skip := have - stdin.GetOffset(); skip < uint64(len(stdin.GetData())) {
		s.data.Write(stdin.GetData()[skip:])
	}
	s.eof = s.eof || stdin.GetEndOfFile()
}

// drain receives stdin until done returns true.
func (s *stdinSink) drain(stream serverStream, accept bool, done func() bool) error {
	for !done() {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		if stdin := request.GetStdin(); stdin != nil {
			s.take(stdin)
			if !accept {
				continue
			}
			if err := stream.Send(accepted(uint64(s.data.Len()))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *stdinSink) ended() bool { return s.eof }

// finish ends a process without output.
func finish(stream serverStream) error { return stream.Send(events(exited(1, 0), closed(2))) }

func pattern(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return p
}

func TestRun_Stdin_StaysWithinWindow(t *testing.T) {
	const window = 64 << 10 // the window in started
	synctest.Test(t, func(t *testing.T) {
		want := pattern(5 * window)
		sink := &stdinSink{t: t}
		_, c := newFake(t, func(stream serverStream) error {
			if err := sends(nil, started(0))(stream); err != nil {
				return err
			}
			for !sink.eof {
				// Receive everything without accepting it.
				before := sink.data.Len()
				if err := sink.drain(stream, false, func() bool { return sink.data.Len() == before+window || sink.eof }); err != nil {
					return err
				}
				synctest.Wait()
				if err := stream.Send(accepted(uint64(sink.data.Len()))); err != nil {
					return err
				}
			}
			return finish(stream)
		})
		if _, err := c.Run(t.Context(), RunOptions{Process: direct("x"), Stdin: bytes.NewReader(want)}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(sink.data.Bytes(), want) {
			t.Errorf("got %d bytes of stdin, want the %d that were sent", sink.data.Len(), len(want))
		}
	})
}

func TestRun_Stdin_IsSentAgainAfterResume(t *testing.T) {
	const half = 40_000
	for name, accept := range map[string]bool{"accepted": true, "not known to be accepted": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				want := pattern(2 * half)
				sink := &stdinSink{t: t}
				_, c := newFake(t,
					func(stream serverStream) error {
						if err := sends(nil, started(0))(stream); err != nil {
							return err
						}
						err := sink.drain(stream, accept, func() bool { return sink.data.Len() >= half })
						return errors.Join(err, errCut)
					},
					func(stream serverStream) error {
						if err := sends(nil, started(uint64(sink.data.Len())))(stream); err != nil {
							return err
						}
						if err := sink.drain(stream, true, sink.ended); err != nil {
							return err
						}
						return finish(stream)
					})
				fake := RunOptions{Process: direct("x"), Stdin: bytes.NewReader(want)}
				if _, err := c.Run(t.Context(), fake); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(sink.data.Bytes(), want) {
					t.Errorf("got %d bytes of stdin, want the %d that were sent", sink.data.Len(), len(want))
				}
			})
		})
	}
}

func TestRun_ServerLostInput_Fails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &stdinSink{t: t}
		_, c := newFake(t,
			func(stream serverStream) error {
				if err := sends(nil, started(0))(stream); err != nil {
					return err
				}
				return errors.Join(sink.drain(stream, true, sink.ended), errCut)
			},
			sends(nil, started(1)))
		_, err := c.Run(t.Context(), RunOptions{Process: direct("x"), Stdin: strings.NewReader("abc")})
		var protocol *ProtocolError
		if !errors.As(err, &protocol) || !strings.Contains(protocol.Problem, "accepted 1 bytes") {
			t.Errorf("got %v, want a ProtocolError: 3 bytes were accepted, then 1", err)
		}
	})
}

// This limits the memory for input.
func TestRun_Stdin_ReadsOneWindowAhead(t *testing.T) {
	const window = 64 << 10 // the window in started
	synctest.Test(t, func(t *testing.T) {
		input := &counting{Reader: endless{}}
		_, c := newFake(t, func(stream serverStream) error {
			if err := sends(nil, started(0))(stream); err != nil {
				return err
			}
			synctest.Wait()
			if input.n != window {
				t.Errorf("read %d bytes ahead of a window of %d", input.n, window)
			}
			return finish(stream)
		})
		if _, err := c.Run(t.Context(), RunOptions{Process: direct("x"), Stdin: input}); err != nil {
			t.Fatal(err)
		}
	})
}

type counting struct {
	io.Reader
	n int
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

func TestRun_EndOfFile_IsSentAgainAfterResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &stdinSink{t: t}
		_, c := newFake(t,
			func(stream serverStream) error {
				if err := sends(nil, started(0))(stream); err != nil {
					return err
				}
				if err := sink.drain(stream, true, sink.ended); err != nil {
					return err
				}
				sink.eof = false // the end was not accepted
				return errCut
			},
			func(stream serverStream) error {
				if err := sends(nil, started(uint64(sink.data.Len())))(stream); err != nil {
					return err
				}
				if err := sink.drain(stream, true, sink.ended); err != nil {
					return err
				}
				return finish(stream)
			})
		_, err := c.Run(t.Context(), RunOptions{Process: direct("x"), Stdin: strings.NewReader("abc")})
		if err != nil || sink.data.String() != "abc" {
			t.Errorf("got stdin %q, error %v", &sink.data, err)
		}
	})
}

func TestRun_Terminal_SendsEndOfFileCharacter(t *testing.T) {
	for input, want := range map[string]string{
		"":         "\x04",
		"line\n":   "line\n\x04",
		"half":     "half\x04\x04",
		"a\nb\nc ": "a\nb\nc \x04\x04",
	} {
		sink := &stdinSink{t: t}
		_, c := newFake(t, func(stream serverStream) error {
			if err := sends(nil, started(0))(stream); err != nil {
				return err
			}
			if err := sink.drain(stream, true, func() bool { return sink.data.Len() >= len(want) }); err != nil {
				return err
			}
			return finish(stream)
		})
		process := direct("x")
		process.Io = &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Terminal{Terminal: &execwirev1.TerminalIo{}}}
		_, err := c.Run(t.Context(), RunOptions{Process: process, Stdin: strings.NewReader(input)})
		if err != nil || sink.data.String() != want || sink.eof {
			t.Errorf("input %q: got %q (end_of_file %v), error %v; want %q", input, &sink.data, sink.eof, err, want)
		}
	}
}

func TestRun_StdinClosed_StopsReading(t *testing.T) {
	const reason = execwirev1.ErrorReason_ERROR_REASON_STDIN_CLOSED
	synctest.Test(t, func(t *testing.T) {
		input := &counting{Reader: endless{}}
		_, c := newFake(t, func(stream serverStream) error {
			if err := sends(nil, started(0))(stream); err != nil {
				return err
			}
			if _, err := stream.Recv(); err != nil {
				return err
			}
			if err := stream.Send(rejected(reason)); err != nil {
				return err
			}
			synctest.Wait()
			before := input.n
			if err := stream.Send(accepted(1)); err != nil {
				return err
			}
			synctest.Wait()
			if input.n != before {
				t.Errorf("went on reading input that nobody takes")
			}
			return finish(stream)
		})
		var rejected execwirev1.ErrorReason
		exit, err := c.Run(t.Context(), RunOptions{
			Process:    direct("x"),
			Stdin:      input,
			OnRejected: func(r *execwirev1.RunRejected) { rejected = r.GetReason() },
		})
		if err != nil || exit.Code != 0 || rejected != reason {
			t.Errorf("got exit %+v, error %v, OnRejected %v", exit, err, rejected)
		}
	})
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestRun_InputError_Terminates(t *testing.T) {
	broken := errors.New("the disk is on fire")
	fake, c := newFake(t, func(stream serverStream) error {
		if err := sends(nil, started(0))(stream); err != nil {
			return err
		}
		<-stream.Context().Done()
		return stream.Context().Err()
	})
	_, err := c.Run(t.Context(), RunOptions{
		Process: direct("x"),
		Stdin:   io.MultiReader(strings.NewReader("abc"), failingReader{broken}),
	})
	var input *InputError
	if !errors.As(err, &input) || !errors.Is(err, broken) {
		t.Errorf("got %v, want an InputError", err)
	}
	if len(fake.terminations()) != 1 {
		t.Errorf("terminated %d times, want once", len(fake.terminations()))
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// The process ends during a blocked Read; the leak check of the package detects a Read
// that remains.
func TestRun_ProcessEnds_InterruptsBlockedRead(t *testing.T) {
	pollable, pollableEnd, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pollable.Close()
	defer pollableEnd.Close()
	blocking, blockingEnd := blockingPipe(t)
	conn, connEnd := net.Pipe()
	defer conn.Close()
	defer connEnd.Close()
	for name, input := range map[string]struct {
		reader io.Reader
		write  func([]byte) (int, error)
	}{
		"file in the poller": {pollable, pollableEnd.Write},
		"blocking file":      {blocking, blockingEnd.Write},
		"connection":         {conn, connEnd.Write},
	} {
		t.Run(name, func(t *testing.T) {
			_, c := newFake(t, sends(nil, started(0), events(exited(1, 0), closed(2))))
			if _, err := c.Run(t.Context(), RunOptions{Process: direct("x"), Stdin: input.reader}); err != nil {
				t.Fatal(err)
			}
			// The reader is still usable, and later data was not consumed.
			go func() { _, _ = input.write([]byte("later")) }()
			got := make([]byte, 5)
			if _, err := io.ReadFull(input.reader, got); err != nil || string(got) != "later" {
				t.Errorf("read %q, %v after the run", got, err)
			}
		})
	}
}

// blockingPipe returns a pipe that is not in the runtime poller, like standard input.
func blockingPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fd := dupBlocking(t, r)
	_ = r.Close()
	r = os.NewFile(uintptr(fd), "blocking")
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	if err := r.SetReadDeadline(time.Time{}); err == nil {
		t.Fatal("the pipe is in the poller")
	}
	return r, w
}

func TestRun_PlainReader_IsNotInterrupted(t *testing.T) {
	r, w := io.Pipe()
	_, c := newFake(t, sends(nil, started(0), events(exited(1, 0), closed(2))))
	if _, err := c.Run(t.Context(), RunOptions{Process: direct("x"), Stdin: r}); err != nil {
		t.Fatal(err)
	}
	_ = w.Close() // ends the remaining Read
}

// dupBlocking returns a descriptor of f in blocking mode.
func dupBlocking(t *testing.T, f *os.File) int {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	fd := -1
	var dupErr error
	if err := raw.Control(func(old uintptr) {
		if fd, dupErr = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0); dupErr == nil {
			dupErr = unix.SetNonblock(fd, false)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if dupErr != nil {
		t.Fatal(dupErr)
	}
	return fd
}
