package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// registration is an executor that may connect with an epoch.
type registration struct {
	epoch         uint64
	principal     string
	instance      string // empty of one that does not retransmit
	name, version string
	labels        map[string]string
	until         time.Time // when it may not any more
}

// registry gives out epochs and decides which of them is the executor. Of what
// several nodes have to agree on it keeps nothing itself.
type registry struct {
	presence Presence
	limits   Limits
	clock    clock
	node     string

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
		switch _, err := r.presence.Put(ctx, record, revision); {
		case err == nil:
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
	if err := r.makeRoom(ctx, id); err != nil {
		return 0, err
	}
	now := r.clock.now()
	record, err := r.change(ctx, id, func(record *Record) error {
		record.Epoch++
		if !record.Online {
			record.LastSeen, record.Node = now, r.node
			record.Name, record.Version, record.Labels = made.name, made.version, made.labels
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	made.epoch, made.until = record.Epoch, now.Add(r.limits.URLLifetime)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(now)
	waiting := append(r.pending[id], made)
	r.pending[id] = waiting[max(0, len(waiting)-DefaultRegistrationsPerID):]
	return made.epoch, nil
}

// expire forgets registrations that did not connect. mu is held.
func (r *registry) expire(now time.Time) {
	for id, waiting := range r.pending {
		kept := waiting[:0]
		for _, one := range waiting {
			if now.Before(one.until) {
				kept = append(kept, one)
			}
		}
		if r.pending[id] = kept; len(kept) == 0 {
			delete(r.pending, id)
		}
	}
}

// makeRoom sees to it that one more executor may be known.
func (r *registry) makeRoom(ctx context.Context, id string) error {
	_, revision, err := r.presence.Get(ctx, id)
	if err != nil || revision != 0 {
		return err
	}
	known, err := r.presence.Count(ctx)
	if err != nil {
		return fmt.Errorf("failed to count executors: %w", err)
	}
	if known < r.limits.Executors {
		return nil
	}
	records, err := r.presence.List(ctx)
	if err != nil {
		return fmt.Errorf("failed to count executors: %w", err)
	}
	if len(records) < r.limits.Executors {
		return nil
	}
	if removed, err := r.prune(ctx); err != nil || len(records)-removed < r.limits.Executors {
		return err
	}
	return limitReached(codeExecutorLimit, "executors", r.limits.Executors, time.Minute)
}

// prune removes the records of executors that are away for long, and returns how
// many those were.
func (r *registry) prune(ctx context.Context) (removed int, err error) {
	records, err := r.presence.List(ctx)
	if err != nil {
		return 0, err
	}
	for _, record := range records {
		retention := r.limits.ExecutorRetention
		if record.Connected == 0 { // and who registered last may not any more
			retention = r.limits.URLLifetime
		}
		if r.online(record) || r.clock.now().Sub(record.LastSeen) < retention {
			continue
		}
		current, revision, err := r.presence.Get(ctx, record.Executor)
		if err != nil {
			return removed, err
		}
		if current.Epoch == record.Epoch && r.presence.Delete(ctx, record.Executor, revision) == nil {
			removed++
		}
	}
	return removed, nil
}

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
		record.Name, record.Version, record.Labels = one.name, one.version, one.labels
		record.LastSeen = r.clock.now()
		return nil
	})
	return one, err
}

// take takes a registration that has not connected yet.
func (r *registry) take(id string, epoch uint64) (registration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(r.clock.now())
	for i, one := range r.pending[id] {
		if one.epoch == epoch {
			r.pending[id] = append(r.pending[id][:i:i], r.pending[id][i+1:]...)
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
	records, err := r.presence.List(ctx)
	if err != nil {
		return fmt.Errorf("failed to list executors: %w", err)
	}
	for _, record := range records {
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
