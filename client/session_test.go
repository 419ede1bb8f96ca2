package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// withSession attaches to a fake server that plays scripts, and detaches at the end.
// Tests call it in synctest bubbles.
func withSession(t *testing.T, options SessionOptions, use func(t *testing.T, s *Session), scripts ...sessionScript) {
	t.Helper()
	_, c := newFakeSessions(t, scripts...)
	s, err := c.AttachSession(t.Context(), options)
	if err != nil {
		t.Fatalf("AttachSession: %v", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = s.Detach(ctx)
	}()
	use(t, s)
}

// expectNext requires these events of a process next, by seq; 0 is a gap.
func expectNext(t *testing.T, s *Session, id string, seqs ...uint64) {
	t.Helper()
	got, err := s.Next(t.Context())
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	var have []uint64
	for _, e := range got.Events {
		have = append(have, e.GetSeq())
	}
	if got.ProcessID != id || fmt.Sprint(have) != fmt.Sprint(seqs) {
		t.Fatalf("Next is of %q with %v, want %q with %v", got.ProcessID, have, id, seqs)
	}
}

func expectReason(t *testing.T, err error, want execwirev1.ErrorReason) {
	t.Helper()
	if Reason(err) != want {
		t.Errorf("the error is %v, want %v", err, want)
	}
}

func TestSession_AcknowledgesConsumedEventsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		acknowledged := make(chan struct{})
		withSession(t, SessionOptions{}, func(t *testing.T, s *Session) {
			begin := time.Now()
			expectNext(t, s, "a", 1, 2)
			expectNext(t, s, "b", 1)
			s.Acknowledge("a", 2)
			s.Acknowledge("a", 1)     // lower
			s.Acknowledge("a", 7)     // never received
			s.Acknowledge("other", 1) // unknown
			<-acknowledged
			if waited := time.Since(begin); waited != acknowledgeIdle {
				t.Errorf("a little output was acknowledged after %v, want %v", waited, acknowledgeIdle)
			}
			begin = time.Now()
			expectNext(t, s, "b", 2)
			s.Acknowledge("b", 2) // a quarter of the window and a byte
			<-acknowledged
			expectNext(t, s, "a", 3, 4)
			s.Acknowledge("a", 4) // the end
			<-acknowledged
			if waited := time.Since(begin); waited != 0 {
				t.Errorf("acknowledging what is due took %v", waited)
			}
			if got, want := s.Cursors(), map[string]uint64{"a": 4, "b": 2}; !maps.Equal(got, want) {
				t.Errorf("the cursors are %v, want %v", got, want)
			}
		}, granted(func(a *fakeAttachment) error {
			err := firstError(a.events("a", stdout(1, 0, "x"), stdout(2, 1, "y")), a.events("b", stdout(1, 0, "z")))
			a.expectAcknowledged(t, map[string]uint64{"a": 2})
			acknowledged <- struct{}{}
			err = firstError(err, a.events("b", stdout(2, 1, string(make([]byte, 251)))))
			a.expectAcknowledged(t, map[string]uint64{"b": 2})
			acknowledged <- struct{}{}
			err = firstError(err, a.events("a", exited(3, 0), closed(4)))
			a.expectAcknowledged(t, map[string]uint64{"a": 4})
			acknowledged <- struct{}{}
			return firstError(err, a.awaitDetach())
		}))
	})
}

func TestSession_WithoutReader_AnswersPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered := make(chan uint64)
		withSession(t, SessionOptions{}, func(t *testing.T, s *Session) {
			if got := <-answered; got != 42 {
				t.Errorf("the ping was answered with %d", got)
			}
		}, granted(func(a *fakeAttachment) error {
			err := a.events("p", stdout(1, 0, "unconsumed"))
			err = firstError(err, a.ping(42))
			m, recvErr := a.stream.Recv()
			answered <- m.GetPong().GetNonce()
			return firstError(err, recvErr, a.awaitDetach())
		}))
	})
}

