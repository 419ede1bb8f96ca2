// Package session manages the ownership of processes: it names processes, finds them
// for the principals that may access them, keeps them for an owner that lost its
// connection, and removes their records. It knows no protocol: principals are names,
// requests are digests.
//
// # Owners
//
// A process has at most one owner: a stream ([Ownership]), or in a leased session the
// attachment ([Attachment]), which owns every process that no stream owns. A process
// whose stream is lost is kept for a grace period of its own. While no client is
// attached, the session's policy ([WhenDetached]) applies to output; when the grace
// period of the session is over, the session and all its processes end.
//
// # Parts
//
// The lease records which client is attached and for how long, and knows no
// processes. A feed is the queue of processes that have events for the attachment.
// The budget bounds the memory of all processes together. docs/locking.md has the
// locks.
//
// # Replacing the program
//
// [Registry.Freeze] holds the locks of all sessions, so that timers and calls wait, and
// returns their state: times become durations, and streams and attachments count as lost.
// [Restore] goes on with it in another program, and [Registry.Thaw] in this one. Resources
// other than processes are not part of it.
package session

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execwire/execwire/internal/notify"
	"github.com/execwire/execwire/internal/process"
)

// DefaultID is the id of every principal's default session.
const DefaultID = "default"

// Config bounds what a registry keeps. Zero durations mean zero, not a default:
// package config has the defaults.
type Config struct {
	// DefaultGrace is how long a process is kept whose owner was lost.
	DefaultGrace time.Duration
	// MaxGrace is the longest grace that an owner may request.
	MaxGrace time.Duration
	// ClosedRetention is how long the record of a closed process is kept once its
	// exit was seen; see [Process.Seen].
	ClosedRetention time.Duration
	// UnseenRetention is how long it is kept if its exit was not seen; never less
	// than ClosedRetention.
	UnseenRetention time.Duration
	// MaxKeep is the longest Keep of [StartOptions].
	MaxKeep time.Duration
	// UnseenPerPrincipal is how many records of one principal are kept for longer
	// than ClosedRetention, because their exit was not seen or by Keep. 0: none.
	UnseenPerPrincipal int
	// UnseenBytesPerPrincipal is how many bytes these may be charged, see budget. 0: no
	// limit.
	UnseenBytesPerPrincipal int64
	// ProcessesPerSession is how many processes of one session may run, that is, have
	// not closed. 0: no limit.
	ProcessesPerSession int
	// SessionsPerPrincipal is how many leased sessions one principal may have. 0: no
	// limit.
	SessionsPerPrincipal int
	// SessionsTotal is how many leased sessions all principals together may have. 0:
	// no limit.
	SessionsTotal int
	// RetainedTotal bounds the memory of all processes, in bytes; see budget. 0: no
	// limit.
	RetainedTotal int64
	// OnChange is called when a process was started, has closed or was removed, or its
	// output has moved to a file. It must not block nor use the registry, and may be called
	// concurrently. Nil calls nothing.
	OnChange func()
	// OnClosed is called when a process has closed, in a goroutine of the process that
	// [Registry.Close] waits for. It may block. Nil calls nothing.
	OnClosed func(*Process)
	// OnRecord is called when a process without an owner was started in a default session,
	// before Start returns, and when it has closed. It may block; calls for one process
	// follow each other. Nil calls nothing.
	OnRecord func(*Process)
	// OnForgotten is called, after OnRecord, when the record of such a process was removed,
	// except by [Registry.Close]. It may block. It must be set if OnRecord is.
	OnForgotten func(*Process)
	// Logger logs processes that are terminated because their owner was lost. Nil
	// discards.
	Logger *slog.Logger
}

// Registry holds all sessions of a server. All methods may be called
// concurrently.
type Registry struct {
	current    atomic.Pointer[Config]
	supervisor *process.Supervisor
	budget     *budget
	goroutines sync.WaitGroup // one per process that is not closed, and those of background

	sessionTable
	closed bool // guarded by mu; no goroutine is started any more
}

// NewRegistry returns a registry whose processes the supervisor runs.
// [Registry.Close] closes the supervisor.
func NewRegistry(supervisor *process.Supervisor, cfg Config) *Registry {
	r := &Registry{
		supervisor: supervisor,
		budget:     newBudget(cfg.RetainedTotal),
		sessionTable: sessionTable{
			defaults:  make(map[string]*Session),
			ending:    make(map[string]*Session),
			leased:    make(map[string]*Session),
			counts:    make(map[string]int),
			allClosed: make(chan struct{}),
			allAtRest: make(chan struct{}),
		},
	}
	r.SetConfig(cfg)
	return r
}

// SetConfig changes the configuration. Limits hold for what is added later: nothing is
// removed or ended because of a lower one. Times hold for grace periods and retentions that
// begin later.
func (r *Registry) SetConfig(cfg Config) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.OnChange == nil {
		cfg.OnChange = func() {}
	}
	r.current.Store(&cfg)
	r.budget.setLimit(cfg.RetainedTotal)
}

func (r *Registry) cfg() *Config { return r.current.Load() }

// defaultSession returns the principal's default session. It never blocks.
func (r *Registry) defaultSession(principal string) *Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.defaults[principal]; s != nil {
		return s
	}
	return r.makeSession(DefaultID, principal)
}

