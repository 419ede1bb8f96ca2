package session

import (
	"errors"

	"github.com/execwire/execwire/internal/eventlog"
)

// cursor reads one process for a feed. tryNext and notify are for one goroutine at a
// time.
type cursor struct {
	log   *eventlog.Log
	owner *eventlog.Owner

	// Used by the goroutine that reads.
	after    uint64           // seq of the last event returned, or the start
	observer *eventlog.Reader // set once the log was freed
}

// newCursor takes the ownership of a log. The cursor starts after afterSeq, or if
// that is nil after the last acknowledged event; all events up to there count as
// acknowledged. Calls for the same log must not overlap.
func newCursor(log *eventlog.Log, afterSeq *uint64) (*cursor, error) {
	if afterSeq != nil {
		owner, err := log.Own(*afterSeq)
		return &cursor{log: log, owner: owner, after: *afterSeq}, err
	}
	owner, err := log.OwnAcknowledged()
	return &cursor{log: log, owner: owner, after: log.Stats().Acknowledged}, err
}

// tryNext returns the next events, if there are any; see [eventlog.Owner]. Once the
// log was freed, because the server shuts down, it continues as an observer: it still
// delivers the end, and output that was evicted before it was read is a gap.
func (c *cursor) tryNext(maxBytes int) (batch eventlog.Batch, ok bool, err error) {
	if c.observer == nil {
		batch, ok, err = c.owner.TryNext(maxBytes)
		if errors.Is(err, eventlog.ErrFreed) {
			c.observer, err = c.log.NewReader(c.after)
		}
		if err != nil {
			return eventlog.Batch{}, false, err
		}
	}
	if c.observer != nil {
		batch, ok, err = c.observer.TryNext(maxBytes)
	}
	if n := len(batch.Events); n > 0 {
		c.after = batch.Events[n-1].Seq
	}
	return batch, ok, err
}

// notify calls ready once, when tryNext would return something; at once if it would
// now. ready is called with the lock of the log held.
func (c *cursor) notify(ready func()) {
	if c.observer != nil {
		c.observer.Notify(ready)
		return
	}
	c.owner.Notify(ready)
}
