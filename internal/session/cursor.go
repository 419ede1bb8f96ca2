package session

import (
	"context"
	"errors"

	"github.com/execwire/execwire/internal/eventlog"
)

// cursor reads one process for the one who owns it: first what was spooled and
// not acknowledged, then the log. next, tryNext and notify are for one goroutine
// at a time, the rest for any.
type cursor struct {
	log    *eventlog.Log
	owner  *eventlog.Owner
	replay *replay // nil: nothing was spooled

	spooling *backlog // of a spooler: where what it reads goes

	// Of the goroutine that reads.
	after    uint64           // the last seq that was returned, or where it began
	observer *eventlog.Reader // once the log was freed
}

// newCursor takes a log from whoever owns it. It goes on after afterSeq, or if
// that is nil after what was acknowledged last; what precedes it counts as
// acknowledged. The backlog is what was spooled, nil if nothing ever was. Nobody
// else takes the same log at the same time.
func newCursor(log *eventlog.Log, b *backlog, afterSeq *uint64) (*cursor, error) {
	if b != nil {
		if c, err := b.take(log, afterSeq); c != nil || err != nil {
			return c, err
		}
	}
	if afterSeq != nil {
		owner, err := log.Own(*afterSeq)
		return &cursor{log: log, owner: owner, after: *afterSeq}, err
	}
	owner, err := log.OwnAcknowledged()
	return &cursor{log: log, owner: owner, after: log.Stats().Acknowledged}, err
}

// newSpoolCursor takes a log for a spooler, which adds to the backlog.
func newSpoolCursor(log *eventlog.Log, b *backlog) (*cursor, error) {
	owner, err := log.OwnAcknowledged()
	if err != nil {
		return nil, err
	}
	c := &cursor{log: log, owner: owner, spooling: b}
	b.begin(c)
	return c, nil
}

// tryNext returns the next events, if there are any; see eventlog.Owner. Where
// the log was freed, because the server ends, it goes on as an observer: the end
// is told nevertheless, and what was not taken in time is a gap.
func (c *cursor) tryNext(maxBytes int) (eventlog.Batch, bool, error) {
	if c.replay != nil {
		batch, over, room, err := c.replay.tryNext(maxBytes, c)
		if err != nil || !over {
			return c.noted(batch, len(batch.Events) > 0, err)
		}
		if room == 0 {
			return eventlog.Batch{}, false, nil
		}
		if room > 0 && (maxBytes <= 0 || room < maxBytes) {
			maxBytes = room
		}
	}
	if c.observer != nil {
		return c.noted(c.observer.TryNext(maxBytes))
	}
	batch, ok, err := c.owner.TryNext(maxBytes)
	if errors.Is(err, eventlog.ErrFreed) {
		c.observer, err = c.log.NewReader(c.after)
		if err != nil {
			return eventlog.Batch{}, false, err
		}
		return c.noted(c.observer.TryNext(maxBytes))
	}
	if ok && c.replay != nil {
		c.replay.lead(batch)
	}
	return c.noted(batch, ok, err)
}

// noted remembers how far the reader is.
func (c *cursor) noted(batch eventlog.Batch, ok bool, err error) (eventlog.Batch, bool, error) {
	if n := len(batch.Events); n > 0 {
		c.after = batch.Events[n-1].Seq
	}
	return batch, ok, err
}

// next is tryNext, blocking until there is something.
func (c *cursor) next(ctx context.Context, maxBytes int) (eventlog.Batch, error) {
	if c.replay == nil {
		return c.owner.Next(ctx, maxBytes) // as a stream expects it, ErrFreed included
	}
	told := make(chan struct{}, 1)
	for {
		batch, ok, err := c.tryNext(maxBytes)
		if ok || err != nil {
			return batch, err
		}
		c.notify(func() {
			select {
			case told <- struct{}{}:
			default:
			}
		})
		select {
		case <-told:
		case <-ctx.Done():
			return eventlog.Batch{}, context.Cause(ctx)
		}
	}
}

// notify has told called once, when tryNext would return something; at once if
// it would now. It is called with locks of the log or of the spool held.
func (c *cursor) notify(told func()) {
	switch {
	case c.observer != nil:
		c.observer.Notify(told)
	case c.replay == nil || !c.replay.notify(told):
		c.owner.Notify(told)
	}
}

// acknowledge says that everything up to seq was taken.
func (c *cursor) acknowledge(seq uint64) error {
	if c.replay != nil {
		if handled, err := c.replay.acknowledge(seq, c.owner); handled {
			return err
		}
	}
	return c.owner.Acknowledge(seq)
}

// isTaken reports whether everything so far was acknowledged, or the log is
// nobody's.
func (c *cursor) isTaken() bool {
	if c.replay != nil && c.replay.isOpen() {
		return false
	}
	stats := c.log.Stats()
	return stats.Acknowledged >= stats.LastSeq || !stats.Owned
}

// release ends the cursor; see eventlog.Owner. When somebody else has taken the
// log by then it is simply forgotten.
func (c *cursor) release(hold bool) { c.owner.Release(hold) }
