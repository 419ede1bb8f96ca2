package process

import (
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// family is what this program knows of its children and of theirs. There is one, because children belong to the
// program and not to a supervisor. It has a goroutine as long as there is something to kill or to adopt.
type family struct {
	mu      sync.Mutex
	forks   map[*fork]struct{}
	leaders map[int]bool // children that a Process looks after, until they are reaped
	ours    map[int]bool // all that were leaders since the survey under way began; nil: there is none
	kin     map[*kin]*Process
	left    map[*kin]*cgroup // of closed processes whose descendants are left alone; nil: they have none
	sweeps  map[*sweep]struct{}
	surveys uint64    // begun
	judgeAt time.Time // when to look at the orphans; zero: nothing has changed
	waiters []waiter
	adopts  int             // supervisors that adopt orphans
	orphans chan os.Signal  // SIGCHLD; nil: nobody adopts
	reaper  bool            // this program was a subreaper before
	stopped chan struct{}   // of the goroutine; nil: there is none
	resting []chan struct{} // of those who wait for its end, to be told that it goes on
	wake    chan struct{}

	// The rest is the goroutine's.
	division  *division // the last one
	dividedAt time.Time
	cost      time.Duration // of it
	strays    *sweep        // of those who are nobody's; nil: there are none
}

var children = &family{
	forks:   map[*fork]struct{}{},
	leaders: map[int]bool{},
	kin:     map[*kin]*Process{},
	left:    map[*kin]*cgroup{},
	sweeps:  map[*sweep]struct{}{},
	wake:    make(chan struct{}, 1),
}

// fork is a start under way: a child that may be there already and is nobody's yet.
type fork struct {
	done  chan struct{}
	begun time.Time
	tick  uint64 // when it had not forked yet
}

// beginFork has to be called before a fork, and endFork when the child was registered or is gone.
func (f *family) beginFork() *fork {
	begun := &fork{done: make(chan struct{}), begun: time.Now(), tick: max(1, ticksNow())}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forks[begun] = struct{}{}
	return begun
}

func (f *family) endFork(begun *fork) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.forks, begun)
	close(begun.done)
}

// register makes a child that of a Process.
func (f *family) register(p *Process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leaders[p.pid] = true
	if f.ours != nil {
		f.ours[p.pid] = true
	}
	f.kin[p.kin] = p
}

// reaping says that a child is about to be reaped, and its number to be another's.
func (f *family) reaping(p *Process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.leaders, p.pid)
	p.kin.reaped = true
}

// desert says that nobody is left in the session of a child that was reaped.
func (f *family) desert(p *Process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.kin.deserted = true
}

// forget says that a Process is done with. Its kin stays until no orphan can be its.
func (f *family) forget(p *Process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.left, p.kin)
	if f.adopts == 0 {
		delete(f.kin, p.kin)
		if len(f.left) > 0 {
			f.judgeSoon(f.judgeDelay())
		}
		return
	}
	p.kin.over = true
	p.kin.gone = f.surveys + 1
	f.kin[p.kin] = nil
	f.judgeSoon(f.judgeDelay())
}

// leave says that a process has closed whose descendants are to be left alone. The family lets go of it when there is
// none.
func (f *family) leave(p *Process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left[p.kin] = p.cgroup
	f.judgeSoon(f.judgeDelay())
}

// begin makes w one of the sweeps under way.
func (f *family) begin(w *sweep) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sweeps[w] = struct{}{}
	if w.forced {
		w.force()
	}
	f.poke()
}

// hurry moves the deadline of a sweep forward, to now if forced.
func (f *family) hurry(w *sweep, deadline time.Time, forced bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case w.forced:
		return
	case forced:
		w.force()
	case deadline.Before(w.deadline):
		w.deadline = deadline
	}
	f.poke()
}

// look has a sweep take its next step now.
func (f *family) look(w *sweep) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.next = longAgo
	f.poke()
}

// force is called with mu held.
func (w *sweep) force() {
	w.forced, w.next = true, longAgo
	if w.process != nil {
		w.process.kin.over = true
	}
}

