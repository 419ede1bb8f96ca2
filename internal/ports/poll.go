package ports

import (
	"maps"
	"slices"
	"time"

	"github.com/execwire/execwire/internal/notify"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/procfs"
)

const (
	// pollInterval is the time between two looks at the listening sockets. On a slow machine it is
	// longer, so that the goroutine is busy for at most 1/pollShare of the time.
	pollInterval = 100 * time.Millisecond
	pollShare    = 20
	// checkInterval is the time between two looks at what no change of the sockets shows: whether
	// sessions still exist, and whether sockets have passed to another process.
	checkInterval = time.Second
	// scanAttempts is how often owners are looked for after a change. A scan of /proc can miss a
	// process that is being forked.
	scanAttempts = 3
)

// run polls until there are no watches.
func (f *Finder) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var p poller
	for {
		select {
		case <-timer.C:
		case <-f.wake.C():
		case <-f.ctx.Done():
			return
		}
		watches := f.current()
		if watches == nil {
			return
		}
		began := time.Now()
		f.apply(p.poll(watches))
		timer.Reset(max(pollInterval, pollShare*time.Since(began)))
	}
}

// current returns the watches that have not failed, or nil if the goroutine must end.
func (f *Finder) current() []watched {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.watches) == 0 {
		f.running = false
		return nil
	}
	list := make([]watched, 0, len(f.watches))
	for w := range f.watches {
		if w.err == nil {
			list = append(list, watched{Watch: w, isNew: !w.known})
		}
	}
	return list
}

// watched is a watch during a poll, and its result.
type watched struct {
	*Watch
	isNew   bool
	list    []Process
	scanned bool
	result  []Port
	failure error
}

// apply stores the results and wakes the watches that they concern.
func (f *Finder) apply(watches []watched) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range watches {
		if !w.scanned && w.failure == nil {
			continue
		}
		if w.Watch.err = w.failure; w.failure == nil {
			w.Watch.ports, w.Watch.truncated = limit(w.result)
			w.Watch.known = true
		}
		w.changed.Notify()
	}
}

// owner is what has a socket open.
type owner struct {
	process *process.Process
	pid     int
}

// poller is the state between polls.
type poller struct {
	sockets  sockets
	owned    map[uint32]owner // those that the last scan attributed
	attempts int              // scans that are left for sockets without an owner
	checked  time.Time
}

// poll looks once, and scans /proc if that is necessary.
func (p *poller) poll(watches []watched) []watched {
	s, err := p.look()
	if err != nil {
		for i := range watches {
			watches[i].failure = err
		}
		return watches
	}
	scan := slices.ContainsFunc(watches, func(w watched) bool { return w.isNew })
	if !maps.Equal(s, p.sockets) {
		scan = true
		p.attempts = scanAttempts
	}
	p.sockets = s
	check := time.Since(p.checked) >= checkInterval
	if !scan && !check && p.attempts == 0 {
		return watches
	}
	for i := range watches {
		watches[i].list, watches[i].failure = watches[i].processes()
	}
	if check {
		p.checked = time.Now()
		scan = scan || p.isStale()
	}
	if scan || p.attempts > 0 {
		p.scan(watches)
	}
	return watches
}

// look lists the listening sockets. A list can miss one while others close, so an owned socket is
// gone only if a second list misses it, too.
func (p *poller) look() (sockets, error) {
	s, err := listening()
	if err != nil {
		return nil, err
	}
	for inode := range p.owned {
		if _, ok := s[inode]; !ok {
			again, err := listening()
			if err == nil {
				maps.Copy(s, again)
			}
			return s, err
		}
	}
	return s, nil
}

// isStale reports whether a process has closed, or a program does not have its socket open any
// more.
func (p *poller) isStale() bool {
	open := map[int][]uint32{}
	for inode, o := range p.owned {
		if notify.IsClosed(o.process.Closed()) {
			return true
		}
		if _, known := open[o.pid]; !known {
			open[o.pid] = procfs.Sockets(o.pid)
		}
		if !slices.Contains(open[o.pid], inode) {
			return true
		}
	}
	return false
}

// scan looks for the owners of the sockets.
func (p *poller) scan(watches []watched) {
	all := map[*process.Process]struct{}{}
	for _, w := range watches {
		for _, one := range w.list {
			all[one.Process] = struct{}{}
		}
	}
	found, err := p.sockets.owned(slices.Collect(maps.Keys(all)))
	for i := range watches {
		w := &watches[i]
		switch {
		case w.failure != nil:
		case err != nil:
			w.failure = err
		default:
			w.result, w.scanned = named(w.list, found), true
		}
	}
	if err != nil {
		return
	}
	p.owned = map[uint32]owner{}
	for of, ports := range found {
		for _, port := range ports {
			p.owned[port.inode] = owner{of, port.PID}
		}
	}
	p.attempts = max(0, p.attempts-1)
	if len(p.owned) == len(p.sockets) {
		p.attempts = 0
	}
}
