package session

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/execwire/execwire/internal/notify"
	"github.com/execwire/execwire/internal/process"
)

// State is what another program needs to go on with a registry; see [Registry.Freeze].
type State struct {
	// Processes are those of the sessions, and others that the supervisor tracks.
	Processes *process.SupervisorState
	// Sessions are all leased sessions, and the default sessions that have processes.
	Sessions []SessionState
}

// SessionState is the state of a session, without resources other than processes.
type SessionState struct {
	// ID and Principal identify the session and its owner.
	ID, Principal string
	// Created is when the session was created.
	Created time.Time
	// Leased is not set for a default session, which has none of Grace, Remaining,
	// Grants, WhenDetached and MaxProcesses.
	Leased bool
	// Over is set once the session ends.
	Over bool
	// Grace is how long the session is kept without an attachment, and Remaining how long
	// it still is. An attached client counts as lost at the freeze.
	Grace, Remaining time.Duration
	// Grants is the access of other principals.
	Grants map[string]Access
	// WhenDetached is the policy for output, never WhenDetachedUnchanged.
	WhenDetached WhenDetached
	// MaxProcesses is the limit of the last attachment; 0: none.
	MaxProcesses int
	// Processes are its records, in no order.
	Processes []ProcessState
}

// ProcessState is the record of a process in a session.
type ProcessState struct {
	// ID is its id in the session, and Index its place in [process.SupervisorState].
	ID    string
	Index int
	// Digest is that of the start request, and Keep its time to keep the record.
	Digest Digest
	Keep   time.Duration
	// Recorded is set if [Config.OnRecord] is called for it.
	Recorded bool
	// StdinOffset is the input that was accepted from owners, StdinEnded is set if an
	// owner has ended it, and WriteIDs are the ids of other writes, the oldest first.
	StdinOffset uint64
	StdinEnded  bool
	WriteIDs    []string
	// InGrace is set if its stream was lost and may resume for the time of Grace. A stream
	// counts as lost at the freeze.
	InGrace bool
	Grace   time.Duration
	// SessionDetached is set if the session owns it; otherwise, and without InGrace, it has
	// no owner.
	SessionDetached bool
	// Ownership is the latest of a stream; nil: there was none.
	Ownership *OwnershipState
	// Terminating is set if it is terminated because its owner did not return.
	Terminating bool
	// Closed is set once its end was noticed, at ClosedAt, and reported, AtRest once it was without an
	// owner after that, for the last time at RestAt, and Seen if the principal has its exit.
	Closed, AtRest, Seen bool
	ClosedAt, RestAt     time.Time
	// Expiry is how long its record is kept; 0: until it comes to rest. EvictFirst is set if
	// it is evicted before records whose exit was not seen.
	Expiry     time.Duration
	EvictFirst bool
}

// OwnershipState is an [Ownership] that has ended.
type OwnershipState struct {
	// ID identifies it, Grace is what it asked for, and Detached is whether Detach ended it.
	ID       string
	Grace    time.Duration
	Detached bool
}

// frozen is what Freeze holds until Thaw.
type frozen struct {
	inputs     []*stdin   // the lock of each
	sessions   []*Session // the locks of each and of its lease
	supervisor bool       // is frozen
}

// Freeze makes the sessions and all processes stand still for this program, see
// [process.Supervisor.Freeze], and returns the state with which [Restore] goes on in
// another program. Its files and the data of its logs are those of r. Streams and
// attachments count as lost; usually their calls have ended before.
//
// Starts are refused with kind [Draining]. Freeze waits for starts and writes of input
// that are under way; if ctx ends first, everything goes on, and it returns the cause. It
// fails with kind [Draining] once Drain was called, and while it is frozen. After Freeze comes Thaw, or the program
// ends. Until then most methods block, but not Totals.
func (r *Registry) Freeze(ctx context.Context) (*State, error) {
	sessions, err := r.refuseStarts()
	if err != nil {
		return nil, err
	}
	state, err := r.freeze(ctx, sessions)
	if err != nil {
		r.Thaw()
		return nil, fmt.Errorf("failed to freeze the sessions: %w", err)
	}
	return state, nil
}

func (r *Registry) freeze(ctx context.Context, sessions []*Session) (state *State, err error) {
	if err := r.lockInputs(ctx, sessions); err != nil {
		return nil, err
	}
	for _, s := range sessions {
		if s.lease != nil {
			s.lease.mu.Lock()
		}
		s.mu.Lock()
		r.frozen.sessions = append(r.frozen.sessions, s)
	}
	state = &State{}
	var processes []*process.Process
	for _, s := range sessions {
		saved := s.state()
		for _, p := range s.processes {
			if p.Process != nil { // or its start has failed
				saved.Processes = append(saved.Processes, p.state(len(processes)))
				processes = append(processes, p.Process)
			}
		}
		state.Sessions = append(state.Sessions, saved)
	}
	r.frozen.supervisor = true
	if state.Processes, err = r.supervisor.Freeze(ctx, processes); err != nil {
		r.frozen.supervisor = false
		return nil, err
	}
	for i := range state.Sessions {
		state.Sessions[i].freeLogs(state.Processes)
	}
	return state, nil
}

