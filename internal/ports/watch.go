package ports

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/execwire/execwire/internal/notify"
)

// ErrClosed is the error of watches after [Finder.Close].
var ErrClosed = errors.New("the finder of ports is closed")

// Finder watches ports. All methods may be called concurrently. It has one goroutine while there
// are watches.
type Finder struct {
	ctx       context.Context // ends with Close
	cancel    context.CancelCauseFunc
	goroutine sync.WaitGroup
	wake      notify.Signal

	mu      sync.Mutex
	watches map[*Watch]struct{} // guarded by mu
	running bool                // guarded by mu; the goroutine exists
}

// NewFinder returns a finder. It must be closed.
func NewFinder() *Finder {
	f := &Finder{wake: notify.NewSignal(), watches: map[*Watch]struct{}{}}
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
	return f
}

// Close ends all watches with [ErrClosed], and waits for the goroutine, at most for one scan of
// /proc.
func (f *Finder) Close() {
	f.mu.Lock()
	f.cancel(ErrClosed)
	f.mu.Unlock()
	f.goroutine.Wait()
}

// Watch watches the ports of processes. It must be closed, and is for one goroutine.
type Watch struct {
	finder    *Finder
	processes Processes
	until     <-chan struct{}
	reported  []Port // by Next
	began     bool   // Next has reported something

	// Guarded by finder.mu.
	ports     []Port // the state; sorted, never modified
	truncated bool
	known     bool // there is a state
	err       error
	changed   notify.Broadcast
}

// Watch begins a watch, which ends when until is closed; nil is never. It does not block.
func (f *Finder) Watch(processes Processes, until <-chan struct{}) *Watch {
	w := &Watch{finder: f, processes: processes, until: until}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watches[w] = struct{}{}
	if !f.running && f.ctx.Err() == nil {
		f.running = true
		f.goroutine.Go(f.run)
	}
	f.wake.Set()
	return w
}

// Close ends the watch. It does not block.
func (w *Watch) Close() {
	w.finder.mu.Lock()
	defer w.finder.mu.Unlock()
	delete(w.finder.watches, w)
	if len(w.finder.watches) == 0 {
		w.finder.wake.Set()
	}
}

// Change is what has changed since the previous call of Next.
type Change struct {
	// Closed are ports that are closed; Opened are open. Both are sorted.
	Closed, Opened []Port
	// Truncated is set if there are more than [MaxPorts].
	Truncated bool
}

// Next blocks until ports have changed; the first call, until the present ones are known. When until
// is closed all ports are closed, and then the error is [io.EOF]. Other errors are the cause of ctx,
// that of processes, [ErrClosed], and those of the system.
func (w *Watch) Next(ctx context.Context) (Change, error) {
	for {
		ports, truncated, known, wait, err := w.state()
		switch ended := notify.IsClosed(w.until); {
		case ended && w.began && len(w.reported) == 0:
			return Change{}, io.EOF
		case ended:
			ports, truncated, known = nil, false, true
		case err != nil:
			return Change{}, err
		}
		change := Change{Closed: without(w.reported, ports), Opened: without(ports, w.reported), Truncated: truncated}
		if known && (!w.began || len(change.Closed)+len(change.Opened) > 0) {
			w.reported, w.began = ports, true
			return change, nil
		}
		select {
		case <-wait:
		case <-w.until:
		case <-ctx.Done():
			return Change{}, context.Cause(ctx)
		case <-w.finder.ctx.Done():
			return Change{}, context.Cause(w.finder.ctx)
		}
	}
}

func (w *Watch) state() (ports []Port, truncated, known bool, changed <-chan struct{}, err error) {
	w.finder.mu.Lock()
	defer w.finder.mu.Unlock()
	return w.ports, w.truncated, w.known, w.changed.Wait(), w.err
}

// without returns the ports in a that are not in b. Both are sorted.
func without(a, b []Port) (rest []Port) {
	for _, p := range a {
		if i, ok := slices.BinarySearchFunc(b, p, compare); !ok || b[i] != p {
			rest = append(rest, p)
		}
	}
	return rest
}
