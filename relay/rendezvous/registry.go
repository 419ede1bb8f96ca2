package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// registration allows an executor to connect with an epoch.
type registration struct {
	epoch         uint64
	principal     string
	instance      string // empty if the executor does not retransmit
	streams       int    // stream limit; 0 if unknown
	name, version string
	labels        map[string]string
	until         time.Time // expiry
}

// registry assigns epochs and decides which of them is the executor. Records
// shared between nodes are decided by the presence; the index is a copy for
// counting and listing.
type registry struct {
	presence Presence
	limits   Limits
	clock    clock
	node     string
	index    *index
	logger   *slog.Logger

	mu      sync.Mutex
	pending map[string][]registration // guarded by mu; by executor, latest epoch last
}

// maxTries bounds retries of conflicting changes to a record.
const maxTries = 32

var errBusy = errors.New("too many concurrent changes of the executor's record")

// update applies edit to the record of an executor and stores the result, unless
// edit returns an error. edit is called again after a conflicting change.
func (r *registry) update(ctx context.Context, id string, edit func(*Record) error) (Record, error) {
	for range maxTries {
		record, revision, err := r.presence.Get(ctx, id)
		if err != nil {
			return Record{}, fmt.Errorf("failed to look up executor %s: %w", id, err)
		}
		record.Executor = id
		if err := edit(&record); err != nil {
			return Record{}, err
		}
		switch revision, err = r.presence.Put(ctx, record, revision); {
		case err == nil:
			r.index.apply(Change{Record: record, Revision: revision})
			return record, nil
		case !errors.Is(err, ErrChanged):
			return Record{}, fmt.Errorf("failed to store executor %s: %w", id, err)
		}
	}
	return Record{}, fmt.Errorf("failed to store executor %s: %w", id, errBusy)
}

// register assigns an epoch to a registration. The error is a [*Refusal] if there
// are too many executors.
func (r *registry) register(ctx context.Context, id string, reg registration) (epoch uint64, err error) {
	if err := r.admit(ctx, id, reg.principal); err != nil {
		return 0, err
	}
	now := r.clock.now()
	record, err := r.update(ctx, id, func(record *Record) error {
		if record.Epoch++; record.Epoch == 1 {
			record.Principal = reg.principal
		}
		if !record.Online {
			record.LastSeen, record.Node = now, r.node
			record.Name, record.Version, record.Labels = reg.name, reg.version, reg.labels
		}
		return nil
	})
	if err != nil {
		r.index.release(id)
		return 0, err
	}
	reg.epoch, reg.until = record.Epoch, now.Add(r.limits.URLLifetime)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(id, now)
	pending := append(r.pending[id], reg)
	r.pending[id] = pending[max(0, len(pending)-DefaultRegistrationsPerID):]
	return reg.epoch, nil
}

// expire drops expired registrations of an executor. mu is held.
func (r *registry) expire(id string, now time.Time) {
	kept := slices.DeleteFunc(r.pending[id], func(reg registration) bool { return !now.Before(reg.until) })
	if r.pending[id] = kept; len(kept) == 0 {
		delete(r.pending, id)
	}
}

// expireAll drops all expired registrations.
func (r *registry) expireAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.now()
	for id := range r.pending {
		r.expire(id, now)
	}
}

// admit makes space for the record of one more executor. The error is a
// [*Refusal] if that is impossible.
func (r *registry) admit(ctx context.Context, id, principal string) error {
	for range maxTries {
		evicted, err := r.index.admit(id, principal, r.limits, r.clock.now())
		if err != nil || evicted == nil {
			return err
		}
		if err = r.evict(ctx, evicted); err == nil {
			return nil
		}
		r.index.release(id)
		if !errors.Is(err, ErrChanged) {
			return err
		}
	}
	return fmt.Errorf("failed to make space for executor %s: %w", id, errBusy)
}

// evict deletes a record that was removed from the index, or puts it back.
func (r *registry) evict(ctx context.Context, e *entry) error {
	id := e.record.Executor
	err := r.presence.Delete(ctx, id, e.revision)
	switch {
	case err == nil:
		r.logger.Info("evicted the record of an executor", "executor", id, "principal", e.record.Principal, "last_seen", e.record.LastSeen)
		return nil
	case !errors.Is(err, ErrChanged):
		r.index.apply(Change{Record: e.record, Revision: e.revision})
		return fmt.Errorf("failed to delete executor %s: %w", id, err)
	}
	record, revision, getErr := r.presence.Get(ctx, id)
	if getErr != nil {
		return fmt.Errorf("failed to look up executor %s: %w", id, getErr)
	}
	if revision != 0 {
		r.index.apply(Change{Record: record, Revision: revision})
	}
	return err
}

