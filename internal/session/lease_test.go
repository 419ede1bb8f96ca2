package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// kindOf returns the kind of an error of this package, or 0.
func kindOf(err error) Kind {
	if typed, ok := errors.AsType[*Error](err); ok {
		return typed.Kind
	}
	return 0
}

// checkedLease is a lease whose hooks check that it never has two holders and is never used
// after its end.
type checkedLease struct {
	t      rapid.TB
	lease  *lease
	holder *holder          // guarded by lease.mu, under which hooks run
	ended  int              // guarded by lease.mu
	gone   map[*holder]bool // guarded by lease.mu; holders that left or were displaced
	closed bool             // guarded by lease.mu; ended by close
}

func newCheckedLease(t rapid.TB, grace time.Duration) *checkedLease {
	lt := &checkedLease{t: t, gone: make(map[*holder]bool)}
	lt.lease = &lease{sessionID: "s", grace: grace, hooks: leaseHooks{
		attached: func(now, before *holder) { lt.change(before, now) },
		detached: func(before *holder) { lt.change(before, nil) },
		ended: func(before *holder) {
			lt.change(before, nil)
			lt.ended++
		},
	}}
	return lt
}

// change is called by the hooks, with the lease's lock held.
func (lt *checkedLease) change(before, now *holder) {
	if lt.ended > 0 {
		lt.t.Errorf("the holder changed after the end of the session")
	}
	if lt.holder != before {
		lt.t.Errorf("the hook received another holder")
	}
	lt.holder = now
	if before != nil {
		lt.gone[before] = true
	}
}

// close ends the lease and records that.
func (lt *checkedLease) close() {
	lt.lease.mu.Lock()
	lt.closed = true
	lt.lease.mu.Unlock()
	lt.lease.close()
}

// checkStays checks that an attached holder is still the holder, or that it was displaced.
func (lt *checkedLease) checkStays(h *holder) {
	lt.lease.mu.Lock()
	defer lt.lease.mu.Unlock()
	if lt.holder != h && !lt.gone[h] || lt.ended > 0 && lt.holder == h {
		lt.t.Errorf("the lease lost its holder without displacing it")
	}
	if by := lt.gone[h]; by && lt.holder == nil && !lt.closed && len(lt.gone) == 1 {
		lt.t.Errorf("the session ended while a holder was attached")
	}
}

// now returns the holder of the lease, and whether it has ended.
func (lt *checkedLease) now() (*holder, bool) {
	lt.lease.mu.Lock()
	defer lt.lease.mu.Unlock()
	return lt.holder, lt.ended > 0
}

func TestLease_HolderAnswers_RejectsContender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lt := newCheckedLease(t, time.Minute)
		pinged := 0
		incumbent := &holder{}
		incumbent.ping = func() {
			pinged++
			time.AfterFunc(PingTimeout-time.Nanosecond, func() { lt.lease.alive(incumbent) })
		}
		if err := lt.lease.attach(t.Context(), incumbent); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			start := time.Now()
			if err := lt.lease.attach(t.Context(), &holder{}); kindOf(err) != SessionAttached {
				t.Fatalf("a second attachment fails with %v", err)
			}
			if waited := time.Since(start); waited != PingTimeout-time.Nanosecond || pinged != i+1 {
				t.Errorf("it waited %v, the holder was pinged %d times", waited, pinged)
			}
		}
		lt.lease.close()
	})
}

func TestLease_SilentHolder_LosesToOneContender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lt := newCheckedLease(t, time.Minute)
		pings := 0
		incumbent := &holder{ping: func() { pings++ }}
		if err := lt.lease.attach(t.Context(), incumbent); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		results := make(chan error)
		for range 10 {
			go func() { results <- lt.lease.attach(t.Context(), &holder{}) }()
		}
		won := 0
		for range 10 {
			switch err := <-results; {
			case err == nil:
				won++
			case kindOf(err) != SessionAttached:
				t.Errorf("a loser fails with %v", err)
			}
		}
		if waited := time.Since(start); won != 1 || pings != 1 || waited != PingTimeout {
			t.Errorf("%d won after %v and %d pings", won, waited, pings)
		}
		if now, _ := lt.now(); now == incumbent || now == nil {
			t.Error("the silent holder still holds the lease")
		}
		lt.lease.leave(incumbent) // has no effect any more
		if now, _ := lt.now(); now == nil {
			t.Error("a displaced holder ended the attachment of another")
		}
		lt.lease.close()
	})
}

func TestLease_HolderLeaves_ContenderAttaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lt := newCheckedLease(t, time.Minute)
		incumbent := &holder{}
		_ = lt.lease.attach(t.Context(), incumbent)
		done := make(chan error)
		start := time.Now()
		go func() { done <- lt.lease.attach(t.Context(), &holder{}) }()
		time.AfterFunc(time.Second, func() { lt.lease.leave(incumbent) })
		if err := <-done; err != nil || time.Since(start) != time.Second {
			t.Errorf("the contender got %v after %v", err, time.Since(start))
		}
		lt.lease.close()
	})
}