// lockInputs waits for starts and for writes of input, and lets no more begin.
func (r *Registry) lockInputs(ctx context.Context, sessions []*Session) error {
	for _, s := range sessions {
		s.mu.Lock()
		processes := slices.Collect(maps.Values(s.processes))
		s.mu.Unlock()
		for _, p := range processes {
			if err := notify.Wait(ctx, p.started); err != nil {
				return err
			}
			select {
			case p.stdin.lock <- struct{}{}:
				r.frozen.inputs = append(r.frozen.inputs, p.stdin)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// Thaw makes everything go on after Freeze.
func (r *Registry) Thaw() {
	r.mu.Lock()
	was := r.frozen
	r.mu.Unlock()
	if was == nil {
		return
	}
	if was.supervisor {
		r.supervisor.Thaw()
	}
	for _, s := range was.sessions {
		s.unlock()
		if s.lease != nil {
			s.lease.mu.Unlock()
		}
	}
	for _, in := range was.inputs {
		<-in.lock
	}
	r.mu.Lock()
	r.frozen = nil
	r.mu.Unlock()
}

// state returns the state without processes. The locks of the session and of its lease
// are held.
func (s *Session) state() SessionState {
	state := SessionState{ID: s.id, Principal: s.principal, Created: s.created, Over: s.over, WhenDetached: s.whenDetached, MaxProcesses: s.maxProcesses}
	if l := s.lease; l != nil {
		state.Leased, state.Over, state.Grace, state.Remaining = true, s.over || l.over, l.grace, time.Until(l.expires)
		if l.holder != nil {
			state.Remaining = l.grace
		}
		s.registry.mu.Lock()
		state.Grants = maps.Clone(s.grants)
		s.registry.mu.Unlock()
	}
	return state
}

// state returns the record, with an index. session.mu and stdin.lock are held.
func (p *Process) state(index int) ProcessState {
	state := ProcessState{
		ID: p.id, Index: index, Digest: p.digest, Keep: p.keep, Recorded: p.recorded,
		StdinOffset: p.stdin.offset.Load(), StdinEnded: p.stdin.ended,
		WriteIDs:    slices.Concat(p.stdin.seenAge[p.stdin.oldest:], p.stdin.seenAge[:p.stdin.oldest]),
		Terminating: p.terminating, Closed: p.closed && p.reported, AtRest: p.wasAtRest, Seen: p.seen, ClosedAt: p.closedAt, RestAt: p.restAt,
		EvictFirst: p.session.registry.budget.evictsFirst(p),
	}
	switch p.owner.state {
	case streamOwned:
		state.InGrace, state.Grace = !p.session.over, p.owner.stream.grace
	case inGrace:
		state.InGrace, state.Grace = true, time.Until(p.owner.grace.ends)
	case attachmentOwned, sessionDetached:
		state.SessionDetached = !p.session.over
	}
	if o := p.lastStream; o != nil {
		state.Ownership = &OwnershipState{ID: o.id, Grace: o.grace, Detached: o.detached}
	}
	if p.expiry != nil && p.isAtRest() {
		state.Expiry = max(1, time.Until(p.expires))
	}
	return state
}

// freeLogs applies the policy of a session whose attachment counts as lost.
func (s *SessionState) freeLogs(all *process.SupervisorState) {
	for _, p := range s.Processes {
		if s.Over || p.SessionDetached && s.WhenDetached == WhenDetachedDiscardOldest {
			all.Processes[p.Index].Log.Held = false
		}
	}
}

// Restore returns a registry that goes on with a state, and its supervisor; see
// [process.Restore], which explains its configuration. An error means that the state
// cannot be used.
func Restore(supervisor process.Config, cfg Config, state *State) (*Registry, *process.Supervisor, error) {
	if err := state.check(); err != nil {
		return nil, nil, fmt.Errorf("failed to restore the sessions: %w", err)
	}
	running, processes, err := process.Restore(supervisor, state.Processes)
	if err != nil {
		return nil, nil, err
	}
	r := NewRegistry(running, cfg)
	sessions := make([]*Session, len(state.Sessions))
	var records []*Process
	saved := map[*Process]*ProcessState{}
	for i := range state.Sessions {
		sessions[i] = r.restoreSession(&state.Sessions[i])
		for j := range state.Sessions[i].Processes {
			of := &state.Sessions[i].Processes[j]
			p := sessions[i].restoreProcess(of, processes[of.Index])
			processes[of.Index] = nil
			records, saved[p] = append(records, p), of
		}
	}
	// Records at rest are evicted in this order.
	slices.SortStableFunc(records, func(a, b *Process) int { return a.restAt.Compare(b.restAt) })
	for _, p := range records {
		p.resumeRecord(saved[p])
	}
	for i, s := range sessions {
		s.resumeEnd(&state.Sessions[i])
	}
	for _, p := range processes {
		if p != nil && p.State() < process.StateClosed { // its session has ended, and ends it
			r.background(func() { kill(p) })
		}
	}
	return r, running, nil
}

// check checks that each process of the sessions exists, and is in one of them.
func (s *State) check() error {
	used := map[int]bool{}
	for _, session := range s.Sessions {
		for _, p := range session.Processes {
			if p.Index < 0 || p.Index >= len(s.Processes.Processes) || used[p.Index] {
				return fmt.Errorf("process %q of session %q is number %d of %d, or occurs twice", p.ID, session.ID, p.Index, len(s.Processes.Processes))
			}
			used[p.Index] = true
		}
	}
	return nil
}

// restoreSession adds a session without processes and timers.
func (r *Registry) restoreSession(saved *SessionState) *Session {
	s := r.makeSession(saved.ID, saved.Principal)
	s.created, s.over = saved.Created, saved.Over
	switch {
	case saved.Leased:
		s.whenDetached, s.maxProcesses, s.grants = saved.WhenDetached, saved.MaxProcesses, maps.Clone(saved.Grants)
		s.lease = s.newLease(saved.Grace)
		s.lease.over = saved.Over
		r.leased[s.id] = s
		r.counts[s.principal]++
	case saved.Over:
		r.ending[s.principal] = s
	default:
		r.defaults[s.principal] = s
	}
	return s
}

// restoreProcess adds the record of a process, without goroutines and timers.
func (s *Session) restoreProcess(saved *ProcessState, running *process.Process) *Process {
	p := &Process{Process: running, id: saved.ID, session: s, digest: saved.Digest, keep: saved.Keep, recorded: saved.Recorded, started: make(chan struct{}), stdin: newStdin()}
	close(p.started)
	p.stdin.offset.Store(saved.StdinOffset)
	p.stdin.ended = saved.StdinEnded
	for _, id := range saved.WriteIDs {
		p.stdin.remember(id)
	}
	if o := saved.Ownership; o != nil {
		p.lastStream = &Ownership{process: p, id: o.ID, grace: o.Grace, detached: o.Detached, log: p.Log().ReleasedOwner(), acknowledged: notify.NewSignal()}
		p.lastStream.ctx, p.lastStream.cancel = context.WithCancelCause(context.Background())
		p.lastStream.cancel(nil)
	}
	p.assigned, p.closed, p.reported, p.wasAtRest = true, saved.Closed, saved.Closed, saved.AtRest
	p.seen, p.closedAt, p.restAt, p.terminating = saved.Seen, saved.ClosedAt, saved.RestAt, saved.Terminating
	p.charge.owner = s.principal
	s.processes[p.id] = p
	spec := p.Spec()
	charge := reservedBytes(&spec)
	if p.closed {
		charge = p.heldBytes()
	} else {
		s.running++
		s.registry.running++
		s.registry.goroutines.Add(1)
	}
	if !p.wasAtRest {
		s.registry.active++
	}
	s.registry.budget.resize(p, charge)
	return p
}

// resumeRecord starts the goroutine and the timer of a restored record.
func (p *Process) resumeRecord(saved *ProcessState) {
	p.session.lock()
	defer p.session.unlock()
	switch {
	case saved.InGrace:
		p.owner = currentOwner{state: inGrace, grace: beginGrace(p, saved.Grace)}
	case saved.SessionDetached:
		p.owner.state = sessionDetached
	case p.closed:
		p.session.registry.budget.markAtRest(p, saved.EvictFirst)
		p.expire(saved.Expiry)
	}
	if p.closed {
		return
	}
	p.AfterClosed(p.afterClosed)
	if p.terminating {
		p.session.registry.background(func() { kill(p.Process) })
	}
}

// resumeEnd starts the timer of a restored lease, or goes on with the end of the session.
func (s *Session) resumeEnd(saved *SessionState) {
	switch {
	case saved.Over:
		all := slices.Collect(maps.Values(s.processes))
		s.registry.background(func() { s.terminate(all) })
	case saved.Leased:
		s.lease.mu.Lock()
		defer s.lease.mu.Unlock()
		s.lease.startTimer(saved.Remaining)
	}
}
