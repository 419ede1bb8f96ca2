package eventlog

import (
	"context"
	"time"
)

// Writer appends the output of one stream. It is used by one goroutine at a
// time; writers of different streams are independent.
type Writer struct {
	log    *Log
	waiter waiter

	// Guarded by log.mu.
	stream *stream
	closed bool
}

// Writer returns the stream's writer, the same one on every call. Until it is closed,
// a part of an owner's window is reserved for its stream.
func (l *Log) Writer(id Stream) *Writer {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stream(id)
	if s.writer == nil {
		s.writer = &Writer{log: l, stream: s}
		s.writer.waiter.ready = func() bool { return l.window.hasSpace(s) }
		l.window.openWriters++
	}
	return s.writer
}

// Buffer returns free space of the log to read output into, for the Commit that
// follows. The buffer of an earlier call must not be used any more. It never blocks.
// It returns nil when the owner's window is used up, that is, when less than 4 KiB of
// it (or a quarter of a smaller window) are free for this stream, or when output has to be
// written to the file first, which WaitSpace does. The space is at
// most two chunks, and as small as 512 bytes until reads fill it: blocks grow from 4
// to 64 KiB. It is never more than a quarter of the window, owned or not: the buffer
// in which one stream waits for its next byte must not use up the window of the
// others. It panics after AppendClosed.
func (w *Writer) Buffer() []byte {
	l, s := w.log, w.stream
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closedSeq != 0 || w.closed {
		panic("eventlog: buffer for " + s.id.String() + " after its end")
	}
	l.window.reserve(s, -s.reservedBytes, -s.reservedEvents)
	if !l.window.hasSpace(s) || l.spillDue() {
		l.settle()
		return nil
	}
	b := s.currentBlock(&l.blocks, l.limits.largestBlock())
	bytes, events := l.window.space(s)
	chunk := l.limits.chunkBytes()
	n := min(b.free(), bytes, min(events, 2)*chunk, l.limits.WindowBytes/4)
	l.window.reserve(s, n, (n+chunk-1)/chunk)
	return b.buf[b.used : b.used+n : b.used+n]
}

// Commit turns the first n bytes of the last Buffer, read at a time, into output events
// of at most MaxChunkBytes each. If the time is before that of the last output of any
// stream, because the clock was set back or another stream committed first, they get
// that one. A commit of 0 only returns the space. It panics when n is larger than the
// buffer, and for any output after AppendClosed.
func (w *Writer) Commit(n int, at time.Time) {
	l, s := w.log, w.stream
	l.mu.Lock()
	defer l.mu.Unlock()
	size := s.reservedBytes
	if n < 0 || n > size {
		panic("eventlog: commit of more than the buffer of " + s.id.String())
	}
	l.window.reserve(s, -size, -s.reservedEvents)
	if n > 0 && l.closedSeq != 0 {
		panic("eventlog: appended after closed")
	}
	if n > 0 {
		l.time = max(l.time, at.UnixNano())
	}
	for left := n; left > 0; {
		chunk := min(left, l.limits.chunkBytes())
		l.appendOutput(s, s.cur, s.cur.used, chunk)
		if l.window.paced {
			l.window.countUnacked(s, chunk, 1)
		}
		s.cur.used += chunk
		left -= chunk
	}
	if n > 0 {
		s.grow(n, size, l.limits.largestBlock())
	} else if s.total == 0 {
		s.dropBlock(&l.blocks) // a stream without output costs nothing
	}
	l.settle()
}

// WaitSpace blocks until Buffer would not return nil. It writes output to the file of the log
// if it has to. It returns the cause of ctx when that is done while it waits for the owner.
func (w *Writer) WaitSpace(ctx context.Context) error {
	l := w.log
	for {
		l.spill()
		l.mu.Lock()
		if l.window.hasSpace(w.stream) {
			l.mu.Unlock()
			return nil
		}
		l.writers.add(&w.waiter)
		l.mu.Unlock()
		if err := l.writers.await(ctx, &w.waiter, &l.mu); err != nil {
			return err
		}
	}
}

// Close returns an outstanding buffer and gives the stream's part of the window to
// the other streams. It is optional, for a stream that ends before others. Buffer
// must not be called afterwards; closing twice does nothing.
func (w *Writer) Close() {
	l := w.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.closed {
		return
	}
	w.closed = true
	l.window.openWriters--
	l.window.reserve(w.stream, -w.stream.reservedBytes, -w.stream.reservedEvents)
	l.settle()
}
