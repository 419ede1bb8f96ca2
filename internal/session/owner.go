package session

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/process"
)

// ownerState says who owns a process. Only the first three occur in a session without
// a lease.
type ownerState uint8

const (
	unowned         ownerState = iota // no owner: the oldest output is evicted
	streamOwned                       // a stream
	inGrace                           // no owner: its stream was lost and may resume
	attachmentOwned                   // the session's attachment
	sessionDetached                   // no owner: the session is detached and WhenDetached applies
)

// currentOwner is the owner of a process. Fields that do not apply to the state are
// nil.
type currentOwner struct {
	state      ownerState
	stream     *Ownership  // of streamOwned
	graceTimer *time.Timer // of inGrace
	item       *item       // of attachmentOwned
}

// Ownership is the ownership of a process by one stream: output that the stream has
// not acknowledged is not evicted. Next and Acknowledge are for one goroutine each.
// Lost and Detach end the ownership; they may be called from any goroutine and more
// than once, and the first call counts.
type Ownership struct {
	process *Process
	grace   time.Duration
	log     *eventlog.Owner
}

// Process returns the owned process.
func (o *Ownership) Process() *Process { return o.process }

// Next returns the next events, at least one, blocking until there is one; see
// [eventlog.Owner].
func (o *Ownership) Next(ctx context.Context, maxBytes int) (eventlog.Batch, error) {
	return o.log.Next(ctx, maxBytes)
}

// Acknowledge acknowledges all events up to and including seq; see [eventlog.Owner].
func (o *Ownership) Acknowledge(seq uint64) error { return o.log.Acknowledge(seq) }

// AllAcknowledged reports whether all events so far were acknowledged, or the log was
// freed because the server or the session ends.
func (o *Ownership) AllAcknowledged() bool {
	stats := o.process.Log().Stats()
	return stats.Acknowledged >= stats.LastSeq || !stats.Owned
}

// Own makes the caller the owner and starts after afterSeq, which counts as
// acknowledged. Reads of the previous owner fail with [eventlog.ErrReplaced]; an
// attachment of the session gets a release. A nil grace is the default; more than the
// maximum is kind [GraceTooLong]. If ctx has ended, Own changes nothing: a client
// that is gone must not displace a later one.
func (p *Process) Own(ctx context.Context, afterSeq uint64, grace *time.Duration) (*Ownership, error) {
	keep, err := p.session.registry.resolveGrace(p.id, grace)
	if err != nil {
		return nil, err
	}
	p.session.lock()
	defer p.session.unlock()
	return p.own(ctx, afterSeq, keep)
}

// own is Own with session.mu held.
func (p *Process) own(ctx context.Context, afterSeq uint64, grace time.Duration) (*Ownership, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if p.session.over {
		return nil, &Error{Kind: SessionClosed, Subject: p.session.id}
	}
	if err := p.checkReached(afterSeq); err != nil {
		return nil, err
	}
	log, err := p.Log().Own(afterSeq)
	if err != nil {
		return nil, err
	}
	o := &Ownership{process: p, grace: grace, log: log}
	p.setOwner(currentOwner{state: streamOwned, stream: o})
	return o, nil
}

// checkReached returns an error if the process has not reached seq.
func (p *Process) checkReached(seq uint64) error {
	if last := p.Log().Stats().LastSeq; seq > last {
		return fmt.Errorf("%w: %d of process %q, the last is %d", eventlog.ErrFutureSeq, seq, p.id, last)
	}
	return nil
}

// setOwner replaces the owner, once the log belongs to the new one, and ends the
// ownership of the previous one. session.mu is held.
func (p *Process) setOwner(next currentOwner) {
	before := p.owner
	p.owner = next
	p.session.registry.budget.markInUse(p)
	if before.graceTimer != nil {
		before.graceTimer.Stop()
	}
	if before.stream != nil {
		// The stream may block in sending, and counts as a reader until it is
		// released.
		before.stream.log.Release(false)
	}
	if before.item != nil {
		before.item.remove(next.stream != nil)
		before.item.log.Release(false)
	}
}

// releaseOwner ends the ownership without a new owner. With hold, unacknowledged
// output is kept; without, the log is freed. session.mu is held.
func (p *Process) releaseOwner(next currentOwner, hold bool) {
	switch {
	case p.owner.stream != nil:
		p.owner.stream.log.Release(hold)
	case p.owner.item != nil:
		p.owner.item.log.Release(hold)
	}
	if !hold {
		p.Log().Free()
	}
	p.setOwner(next)
}

// resolveGrace applies the default and the maximum to a requested grace.
func (r *Registry) resolveGrace(id string, grace *time.Duration) (time.Duration, error) {
	switch {
	case grace == nil:
		return r.cfg.DefaultGrace, nil
	case *grace > r.cfg.MaxGrace:
		return 0, &Error{Kind: GraceTooLong, Subject: id, Detail: "the server's maximum is " + r.cfg.MaxGrace.String()}
	default:
		return *grace, nil
	}
}

// Owned reports whether a stream or an attachment owns the process.
func (p *Process) Owned() bool {
	p.session.mu.Lock()
	defer p.session.mu.Unlock()
	switch p.owner.state {
	case streamOwned, attachmentOwned:
		return true
	}
	return false
}

// Lost ends the ownership because the connection was lost. The process keeps its
// unacknowledged output for the grace, and is then terminated unless it has a new
// owner. An owner that was replaced changes nothing.
func (o *Ownership) Lost() {
	p := o.process
	p.session.lock()
	defer p.session.unlock()
	if p.owner.stream != o || p.session.over {
		o.detach()
		return
	}
	o.startGrace()
}

// startGrace is Lost of the current owner. session.mu is held.
func (o *Ownership) startGrace() {
	p := o.process
	var timer *time.Timer
	timer = time.AfterFunc(o.grace, func() { p.graceExpired(&timer) })
	p.releaseOwner(currentOwner{state: inGrace, graceTimer: timer}, true)
}

// Detach ends the ownership. The process continues without an owner; in a leased
// session, the session owns it again.
func (o *Ownership) Detach() {
	o.process.session.lock()
	defer o.process.session.unlock()
	o.detach()
}

// detach is Detach with session.mu held.
func (o *Ownership) detach() {
	if p := o.process; p.owner.stream == o {
		p.assignOwner()
		return
	}
	o.log.Release(false)
}

// graceExpired terminates a process whose owner did not return. Of a closed process
// it releases the output. timer is a pointer because the timer is created after the
// function; session.mu orders the assignment before this read.
func (p *Process) graceExpired(timer **time.Timer) {
	p.session.lock()
	defer p.session.unlock()
	if p.owner.graceTimer != *timer {
		return
	}
	p.assignOwner()
	if p.closed {
		return
	}
	p.session.registry.cfg.Logger.Info("terminating a process whose owner did not return",
		slog.String("session_id", p.session.id), slog.String("process_id", p.id))
	p.session.registry.background(p.kill)
}

// kill terminates the process and blocks until that is done. An error means that
// nothing is left to terminate.
func (p *Process) kill() {
	_, _ = p.Terminate(context.Background(), process.Termination{Cause: process.CauseTerminated})
}
