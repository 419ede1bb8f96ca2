package presence

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/relay/rendezvous"
)

const (
	// checkInterval is how often it is looked whether records can be kept.
	checkInterval = 500 * time.Millisecond
	// leastFree is what of the file system has to be free: the server stops keeping
	// anything for good when a write fails.
	leastFree = 1 << 20
	// maxStore is what the server may keep. Without it the server takes a part of
	// what is free when it starts, which after a full disk is nothing.
	maxStore = 1 << 40
	// probeKey is written to learn whether records can be. No executor has a dot in
	// its id.
	probeKey = "hub.probe"
)

// DiskFullError is a directory whose file system has no space left for records.
type DiskFullError struct {
	Directory string // as it was given
	Free      uint64 // bytes that are left
}

func (e *DiskFullError) Error() string {
	return fmt.Sprintf("the file system of %s has %d bytes left, and at least %d are needed: make space; nothing needs a restart", e.Directory, e.Free, leastFree)
}

var errNotChecked = errors.New("a record could not be kept, and it is being looked why")

// health is whether records can be kept.
type health struct {
	mu        sync.Mutex
	failed    error         // guarded by mu; nil if they can
	restarted chan struct{} // guarded by mu; closed when the store was opened again
	nudge     chan struct{} // holds a token when a check is due at once
}

func newHealth() *health {
	return &health{restarted: make(chan struct{}), nudge: make(chan struct{}, 1)}
}

// get returns a channel that is closed when the store is opened again, and why
// records cannot be kept.
func (h *health) get() (restarted <-chan struct{}, failed error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.restarted, h.failed
}

func (h *health) set(failed error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = failed
}

// doubt has nothing more written until a check has found that records are kept.
func (h *health) doubt() {
	h.set(errNotChecked)
	select {
	case h.nudge <- struct{}{}:
	default:
	}
}

// restart ends what follows the store as it was.
func (h *health) restart() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.restarted)
	h.restarted = make(chan struct{})
}

// Ready implements [rendezvous.Presence].
func (n *NATS) Ready() error {
	if _, failed := n.health.get(); failed != nil {
		return &rendezvous.UnavailableError{Err: failed}
	}
	return nil
}

// write has a request made that changes records, unless they cannot be kept.
func (n *NATS) write(ctx context.Context, request func(context.Context) error) error {
	if err := n.Ready(); err != nil {
		return err
	}
	return n.ask(ctx, request)
}

// ask makes a request, which is answered soon or not at all.
func (n *NATS) ask(ctx context.Context, request func(context.Context) error) error {
	within, cancel := context.WithTimeoutCause(ctx, answerTimeout, errNoAnswer)
	defer cancel()
	err := request(within)
	if err == nil || errors.Is(err, rendezvous.ErrChanged) || ctx.Err() != nil {
		return err
	}
	n.health.doubt()
	return &rendezvous.UnavailableError{Err: err}
}

// guard looks every now and then whether records can be kept, and opens the store
// again that was closed because they could not, until ctx ends.
func (n *NATS) guard(ctx context.Context) {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-n.health.nudge:
		case <-ctx.Done():
			return
		}
		err := n.check(ctx)
		if ctx.Err() != nil {
			return
		}
		n.health.set(err)
	}
}

// check returns why records cannot be kept.
func (n *NATS) check(ctx context.Context) error {
	if err := n.space(); err != nil {
		return err
	}
	if _, failed := n.health.get(); failed == nil && n.server.JetStreamEnabled() {
		return nil
	}
	if n.server.JetStreamEnabled() {
		// In a cluster others may be why, and what is in memory would be lost.
		if err := n.probe(ctx); err == nil || n.config.Cluster != nil || n.config.Directory == "" {
			return err
		}
	}
	return n.reopen(ctx)
}

// space returns an error if there is too little of it.
func (n *NATS) space() error {
	if n.config.Directory == "" {
		return nil // records are in memory
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(n.config.Directory, &fs); err != nil {
		return fmt.Errorf("failed to look at %s: %w", n.config.Directory, err)
	}
	if free := fs.Bavail * uint64(fs.Bsize); free < leastFree {
		return &DiskFullError{Directory: n.config.Directory, Free: free}
	}
	return nil
}

// probe writes something.
func (n *NATS) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, errNoAnswer)
	defer cancel()
	_, err := n.bucket.Put(ctx, probeKey, nil)
	return err
}

// reopen opens the store again, in which the server keeps nothing any more after a
// write has failed.
func (n *NATS) reopen(ctx context.Context) error {
	if err := n.server.ShutdownJetStream(); err != nil {
		return fmt.Errorf("failed to close the store: %w", err)
	}
	if err := n.server.EnableJetStream(&server.JetStreamConfig{StoreDir: n.storeDirectory, MaxStore: maxStore, Strict: true}); err != nil {
		return fmt.Errorf("failed to open the store again: %w", err)
	}
	if _, err := tryBucket(ctx, n.stream, bucketOf(n.config)); err != nil {
		return fmt.Errorf("failed to open the store again: %w", err)
	}
	if err := n.probe(ctx); err != nil {
		return err
	}
	n.health.restart()
	return nil
}
