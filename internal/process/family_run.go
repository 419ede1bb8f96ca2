package process

import (
	"os"
	"time"
)

// run does the family's work until there is none.
func (f *family) run(stopped chan struct{}) {
	defer close(stopped)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		f.round()
		orphans, next, idle := f.awaits()
		if idle {
			return
		}
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-f.wake:
		case <-orphans:
			f.mu.Lock()
			f.judgeSoon(f.judgeDelay())
			f.mu.Unlock()
		}
	}
}

// round does what is due.
func (f *family) round() {
	f.mu.Lock()
	now := time.Now()
	due := f.dueSweeps(now)
	judge := f.judgeDue(now)
	f.mu.Unlock()
	if len(due) == 0 && !judge {
		return
	}
	lived := make([]bool, len(due))
	for i, w := range due {
		lived[i] = !w.process.hasEnded()
	}
	d, judged, number, err := f.survey()
	if err != nil {
		f.advanceBlindly(due, isExhausted(err))
		return
	}
	for i, w := range due {
		f.advance(w, d, judged, lived[i])
	}
	f.judge(d, judged, number)
}

// dueSweeps forces those whose deadline has passed, and returns those that have to take a step. Called with mu held.
func (f *family) dueSweeps(now time.Time) (due []*sweep) {
	for w := range f.sweeps {
		if !w.forced && !now.Before(w.deadline) {
			w.force()
		}
		if !w.next.IsZero() && !now.Before(w.next) {
			due = append(due, w)
		}
	}
	return due
}

// judgeDue is called with mu held.
func (f *family) judgeDue(now time.Time) bool {
	return !f.judgeAt.IsZero() && !now.Before(f.judgeAt) || f.strays != nil && !now.Before(f.strays.next)
}

// awaits returns what there is to wait for: a signal, unless it would tell nothing new, and a time, unless it is zero.
// If there is nothing, the goroutine is not the family's any more.
func (f *family) awaits() (orphans <-chan os.Signal, next time.Time, idle bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isIdle() {
		f.stopped = nil
		f.division, f.resting = nil, nil
		return nil, next, true
	}
	for _, busy := range f.resting {
		close(busy)
	}
	f.resting = nil
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for w := range f.sweeps {
		sooner(w.next)
		if !w.forced {
			sooner(w.deadline)
		}
	}
	sooner(f.judgeAt)
	if f.strays != nil {
		sooner(f.strays.next)
	}
	if f.judgeAt.IsZero() {
		orphans = f.orphans
	}
	return orphans, next, false
}

// advance has a sweep take a step. The process lived, or did not, when the listing for d began.
func (f *family) advance(w *sweep, d *division, judged, lived bool) {
	s := scene{judged: judged, lived: lived, now: time.Now()}
	s.members, s.doubtful = d.of(w.process.kin)
	s.riddle, s.unseen = d.riddle(w.process.kin)
	f.mu.Lock()
	s.forced = w.forced
	w.next = time.Time{} // whoever wants an earlier look sets it anew
	f.mu.Unlock()
	wait, done := w.step(s)
	if done {
		f.complete(w)
		return
	}
	_, exited := w.process.Exit()
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.next.IsZero() && (s.forced || exited) { // a process that lives is waited for, and tells when it ends
		if !s.forced {
			wait = max(wait, gracefulShare*f.cost)
		}
		w.next = time.Now().Add(wait)
	}
}

func (f *family) complete(w *sweep) {
	f.mu.Lock()
	delete(f.sweeps, w)
	f.mu.Unlock()
	w.process.swept(w)
}

// advanceBlindly takes what steps can be taken without knowing who is there, when the processes cannot be listed:
// perhaps only for now.
func (f *family) advanceBlindly(due []*sweep, forNow bool) {
	now := time.Now()
	for _, w := range due {
		f.mu.Lock()
		forced := w.forced
		w.next = time.Time{}
		f.mu.Unlock()
		wait, done := w.stepBlindly(forced, forNow, now)
		if done {
			f.complete(w)
			continue
		}
		f.mu.Lock()
		if w.next.IsZero() {
			w.next = now.Add(wait)
		}
		f.mu.Unlock()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.judgeAt = time.Time{}
	if f.strays != nil {
		f.strays.next = now.Add(minJudgeDelay)
	}
	if forNow {
		f.judgeSoon(f.judgeDelay())
	}
	for _, waiting := range f.waiters {
		close(waiting.done)
	}
	f.waiters = nil
}
