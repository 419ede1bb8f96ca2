package session

import (
	"context"
	"errors"
	"time"

	"github.com/execwire/execwire/internal/notify"
	"github.com/execwire/execwire/internal/process"
)

// StartOptions are what a start wants of the record of its process.
type StartOptions struct {
	// Replace replaces a closed process without an owner that has the id and another
	// digest. If the start fails, the record of that one stays.
	Replace bool
	// Keep is how long the record is kept from the close of the process, whether its exit
	// was seen or not, but at least for [Config.ClosedRetention]. 0: as configured. It is
	// for default sessions only, and at most [Config.MaxKeep].
	Keep time.Duration
	// Prepare, which may be nil, is called before a process is spawned, and not if one is found. Its
	// error fails the start. What it returns is called with the process before others can find it, or
	// with nil if it could not be spawned. Both may block; no lock is held.
	Prepare func() (began func(*process.Process), err error)
}

// startRequest is a start of a process, owned if grace is not nil.
type startRequest struct {
	id      string
	digest  Digest
	spec    process.Spec
	options StartOptions
	grace   *time.Duration
}

// startIn starts the process in a session, or finds it.
func (r *startRequest) startIn(ctx context.Context, s *Session) (p *Process, o *Ownership, created bool, err error) {
	switch most := s.registry.cfg().MaxKeep; {
	case r.options.Keep > 0 && s.lease != nil:
		return nil, nil, false, &Error{Kind: KeepInLease, Subject: r.id}
	case r.options.Keep > most:
		return nil, nil, false, &Error{Kind: KeepTooLong, Subject: r.id, Detail: "the server's maximum is " + most.String()}
	}
	for {
		p, created, err := r.claim(s)
		if other, ok := errors.AsType[*superseded](err); ok {
			s = other.by
			continue
		}
		if err != nil {
			return nil, nil, false, err
		}
		if created {
			o, err := r.spawn(ctx, p)
			if err == nil {
				p.record()
			}
			return p, o, true, err
		}
		if err := notify.Wait(ctx, p.started); err != nil {
			return nil, nil, false, err
		}
		if p.Process != nil && p.digest == r.digest {
			return p, nil, false, nil
		}
		// The other start failed, so this one tries again to get a result of its own;
		// or it had another digest, which claim reports now.
	}
}

// claim finds the process with the id or reserves the id for a new one.
func (r *startRequest) claim(s *Session) (p *Process, created bool, err error) {
	if r.options.Replace {
		s.noteClosed(r.id)
	}
	if p, err := r.claimed(s); p != nil || err != nil {
		return p, false, err
	}
	p = &Process{id: r.id, session: s, digest: r.digest, keep: r.options.Keep, started: make(chan struct{}), stdin: newStdin()}
	if err := s.registry.reserveOutput(p, reservedBytes(&r.spec)); err != nil {
		return nil, false, err
	}
	s.lock()
	defer s.unlock()
	other, err := r.claimedLocked(s)
	if other == nil && err == nil {
		err = s.registry.countStart(s)
	}
	if other != nil || err != nil {
		s.registry.budget.resize(p, 0)
		return other, false, err
	}
	s.running++
	p.replaces = s.processes[r.id]
	s.processes[r.id] = p
	return p, true, nil
}

// claimed returns the process that has the id, which may still be starting, or the
// error why none can be started, or neither.
func (r *startRequest) claimed(s *Session) (*Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.claimedLocked(s)
}

func (r *startRequest) claimedLocked(s *Session) (*Process, error) {
	p := s.processes[r.id]
	switch {
	case p == nil, r.options.Replace && p.digest != r.digest && p.isAtRest():
		return nil, s.startError()
	case p.digest != r.digest && p.hasStarted():
		return nil, &Error{Kind: ProcessAlreadyExists, Subject: r.id, Detail: p.progress()}
	}
	return p, nil
}

// spawn starts the claimed process, or removes the claim. Until the process has an
// owner its log is held, so that nothing is evicted.
func (r *startRequest) spawn(ctx context.Context, p *Process) (*Ownership, error) {
	s := p.session
	r.spec.Output.Held = r.grace != nil || s.lease != nil
	running, err := r.startPrepared(ctx, s.registry.supervisor)
	s.lock()
	defer s.unlock()
	s.changed = true
	if err != nil {
		s.failStart(p)
		return nil, err
	}
	defer close(p.started) // before the record can be found
	if old := p.replaces; old != nil {
		old.remove()
	}
	p.Process = running
	p.recorded = r.grace == nil && s.lease == nil && s.registry.cfg().OnRecord != nil
	p.assigned = true
	var o *Ownership
	if r.grace == nil || s.over {
		p.assignOwner()
	} else if o, err = p.own(ctx, 0, *r.grace); err == nil && ctx.Err() != nil {
		o.startGrace()
		o, err = nil, context.Cause(ctx)
	}
	p.AfterClosed(p.afterClosed)
	return o, err
}

// startPrepared starts a process after Prepare, which may be nil, and calls what that returned.
func (r *startRequest) startPrepared(ctx context.Context, supervisor *process.Supervisor) (*process.Process, error) {
	if r.options.Prepare == nil {
		return supervisor.Start(ctx, r.spec)
	}
	began, err := r.options.Prepare()
	if err != nil {
		return nil, err
	}
	running, err := supervisor.Start(ctx, r.spec)
	began(running)
	return running, err
}
