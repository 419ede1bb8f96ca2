package session

import (
	"errors"

	"github.com/execwire/execwire/internal/eventlog"
)

// What one look into the spool reads, at most: a batch with its headers, and so
// at least one record.
const (
	replayBytes  = 72 << 10
	replayOutput = 64 << 10
	replayEvents = 256
)

// replay reads a backlog for whoever owns the process now. Until all of it is
// acknowledged it counts what was returned and not acknowledged, that of the log
// included, which must not be more than a window; only an event of the log that
// is larger than what is left of it may exceed it.
type replay struct {
	backlog *backlog
	limits  eventlog.Limits

	// Guarded by spool.mu.
	place      int64         // of the next record
	gap        *eventlog.Gap // precedes the next event
	marks      []mark        // what was returned and not acknowledged, in order
	openBytes  int           // of it
	openEvents int
	need       int    // bytes of the next event, if the window had no room for it
	notice     func() // to be told when there is something
}

// mark is one batch that was returned.
type mark struct {
	seq    uint64 // of its last event
	place  int64  // after it
	passed uint64 // output bytes of the backlog up to place, from the mark before
	bytes  int
	events int
}

// fits reports whether the window has room for an event of n bytes.
func (r *replay) fits(n int) bool {
	return r.openEvents == 0 || r.openBytes+n <= r.limits.WindowBytes && r.openEvents < r.limits.RetainedEvents
}

// room is how many bytes of the log may be returned: -1 for any number, once the
// backlog is empty. spool.mu is held.
func (r *replay) room() int {
	b := r.backlog
	switch {
	case b.reader != r || b.tail == b.end:
		return -1
	case r.openEvents >= r.limits.RetainedEvents:
		return 0
	}
	return max(r.limits.WindowBytes-r.openBytes, 0)
}

// isOver reports whether nothing more comes of the backlog. spool.mu is held.
func (r *replay) isOver() bool {
	b := r.backlog
	r.place = max(r.place, b.tail)
	return b.reader != r || r.place >= b.end
}

// tryNext returns the next events of the backlog, if the window has room. over
// says that there are none left, and room what may be returned of the log. It
// blocks on the disk. What cannot be read is left to the log, of which c is the
// cursor: it still has the end of it, and tells what is missing.
func (r *replay) tryNext(maxBytes int, c *cursor) (batch eventlog.Batch, over bool, room int, err error) {
	b := r.backlog
	if maxBytes <= 0 || maxBytes > replayOutput {
		maxBytes = replayOutput
	}
	b.spool.mu.Lock()
	if r.isOver() || !r.fits(r.need) {
		defer b.spool.mu.Unlock()
		return batch, r.isOver(), r.room(), nil
	}
	place := r.place
	n := min(b.end-place, replayBytes)
	blocks, skip := b.stretch(place, n)
	b.spool.mu.Unlock()

	data := make([]byte, n)
	failed := b.spool.readAt(blocks, skip, data)

	b.spool.mu.Lock()
	if r.isOver() || r.place != place { // taken, or taken away, in the meantime
		defer b.spool.mu.Unlock()
		return batch, r.isOver(), r.room(), nil
	}
	var unused []uint32
	if failed != nil {
		// Of a log that was freed c learns from the log itself.
		if err = c.owner.Rewind(c.after); err == nil || errors.Is(err, eventlog.ErrFreed) {
			unused, err = r.empty(), nil
		}
	} else {
		batch = r.decode(data, maxBytes)
		unused = r.settle()
	}
	b.spool.mu.Unlock()
	b.spool.give(unused)
	return batch, false, 0, err
}

// empty forgets all of the backlog. The caller gives the blocks back. spool.mu
// is held.
func (r *replay) empty() (unused []uint32) {
	r.marks, r.openBytes, r.openEvents = nil, 0, 0
	return r.backlog.drop()
}

// decode returns what of data fits into a batch and the window, and moves on.
// spool.mu is held.
func (r *replay) decode(data []byte, maxBytes int) (batch eventlog.Batch) {
	b := r.backlog
	m := mark{place: r.place}
	var found *eventlog.Gap // recorded just before the event at hand
	headers := 0            // of such records
	for r.need = 0; len(batch.Events) < replayEvents; {
		rec, ok := decodeRecord(data)
		if !ok {
			break
		}
		data = data[rec.size:]
		if rec.gap != nil {
			if found = rec.gap; len(batch.Events) > 0 {
				break
			}
			headers += rec.size
			continue
		}
		n := len(rec.event.Data)
		if rec.event.Seq <= b.acked { // of a batch that was taken in part
			if r.gap != nil {
				r.gap.DroppedBytes += uint64(n)
			}
		} else if !r.mayAdd(m, n, maxBytes) {
			break
		} else {
			batch.Gap = joinGaps(batch.Gap, joinGaps(r.gap, found))
			batch.Events = append(batch.Events, rec.event)
			m.bytes += n
			m.events++
			r.gap = nil
		}
		m.seq = rec.event.Seq
		m.passed += uint64(n)
		m.place += int64(headers + rec.size)
		found, headers = nil, 0
	}
	if batch.Gap != nil {
		batch.Gap.FirstAvailableSeq = batch.Events[0].Seq
	}
	r.push(m)
	return batch
}

