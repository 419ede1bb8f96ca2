package filehelper

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/execwire/execwire/internal/sandbox"
)

// Options bound the helpers of a server.
type Options struct {
	// PerPrincipal is how many a principal may have, and Total how many there may be. 0: none. Of an eighth of Total a
	// principal gets one only that has none.
	PerPrincipal, Total int
	// Idle is how long one stays that nobody uses.
	Idle time.Duration
	// Patience is how long one may take to come up, and how long somebody waits for one while all are in use. 0:
	// [DefaultPatience].
	Patience time.Duration
	// Complete is how much a helper is found by of what was sent to it and is complete.
	Complete int
	// MessageBytes is the largest message that a helper sends.
	MessageBytes int
	// Logger is told of helpers that end by themselves. Nil discards.
	Logger *slog.Logger
}

// DefaultPatience is how long a helper may take to come up on a machine that has other things to do.
const DefaultPatience = 20 * time.Second

// Start starts a helper; see [sandbox.Confinement.StartHelper].
type Start func(ctx context.Context) (*sandbox.Helper, error)

// ErrClosed is what the use of a helper fails with whose session has ended.
var ErrClosed = errors.New("filehelper: the session of the helper has ended")

// errGone is why a helper that is being started is not needed any more.
var errGone = errors.New("nobody needs the helper any more")

// Pool are the helpers of a server. All methods, and those of its sets and leases, may be called concurrently. It must be
// closed.
type Pool struct {
	options Options
	working sync.WaitGroup // a goroutine for each helper, until nothing is left of it

	mu      sync.Mutex
	all     map[*helper]struct{} // guarded by mu; those in sets
	groups  map[string]*group    // guarded by mu; by principal
	waiting []*waiter            // guarded by mu; in the order in which they came
	closed  bool                 // guarded by mu

	places places
}

// places are what each process has one of, from before it is started until nothing is left of it: those too that have
// given way.
type places chan struct{}

// take waits for a place.
func (p places) take(ctx context.Context) error {
	select {
	case p <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p places) giveBack() { <-p }

// NewPool returns a pool that has no helper yet.
func NewPool(options Options) *Pool {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.Patience == 0 {
		options.Patience = DefaultPatience
	}
	return &Pool{options: options, all: make(map[*helper]struct{}), groups: make(map[string]*group), places: make(places, options.Total)}
}

// Close ends all helpers, has calls that use them fail, and waits until nothing is left of them.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	var left []*helper
	for h := range p.all {
		left = append(left, h)
	}
	p.mu.Unlock()
	p.drop(left...)
	p.working.Wait()
}

// helper is one process, or one that is being started.
type helper struct {
	set   *Set
	group *group
	key   string
	ctx   context.Context // until it is not needed any more
	end   context.CancelCauseFunc

	ready chan struct{} // closed when what follows is set
	err   error         // it was not started
	conn  *link         // nil if it was not
	loan  loan

	// Guarded by the pool's mu.
	users     int
	lasting   int              // of them, for as long as somebody wants
	abandoned int              // of those, what is unfinished and no stream brings: the helper may give way
	used      time.Time        // by the last of them, or when something was abandoned
	timer     *time.Timer      // runs from the first time that nobody uses it on; see expire
	kept      map[string]*kept // by name
	complete  []string         // names of what is complete, the oldest first
}

// run starts a helper when those are gone that gave way, and clears up after it.
func (p *Pool) run(h *helper, start Start) {
	var process *sandbox.Helper
	var conn *link
	ctx, cancel := context.WithTimeoutCause(h.ctx, p.options.Patience, errTooLong)
	err := h.group.places.take(ctx)
	if err == nil {
		defer h.group.places.giveBack()
		if err = p.places.take(ctx); err == nil {
			defer p.places.giveBack()
			process, conn, err = begin(ctx, start, p.options.MessageBytes)
		}
	}
	if err != nil {
		err = notStarted(ctx, process, err)
	}
	cancel()
	if err != nil {
		p.drop(h)
	}
	h.conn, h.err = conn, err
	close(h.ready)
	if err != nil {
		return
	}
	if conn.WaitForStateChange(h.ctx, connectivity.Ready) { // also when it says what cannot be understood, and goes on
		p.drop(h)
		process.Close()
		p.options.Logger.Warn("a helper for sandboxed calls about files has ended by itself", "said", process.Complaint())
	}
	_ = conn.Close()
	process.Close()
	h.loan.end() // before its places are free for a helper that needs the descriptor
}

// drop takes helpers out of their sets and ends them. It does not wait.
func (p *Pool) drop(helpers ...*helper) {
	var emptied []func()
	p.mu.Lock()
	for _, h := range helpers {
		if p.removeLocked(h) && len(h.set.byKey) == 0 {
			emptied = append(emptied, h.set.emptied)
		}
	}
	p.serveLocked()
	p.mu.Unlock()
	for _, tell := range emptied {
		tell()
	}
}

// removeLocked takes a helper out of its set, once, and has it end.
func (p *Pool) removeLocked(h *helper) bool {
	if _, there := p.all[h]; !there {
		return false
	}
	delete(p.all, h)
	delete(h.group.all, h)
	delete(h.set.byKey, h.key)
	if h.timer != nil {
		h.timer.Stop()
	}
	for name := range h.kept {
		h.forgetLocked(name)
	}
	h.end(errGone)
	return true
}

// expire ends a helper that nobody has used for as long as it may be idle, and otherwise looks again when that can be. To
// stop and start a timer with each call would wake a thread each time.
func (p *Pool) expire(h *helper) {
	p.mu.Lock()
	left := p.options.Idle
	if h.users == 0 {
		left -= time.Since(h.used)
	}
	_, there := p.all[h]
	if there && left > 0 {
		h.timer.Reset(left)
	}
	p.mu.Unlock()
	if left <= 0 {
		p.drop(h)
	}
}
