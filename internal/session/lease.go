package session

import (
	"context"
	"sync"
	"time"
)

// lease says who holds a session, and when it is over. It is in one of three
// situations, and every change between them is made under its lock:
//
//	attached  holder is set
//	detached  timer runs
//	over      for good
//
// It knows no processes: what a change means for them is in its hooks.
type lease struct {
	sessionID string
	hooks     leaseHooks

	mu      sync.Mutex
	holder  *holder       // guarded by mu
	contest *contest      // guarded by mu; nil: nobody asks whether holder is there
	grace   time.Duration // guarded by mu
	timer   *time.Timer   // guarded by mu; of the grace
	expires time.Time     // guarded by mu; zero unless timer runs
	over    bool          // guarded by mu
}

// leaseHooks are called with the lease's lock held, in the order of the changes.
// They must not block.
type leaseHooks struct {
	// attached is told who holds the session now, and whom that displaced.
	attached func(now, before *holder)
	// detached is told who gave the session up.
	detached func(before *holder)
	// ended is told who held the session when it ended, if anybody did.
	ended func(before *holder)
}

// holder is one client that holds a session or tries to.
type holder struct {
	// ping asks whether the client is there. Nil: it cannot be asked.
	ping func()
	// grace is for the time after the client has gone. Nil leaves it as it is.
	grace *time.Duration
	// admit is called with the lease's lock held just before the client gets the
	// session; an error refuses it, and nothing has happened. Nil admits.
	admit func() error

	// feed is what the client reads, and request what it asked for. The lease does
	// not look at them.
	feed    *feed
	request *attaching
}

// contest is the question whether a holder is still there.
type contest struct {
	contenders int // guarded by lease.mu; who waits for the answer
	timer      *time.Timer
	silent     bool          // guarded by lease.mu; the time for an answer is over
	decided    chan struct{} // closed when silent is set, or when there is nothing more to wait for
}

// attach gives the session to h. If somebody holds it already that one is asked
// whether it is there, and has [AnswerTime] to say so: then the error is of kind
// [SessionAttached], as it is when another contender was faster. A lease that is
// over is kind [SessionNotFound]. A ctx that has ended takes nothing; its cause
// is returned.
func (l *lease) attach(ctx context.Context, h *holder) error {
	l.mu.Lock()
	if l.holder == nil || l.over {
		defer l.mu.Unlock()
		return l.take(ctx, h)
	}
	incumbent, c := l.holder, l.contest
	ping := func() {}
	if c == nil {
		c = &contest{decided: make(chan struct{})}
		c.timer = time.AfterFunc(AnswerTime, func() { l.unanswered(c) })
		l.contest = c
		if incumbent.ping != nil {
			ping = incumbent.ping
		}
	}
	c.contenders++
	l.mu.Unlock()
	ping()
	select {
	case <-c.decided:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.contenders--
	displaces := l.contest == c && c.silent
	if l.contest == c && c.contenders == 0 {
		l.dropContest()
	}
	if l.holder != nil && !displaces && ctx.Err() == nil {
		return &Error{Kind: SessionAttached, Subject: l.sessionID}
	}
	return l.take(ctx, h)
}

// take makes h the holder, whoever holds the lease now. mu is held.
func (l *lease) take(ctx context.Context, h *holder) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if l.over {
		return &Error{Kind: SessionNotFound, Subject: l.sessionID}
	}
	if h.admit != nil {
		if err := h.admit(); err != nil {
			return err
		}
	}
	before := l.holder
	l.dropContest()
	l.stopTimer()
	l.holder = h
	if h.grace != nil {
		l.grace = *h.grace
	}
	l.hooks.attached(h, before)
	return nil
}

// unanswered is what a contest's timer does. The contenders decide what follows:
// they may all have gone, and the holder may still speak before they look.
func (l *lease) unanswered(c *contest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.contest == c {
		c.silent = true
		close(c.decided)
	}
}

// alive says that h was heard. From one that does not hold the session it
// changes nothing.
func (l *lease) alive(h *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder == h {
		l.dropContest()
	}
}

// leave says that h is gone: the grace begins, or the session ends if there is
// none. From one that does not hold the session it changes nothing.
func (l *lease) leave(h *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder != h {
		return
	}
	if l.grace <= 0 {
		l.end()
		return
	}
	l.dropContest()
	l.holder = nil
	l.expires = time.Now().Add(l.grace)
	var timer *time.Timer
	timer = time.AfterFunc(l.grace, func() { l.expire(&timer) })
	l.timer = timer
	l.hooks.detached(h)
}

// expire is what the timer of a grace does. The timer is passed by reference
// because it is known only after it was set; mu makes sure that it is known
// here.
func (l *lease) expire(timer **time.Timer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer == *timer {
		l.end()
	}
}

// close ends the session for good, whoever holds it. Once it is over it changes
// nothing.
func (l *lease) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.end()
	}
}

// end makes the lease over. mu is held.
func (l *lease) end() {
	before := l.holder
	l.dropContest()
	l.stopTimer()
	l.holder = nil
	l.over = true
	l.hooks.ended(before)
}

// dropContest ends the question, if there is one, and sends the contenders to
// see for themselves. mu is held.
func (l *lease) dropContest() {
	c := l.contest
	if c == nil {
		return
	}
	l.contest = nil
	c.timer.Stop()
	if !c.silent {
		close(c.decided)
	}
}

// stopTimer ends the grace, if one runs. mu is held.
func (l *lease) stopTimer() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer, l.expires = nil, time.Time{}
	}
}

// terms are what is agreed about a lease at one moment.
type terms struct {
	attached bool
	over     bool
	grace    time.Duration
	expires  time.Time
}

func (l *lease) terms() terms {
	l.mu.Lock()
	defer l.mu.Unlock()
	return terms{attached: l.holder != nil, over: l.over, grace: l.grace, expires: l.expires}
}
