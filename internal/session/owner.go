package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/notify"
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
	state  ownerState
	stream *Ownership   // of streamOwned
	grace  *gracePeriod // of inGrace
	item   *item        // of attachmentOwned
}

// Ownership is the ownership of a process by one stream: output that the stream has
// not acknowledged is not evicted. Next is for one goroutine, all other methods for any.
// Lost and Detach end the ownership.
type Ownership struct {
	process      *Process
	id           string
	grace        time.Duration
	log          *eventlog.Owner
	acknowledged notify.Signal

	// Guarded by session.mu.
	ctx      context.Context // ends with the stream, or with the ownership by cancel
	cancel   context.CancelCauseFunc
	detached bool
}

// Process returns the owned process.
func (o *Ownership) Process() *Process { return o.process }

// ID identifies the ownership among all of its process: see [Process.Ownership].
func (o *Ownership) ID() string { return o.id }

// Context ends with the context of the stream, and as soon as the ownership ends; after a
// replacement its cause is [eventlog.ErrReplaced].
func (o *Ownership) Context() context.Context {
	o.process.session.mu.Lock()
	defer o.process.session.mu.Unlock()
	return o.ctx
}

// endContext ends the context, after which no input is accepted, and drops that of the stream:
// it retains the connection, and the process retains its latest ownership. session.mu is held.
func (o *Ownership) endContext() {
	o.process.stdin.accepting.Lock()
	o.cancel(eventlog.ErrReplaced) // unless the stream has ended
	o.process.stdin.accepting.Unlock()
	cause := context.Cause(o.ctx)
	o.ctx, o.cancel = context.WithCancelCause(context.Background())
	o.cancel(cause)
}

// Next returns the next events, at least one, blocking until there is one; see
// [eventlog.Owner].
func (o *Ownership) Next(ctx context.Context, maxBytes int) (eventlog.Batch, error) {
	return o.log.Next(ctx, maxBytes)
}

// Borrow makes the Data of later events valid only until the next call of Next; see
// [eventlog.Owner].
func (o *Ownership) Borrow() { o.log.Borrow() }

// Acknowledge acknowledges all events up to and including seq; see [eventlog.Owner]. It
// never blocks. After Detach it does nothing; after Lost it is kind [OwnerLost].
func (o *Ownership) Acknowledge(seq uint64) error {
	err := o.log.Acknowledge(seq)
	if errors.Is(err, eventlog.ErrClosed) {
		return o.ended()
	}
	o.acknowledged.Set()
	return err
}

