package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/process"
)

// Digest identifies the content of a start request, so that a repeated one can
// be told from a different one for the same id.
type Digest [32]byte

// Session holds the processes of one principal by their ids, and what else ends
// with it. All methods may be called concurrently.
type Session struct {
	id        string
	principal string
	registry  *Registry
	created   time.Time
	lease     *lease            // nil: the default session
	grants    map[string]Access // guarded by registry.mu; what other principals may
	ended     chan struct{}     // closed when it is over and nothing is left of it

	mu        sync.Mutex
	processes map[string]*Process // guarded by mu; includes those being started
	running   int                 // guarded by mu; those that have not closed
	over      bool                // guarded by mu; nothing is started any more
	closing   bool                // guarded by mu; over, because the registry closes
	reading   bool                // guarded by mu; and an attachment still reads
	changed   bool                // guarded by mu; Config.OnChange is to be called
	unseen    unseenList          // guarded by mu

	belongings map[any]*belonging // guarded by mu; nil: none yet

	// Of leased sessions, guarded by mu.
	whenDetached WhenDetached
	maxProcesses int // 0: no bound
	attached     bool
	feed         *feed    // of the attachment or the spooler; nil: nobody reads
	spool        *spool   // nil: nothing was to be spooled yet
	spooler      *spooler // the last one
}

// ID returns the session's id.
func (s *Session) ID() string { return s.id }

// Principal is whose it is.
func (s *Session) Principal() string { return s.principal }

// lock begins and unlock ends a change. Who has to be told of it is told after
// it.
func (s *Session) lock() { s.mu.Lock() }

func (s *Session) unlock() {
	changed := s.changed
	s.changed = false
	s.mu.Unlock()
	if changed {
		s.registry.cfg.OnChange()
	}
}

// Start starts a process under an id, or returns the one that an equal start
// (by digest) made before; created tells the two apart. A different start for
// a taken id is kind [ProcessAlreadyExists]. A start that fails leaves the id
// free. It blocks while the process is being spawned, also by another caller.
// Other kinds: [Draining], [SessionClosed], [TooManyProcesses],
// [RetainedOutputFull].
func (s *Session) Start(ctx context.Context, id string, digest Digest, spec process.Spec) (p *Process, created bool, err error) {
	p, _, created, err = s.start(ctx, id, digest, spec, nil)
	return p, created, err
}

// StartOwned is Start and Own in one, for a caller that owns what it starts:
// nothing that the process says is lost before the ownership begins. Of a
// process that an equal start made before it takes the ownership, from the
// beginning. If ctx has ended when the process was started, it is kept for the
// grace as if its owner had been lost then.
func (s *Session) StartOwned(ctx context.Context, id string, digest Digest, spec process.Spec, grace *time.Duration) (o *Ownership, created bool, err error) {
	keep, err := s.registry.resolveGrace(id, grace)
	if err != nil {
		return nil, false, err
	}
	p, o, created, err := s.start(ctx, id, digest, spec, &keep)
	if err == nil && o == nil {
		o, err = p.Own(ctx, 0, grace)
	}
	return o, created, err
}

// start starts a process, owned if a grace is given, or finds it.
func (s *Session) start(ctx context.Context, id string, digest Digest, spec process.Spec, grace *time.Duration) (p *Process, o *Ownership, created bool, err error) {
	for {
		p, created, err := s.claim(id, digest, &spec)
		if other, ok := errors.AsType[*superseded](err); ok {
			s = other.by
			continue
		}
		if err != nil {
			return nil, nil, false, err
		}
		if created {
			o, err := s.spawn(ctx, p, spec, grace)
			return p, o, true, err
		}
		select {
		case <-p.started:
		case <-ctx.Done():
			return nil, nil, false, context.Cause(ctx)
		}
		if p.Process != nil && p.digest == digest {
			return p, nil, false, nil
		}
		// The other start failed and gave the id back: this one tries itself,
		// so that its caller gets an answer of its own. Or it did not, and was
		// of something else, which claim says now.
	}
}

// claim finds the process with the id or reserves the id for a new one.
func (s *Session) claim(id string, digest Digest, spec *process.Spec) (p *Process, created bool, err error) {
	if p, err := s.claimed(id, digest); p != nil || err != nil {
		return p, false, err
	}
	p = &Process{id: id, session: s, digest: digest, started: make(chan struct{}), stdin: newStdin()}
	if err := s.registry.makeRoom(p, reserved(spec)); err != nil {
		return nil, false, err
	}
	s.lock()
	defer s.unlock()
	other, err := s.claimedLocked(id, digest)
	if other == nil && err == nil {
		err = s.registry.begin(s)
	}
	if other != nil || err != nil {
		s.registry.budget.resize(p, 0)
		return other, false, err
	}
	s.running++
	s.processes[id] = p
	return p, true, nil
}

// claimed returns the process that has the id already, or why none can be
// started, or neither. One that is still being started is to be waited for,
// whatever it is.
func (s *Session) claimed(id string, digest Digest) (*Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claimedLocked(id, digest)
}

