package session

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/process"
)

// situation is who paces a process. In a session without a lease only the first
// four occur.
type situation uint8

const (
	free    situation = iota // nobody: the oldest output goes
	owned                    // a stream
	watched                  // a watcher without a claim
	grace                    // nobody: a stream was lost and may come back
	fed                      // the session's attachment, or its spooler
	held                     // nobody: the session is detached, and output waits
)

// ownerState is the situation of a process with what belongs to it.
type ownerState struct {
	situation situation
	stream    *Ownership  // owned, watched
	lost      *time.Timer // grace
	item      *item       // fed
}

// Ownership is the right of one stream to pace a process and to lose nothing of
// it. Reading and acknowledging are for one goroutine each. Ending it, by Lost or
// Detach, is for any, any number of times; the first one counts.
type Ownership struct {
	process *Process
	grace   time.Duration
	cursor  *cursor
}

// Process returns the process that is owned.
func (o *Ownership) Process() *Process { return o.process }

// Next returns the next events, at least one, blocking until there is one; see
// [eventlog.Owner]. What the session has spooled comes first.
func (o *Ownership) Next(ctx context.Context, maxBytes int) (eventlog.Batch, error) {
	return o.cursor.next(ctx, maxBytes)
}

// Acknowledge says that everything up to and including seq was taken; see
// [eventlog.Owner].
func (o *Ownership) Acknowledge(seq uint64) error { return o.cursor.acknowledge(seq) }

// Taken reports whether all that the process has said was acknowledged, or the
// log was freed because the server or the session ends.
func (o *Ownership) Taken() bool { return o.cursor.isTaken() }

// Own takes the ownership from whoever has it, whose reads then fail with
// [eventlog.ErrReplaced], and goes on after afterSeq, which counts as
// acknowledged. An attachment of the session is told that the process left its
// feed. A nil grace is the default; more than the maximum is kind
// [GraceTooLong]. A ctx that has ended takes nothing: a caller that is gone must
// not displace one that came after it.
func (p *Process) Own(ctx context.Context, afterSeq uint64, grace *time.Duration) (*Ownership, error) {
	keep, err := p.session.registry.resolveGrace(p.id, grace)
	if err != nil {
		return nil, err
	}
	p.session.lock()
	defer p.session.unlock()
	return p.own(ctx, afterSeq, keep, owned)
}

// OwnLossless paces the process for a watcher that has no claim to it: kind
// [ProcessOwned] while somebody owns the process or may come back to it, as to
// any process of a leased session.
func (p *Process) OwnLossless(ctx context.Context, afterSeq uint64) (*Ownership, error) {
	p.session.lock()
	defer p.session.unlock()
	if p.owner.situation != free || p.session.lease != nil {
		return nil, &Error{Kind: ProcessOwned, Subject: p.id}
	}
	return p.own(ctx, afterSeq, 0, watched)
}

// own is called with session.mu held.
func (p *Process) own(ctx context.Context, afterSeq uint64, grace time.Duration, as situation) (*Ownership, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if p.session.over {
		return nil, &Error{Kind: SessionClosed, Subject: p.session.id}
	}
	if err := p.reached(afterSeq); err != nil {
		return nil, err
	}
	p.seal()
	c, err := newCursor(p.Log(), p.backlog, &afterSeq)
	if err != nil {
		return nil, err
	}
	o := &Ownership{process: p, grace: grace, cursor: c}
	p.become(ownerState{situation: as, stream: o})
	return o, nil
}

// reached reports a seq that the process has not reached.
func (p *Process) reached(seq uint64) error {
	if last := p.Log().Stats().LastSeq; seq > last {
		return fmt.Errorf("%w: %d of process %q, the last is %d", eventlog.ErrFutureSeq, seq, p.id, last)
	}
	return nil
}

// become changes who paces the process, once the log is theirs: whoever it was
// before is dismissed. session.mu is held.
func (p *Process) become(next ownerState) {
	before := p.owner
	p.owner = next
	p.session.registry.budget.rouse(p)
	p.session.unseen.remove(p)
	if before.lost != nil {
		before.lost.Stop()
	}
	if before.stream != nil {
		// It may be stuck in sending, and counts as a reader until it lets go.
		before.stream.cursor.release(false)
	}
	if before.item != nil {
		before.item.leave(next.stream != nil)
		before.item.cursor.release(false)
	}
}

// vacate is become where nobody takes the log, which is then held or free.
// session.mu is held.
func (p *Process) vacate(next ownerState, hold bool) {
	p.seal()
	switch {
	case p.owner.stream != nil:
		p.owner.stream.cursor.release(hold)
	case p.owner.item != nil:
		p.owner.item.cursor.release(hold)
	}
	if !hold {
		p.Log().Free()
	}
	p.become(next)
}

// seal has a spooler that owns the process add nothing more. session.mu is held.
func (p *Process) seal() {
	if p.backlog != nil {
		p.backlog.seal()
	}
}

// resolveGrace applies default and maximum to what an owner asked for.
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

// Owned reports whether somebody owns the process at the moment: a stream, or an
// attachment of its session. A lossless watcher is no owner.
func (p *Process) Owned() bool {
	p.session.mu.Lock()
	defer p.session.mu.Unlock()
	switch p.owner.situation {
	case owned:
		return true
	case fed:
		return p.session.attached
	}
	return false
}

// Lost says that the owner's connection broke. The process is held for the
// grace and then terminated, unless somebody owns it again; of one that has
// closed, all that the owner has not acknowledged is kept for that long. An
// owner that was replaced, and a watcher, are simply forgotten.
func (o *Ownership) Lost() {
	p := o.process
	p.session.lock()
	defer p.session.unlock()
	if p.owner.stream != o || p.owner.situation == watched || p.session.over {
		o.detach()
		return
	}
	o.lose()
}

// lose is Lost of a stream that owns. session.mu is held.
func (o *Ownership) lose() {
	p := o.process
	var timer *time.Timer
	timer = time.AfterFunc(o.grace, func() { p.graceOver(&timer) })
	p.vacate(ownerState{situation: grace, lost: timer}, true)
}

// Detach gives the ownership up and lets the process go on: without an owner,
// or in a leased session with whoever keeps its other processes.
func (o *Ownership) Detach() {
	o.process.session.lock()
	defer o.process.session.unlock()
	o.detach()
}

// detach is called with session.mu held.
func (o *Ownership) detach() {
	if p := o.process; p.owner.stream == o {
		p.session.keep(p)
		return
	}
	o.cursor.release(false)
}

// graceOver terminates the process whose owner did not come back, or lets go of
// what was kept of a closed one. The timer is passed by reference because it is
// known only after it was set; session.mu makes sure that it is known here.
func (p *Process) graceOver(timer **time.Timer) {
	p.session.lock()
	defer p.session.unlock()
	if p.owner.lost != *timer {
		return
	}
	p.session.keep(p)
	if p.closed {
		return
	}
	p.session.registry.cfg.Logger.Info("terminating a process whose owner did not return",
		slog.String("session_id", p.session.id), slog.String("process_id", p.id))
	p.session.registry.background(p.kill)
}

// kill terminates the process and blocks until that is done. Errors mean that
// there is nothing left to terminate.
func (p *Process) kill() {
	_, _ = p.Terminate(context.Background(), process.Termination{Cause: process.CauseTerminated})
}
