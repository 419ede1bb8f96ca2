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

// registration is an executor that may connect with an epoch.
type registration struct {
	epoch         uint64
	principal     string
	instance      string // empty of one that does not retransmit
	streams       int    // how many it takes at once; 0 is not known
	name, version string
	labels        map[string]string
	until         time.Time // when it may not any more
}

// registry gives out epochs and decides which of them is the executor. Of what
// several nodes have to agree on it has a copy to count and to list, and decides by
// the presence.
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

// maxTries is how often a record is tried to be changed that others change, too.
const maxTries = 32

var errBusy = errors.New("the executor's record is being changed too often")

// change applies edit to the record of an executor and keeps the result, unless
// edit returns an error. edit is called again if somebody else was faster.
func (r *registry) change(ctx context.Context, id string, edit func(*Record) error) (Record, error) {
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
			return Record{}, fmt.Errorf("failed to keep executor %s: %w", id, err)
		}
	}
	return Record{}, fmt.Errorf("failed to keep executor %s: %w", id, errBusy)
}

// register gives a registration its epoch. The error is a [*Refusal] if there are
// too many executors.
func (r *registry) register(ctx context.Context, id string, made registration) (epoch uint64, err error) {
	if err := r.admit(ctx, id, made.principal); err != nil {
		return 0, err
	}
	now := r.clock.now()
	record, err := r.change(ctx, id, func(record *Record) error {
		if record.Epoch++; record.Epoch == 1 {
			record.Principal = made.principal
		}
		if !record.Online {
			record.LastSeen, record.Node = now, r.node
			record.Name, record.Version, record.Labels = made.name, made.version, made.labels
		}
		return nil
	})
	if err != nil {
		r.index.release(id)
		return 0, err
	}
	made.epoch, made.until = record.Epoch, now.Add(r.limits.URLLifetime)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(id, now)
	waiting := append(r.pending[id], made)
	r.pending[id] = waiting[max(0, len(waiting)-DefaultRegistrationsPerID):]
	return made.epoch, nil
}

// expire forgets registrations of an executor that did not connect. mu is held.
func (r *registry) expire(id string, now time.Time) {
	kept := slices.DeleteFunc(r.pending[id], func(one registration) bool { return !now.Before(one.until) })
	if r.pending[id] = kept; len(kept) == 0 {
		delete(r.pending, id)
	}
}

// expireAll forgets all registrations that did not connect.
func (r *registry) expireAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.now()
	for id := range r.pending {
		r.expire(id, now)
	}
}

// admit sees to it that one more executor may be known. The error is a [*Refusal]
// if it may not.
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
	return fmt.Errorf("failed to make place for executor %s: %w", id, errBusy)
}

// evict deletes a record that is not in the index any more, or puts it back.
func (r *registry) evict(ctx context.Context, one *indexed) error {
	id := one.record.Executor
	err := r.presence.Delete(ctx, id, one.revision)
	switch {
	case err == nil:
		r.logger.Info("the record of an executor gave way to another", "executor", id, "principal", one.record.Principal, "last_seen", one.record.LastSeen)
		return nil
	case !errors.Is(err, ErrChanged):
		r.index.apply(Change{Record: one.record, Revision: one.revision})
		return fmt.Errorf("failed to forget executor %s: %w", id, err)
	}
	record, revision, lost := r.presence.Get(ctx, id)
	if lost != nil {
		return fmt.Errorf("failed to look up executor %s: %w", id, lost)
	}
	if revision != 0 {
		r.index.apply(Change{Record: record, Revision: revision})
	}
	return err
}

// follow keeps the index as the presence is until ctx ends. current is called
// whenever all records are in it.
func (r *registry) follow(ctx context.Context, current func()) {
	retry := time.NewTicker(followRetry)
	defer retry.Stop()
	for ctx.Err() == nil {
		r.index.restart()
		err := r.presence.Watch(ctx, r.index.apply, func() {
			r.index.current()
			current()
		})
		if ctx.Err() != nil {
			return
		}
		r.logger.Warn("the presence of executors cannot be followed; it is tried again", "error", err.Error())
		select {
		case <-ctx.Done():
		case <-retry.C:
		}
	}
}

// followRetry is the time between attempts to follow a presence.
const followRetry = time.Second

// online reports whether an executor is connected, as far as its node said so
// lately.
func (r *registry) online(record Record) bool {
	return record.Online && r.clock.now().Sub(record.LastSeen) < presenceIntervalsUntilAbsent*r.limits.PresenceInterval
}

// connect makes the registration with that epoch the executor. It can be used
// once. The error is a [*Refusal] if it was used, has expired, or a later one has
// connected.
func (r *registry) connect(ctx context.Context, id string, epoch uint64, url string) (registration, error) {
	one, ok := r.take(id, epoch)
	if !ok {
		return registration{}, superseded(id)
	}
	_, err := r.change(ctx, id, func(record *Record) error {
		if record.Connected >= epoch {
			return superseded(id)
		}
		record.Connected, record.Online, record.Node, record.URL = epoch, true, r.node, url
		record.Principal, record.Name, record.Version, record.Labels = one.principal, one.name, one.version, one.labels
		record.LastSeen = r.clock.now()
		return nil
	})
	return one, err
}

// take takes a registration that has not connected yet.
func (r *registry) take(id string, epoch uint64) (registration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(id, r.clock.now())
	for i, one := range r.pending[id] {
		if one.epoch == epoch {
			if r.pending[id] = slices.Delete(r.pending[id], i, i+1); len(r.pending[id]) == 0 {
				delete(r.pending, id)
			}
			return one, true
		}
	}
	return registration{}, false
}

// errTakenOver means that a later registration has connected.
var errTakenOver = errors.New("a later registration has connected")

// see says that the executor of that epoch is connected, or is not any more. The
// error is errTakenOver if it is that of a later one.
func (r *registry) see(ctx context.Context, id string, epoch uint64, online bool) error {
	_, err := r.change(ctx, id, func(record *Record) error {
		if record.Connected != epoch {
			return errTakenOver
		}
		record.Online, record.LastSeen = online, r.clock.now()
		return nil
	})
	return err
}

// clean says of executors that were connected to this node before it was started
// that they are not.
func (r *registry) clean(ctx context.Context) error {
	for _, record := range r.index.all() {
		if !record.Online || record.Node != r.node {
			continue
		}
		if _, err := r.change(ctx, record.Executor, func(record *Record) error {
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
