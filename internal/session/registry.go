// Package session says who owns which process: it names processes, finds them
// for the principals that may see them, keeps them for an owner that lost its
// connection, and removes their records. It knows no doors: principals are
// names, requests are digests.
//
// # Owners
//
// A process has one owner at a time: a stream ([Ownership]), or in a leased
// session the attachment ([Attachment]), which has every process that no stream
// has. A stream that is lost keeps its process for a grace of its own. While
// nobody is attached, the session's policy ([WhenDetached]) says what becomes of
// output; when its own grace is over, the session and all that runs in it end.
//
// # Parts
//
// The lease says who is attached and for how long, and knows no processes. A feed
// is the queue of the processes that have something to say. A cursor reads one
// process: what was spooled of it (backlog, replay), then its log. A spooler is
// the owner of a detached session's logs that puts them into the spool, a file of
// blocks. The budget bounds what is kept of all processes together.
// docs/locking.md has the locks.
package session

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/process"
)

// DefaultID is the id of every principal's default session.
const DefaultID = "default"

// Config bounds what a registry keeps. Zero durations mean zero, not a
// default: package config has the defaults.
type Config struct {
	// DefaultGrace is how long a process that lost its owner is kept.
	DefaultGrace time.Duration
	// MaxGrace is the longest grace an owner may ask for.
	MaxGrace time.Duration
	// ClosedRetention is how long the record of a closed process is kept once its
	// exit was seen; see [Process.Seen].
	ClosedRetention time.Duration
	// UnseenRetention is how long the record of a closed process is kept whose exit
	// was not seen; never less than ClosedRetention.
	UnseenRetention time.Duration
	// UnseenPerPrincipal is how many such records of one principal are kept for
	// longer than ClosedRetention. 0: none.
	UnseenPerPrincipal int
	// ProcessesPerSession is how many processes of one session may be running,
	// that is, not closed. 0: no limit.
	ProcessesPerSession int
	// SessionsPerPrincipal is how many leased sessions one principal may have.
	// 0: no limit.
	SessionsPerPrincipal int
	// SessionsTotal is how many leased sessions all principals together may
	// have. 0: no limit.
	SessionsTotal int
	// RetainedTotal is how many bytes may have to be kept of all processes; see
	// budget. 0: no limit.
	RetainedTotal int64
	// SpoolBytes is how much one session may spool. 0: nothing, so that
	// processes block as with [WhenDetachedBlock].
	SpoolBytes int64
	// SpoolDirectory is where files to spool to are made, without a name. Empty
	// is the directory for temporary files.
	SpoolDirectory string
	// OnChange is called when a process was started, has closed or was
	// forgotten. It must not block nor use the registry, and may be called
	// concurrently. Nil calls nothing.
	OnChange func()
	// Logger hears about processes that are terminated for want of an owner.
	// Nil discards.
	Logger *slog.Logger
}

// Registry holds all sessions of a server. All methods may be called
// concurrently.
type Registry struct {
	cfg        Config
	supervisor *process.Supervisor
	budget     *budget
	goroutines sync.WaitGroup // one per process that is not closed, and those of background

	mu       sync.Mutex
	defaults map[string]*Session // guarded by mu; default sessions that have something, by principal
	ending   map[string]*Session // guarded by mu; default sessions that are being closed, the last of each principal
	leased   map[string]*Session // guarded by mu; leased sessions by id
	counts   map[string]int      // guarded by mu; leased sessions by principal
	draining bool                // guarded by mu
	closed   bool                // guarded by mu; no goroutine begins any more
	running  int                 // guarded by mu; processes that have not closed
	quiet    chan struct{}       // guarded by mu; closed when draining and running == 0
	active   int                 // guarded by mu; processes that were not at rest yet
	idle     chan struct{}       // guarded by mu; closed when draining and active == 0
}

// NewRegistry returns a registry whose processes the supervisor runs. The
// registry does not close the supervisor of its own accord: [Registry.Close]
// does.
func NewRegistry(supervisor *process.Supervisor, cfg Config) *Registry {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.OnChange == nil {
		cfg.OnChange = func() {}
	}
	return &Registry{
		cfg:        cfg,
		supervisor: supervisor,
		budget:     newBudget(cfg.RetainedTotal),
		defaults:   make(map[string]*Session),
		ending:     make(map[string]*Session),
		leased:     make(map[string]*Session),
		counts:     make(map[string]int),
		quiet:      make(chan struct{}),
		idle:       make(chan struct{}),
	}
}