// follow keeps the index in sync with the presence until ctx ends. It calls
// caughtUp whenever the index has all records.
func (r *registry) follow(ctx context.Context, caughtUp func()) {
	retry := time.NewTicker(followRetry)
	defer retry.Stop()
	for ctx.Err() == nil {
		r.index.restart()
		err := r.presence.Watch(ctx, r.index.apply, func() {
			r.index.prune()
			caughtUp()
		})
		if ctx.Err() != nil {
			return
		}
		r.logger.Warn("failed to watch the presence of executors; retrying", "error", err.Error())
		select {
		case <-ctx.Done():
		case <-retry.C:
		}
	}
}

// followRetry is the time between attempts to watch the presence.
const followRetry = time.Second

// online reports whether an executor is connected, according to a recent report
// of its node.
func (r *registry) online(record Record) bool {
	return record.Online && r.clock.now().Sub(record.LastSeen) < presenceIntervalsUntilAbsent*r.limits.PresenceInterval
}

// connect makes the registration with that epoch the executor. It works once. The
// error is a [*Refusal] if it was used, has expired, or a later one has
// connected.
func (r *registry) connect(ctx context.Context, id string, epoch uint64, url string) (registration, error) {
	reg, ok := r.takePending(id, epoch)
	if !ok {
		return registration{}, superseded(id)
	}
	_, err := r.update(ctx, id, func(record *Record) error {
		if record.Connected >= epoch {
			return superseded(id)
		}
		record.Connected, record.Online, record.Node, record.URL = epoch, true, r.node, url
		record.Principal, record.Name, record.Version, record.Labels = reg.principal, reg.name, reg.version, reg.labels
		record.LastSeen = r.clock.now()
		return nil
	})
	return reg, err
}

// takePending removes and returns a registration that has not connected yet.
func (r *registry) takePending(id string, epoch uint64) (registration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(id, r.clock.now())
	for i, reg := range r.pending[id] {
		if reg.epoch == epoch {
			if r.pending[id] = slices.Delete(r.pending[id], i, i+1); len(r.pending[id]) == 0 {
				delete(r.pending, id)
			}
			return reg, true
		}
	}
	return registration{}, false
}

// errTakenOver means that a later registration has connected.
var errTakenOver = errors.New("a later registration has connected")

// setOnline records whether the executor of that epoch is connected. The error is
// errTakenOver if a later one has connected.
func (r *registry) setOnline(ctx context.Context, id string, epoch uint64, online bool) error {
	_, err := r.update(ctx, id, func(record *Record) error {
		if record.Connected != epoch {
			return errTakenOver
		}
		record.Online, record.LastSeen = online, r.clock.now()
		return nil
	})
	return err
}

// resetOwn marks executors offline that were connected to this node before it
// restarted.
func (r *registry) resetOwn(ctx context.Context) error {
	for _, record := range r.index.all() {
		if !record.Online || record.Node != r.node {
			continue
		}
		if _, err := r.update(ctx, record.Executor, func(record *Record) error {
			if record.Node == r.node {
				record.Online = false
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// reportOnline records whether the executor of an epoch is connected, and reports
// whether a later one has connected. Failures are logged.
func (r *registry) reportOnline(id string, epoch uint64, online bool) (takenOver bool) {
	// This must work while the hub is closing, too.
	ctx, cancel := context.WithTimeoutCause(context.Background(), presenceTimeout, errPresenceSlow)
	defer cancel()
	err := r.setOnline(ctx, id, epoch, online)
	if err != nil && !errors.Is(err, errTakenOver) {
		r.logger.Error("failed to store the presence of an executor", "executor", id, "error", err.Error())
	}
	return errors.Is(err, errTakenOver)
}

// keepOnline periodically renews the presence of an executor, until a later one has
// connected to another node: then it calls superseded. stop ends that and waits for it.
func (r *registry) keepOnline(id string, epoch uint64, superseded func()) (stop func()) {
	connected, left := context.WithCancelCause(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(r.limits.PresenceInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if r.reportOnline(id, epoch, true) {
					superseded()
					return
				}
			case <-connected.Done():
				return
			}
		}
	})
	return func() {
		left(nil)
		wg.Wait()
	}
}