// makeSession returns an empty session without a lease.
func (r *Registry) makeSession(id, principal string) *Session {
	return &Session{
		id: id, principal: principal, registry: r, created: time.Now(), whenDetached: WhenDetachedBlock,
		ended: make(chan struct{}), processes: make(map[string]*Process),
	}
}

// Drain makes later starts and attachments to new sessions fail with kind [Draining].
// Running processes continue. It may be called more than once.
func (r *Registry) Drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		return
	}
	r.draining = true // starts fail from here on: neither count rises again
	if r.running == 0 {
		close(r.allClosed)
	}
	if r.active == 0 {
		close(r.allAtRest)
	}
}

// WaitClosed blocks until the registry drains and every process has closed, or until
// ctx ends, whose cause it then returns.
func (r *Registry) WaitClosed(ctx context.Context) error { return notify.Wait(ctx, r.allClosed) }

// WaitIdle blocks until the registry drains, every process has closed, and no owner
// is expected to take or read one, or until ctx ends, whose cause it then returns.
func (r *Registry) WaitIdle(ctx context.Context) error { return notify.Wait(ctx, r.allAtRest) }

// Totals are the totals of a registry.
type Totals struct {
	Running       int   // processes that have not closed
	Sessions      int   // default ones included
	RetainedBytes int64 // what counts for [Config.RetainedTotal]
}

// Totals returns the current totals. It may be called concurrently, and does not block.
func (r *Registry) Totals() Totals {
	retained := r.budget.inUse()
	r.mu.Lock()
	defer r.mu.Unlock()
	return Totals{Running: r.running, Sessions: len(r.defaults) + len(r.leased), RetainedBytes: retained}
}

// Census counts what a registry has.
type Census struct {
	// Starting, Running, Exited and Closed are the processes by state.
	Starting, Running, Exited, Closed int
	// Blocked are the processes of which a stream is not read; see [eventlog.Stats].
	Blocked int
	// UnacknowledgedBytes is the output that owners have not acknowledged.
	UnacknowledgedBytes int64
	// Default, Attached and Detached are the sessions: default ones that have a process
	// or another resource, and leased ones by whether a client is attached.
	Default, Attached, Detached int
}

// All returns all sessions, ordered by principal and id. It holds no lock for longer than
// it takes to copy a list, and may be called concurrently.
func (r *Registry) All() []*Session {
	r.mu.Lock()
	sessions := slices.AppendSeq(slices.Collect(maps.Values(r.defaults)), maps.Values(r.leased))
	r.mu.Unlock()
	slices.SortFunc(sessions, func(a, b *Session) int {
		return cmp.Or(strings.Compare(a.principal, b.principal), strings.Compare(a.id, b.id))
	})
	return sessions
}

// Census counts all processes and sessions one after the other, so the numbers are not of
// one moment. It takes time in proportion to the number of processes, and holds no lock
// for longer than it takes to copy a list. It may be called concurrently.
func (r *Registry) Census() (c Census) {
	for _, s := range r.All() {
		switch {
		case s.lease == nil:
			c.Default++
		case s.lease.terms().attached:
			c.Attached++
		default:
			c.Detached++
		}
		s.mu.Lock()
		processes := slices.Collect(maps.Values(s.processes))
		s.mu.Unlock()
		for _, p := range processes {
			c.add(p)
		}
	}
	return c
}

func (c *Census) add(p *Process) {
	if !notify.IsClosed(p.started) {
		c.Starting++
		return
	}
	if p.Process == nil { // the start has failed
		return
	}
	switch p.State() {
	case process.StateClosed:
		c.Closed++
	case process.StateExited:
		c.Exited++
	default:
		c.Running++
	}
	stats := p.Log().Stats()
	c.UnacknowledgedBytes += int64(stats.UnacknowledgedBytes)
	if stats.Blocked {
		c.Blocked++
	}
}

// Close drains, ends every process with cause [process.CauseServerShutdown], waits for
// that, and removes the records. Attachments receive the ends of their processes and
// then fail with kind [Draining]; Close does not wait for that. If ctx ends first it
// returns an error; a later Close can finish.
func (r *Registry) Close(ctx context.Context) error {
	r.Drain()
	if err := r.supervisor.Close(ctx); err != nil {
		return errors.Join(errors.New("failed to end every process"), err)
	}
	// A session's lock comes before mu.
	for _, s := range r.takeSessions() {
		s.shutDown()
	}
	r.goroutines.Wait()
	return nil
}

func (r *Registry) takeSessions() []*Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	list := slices.AppendSeq(slices.Collect(maps.Values(r.defaults)), maps.Values(r.leased))
	clear(r.defaults)
	clear(r.leased)
	return list
}

// background runs f in a goroutine that Close waits for. It returns false when Close
// does not wait any more. f must end once all processes have.
func (r *Registry) background(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.goroutines.Go(f)
	}
	return !r.closed
}

// countStart counts a process of s that is about to start, and the goroutine that
// will watch it. It makes s the default session of its principal. s.mu is held.
func (r *Registry) countStart(s *Session) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.makeDefaultLocked(s); err != nil {
		return err
	}
	r.running++
	r.active++
	r.goroutines.Add(1)
	return nil
}
