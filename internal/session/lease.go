package session

import (
	"context"
	"sync"
	"time"
)

// lease records which client holds a session, and when the session is over. It has
// three states:
//
//	attached  holder is set
//	detached  timer runs
//	over      final
//
// It knows no processes; its hooks apply a change to them.
type lease struct {
	sessionID string
	hooks     leaseHooks

	mu        sync.Mutex
	holder    *holder       // guarded by mu
	challenge *challenge    // guarded by mu; nil: the holder is not being pinged
	grace     time.Duration // guarded by mu
	timer     *time.Timer   // guarded by mu; of the grace
	expires   time.Time     // guarded by mu; zero unless timer runs
	over      bool          // guarded by mu
}

// leaseHooks are called with the lease's lock held, in the order of the changes. They
// must not block.
type leaseHooks struct {
	// attached gets the new holder and the one that it displaced, if any.
	attached func(now, before *holder)
	// detached gets the holder that left.
	detached func(before *holder)
	// ended gets the holder at the end of the session, if any.
	ended func(before *holder)
}

// holder is a client that holds a session or tries to.
type holder struct {
	// ping sends a ping to the client. Nil: it cannot be pinged.
	ping func()
	// grace is the time after the client has left. Nil keeps the one before.
	grace *time.Duration
	// check is called with the lease's lock held just before the client gets the
	// session. An error rejects it without any effect. Nil accepts.
	check func() error

	// The lease does not use these; see [AttachRequest].
	feed         *feed
	afterSeq     map[string]uint64
	whenDetached WhenDetached
	maxProcesses int
	displaced    bool // there was another holder
}

// challenge is a ping of the holder that other clients wait for.
type challenge struct {
	waiting  int // guarded by lease.mu; clients that wait for the answer
	timer    *time.Timer
	timedOut bool          // guarded by lease.mu; no answer came in time
	decided  chan struct{} // closed when timedOut is set, or when the challenge has ended
}

// attach gives the session to h. If there is a holder, attach pings it and waits up
// to [PingTimeout]: if it answers, or another client was faster, the error is of kind
// [SessionAttached]. A lease that is over is kind [SessionNotFound]. If ctx has
// ended, attach changes nothing and returns its cause.
func (l *lease) attach(ctx context.Context, h *holder) error {
	l.mu.Lock()
	if l.holder == nil || l.over {
		defer l.mu.Unlock()
		return l.take(ctx, h)
	}
	incumbent, c := l.holder, l.challenge
	ping := func() {}
	if c == nil {
		c = &challenge{decided: make(chan struct{})}
		c.timer = time.AfterFunc(PingTimeout, func() { l.challengeTimedOut(c) })
		l.challenge = c
		if incumbent.ping != nil {
			ping = incumbent.ping
		}
	}
	c.waiting++
	l.mu.Unlock()
	ping()
	select {
	case <-c.decided:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.waiting--
	displaces := l.challenge == c && c.timedOut
	if l.challenge == c && c.waiting == 0 {
		l.endChallenge()
	}
	if l.holder != nil && !displaces && ctx.Err() == nil {
		return &Error{Kind: SessionAttached, Subject: l.sessionID}
	}
	return l.take(ctx, h)
}

// take makes h the holder and displaces the current one. mu is held.
func (l *lease) take(ctx context.Context, h *holder) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if l.over {
		return &Error{Kind: SessionNotFound, Subject: l.sessionID}
	}
	if h.check != nil {
		if err := h.check(); err != nil {
			return err
		}
	}
	before := l.holder
	l.endChallenge()
	l.stopTimer()
	l.holder = h
	if h.grace != nil {
		l.grace = *h.grace
	}
	l.hooks.attached(h, before)
	return nil
}

// challengeTimedOut is called by the timer of a challenge. The waiting clients decide
// what follows: they may be gone, and the holder may still answer before they look.
func (l *lease) challengeTimedOut(c *challenge) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.challenge == c {
		c.timedOut = true
		close(c.decided)
	}
}

// alive answers a challenge of h. If h is not the holder it changes nothing.
func (l *lease) alive(h *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder == h {
		l.endChallenge()
	}
}

// leave ends the hold of h: the grace begins, or the session ends if there is none.
// If h is not the holder it changes nothing.
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
	l.endChallenge()
	l.holder = nil
	l.startTimer(l.grace)
	l.hooks.detached(h)
}

// startTimer begins the grace, or the rest of it. mu is held.
func (l *lease) startTimer(rest time.Duration) {
	l.expires = time.Now().Add(rest)
	var timer *time.Timer
	timer = time.AfterFunc(rest, func() { l.expire(&timer) })
	l.timer = timer
}

// expire is called by the timer of the grace. timer is a pointer because the timer is
// created after the function; mu orders the assignment before this read.
func (l *lease) expire(timer **time.Timer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer == *timer {
		l.end()
	}
}

// close ends the session. If it is over it changes nothing.
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
	l.endChallenge()
	l.stopTimer()
	l.holder = nil
	l.over = true
	l.hooks.ended(before)
}

// endChallenge ends the challenge, if there is one, and wakes the clients that wait.
// mu is held.
func (l *lease) endChallenge() {
	c := l.challenge
	if c == nil {
		return
	}
	l.challenge = nil
	c.timer.Stop()
	if !c.timedOut {
		close(c.decided)
	}
}

// stopTimer ends the grace, if it runs. mu is held.
func (l *lease) stopTimer() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer, l.expires = nil, time.Time{}
	}
}

// terms describe a lease at one moment.
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
