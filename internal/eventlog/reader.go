package eventlog

import (
	"context"
	"io"
)

// cursor reads a log; it is part of a Reader or an Owner. Next, TryNext and Notify are
// used by one goroutine at a time.
type cursor struct {
	log    *Log
	waiter waiter

	// Guarded by log.mu.
	pos      position
	failed   error   // error of all further calls of Next
	owns     bool    // belongs to an Owner
	borrows  bool    // see Borrow
	holds    bool    // see BorrowUntilAcknowledged
	detached bool    // holds nothing and is not counted
	events   []Event // of the last batch
	pinned   []*block
	file     *fileReader // at pos, with events; nil: the next event is not in a block that was read
	notice   *waiter     // of a Notify that was not called yet
}

// Reader is an observer's cursor. Close may be called from any goroutine. A reader that
// is not used any more must be closed: it counts against Limits.MaxReaders, and its
// last batch against the memory of the log.
type Reader struct{ cursor }

// NewReader returns an observer's cursor that starts after the event afterSeq;
// 0 is the beginning. It returns ErrTooManyReaders, or ErrFutureSeq when no
// event has that seq yet.
func (l *Log) NewReader(afterSeq uint64) (*Reader, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if afterSeq > l.lastSeq() {
		return nil, errFuture(afterSeq, l.lastSeq())
	}
	if l.observers >= l.limits.MaxReaders {
		return nil, ErrTooManyReaders
	}
	l.observers++
	r := new(Reader)
	r.begin(l, afterSeq)
	return r, nil
}

func (r *cursor) begin(l *Log, afterSeq uint64) {
	r.log, r.pos = l, l.after(afterSeq)
	l.tier.users++
	r.waiter.ready = func() bool { return r.failed != nil || r.pos.next < l.records.end }
}

// Next returns the next events, at least one, and blocks until there is one. It
// returns whole events of together at most maxBytes of output, except that the first
// may be larger; a batch is never more than 64 KiB and 256 events, which is also what
// a maxBytes of 0 or less means. After the closed event it returns io.EOF, after Close
// or Release ErrClosed, to an owner that was replaced ErrReplaced, even if there are
// events, and the cause of ctx if ctx ends while there are no events. To an owner, Next
// does not acknowledge earlier batches.
func (r *cursor) Next(ctx context.Context, maxBytes int) (Batch, error) {
	for {
		batch, ok, err := r.take(maxBytes, true)
		if ok || err != nil {
			return batch, err
		}
		if err := r.log.readers.await(ctx, &r.waiter, &r.log.mu); err != nil {
			return Batch{}, err
		}
	}
}

// TryNext is Next without waiting for events: it returns false when there are none.
func (r *cursor) TryNext(maxBytes int) (Batch, bool, error) {
	return r.take(maxBytes, false)
}

// Borrow makes the Data of later batches valid only until the next Next or TryNext, or
// for as long as it is referenced if the cursor is ended before. The log then uses its
// memory again, which is much cheaper than new memory if all cursors borrow.
func (r *cursor) Borrow() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.borrows = true
}

// Notify calls ready once, as soon as Next would not block; before it returns, if
// that is so already. With it one goroutine waits for many logs. ready is called with
// the log locked: it must neither block nor use the log. A second Notify replaces the
// first, if that was not called yet.
func (r *cursor) Notify(ready func()) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.notice != nil {
		l.readers.remove(r.notice)
	}
	r.notice = &waiter{
		ready:  func() bool { return r.waiter.ready() || r.atEnd() },
		notify: func() { r.notice = nil; ready() },
	}
	l.readers.add(r.notice)
	l.readers.wake()
}

// Close ends the cursor; a pending Next returns ErrClosed. Closing twice does
// nothing.
func (r *Reader) Close() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if r.failed == nil {
		r.failed = ErrClosed
	}
	r.detach()
	r.log.settle()
}

// take returns the next batch. If there is none, it adds the reader to the waiters if
// wait is set.
func (r *cursor) take(maxBytes int, wait bool) (Batch, bool, error) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	r.releaseBatch()
	for from, cause := r.pos, Evicted; ; {
		switch {
		case r.failed != nil:
			r.detach()
			return Batch{}, false, r.failed
		case r.pos.next < l.records.end:
			if block := r.missingBlock(); block != nil {
				cause = r.load(*block, cause)
				continue // in the meantime much may have changed
			}
			if maxBytes <= 0 || maxBytes > maxBatchBytes {
				maxBytes = maxBatchBytes
			}
			return r.batch(from, cause, maxBytes), true, nil
		case l.closedSeq != 0:
			return Batch{}, false, io.EOF
		case wait:
			l.readers.add(&r.waiter)
		}
		return Batch{}, false, nil
	}
}

// atEnd reports whether the closed event was returned.
func (r *cursor) atEnd() bool { return r.log.closedSeq != 0 && r.pos.next > r.log.closedSeq }

// missingBlock returns the block of the file that has the next event; nil: it is not in the
// file, or the cursor has read the block.
func (r *cursor) missingBlock() *fileBlock {
	l := r.log
	if r.file != nil || r.pos.next >= l.records.first {
		return nil
	}
	b := l.tier.find(r.pos.next)
	if b == nil || b.next >= l.records.first || r.pos.next <= l.exitedSeq && l.exitedSeq < b.next {
		return nil
	}
	return b
}