// Unconsumed events are sent again after a cut, and not delivered twice.
func TestSession_Resume_RepeatsUnconsumedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost, resumed int
		acknowledged := make(chan struct{})
		withSession(t, SessionOptions{OnLost: func(error) { lost++ }, OnResumed: func() { resumed++ }}, func(t *testing.T, s *Session) {
			expectNext(t, s, "p", 1)
			s.Acknowledge("p", 1)
			close(acknowledged)
			expectNext(t, s, "p", 2, 3)
			expectNext(t, s, "p", 4)
			expectNext(t, s, "q", 1)
			if lost != 1 || resumed != 1 {
				t.Errorf("OnLost was called %d times, OnResumed %d; want one each", lost, resumed)
			}
			if s.ID() != "s" {
				t.Errorf("the session's id is %q", s.ID())
			}
		}, func(a *fakeAttachment, attach *execwirev1.SessionAttach) error {
			if attach.GetSessionId() != "" || len(attach.GetAfterSeq()) != 0 {
				t.Errorf("attached with %v, want a new session", attach)
			}
			err := firstError(a.attached(), a.events("p", stdout(1, 0, "a")), a.events("p", stdout(2, 1, "b"), stdout(3, 2, "c")))
			<-acknowledged
			return firstError(err, errCut)
		}, func(a *fakeAttachment, attach *execwirev1.SessionAttach) error {
			if want := map[string]uint64{"p": 1}; attach.GetSessionId() != "s" || !maps.Equal(attach.GetAfterSeq(), want) {
				t.Errorf("attached again with %v, want session s after %v", attach, want)
			}
			return firstError(a.attached(), a.events("p", stdout(2, 1, "b"), stdout(3, 2, "c"), stdout(4, 3, "d")),
				a.events("q", stdout(1, 0, "x")), a.awaitDetach())
		})
	})
}

// A stream is cut between consumption and acknowledgement. The next stream must
// schedule the acknowledgement again.
func TestSession_Cut_SendsPendingAcknowledgements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := make(chan struct{})
		withSession(t, SessionOptions{}, func(t *testing.T, s *Session) {
			expectNext(t, s, "p", 1)
			s.Acknowledge("p", 1)
			synctest.Wait() // the sender waits for more
			close(taken)
			expectNext(t, s, "p", 2)
			s.Acknowledge("p", 2)
			time.Sleep(10 * acknowledgeIdle)
		}, granted(func(a *fakeAttachment) error {
			err := a.events("p", stdout(1, 0, "a"))
			<-taken
			return firstError(err, errCut)
		}), granted(func(a *fakeAttachment) error {
			sent, err := time.Now(), a.events("p", stdout(2, 1, "b"))
			a.expectAcknowledged(t, map[string]uint64{"p": 2})
			if waited := time.Since(sent); waited > 5*acknowledgeIdle {
				t.Errorf("it was acknowledged after %v, when the session was detached", waited)
			}
			return firstError(err, a.awaitDetach())
		}))
	})
}

// Data of a lost stream can count as a response of its client until it expires; another
// client keeps responding.
func TestSession_OwnStaleAttachment_IsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuses := func(*fakeAttachment, *execwirev1.SessionAttach) error {
			return serverError(codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_SESSION_ATTACHED)
		}
		lost := granted(func(*fakeAttachment) error { return errCut })
		withSession(t, SessionOptions{}, func(t *testing.T, s *Session) {
			expectNext(t, s, "p", 1)
		}, lost, refuses, refuses, granted(func(a *fakeAttachment) error {
			return firstError(a.events("p", stdout(1, 0, "a")), a.awaitDetach())
		}))
		scripts := []sessionScript{lost}
		for range 100 {
			scripts = append(scripts, refuses)
		}
		withSession(t, SessionOptions{}, func(t *testing.T, s *Session) {
			_, err := s.Next(t.Context())
			expectReason(t, err, execwirev1.ErrorReason_ERROR_REASON_SESSION_ATTACHED)
		}, scripts...)
	})
}