// AwaitAcknowledged blocks until all events so far were acknowledged, or the log was
// freed because the server or the session ends. It returns false when ctx ends or the
// time is over first. It is for one goroutine.
func (o *Ownership) AwaitAcknowledged(ctx context.Context, most time.Duration) bool {
	timeout := time.NewTimer(most)
	defer timeout.Stop()
	for {
		if stats := o.process.Log().Stats(); stats.Acknowledged >= stats.LastSeq || !stats.Owned {
			return true
		}
		select {
		case <-o.acknowledged.C():
		case <-timeout.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// Ownership returns the latest ownership of the process by a stream, which may have
// ended. One with another id has been replaced: [eventlog.ErrReplaced].
func (p *Process) Ownership(id string) (*Ownership, error) {
	p.session.mu.Lock()
	defer p.session.mu.Unlock()
	if p.lastStream == nil || p.lastStream.id != id {
		return nil, eventlog.ErrReplaced
	}
	return p.lastStream, nil
}

// ended returns the error of a call for an ownership that has ended, which is nil after
// Detach.
func (o *Ownership) ended() error {
	o.process.session.mu.Lock()
	defer o.process.session.mu.Unlock()
	return o.endedLocked()
}

func (o *Ownership) endedLocked() error {
	switch {
	case o.detached:
		return nil
	case o.process.lastStream != o:
		return eventlog.ErrReplaced
	}
	return &Error{Kind: OwnerLost, Subject: o.process.id}
}

// Detached reports whether Detach ended the ownership.
func (o *Ownership) Detached() bool {
	o.process.session.mu.Lock()
	defer o.process.session.mu.Unlock()
	return o.detached
}

// Own makes the caller the owner and starts after afterSeq, which counts as
// acknowledged. Reads of the previous owner fail with [eventlog.ErrReplaced]; an
// attachment of the session gets a release. A nil grace is the default; more than the
// maximum is kind [GraceTooLong]. ctx is that of the stream; the caller must call Lost
// when it ends. If it has ended already, Own changes nothing: a client that is gone must
// not displace a later one. If the record was removed, or a start replaces it, it is kind
// [ProcessNotFound].
func (p *Process) Own(ctx context.Context, afterSeq uint64, grace *time.Duration) (*Ownership, error) {
	keep, err := p.session.registry.resolveGrace(p.id, grace)
	if err != nil {
		return nil, err
	}
	p.session.lock()
	defer p.session.unlock()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if p.session.processes[p.id] != p {
		return nil, &Error{Kind: ProcessNotFound, Subject: p.id}
	}
	return p.own(ctx, afterSeq, keep)
}

// own is Own with session.mu held, also after ctx has ended.
func (p *Process) own(ctx context.Context, afterSeq uint64, grace time.Duration) (*Ownership, error) {
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
	o := &Ownership{process: p, id: rand.Text(), grace: grace, log: log, acknowledged: notify.NewSignal()}
	o.ctx, o.cancel = context.WithCancelCause(ctx)
	p.lastStream = o
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
	if before.grace != nil {
		before.grace.timer.Stop()
	}
	if before.stream != nil {
		// The stream may block in sending, and counts as a reader until it is
		// released.
		before.stream.log.Release(false)
		before.stream.endContext()
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
		return r.cfg().DefaultGrace, nil
	case *grace > r.cfg().MaxGrace:
		return 0, &Error{Kind: GraceTooLong, Subject: id, Detail: "the server's maximum is " + r.cfg().MaxGrace.String()}
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
// owner. After a replacement, Detach or an earlier call it changes nothing.
func (o *Ownership) Lost() {
	p := o.process
	p.session.lock()
	defer p.session.unlock()
	switch {
	case p.owner.stream != o:
		o.log.Release(false)
	case p.session.over:
		p.assignOwner()
	default:
		o.startGrace()
	}
}

// startGrace is Lost of the current owner. session.mu is held.
func (o *Ownership) startGrace() {
	o.process.releaseOwner(currentOwner{state: inGrace, grace: beginGrace(o.process, o.grace)}, true)
}

// gracePeriod is the time for which a process is kept for an owner that was lost.
type gracePeriod struct {
	process *Process
	timer   *time.Timer
	ends    time.Time
}

// beginGrace begins a grace period. session.mu is held.
func beginGrace(p *Process, grace time.Duration) *gracePeriod {
	g := &gracePeriod{process: p, ends: time.Now().Add(grace)}
	g.timer = time.AfterFunc(grace, g.expired)
	return g
}

// Detach ends the ownership, or the grace after Lost. The process continues without an
// owner; in a leased session, the session owns it again. An earlier Detach is no error,
// a replacement is [eventlog.ErrReplaced], and the end of the grace is kind [OwnerLost].
func (o *Ownership) Detach() error {
	p := o.process
	p.session.lock()
	defer p.session.unlock()
	if p.owner.stream != o && (p.owner.state != inGrace || p.lastStream != o) {
		o.log.Release(false)
		return o.endedLocked()
	}
	o.detached = true
	p.assignOwner()
	return nil
}

// expired terminates a process whose owner did not return. Of a closed process
// it releases the output.
func (g *gracePeriod) expired() {
	p := g.process
	p.session.lock()
	defer p.session.unlock()
	if p.owner.grace != g {
		return
	}
	p.assignOwner()
	if p.closed {
		return
	}
	p.session.registry.cfg().Logger.Info("terminating a process whose owner did not return",
		slog.String("session_id", p.session.id), slog.String("process_id", p.id))
	p.terminating = true
	p.session.registry.background(func() { kill(p.Process) })
}

// kill terminates a process and blocks until that is done. An error means that
// nothing is left to terminate.
func kill(p *process.Process) {
	_, _ = p.Terminate(context.Background(), process.Termination{Cause: process.CauseTerminated})
}