// Open returns the principal's own session with that id; an empty id is the
// default session, which is always there and costs nothing while it is empty.
// Kind [SessionNotFound]. It never blocks.
func (r *Registry) Open(principal, id string) (*Session, error) {
	if id != "" && id != DefaultID {
		s, access := r.find(principal, id)
		if access != AccessOwner || s.lease.terms().over {
			return nil, &Error{Kind: SessionNotFound, Subject: id}
		}
		return s, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.defaults[principal]; s != nil {
		return s, nil
	}
	return r.makeSession(DefaultID, principal), nil
}

// makeSession returns an empty session without a lease.
func (r *Registry) makeSession(id, principal string) *Session {
	return &Session{
		id: id, principal: principal, registry: r, created: time.Now(), whenDetached: WhenDetachedBlock,
		ended: make(chan struct{}), processes: make(map[string]*Process),
	}
}

// Drain makes every later start fail with kind [Draining], and every attachment
// to a new session. Processes that run go on. It may be called more than once.
func (r *Registry) Drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		return
	}
	r.draining = true // starts are refused from here on: neither number rises again
	if r.running == 0 {
		close(r.quiet)
	}
	if r.active == 0 {
		close(r.idle)
	}
}

// WaitClosed blocks until the registry drains and every process has closed, or
// until ctx ends, whose cause it then returns.
func (r *Registry) WaitClosed(ctx context.Context) error { return wait(ctx, r.quiet) }

// WaitIdle blocks until the registry drains, every process has closed and no
// owner is on its way to take or to fetch its end, or until ctx ends, whose
// cause it then returns.
func (r *Registry) WaitIdle(ctx context.Context) error { return wait(ctx, r.idle) }

func wait(ctx context.Context, over <-chan struct{}) error {
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Running returns the number of processes that have not closed.
func (r *Registry) Running() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running
}

// Close drains, ends every process with cause [process.ServerShutdown], waits
// until nothing of them is left, and forgets them. Attachments are delivered the
// ends of their processes, and then fail with kind [Draining]; Close does not
// wait for that. If ctx ends first it says so; a later Close can finish.
func (r *Registry) Close(ctx context.Context) error {
	r.Drain()
	if err := r.supervisor.Close(ctx); err != nil {
		return errors.Join(errors.New("failed to end every process"), err)
	}
	// Not while holding mu: a session's lock comes before it.
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

// background runs f in a goroutine that Close waits for, or reports false when
// Close has come so far that it does not wait any more. f must end once all
// processes have.
func (r *Registry) background(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.goroutines.Go(f)
	}
	return !r.closed
}

// superseded means that another session has become the principal's default
// since this one was found empty.
type superseded struct{ by *Session }

func (*superseded) Error() string { return "another default session has begun" }

// superseding refers to the principal's next default session. s.mu is held.
func (r *Registry) superseding(s *Session) error {
	next, err := r.Open(s.principal, DefaultID)
	if err != nil {
		return err
	}
	return &superseded{by: next}
}

// refusal says why no process can be started in s, if none can. s.mu is held.
func (r *Registry) refusal(s *Session) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refusalLocked(s)
}

func (r *Registry) refusalLocked(s *Session) error {
	if r.draining {
		return &Error{Kind: Draining}
	}
	if now := r.defaults[s.principal]; s.lease == nil && now != nil && now != s {
		return &superseded{by: now}
	}
	return nil
}

// begin counts a process of s that is about to start, and the goroutine that
// will watch it. A default session is the principal's from here on. s.mu is held.
func (r *Registry) begin(s *Session) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.refusalLocked(s); err != nil {
		return err
	}
	if s.lease == nil {
		r.defaults[s.principal] = s
	}
	r.running++
	r.active++
	r.goroutines.Add(1)
	return nil
}

// vacate forgets a default session that has become empty, so that principals who
// came once leave nothing behind. s.mu is held.
func (r *Registry) vacate(s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.lease == nil && r.defaults[s.principal] == s {
		delete(r.defaults, s.principal)
	}
}

// conclude is vacate for a default session that is over, but keeps it in sight of
// those who want to wait for its end. s.mu is held.
func (r *Registry) conclude(s *Session) {
	r.vacate(s)
	if s.lease != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ending[s.principal] = s
}

// processClosed counts a process that has closed, or did not start.
func (r *Registry) processClosed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running--; r.draining && r.running == 0 {
		close(r.quiet)
	}
}

// processRests counts a process that is at rest for the first time, or did not
// start.
func (r *Registry) processRests() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active--; r.draining && r.active == 0 {
		close(r.idle)
	}
}
