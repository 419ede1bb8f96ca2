package presence

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/notify"
	"github.com/execwire/execwire/relay/rendezvous"
)

const (
	// checkInterval is how often it is checked whether records can be stored.
	checkInterval = 500 * time.Millisecond
	// minFree is the free space that the file system must have: after a failed
	// write the server stores nothing any more.
	minFree = 1 << 20
	// maxStore is the store limit of the server. By default it is a part of the
	// free space at startup, which is nothing after a full disk.
	maxStore = 1 << 40
	// probeKey is written to test the store. Executor ids contain no dot.
	probeKey = "hub.probe"
)

var errNotChecked = errors.New("a record could not be stored; the store is being checked")

// health tracks whether records can be stored.
type health struct {
	mu        sync.Mutex
	failed    error            // guarded by mu; nil if they can
	restarted notify.Broadcast // guarded by mu; the store was reopened
	checkNow  notify.Signal    // a check is due at once
}

func newHealth() *health {
	return &health{checkNow: notify.NewSignal()}
}

// get returns a channel that is closed when the store is reopened, and why
// records cannot be stored.
func (h *health) get() (restarted <-chan struct{}, failed error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.restarted.Wait(), h.failed
}

func (h *health) set(failed error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = failed
}

// suspect stops writes until a check succeeds, and requests one.
func (h *health) suspect() {
	h.set(errNotChecked)
	h.checkNow.Set()
}

// restart ends watches of the store before it was reopened.
func (h *health) restart() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.restarted.Notify()
}

// Ready implements [rendezvous.Presence].
func (n *NATS) Ready() error {
	if _, failed := n.health.get(); failed != nil {
		return &rendezvous.UnavailableError{Err: failed}
	}
	return nil
}

// write runs a request that changes records, unless they cannot be stored.
func (n *NATS) write(ctx context.Context, request func(context.Context) error) error {
	if err := n.Ready(); err != nil {
		return err
	}
	return n.ask(ctx, request)
}

// ask runs a request with a timeout.
func (n *NATS) ask(ctx context.Context, request func(context.Context) error) error {
	askCtx, cancel := context.WithTimeoutCause(ctx, answerTimeout, errNoAnswer)
	defer cancel()
	err := request(askCtx)
	if err == nil || errors.Is(err, rendezvous.ErrChanged) || ctx.Err() != nil {
		return err
	}
	n.health.suspect()
	return &rendezvous.UnavailableError{Err: err}
}

// monitor periodically checks whether records can be stored, and reopens a store
// that failed, until ctx ends.
func (n *NATS) monitor(ctx context.Context) {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-n.health.checkNow.C():
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

// check returns why records cannot be stored.
func (n *NATS) check(ctx context.Context) error {
	if err := n.checkSpace(); err != nil {
		return err
	}
	if _, failed := n.health.get(); failed == nil && n.server.JetStreamEnabled() {
		return nil
	}
	if n.server.JetStreamEnabled() {
		// In a cluster other nodes may be the reason, and records in memory would
		// be lost.
		if err := n.probe(ctx); err == nil || n.config.Cluster != nil || n.config.Directory == "" {
			return err
		}
	}
	return n.reopen(ctx)
}

// checkSpace returns an error if there is too little disk space.
func (n *NATS) checkSpace() error {
	if n.config.Directory == "" {
		return nil // records are in memory
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(n.config.Directory, &fs); err != nil {
		return fmt.Errorf("failed to stat the file system of %s: %w", n.config.Directory, err)
	}
	if free := fs.Bavail * uint64(fs.Bsize); free < minFree {
		return fmt.Errorf("the file system of %s has %d bytes left and needs at least %d: make space; no restart is needed",
			n.config.Directory, free, minFree)
	}
	return nil
}

// probe writes a test record.
func (n *NATS) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, errNoAnswer)
	defer cancel()
	_, err := n.bucket.Put(ctx, probeKey, nil)
	return err
}

// reopen reopens the store: after a failed write the server stores nothing any
// more.
func (n *NATS) reopen(ctx context.Context) error {
	if err := n.server.ShutdownJetStream(); err != nil {
		return fmt.Errorf("failed to close the store: %w", err)
	}
	if err := n.server.EnableJetStream(&server.JetStreamConfig{StoreDir: n.storeDirectory, MaxStore: maxStore, Strict: true}); err != nil {
		return fmt.Errorf("failed to reopen the store: %w", err)
	}
	if _, err := tryBucket(ctx, n.stream, bucketOf(n.config)); err != nil {
		return fmt.Errorf("failed to reopen the store: %w", err)
	}
	if err := n.probe(ctx); err != nil {
		return err
	}
	n.health.restart()
	return nil
}
