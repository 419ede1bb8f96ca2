package fileworker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/connectivity"

	"github.com/execwire/execwire/internal/sandbox"
)

// Options bound the workers of a server.
type Options struct {
	// PerPrincipal limits the workers of a principal, and Total all workers. 0: none. An eighth of Total is reserved for
	// principals that have no worker.
	PerPrincipal, Total int
	// Idle is how long an idle worker is kept.
	Idle time.Duration
	// StartTimeout limits the start of a worker, and the wait for one while all are in use. 0: [DefaultStartTimeout].
	StartTimeout time.Duration
	// Complete is how many complete objects of a worker [Set.Pinned] finds.
	Complete int
	// MessageBytes is the largest message that a worker sends.
	MessageBytes int
	// Logger gets a line for each worker that ends by itself. Nil discards.
	Logger *slog.Logger
}

// DefaultStartTimeout is long enough for a machine under load.
const DefaultStartTimeout = 20 * time.Second

// Start starts a worker; see [sandbox.Confinement.StartWorker].
type Start func(ctx context.Context) (*sandbox.Worker, error)

// ErrClosed is the error for workers of a session that has ended.
var ErrClosed = errors.New("fileworker: the session of the worker has ended")

// errUnneeded is the cause of the end of a worker that was removed from its set.
var errUnneeded = errors.New("the worker is not needed any more")

// Pool is the workers of a server. All methods, and those of its sets and leases, may be called concurrently. It must be
// closed.
type Pool struct {
	options Options
	working sync.WaitGroup // a goroutine for each worker, until nothing is left of it

	mu     sync.Mutex
	all    map[*worker]struct{}       // guarded by mu; those in sets
	groups map[string]*principalGroup // guarded by mu; by principal
	queue  []*queueEntry              // guarded by mu; in the order in which they came
	closed bool                       // guarded by mu

	places *semaphore.Weighted // each process has one, from before its start until nothing is left of it
}

// NewPool returns a pool without workers.
func NewPool(options Options) *Pool {
	options.Logger = cmp.Or(options.Logger, slog.New(slog.DiscardHandler))
	options.StartTimeout = cmp.Or(options.StartTimeout, DefaultStartTimeout)
	return &Pool{options: options, all: make(map[*worker]struct{}), groups: make(map[string]*principalGroup), places: semaphore.NewWeighted(int64(options.Total))}
}

// Close ends all workers and waits until their processes are gone. Calls that use them fail.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	left := slices.Collect(maps.Keys(p.all))
	p.mu.Unlock()
	p.drop(left...)
	p.working.Wait()
}

// worker is a process that runs or is being started.
type worker struct {
	set   *Set
	group *principalGroup
	key   string
	ctx   context.Context // ends when the worker was removed from its set
	end   context.CancelCauseFunc

	ready   chan struct{} // closed when the following fields are set
	err     error         // of the start
	process *sandbox.Worker
	conn    *client

	shared sharedDescriptor

	// Guarded by the pool's mu.
	users       int
	longLeases  int                // how many of the users have a long lease
	interrupted int                // how many of those are unfinished objects that no stream sends: the worker may be evicted
	used        time.Time          // when a user left, or an object was interrupted, the last time
	timer       *time.Timer        // runs once the worker was idle for the first time; see expire
	pinned      map[string]*pinned // by name
	complete    []string           // names of complete objects, the oldest first
}

// run starts a worker when evicted ones have ended, and cleans up after it.
func (p *Pool) run(w *worker, start Start) {
	var process *sandbox.Worker
	var conn *client
	ctx, cancel := context.WithTimeoutCause(w.ctx, p.options.StartTimeout, errStartTimeout)
	err := w.group.places.Acquire(ctx, 1)
	if err == nil {
		defer w.group.places.Release(1)
		if err = p.places.Acquire(ctx, 1); err == nil {
			defer p.places.Release(1)
			process, conn, err = startWorker(ctx, start, p.options.MessageBytes)
		}
	}
	if err != nil {
		err = startError(ctx, process, err)
	}
	cancel()
	if err != nil {
		p.drop(w)
	}
	w.process, w.conn, w.err = process, conn, err
	close(w.ready)
	if err != nil {
		return
	}
	ended := conn.WaitForStateChange(w.ctx, connectivity.Ready) // also if the worker broke the protocol, and still runs
	if ended {
		p.drop(w)
	}
	conn.Close()
	process.Close()
	if ended {
		p.options.Logger.Warn("a worker for sandboxed calls about files has ended by itself", "stderr", process.StderrTail())
	}
	w.shared.end() // before its place is free for a worker that needs a descriptor
}

// drop removes workers from their sets and ends them. It does not wait.
func (p *Pool) drop(workers ...*worker) {
	var emptied []func()
	p.mu.Lock()
	for _, w := range workers {
		if p.removeLocked(w) && len(w.set.byKey) == 0 {
			emptied = append(emptied, w.set.emptied)
		}
	}
	p.serveLocked()
	p.mu.Unlock()
	for _, notify := range emptied {
		notify()
	}
}

// removeLocked removes a worker from its set and ends it. It returns false if that was done before.
func (p *Pool) removeLocked(w *worker) bool {
	if _, there := p.all[w]; !there {
		return false
	}
	delete(p.all, w)
	delete(w.group.all, w)
	delete(w.set.byKey, w.key)
	if w.timer != nil {
		w.timer.Stop()
	}
	for name := range w.pinned {
		w.forgetLocked(name)
	}
	w.end(errUnneeded)
	return true
}

// expire ends a worker that was idle for long enough, and otherwise sets the timer again. Stopping and starting the timer in
// each call would wake a thread each time.
func (p *Pool) expire(w *worker) {
	p.mu.Lock()
	left := p.options.Idle
	if w.users == 0 {
		left -= time.Since(w.used)
	}
	_, there := p.all[w]
	if there && left > 0 {
		w.timer.Reset(left)
	}
	p.mu.Unlock()
	if left <= 0 {
		p.drop(w)
	}
}