func TestLease_EndedContext_TakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lt := newCheckedLease(t, time.Minute)
		incumbent := &holder{}
		_ = lt.lease.attach(t.Context(), incumbent)
		gone, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errors.New("gone")) })
		if err := lt.lease.attach(gone, &holder{}); err == nil || err.Error() != "gone" {
			t.Errorf("the cancelled contender received %v", err)
		}
		time.Sleep(time.Hour)
		if now, _ := lt.now(); now != incumbent {
			t.Error("the holder was displaced by a cancelled contender")
		}
		// The ping was dropped: the next contender pings again.
		start := time.Now()
		if err := lt.lease.attach(t.Context(), &holder{}); err != nil || time.Since(start) != PingTimeout {
			t.Errorf("the next contender got %v after %v", err, time.Since(start))
		}
		lt.lease.close()
	})
}

func TestLease_FailedCheck_ChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lt := newCheckedLease(t, time.Minute)
		incumbent := &holder{}
		_ = lt.lease.attach(t.Context(), incumbent)
		no := errors.New("no")
		hour := time.Hour
		if err := lt.lease.attach(t.Context(), &holder{grace: &hour, check: func() error { return no }}); !errors.Is(err, no) {
			t.Errorf("attach = %v", err)
		}
		if now, _ := lt.now(); now != incumbent || lt.lease.terms().grace != time.Minute {
			t.Error("a rejected attachment changed the lease")
		}
		lt.lease.close()
	})
}

func TestLease_Grace_BeginsAtLossEndsAtReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lt := newCheckedLease(t, time.Minute)
		h := &holder{}
		for range 3 {
			if err := lt.lease.attach(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			lt.lease.leave(h)
			if want := time.Now().Add(time.Minute); !lt.lease.terms().expires.Equal(want) {
				t.Errorf("it expires at %v, want %v", lt.lease.terms().expires, want)
			}
			time.Sleep(time.Minute - time.Nanosecond)
		}
		_ = lt.lease.attach(t.Context(), h)
		time.Sleep(time.Hour)
		if now, over := lt.now(); now != h || over {
			t.Fatal("the session ended while a holder was attached")
		}
		lt.lease.leave(h)
		time.Sleep(time.Minute + time.Nanosecond)
		if _, over := lt.now(); !over {
			t.Error("the end of the grace period did not end the session")
		}
		if err := lt.lease.attach(t.Context(), h); kindOf(err) != SessionNotFound {
			t.Errorf("an expired session accepted an attachment: %v", err)
		}
	})
}

// Many clients attach, leave and close at random times, with fake time. The hooks check the
// invariants; this test checks the outcome.
func TestLease_RandomOperations(t *testing.T) {
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		grace := rapid.SampledFrom([]time.Duration{0, time.Second, 3 * time.Second, time.Hour}).Draw(t, "grace")
		type step struct {
			at      time.Duration
			what    string
			answers bool
			stays   time.Duration
		}
		steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
			moment := rapid.Map(rapid.IntRange(0, 20), func(n int) time.Duration { return time.Duration(n) * 500 * time.Millisecond })
			return step{
				at:      moment.Draw(t, "at"),
				what:    rapid.SampledFrom([]string{"attach", "attach", "attach", "hasty", "close"}).Draw(t, "what"),
				answers: rapid.Bool().Draw(t, "answers"),
				stays:   moment.Draw(t, "stays"),
			}
		}), 1, 12).Draw(t, "steps")
		synctest.Test(outer, func(*testing.T) {
			lt := newCheckedLease(t, grace)
			for _, s := range steps {
				go func() {
					time.Sleep(s.at)
					if s.what == "close" {
						lt.close()
						return
					}
					h := &holder{}
					if s.answers {
						h.ping = func() { go lt.lease.alive(h) }
					}
					ctx := context.Background()
					if s.what == "hasty" {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, s.stays)
						defer cancel()
					}
					err := lt.lease.attach(ctx, h)
					if err != nil {
						if k := kindOf(err); k != SessionAttached && k != SessionNotFound && ctx.Err() == nil {
							t.Errorf("attach = %v", err)
						}
						return
					}
					time.Sleep(s.stays)
					lt.checkStays(h)
					lt.lease.leave(h)
					lt.lease.leave(h)
				}()
			}
			time.Sleep(48 * time.Hour) // all clients have left
			synctest.Wait()
			lt.lease.mu.Lock()
			defer lt.lease.mu.Unlock()
			if lt.lease.timer != nil || lt.lease.challenge != nil || lt.lease.holder != nil {
				t.Errorf("the lease is not empty: %+v", lt.lease)
			}
			came := false
			for _, s := range steps {
				came = came || s.what == "attach"
			}
			if came && lt.ended != 1 {
				t.Errorf("the session ended %d times", lt.ended)
			}
		})
	})
}