// The size of a gap that was counted from the cursor is unknown.
func TestSession_Gap_Inexact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withSession(t, SessionOptions{AfterSeq: map[string]uint64{"p": 3}}, func(t *testing.T, s *Session) {
			expectNext(t, s, "p", 4)
			got, err := s.Next(t.Context())
			if err != nil || len(got.Events) != 2 || !got.Events[0].GetGap().GetUpperBound() || got.Events[1].GetSeq() != 9 {
				t.Errorf("Next = %v, %v; want an inexact gap and seq 9", got, err)
			}
		}, granted(func(a *fakeAttachment) error { return firstError(a.events("p", stdout(4, 3, "d")), errCut) }),
			granted(func(a *fakeAttachment) error {
				return firstError(a.events("p", gap(9, 5), stdout(9, 8, "i")), a.awaitDetach())
			}))
	})
}

func TestSession_Released_ForgetsPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withSession(t, SessionOptions{}, func(t *testing.T, s *Session) {
			expectNext(t, s, "p", 1)
			s.Acknowledge("p", 1)
			if got, err := s.Next(t.Context()); err != nil || !got.Released || got.ProcessID != "p" || got.Events != nil {
				t.Errorf("Next = %v, %v; want that p was released", got, err)
			}
			expectNext(t, s, "p", 8)
			s.Acknowledge("p", 1)
			if cursors := s.Cursors(); cursors["p"] != 7 {
				t.Errorf("the cursors are %v, want all that came before seq 8", cursors)
			}
		}, granted(func(a *fakeAttachment) error {
			return firstError(a.events("p", stdout(1, 0, "a")), a.released("p"), a.events("p", stdout(8, 7, "h")), a.awaitDetach())
		}))
	})
}

// Ids can be reused some time after their process was consumed.
func TestSession_ReusedID_StartsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withSession(t, SessionOptions{}, func(t *testing.T, s *Session) {
			for range 2 {
				expectNext(t, s, "p", 1, 2, 3)
				s.Acknowledge("p", 3)
			}
			if cursors := s.Cursors(); cursors["p"] != 3 {
				t.Errorf("the cursors are %v, want p at its end", cursors)
			}
			time.Sleep(startRetryTimeout + time.Nanosecond) // later than the timer, which has its own goroutine
			if cursors := s.Cursors(); len(cursors) != 0 {
				t.Errorf("long after the end the cursors are %v", cursors)
			}
		}, granted(func(a *fakeAttachment) error {
			err := a.events("p", stdout(1, 0, "a"), exited(2, 0), closed(3, 1))
			a.expectAcknowledged(t, map[string]uint64{"p": 3})
			return firstError(err, a.events("p", stdout(1, 0, "b"), exited(2, 0), closed(3, 1)), a.awaitDetach())
		}))
	})
}

// While disconnected, another client may have advanced a process beyond what was
// received but not consumed. The server must not continue there.
func TestSession_Resume_NothingConsumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withSession(t, SessionOptions{AfterSeq: map[string]uint64{"q": 0}}, func(t *testing.T, s *Session) {
			expectNext(t, s, "p", 1)
			expectNext(t, s, "p", 2)
		}, granted(func(a *fakeAttachment) error {
			return firstError(a.events("p", stdout(1, 0, "a")), errCut)
		}), func(a *fakeAttachment, attach *execwirev1.SessionAttach) error {
			if want := map[string]uint64{"p": 0, "q": 0}; !maps.Equal(attach.GetAfterSeq(), want) {
				t.Errorf("attached again after %v, want %v", attach.GetAfterSeq(), want)
			}
			return firstError(a.attached(), a.events("p", stdout(1, 0, "a"), stdout(2, 1, "b")), a.awaitDetach())
		})
	})
}