// mayAdd reports whether an event of n bytes may join the batch so far.
func (r *replay) mayAdd(m mark, n, maxBytes int) bool {
	if m.events > 0 && m.bytes+n > maxBytes {
		return false
	}
	open, events := r.openBytes+m.bytes, r.openEvents+m.events
	if events == 0 || open+n <= r.limits.WindowBytes && events < r.limits.RetainedEvents {
		return true
	}
	r.need = n
	return false
}

// joinGaps returns one gap for two in a row, but for what follows it.
func joinGaps(a, b *eventlog.Gap) *eventlog.Gap {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	return &eventlog.Gap{DroppedBytes: a.DroppedBytes + b.DroppedBytes, Inexact: a.Inexact || b.Inexact}
}

// push notes what was returned. spool.mu is held.
func (r *replay) push(m mark) {
	if m.place == r.place && m.events == 0 {
		return
	}
	r.place = m.place
	r.openBytes += m.bytes
	r.openEvents += m.events
	r.marks = append(r.marks, m)
}

// settle forgets what was acknowledged. The caller gives the blocks back.
// spool.mu is held.
func (r *replay) settle() (unused []uint32) {
	b := r.backlog
	n := 0
	for ; n < len(r.marks) && r.marks[n].seq <= b.acked; n++ {
		m := r.marks[n]
		r.openBytes -= m.bytes
		r.openEvents -= m.events
		b.tail = max(b.tail, m.place)
		b.taken += m.passed
		b.bytes -= m.passed
	}
	if r.marks = r.marks[n:]; len(r.marks) == 0 {
		r.marks = nil
	}
	return b.trim()
}

// isOpen reports whether something of the backlog was not acknowledged.
func (r *replay) isOpen() bool {
	b := r.backlog
	b.spool.mu.Lock()
	defer b.spool.mu.Unlock()
	return b.reader == r && b.tail < b.end
}

// lead notes what was returned of the log while not all of the backlog is
// acknowledged.
func (r *replay) lead(batch eventlog.Batch) {
	b := r.backlog
	b.spool.mu.Lock()
	defer b.spool.mu.Unlock()
	if b.reader != r || b.tail == b.end || len(batch.Events) == 0 {
		return
	}
	m := mark{seq: batch.Events[len(batch.Events)-1].Seq, place: r.place, events: len(batch.Events)}
	for _, e := range batch.Events {
		m.bytes += len(e.Data)
	}
	r.push(m)
}

// acknowledge does it for a seq of the backlog, or for one after it, which
// empties the backlog. It reports false when that is empty already or somebody
// else's.
func (r *replay) acknowledge(seq uint64, owner *eventlog.Owner) (handled bool, err error) {
	b := r.backlog
	b.spool.mu.Lock()
	if b.reader != r || b.tail == b.end {
		b.spool.mu.Unlock()
		return false, nil
	}
	var unused []uint32
	if seq < b.last {
		b.acked = max(b.acked, seq)
		unused = r.settle()
	} else if err = owner.Acknowledge(seq); err == nil {
		unused = r.empty()
	}
	if r.notice != nil && (r.isOver() && r.room() != 0 || !r.isOver() && r.fits(r.need)) {
		r.tell()
	}
	b.spool.mu.Unlock()
	b.spool.give(unused)
	return true, err
}

// notify has told called once, when there is something of the backlog or, after
// it, room for something of the log. It reports false if it is only the log that
// has to be waited for.
func (r *replay) notify(told func()) bool {
	b := r.backlog
	b.spool.mu.Lock()
	defer b.spool.mu.Unlock()
	if r.isOver() && r.room() != 0 {
		return false
	}
	r.notice = told
	if !r.isOver() && r.fits(r.need) {
		r.tell()
	}
	return true
}

// tell calls the notice, if there is one. spool.mu is held.
func (r *replay) tell() {
	if told := r.notice; told != nil {
		r.notice = nil
		told()
	}
}