func (s *Session) claimedLocked(id string, digest Digest) (*Process, error) {
	p := s.processes[id]
	switch {
	case p == nil:
		return nil, s.refusal()
	case p.digest != digest && p.hasStarted():
		return nil, &Error{Kind: ProcessAlreadyExists, Subject: id, Detail: p.progress()}
	}
	return p, nil
}

// refusal says why no process can be started, if none can; *superseded means
// elsewhere. s.mu is held.
func (s *Session) refusal() error {
	if s.over && s.lease == nil {
		return s.registry.superseding(s)
	}
	if s.over {
		return &Error{Kind: SessionClosed, Subject: s.id}
	}
	if most := s.registry.cfg.ProcessesPerSession; s.isFull(most) {
		return &Error{Kind: TooManyProcesses, Subject: s.id, Limit: int64(most)}
	}
	if most := s.maxProcesses; s.isFull(most) {
		return &Error{Kind: TooManyProcessesAttached, Subject: s.id, Limit: int64(most)}
	}
	return s.registry.refusal(s)
}

// isFull reports whether as many processes run as may; 0 is no bound. One whose
// end can be read does not count any more, even if its watcher does not know yet.
// s.mu is held.
func (s *Session) isFull(most int) bool {
	if most == 0 || s.running < most {
		return false
	}
	running := s.running
	for _, p := range s.processes {
		if p.kept && !p.closed && p.Log().Stats().Closed {
			running--
		}
	}
	return running >= most
}

// spawn starts the claimed process or gives the claim back. The process gets its
// owner or its keeper before it can lose anything: until then its log is held.
func (s *Session) spawn(ctx context.Context, p *Process, spec process.Spec, grace *time.Duration) (*Ownership, error) {
	spec.Output.Held = grace != nil || s.lease != nil
	running, err := s.registry.supervisor.Start(ctx, spec)
	s.lock()
	defer s.unlock()
	defer close(p.started) // before anybody can hear of the process
	s.changed = true
	if err != nil {
		s.remove(p)
		s.running--
		s.registry.processClosed()
		s.registry.processRests()
		s.registry.goroutines.Done()
		return nil, err
	}
	p.Process = running
	p.kept = true
	var o *Ownership
	if grace == nil || s.over {
		s.keep(p)
	} else if o, err = p.own(context.WithoutCancel(ctx), 0, *grace, owned); err == nil && ctx.Err() != nil {
		o.lose()
		o, err = nil, context.Cause(ctx)
	}
	go p.watchClosed()
	return o, err
}

// Process returns the process with the id. It never blocks: one that is still
// being started does not exist yet.
func (s *Session) Process(id string) (*Process, error) {
	s.mu.Lock()
	p := s.processes[id]
	s.mu.Unlock()
	if p == nil || !p.hasStarted() {
		return nil, &Error{Kind: ProcessNotFound, Subject: id}
	}
	return p, nil
}

// Processes returns up to limit processes with ids above after, by id, and
// whether there are more.
func (s *Session) Processes(after string, limit int) (list []*Process, more bool) {
	s.mu.Lock()
	for id, p := range s.processes {
		if id > after && p.hasStarted() {
			list = append(list, p)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b *Process) int { return strings.Compare(a.id, b.id) })
	if len(list) > limit {
		return list[:limit], true
	}
	return list, false
}

// remove takes the process's record away, if it is still there. s.mu is held.
func (s *Session) remove(p *Process) {
	if s.processes[p.id] != p {
		return
	}
	delete(s.processes, p.id)
	s.unseen.remove(p)
	if p.expiry != nil {
		p.expiry.Stop()
	}
	if p.owner.lost != nil {
		p.owner.lost.Stop()
	}
	if p.backlog != nil && p.owner.item == nil { // or it is still being read
		p.backlog.discard()
	}
	s.registry.budget.resize(p, 0)
	s.changed = true
	s.vacateIfEmpty()
}

// expire removes the record once the retention of closed processes is over,
// counted anew, unless somebody has taken the process up by then. s.mu is held.
func (s *Session) expire(p *Process, after time.Duration) {
	if after <= 0 {
		s.remove(p)
		return
	}
	if p.expiry != nil {
		p.expiry.Stop()
	}
	p.expiry = time.AfterFunc(after, func() { s.evict(p) })
}

// RemoveClosed removes the record of the process with the id, if that has closed, has
// no owner, and was not started by the request with the digest. Otherwise it changes
// nothing. It does not block.
func (s *Session) RemoveClosed(id string, digest Digest) {
	p, err := s.Process(id)
	if err != nil || p.digest == digest || !p.Log().Stats().Closed {
		return
	}
	p.noteClosed() // its watcher may be later than the one who read that it has closed
	s.evict(p)
}

// forgetAll removes every record and stops what would remove it later.
func (s *Session) forgetAll() {
	s.lock()
	defer s.unlock()
	for _, p := range s.processes {
		s.remove(p)
	}
}