func TestSession_LimitsCursors(t *testing.T) {
	f := newSessionFeed(nil)
	for i := range maxCursors + 10 {
		id := fmt.Sprint(i)
		if err := f.add(id, []*execwirev1.ProcessEvent{stdout(1, 0, "x")}); err != nil {
			t.Fatal(err)
		}
		f.taken(id, 1)
	}
	if n := len(f.cursors()); n != maxCursors {
		t.Errorf("there are %d cursors, want %d", n, maxCursors)
	}
}

func TestSession_FinalErrors_End(t *testing.T) {
	taken := serverError(codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_SESSION_TAKEN_OVER)
	over := serverError(codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_SESSION_CLOSED)
	gone := serverError(codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND)
	refuses := func(err error) sessionScript {
		return func(*fakeAttachment, *execwirev1.SessionAttach) error { return err }
	}
	ends := func(err error) sessionScript {
		return granted(func(a *fakeAttachment) error { return firstError(a.events("p", stdout(1, 0, "a")), err) })
	}
	var zero time.Duration
	var lost *SessionLostError
	var protocol *ProtocolError
	for name, c := range map[string]struct {
		options SessionOptions
		scripts []sessionScript
		check   func(err error) bool
	}{
		"taken over": {scripts: []sessionScript{ends(taken)},
			check: func(err error) bool { return Reason(err) == execwirev1.ErrorReason_ERROR_REASON_SESSION_TAKEN_OVER }},
		"closed": {scripts: []sessionScript{ends(over)},
			check: func(err error) bool { return Reason(err) == execwirev1.ErrorReason_ERROR_REASON_SESSION_CLOSED }},
		"gone when it returns": {scripts: []sessionScript{ends(errCut), refuses(gone)},
			check: func(err error) bool { return errors.As(err, &lost) && lost.SessionID == "s" }},
		"unreachable during the grace": {scripts: []sessionScript{ends(errCut)},
			check: func(err error) bool { return errors.As(err, &lost) && lost.Lost > assumedGrace }},
		"no reason": {scripts: []sessionScript{ends(nil)},
			check: func(err error) bool { return errors.As(err, &protocol) }},
		"a hole": {scripts: []sessionScript{granted(func(a *fakeAttachment) error {
			return firstError(a.events("p", stdout(1, 0, "a")), a.events("p", stdout(3, 2, "c")), a.awaitDetach())
		})}, check: func(err error) bool { return errors.As(err, &protocol) }},
		"no grace": {options: SessionOptions{Grace: &zero}, scripts: []sessionScript{
			func(a *fakeAttachment, attach *execwirev1.SessionAttach) error {
				if attach.GetGrace() == nil || attach.GetGrace().AsDuration() != 0 {
					return errors.New("no grace was asked for")
				}
				return firstError(a.stream.Send(&execwirev1.AttachSessionResponse{Message: &execwirev1.AttachSessionResponse_Attached{
					Attached: &execwirev1.SessionAttached{Session: &execwirev1.Session{SessionId: "s"}}}}),
					a.events("p", stdout(1, 0, "a")), errCut)
			}},
			check: func(err error) bool { return errors.As(err, &lost) && lost.Lost == 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				withSession(t, c.options, func(t *testing.T, s *Session) {
					expectNext(t, s, "p", 1) // events before the end are delivered first
					if _, err := s.Next(t.Context()); err == nil || !c.check(err) {
						t.Errorf("the session ended with %v", err)
					}
					if err := s.Detach(t.Context()); !c.check(err) {
						t.Errorf("Detach of what has ended returns %v", err)
					}
				}, c.scripts...)
			})
		})
	}
}

func TestAttachSession_Rejected_FailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := newFakeSessions(t, func(*fakeAttachment, *execwirev1.SessionAttach) error {
			return serverError(codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_SESSION_ATTACHED)
		})
		_, err := c.AttachSession(t.Context(), SessionOptions{SessionID: "s"})
		expectReason(t, err, execwirev1.ErrorReason_ERROR_REASON_SESSION_ATTACHED)
		if _, err = c.AttachSession(t.Context(), SessionOptions{}); status.Code(err) != codes.Unavailable {
			t.Errorf("attaching where nobody is fails with %v", err)
		}
	})
}