// poke has the goroutine look for what there is to do. Called with mu held.
func (f *family) poke() {
	if f.stopped == nil {
		f.stopped = make(chan struct{})
		go f.run(f.stopped)
	}
	select {
	case f.wake <- struct{}{}:
	default: // it was told already
	}
}

// judgeSoon has the orphans looked at after a while, so that many ends cost one look. Called with mu held.
func (f *family) judgeSoon(delay time.Duration) {
	if at := time.Now().Add(delay); f.judgeAt.IsZero() || at.Before(f.judgeAt) {
		f.judgeAt = at
		f.poke()
	}
}

// isIdle tells whether the goroutine has no reason to be there. Called with mu held.
func (f *family) isIdle() bool {
	return len(f.sweeps) == 0 && f.judgeAt.IsZero() && f.strays == nil && f.adopts == 0 && len(f.waiters) == 0
}

// survey looks at all processes. It tells whether all orphans can have been seen, which they cannot if they are not
// adopted or processes are hidden.
func (f *family) survey() (d *division, judged bool, number uint64, err error) {
	f.mu.Lock()
	begun := time.Now()
	f.surveys++
	number = f.surveys
	f.judgeAt = time.Time{} // what changes from now on needs another look
	f.ours = maps.Clone(f.leaders)
	adopts := f.adopts > 0
	f.mu.Unlock()
	procs, err := readProcs()
	var forking uint64
	if adopts {
		forking = f.awaitForks()
	}
	judged = adopts && slices.ContainsFunc(procs, func(p procStat) bool { return p.pid == initPID })

	f.mu.Lock()
	s := survey{
		procs: procs, self: os.Getpid(), session: ownSession(), adopts: adopts, ours: f.ours, forking: forking,
		cgroups: map[*kin][]int{}, before: f.division, fresh: time.Since(f.dividedAt) < freshness, evidence: readEvidence,
	}
	f.ours = nil
	for k := range f.kin {
		s.claims = append(s.claims, claim{kin: k, reaped: k.reaped, deserted: k.deserted, over: k.over, forgotten: k.gone != 0})
	}
	inspect := f.groupsToInspect()
	f.mu.Unlock()
	if err != nil {
		return nil, false, number, err
	}
	for k, c := range inspect {
		s.cgroups[k] = c.members()
	}
	d = s.divide()
	f.division, f.dividedAt = d, time.Now()
	deserted := s.deserted()
	f.mu.Lock()
	for _, k := range deserted {
		k.deserted = true
	}
	f.cost = f.dividedAt.Sub(begun)
	f.mu.Unlock()
	return d, judged, number, nil
}

// freshness is how old a survey may be for its sessions' numbers to be still the same sessions': much younger than it
// takes to fork until numbers begin anew.
const freshness = 100 * time.Millisecond

// groupsToInspect returns the control groups whose members matter now. Called with mu held.
func (f *family) groupsToInspect() map[*kin]*cgroup {
	groups := map[*kin]*cgroup{}
	for w := range f.sweeps {
		if w.cgroup != nil {
			groups[w.process.kin] = w.cgroup
		}
	}
	for k, c := range f.left {
		if c != nil {
			groups[k] = c
		}
	}
	return groups
}

// forkPatience is how long a start may take before nobody waits for it any more: a file system may hang.
const forkPatience = 50 * time.Millisecond

// awaitForks waits for the forks that are under way now. It returns a tick at which none of those that hang had forked
// yet, or 0 if all ended.
func (f *family) awaitForks() (hanging uint64) {
	f.mu.Lock()
	forks := make([]*fork, 0, len(f.forks))
	for begun := range f.forks {
		forks = append(forks, begun)
	}
	f.mu.Unlock()
	patience := time.NewTimer(0)
	defer patience.Stop()
	for _, begun := range forks {
		patience.Reset(time.Until(begun.begun.Add(forkPatience)))
		select {
		case <-begun.done:
		case <-patience.C:
			if hanging == 0 || begun.tick < hanging {
				hanging = begun.tick
			}
		}
	}
	return hanging
}
