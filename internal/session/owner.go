package session

import (
	"context"
	"log/slog"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/process"
)

// ownerState is who paces a process. A process is in one of four situations:
//
//	free     nobody paces it
//	owned    current is set
//	watched  current is set, lossless: a watcher paces it and has no claim
//	grace    lost is set: its owner is away and may come back
type ownerState struct {
	current  *Ownership
	lossless bool
	lost     *time.Timer
}

// Ownership is the right to pace a process and to lose nothing of it. Reading
// and acknowledging are for one goroutine each. Ending it, by Lost or Detach, is
// for any, any number of times; the first one counts.
type Ownership struct {
	*eventlog.Owner

	process *Process
	grace   time.Duration
}

// Process returns the process that is owned.
func (o *Ownership) Process() *Process { return o.process }

// Own takes the ownership from whoever has it, whose reads then fail with
// [eventlog.ErrReplaced], and goes on after afterSeq, which counts as
// acknowledged. A nil grace is the default; more than the maximum is kind
// [GraceTooLong]. A ctx that has ended takes nothing: a caller that is gone must
// not displace one that came after it.
func (p *Process) Own(ctx context.Context, afterSeq uint64, grace *time.Duration) (*Ownership, error) {
	keep, err := p.session.registry.resolveGrace(p.id, grace)
	if err != nil {
		return nil, err
	}
	return p.own(ctx, afterSeq, keep, false)
}

// OwnLossless paces the process for a watcher that has no claim to it: kind
// [ProcessOwned] while somebody owns the process or may come back to it.
func (p *Process) OwnLossless(ctx context.Context, afterSeq uint64) (*Ownership, error) {
	return p.own(ctx, afterSeq, 0, true)
}

func (p *Process) own(ctx context.Context, afterSeq uint64, grace time.Duration, lossless bool) (*Ownership, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if lossless && p.owner != (ownerState{}) {
		return nil, &Error{Kind: ProcessOwned, Subject: p.id}
	}
	owner, err := p.Log().Own(afterSeq)
	if err != nil {
		return nil, err
	}
	if p.owner.lost != nil {
		p.owner.lost.Stop()
	}
	if before := p.owner.current; before != nil {
		// It may be stuck in sending, and counts as a reader until it lets go.
		before.Release(false)
	}
	o := &Ownership{Owner: owner, process: p, grace: grace}
	p.owner = ownerState{current: o, lossless: lossless}
	return o, nil
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

// Owned reports whether somebody owns the process at the moment. A lossless
// watcher is no owner.
func (p *Process) Owned() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.owner.current != nil && !p.owner.lossless
}

// Lost says that the owner's connection broke. The process is held for the
// grace and then terminated, unless somebody owns it again; of one that has
// closed, all that the owner has not acknowledged is kept for that long. An
// owner that was replaced, and a watcher, are simply forgotten.
func (o *Ownership) Lost() {
	p := o.process
	p.mu.Lock()
	if p.owner.current != o {
		p.mu.Unlock()
		return
	}
	if p.owner.lossless {
		p.mu.Unlock()
		o.Detach()
		return
	}
	defer p.mu.Unlock()
	o.Release(true)
	var timer *time.Timer
	timer = time.AfterFunc(o.grace, func() { p.graceOver(&timer) })
	p.owner = ownerState{lost: timer}
}

// Detach gives the ownership up and lets the process go on without an owner.
func (o *Ownership) Detach() {
	p := o.process
	p.mu.Lock()
	if p.owner.current == o {
		p.owner = ownerState{}
	}
	o.Release(false)
	p.mu.Unlock()
	p.retain()
}

// graceOver terminates the process whose owner did not come back, or lets go of
// what was kept of a closed one. The timer is passed by reference because it is
// known only after it was set; mu makes sure that it is known here.
func (p *Process) graceOver(timer **time.Timer) {
	p.mu.Lock()
	if p.owner.lost != *timer {
		p.mu.Unlock()
		return
	}
	p.owner = ownerState{}
	p.Log().Free()
	if p.closed {
		p.mu.Unlock()
		p.retain()
		return
	}
	// The process has not closed, so its watcher still counts and the group
	// cannot be at rest.
	watchers := &p.session.registry.watchers
	watchers.Add(1)
	defer watchers.Done()
	p.mu.Unlock()
	p.session.registry.cfg.Logger.Info("terminating a process whose owner did not return",
		slog.String("session_id", p.session.id), slog.String("process_id", p.id))
	// Errors mean that there is nothing left to terminate.
	_, _ = p.Terminate(context.Background(), process.Termination{Cause: process.CauseTerminated})
}

// stopGrace ends a running grace because the record is forgotten.
func (p *Process) stopGrace() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.owner.lost != nil {
		p.owner.lost.Stop()
		p.owner = ownerState{}
	}
}