func TestAttachSession_ContextDone_Fails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		_, c := newFakeSessions(t, func(*fakeAttachment, *execwirev1.SessionAttach) error {
			<-release
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.AttachSession(ctx, SessionOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("AttachSession: %v, want the deadline", err)
		}
		close(release)
	})
}

func TestSession_Detach_AcknowledgesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withSession(t, SessionOptions{}, func(t *testing.T, s *Session) {
			expectNext(t, s, "p", 1)
			s.Acknowledge("p", 1)
			if err := s.Detach(t.Context()); err != nil {
				t.Errorf("Detach: %v", err)
			}
			if _, err := s.Next(t.Context()); err != io.EOF {
				t.Errorf("after Detach, Next: %v, want the end", err)
			}
		}, granted(func(a *fakeAttachment) error {
			err := a.events("p", stdout(1, 0, "a"))
			a.expectAcknowledged(t, map[string]uint64{"p": 1})
			return firstError(err, a.awaitDetach())
		}))
	})
}

// Detach does not block without a connection or an answer of the server.
func TestSession_Detach_WithoutServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := make(chan struct{})
		withSession(t, SessionOptions{OnLost: func(error) { close(lost) }}, func(t *testing.T, s *Session) {
			<-lost
			if err := s.Detach(t.Context()); err != nil {
				t.Errorf("Detach: %v", err)
			}
		}, granted(func(*fakeAttachment) error { return errCut }))

		release := make(chan struct{})
		withSession(t, SessionOptions{}, func(t *testing.T, s *Session) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := s.Detach(ctx); err != nil {
				t.Errorf("Detach: %v", err)
			}
			if ctx.Err() == nil {
				t.Error("Detach did not wait for the server")
			}
			close(release)
		}, granted(func(*fakeAttachment) error { <-release; return nil }))
	})
}

func TestSession_Close_EndsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newFakeSessions(t, untilDetached)
		s, err := c.AttachSession(t.Context(), SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		f.onClose = func() error { return status.Error(codes.Unavailable, "not now") }
		if err := s.Close(t.Context()); status.Code(err) != codes.Unavailable {
			t.Errorf("Close: %v, want what the server says", err)
		}
		f.onClose = nil
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if _, err := s.Next(t.Context()); err != io.EOF {
			t.Errorf("after Close, Next: %v, want the end", err)
		}
		if fmt.Sprint(f.closed) != "[s s]" {
			t.Errorf("closed were %v", f.closed)
		}
	})
}

// The server ends the attachment before it answers Close.
func TestSession_Close_AttachmentEndsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closing := make(chan struct{})
		f, c := newFakeSessions(t, granted(func(*fakeAttachment) error {
			<-closing
			return serverError(codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_SESSION_CLOSED)
		}))
		s, err := c.AttachSession(t.Context(), SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		f.onClose = func() error {
			close(closing)
			synctest.Wait()
			return nil
		}
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if _, err := s.Next(t.Context()); err != io.EOF {
			t.Errorf("after Close, Next: %v, want the end", err)
		}
	})
}

func TestSession_Events_RangesToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withSession(t, SessionOptions{}, func(t *testing.T, s *Session) {
			var ids []string
			for events, err := range s.Events(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if ids = append(ids, events.ProcessID); len(ids) == 2 {
					go func() { _ = s.Detach(t.Context()) }()
				}
			}
			if fmt.Sprint(ids) != "[a b]" {
				t.Errorf("ranged over %v", ids)
			}
		}, granted(func(a *fakeAttachment) error {
			return firstError(a.events("a", stdout(1, 0, "x")), a.events("b", stdout(1, 0, "y")), a.awaitDetach())
		}))
	})
}