// load reads a block of the file, and moves the cursor to its next event there. If that fails, it
// moves the cursor behind the block, or to what is still in memory. It returns why the events
// just before the cursor are missing, which before was because of cause. It unlocks the log in
// the meantime: if the block was overwritten then, it changes nothing.
func (r *cursor) load(b fileBlock, cause GapCause) GapCause {
	l := r.log
	file, seq := l.tier.file, max(r.pos.next, b.next)
	l.mu.Unlock()
	data := make([]byte, b.size)
	_, err := l.tier.files.readAt(file, data, b.offset)
	var reader *fileReader
	if err == nil {
		reader, err = newFileReader(&b, data, seq)
	}
	l.mu.Lock()
	now := l.tier.find(b.next)
	switch {
	case r.failed != nil || now == nil || now.position != b.position || now.offset != b.offset:
		return cause
	case err != nil:
		r.pos = b.end()
		if r.pos.next > l.records.first {
			r.pos = l.after(l.records.first - 1)
		}
		return ReadFailed
	case b.next > r.pos.next:
		cause = b.cause
	}
	r.file, r.pos = reader, reader.pos
	l.batchBytes += len(data)
	return cause
}

// batch is called when there is an event at or after the reader's position, in memory or in the
// block that was read. The events between from and the position are missing because of cause.
func (r *cursor) batch(from position, cause GapCause, maxBytes int) Batch {
	l := r.log
	switch {
	case r.pos.next >= l.records.first:
		r.dropFile()
	case r.file != nil:
		return Batch{Gap: r.gap(from, cause), Events: r.fillFromFile(maxBytes)}
	case r.pos.next <= l.exitedSeq && l.exitedSeq < l.records.first:
		// Output was evicted. An exit between evicted events is delivered in its place,
		// with a gap before and after it.
		r.pos = position{next: l.exitedSeq, before: l.evictedExit.before}
		gap := r.gap(from, cause)
		r.pos.next++
		r.add(Event{Seq: l.exitedSeq, Kind: Exited})
		return Batch{Gap: gap, Events: r.events}
	default:
		r.pos, cause = l.after(l.records.first-1), l.tier.lost
	}
	gap := r.gap(from, cause)
	return Batch{Gap: gap, Events: r.fill(maxBytes)}
}

// gap returns the gap from a position to that of the cursor; nil if nothing is missing.
func (r *cursor) gap(from position, cause GapCause) *Gap {
	if from.next == r.pos.next {
		return nil
	}
	return &Gap{
		FirstAvailableSeq: r.pos.next,
		DroppedBytes:      r.pos.before - from.before,
		Inexact:           from.inexact,
		Cause:             cause,
	}
}

// fillFromFile takes events of the block that was read until a limit of the batch is reached.
func (r *cursor) fillFromFile(maxBytes int) []Event {
	for bytes := 0; r.file.events > 0 && len(r.events) < maxBatchEvents; {
		bytes += r.file.size()
		if len(r.events) > 0 && bytes > maxBytes {
			break
		}
		e, err := r.file.next()
		if err != nil {
			panic(err) // it was read before
		}
		r.add(e)
	}
	r.pos = r.file.pos
	if r.file.events == 0 {
		r.dropFile()
	}
	return r.events
}

// dropFile drops the block that was read.
func (r *cursor) dropFile() {
	if r.file != nil {
		r.log.batchBytes -= len(r.file.data)
		r.file = nil
	}
}

// fill takes retained events until a limit of the batch is reached.
func (r *cursor) fill(maxBytes int) []Event {
	l := r.log
	l.blocks.batches++
	bytes, pinned := 0, 0
	for r.pos.next < l.records.end && len(r.events) < maxBatchEvents {
		rec := l.records.at(r.pos.next)
		bytes += int(rec.n)
		if len(r.events) > 0 && bytes > maxBytes {
			break
		}
		if b := rec.blk; b != nil && b.batch != l.blocks.batches {
			pinned += len(b.buf)
			if len(r.events) > 0 && pinned > batchBlocks*l.limits.largestBlock() {
				break
			}
			b.batch = l.blocks.batches
			b.pins++
			b.shared = b.shared || !r.borrows && !(r.holds && l.window.protects(r.pos.next))
			r.pinned = append(r.pinned, b)
		}
		r.add(rec.event(r.pos.next))
		r.pos.next++
		r.pos.before += uint64(rec.n)
	}
	return r.events
}

func (r *cursor) add(e Event) {
	size := cap(r.events)
	if len(r.events) == size {
		grown := make([]Event, len(r.events), min(max(4, 4*size), maxBatchEvents))
		copy(grown, r.events)
		r.events = grown
	}
	r.events = append(r.events, e)
	r.log.batchBytes += (cap(r.events) - size) * eventBytes
}

// releaseBatch unpins the blocks of the last batch.
func (r *cursor) releaseBatch() {
	for _, b := range r.pinned {
		r.log.blocks.unpin(b)
	}
	clear(r.pinned)
	r.pinned = r.pinned[:0]
	clear(r.events)
	r.events = r.events[:0]
}

// detach removes the reader from all counts.
func (r *cursor) detach() {
	if r.detached {
		return
	}
	r.detached = true
	for _, b := range r.pinned {
		b.shared = true // the user may still read the batch
		r.log.blocks.unpin(b)
	}
	r.dropFile()
	r.log.batchBytes -= cap(r.events) * eventBytes
	r.pinned, r.events = nil, nil
	if r.owns {
		r.log.owners--
	} else {
		r.log.observers--
	}
	r.log.tier.release()
}
