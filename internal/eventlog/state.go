package eventlog

import (
	"bytes"
	"fmt"
	"os"
)

// State is the content of a log, from which [Files.Restore] makes an equal one in another
// program. It does not include cursors.
type State struct {
	// Limits are those of the log. Held has no meaning.
	Limits Limits
	// Events are the retained events, consecutive in Seq and up to the last one. Their
	// Data aliases the log that they were taken from.
	Events []Event
	// EvictedExit is the seq of the exited event if it is not among Events; 0: it is, or
	// there is none. EvictedExitBytes are the output bytes of all streams before it.
	EvictedExit, EvictedExitBytes uint64
	// Streams are the streams that were used, each once.
	Streams []StreamState
	// Held is set while unacknowledged output is not evicted.
	Held bool
	// Acknowledged is the last acknowledged seq; 0: none. AcknowledgedBytes are the output
	// bytes of all streams up to it, of which Inexact makes a lower bound.
	Acknowledged, AcknowledgedBytes uint64
	Inexact                         bool
	// File is the second tier; nil: the log has no file.
	File *FileState
}

// FileState is the second tier of a log: output in a file.
type FileState struct {
	// File is the open file, which has no name.
	File *os.File
	// Size are the bytes that are counted for the file. The next block follows RingEnd.
	Size, RingEnd int64
	// Blocks are what it has, ordered by FirstSeq.
	Blocks []FileBlock
	// Next is the seq of the first event that was not offered to the file, and NextBytes are the
	// output bytes of all streams before it. Lost is why those before it are missing, if they are.
	Next, NextBytes uint64
	Lost            GapCause
}

// FileBlock is a block of output in a file.
type FileBlock struct {
	// FirstSeq is the seq of the first event, and BytesBefore are the output bytes of all streams
	// before it.
	FirstSeq, BytesBefore uint64
	Events, Bytes         uint64 // bytes of output
	Offset, Size          int64  // in the file
	// Cause is why the events just before the block are missing, if they are.
	Cause GapCause
}

// StreamState is a stream of a State: what is not part of the retained events.
type StreamState struct {
	// Stream is which one it is.
	Stream Stream
	// Total are the bytes of the stream, ever.
	Total uint64
	// Head and Tail are the parts of the snapshot, see [Log.Snapshot], that were evicted.
	Head, Tail []byte
}

// State returns the content of the log. An owner counts as released with hold, unless the
// log was freed. It waits for the disk.
func (l *Log) State() *State {
	l.tier.writing.Lock()
	defer l.tier.writing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	state := &State{
		Limits: l.limits, Held: l.window.paced, Acknowledged: l.window.acked.next - 1,
		AcknowledgedBytes: l.window.acked.before, Inexact: l.window.acked.inexact,
	}
	if l.exitedSeq < l.records.first {
		state.EvictedExit, state.EvictedExitBytes = l.exitedSeq, l.evictedExit.before
	}
	var retained [streamEnd]uint64
	for seq := l.records.first; seq < l.records.end; seq++ {
		event := l.records.at(seq).share(seq)
		retained[event.Stream] += uint64(len(event.Data))
		state.Events = append(state.Events, event)
	}
	for _, s := range l.streams {
		if s != nil {
			state.Streams = append(state.Streams, l.tier.loaded(s).state(retained[s.id], l.limits.SnapshotBytes))
		}
	}
	if l.tier.file != nil {
		state.File = l.tier.state()
	}
	return state
}

// state returns the state of a tier with a file. Log.mu is held.
func (t *fileTier) state() *FileState {
	state := &FileState{File: t.file, Size: t.size, RingEnd: t.ringEnd, Next: t.next.next, NextBytes: t.next.before, Lost: t.lost}
	for _, b := range t.blocks {
		state.Blocks = append(state.Blocks, FileBlock{
			FirstSeq: b.next, BytesBefore: b.before, Events: b.events, Bytes: b.bytes, Offset: b.offset, Size: b.size, Cause: b.cause,
		})
	}
	return state
}

// restore makes the tier that of a state. The log has the events in memory.
func (t *fileTier) restore(state *FileState, end uint64) error {
	t.file, t.size, t.ringEnd = state.File, state.Size, state.RingEnd
	t.next, t.lost = position{next: state.Next, before: state.NextBytes}, state.Lost
	if t.next.next > end || t.ringEnd > t.size || t.size < 0 {
		return fmt.Errorf("its file of %d bytes ends at %d, before event %d of %d", t.size, t.ringEnd, t.next.next, end)
	}
	last := position{next: 1}
	for _, b := range state.Blocks {
		block := fileBlock{
			position: position{next: b.FirstSeq, before: b.BytesBefore}, events: b.Events, bytes: b.Bytes, offset: b.Offset, size: b.Size, cause: b.Cause,
		}
		if block.next < last.next || block.before < last.before || block.events == 0 || block.end().next > t.next.next ||
			b.Offset < 0 || b.Size <= 0 || b.Size > maxFileBlock || b.Offset > t.size-b.Size {
			return fmt.Errorf("a block of its file cannot be %+v", b)
		}
		last = block.end()
		t.blocks = append(t.blocks, block)
		t.bytes += block.bytes
	}
	return nil
}

// state returns the state of a stream with the given number of retained bytes.
func (s *stream) state(retained uint64, snapshot int) StreamState {
	evicted := s.total - retained
	state := StreamState{Stream: s.id, Total: s.total}
	state.Head = joinSpans(s.head)
	state.Head = state.Head[:min(uint64(len(state.Head)), evicted)]
	if retained < uint64(snapshot) {
		tail := joinSpans(s.tail)
		tail = tail[max(0, len(tail)-snapshot):]
		state.Tail = tail[:max(0, len(tail)-int(retained))]
	}
	return state
}

func joinSpans(spans []span) []byte {
	parts := make([][]byte, len(spans))
	for i, p := range spans {
		parts[i] = p.bytes()
	}
	return bytes.Join(parts, nil)
}

// Restore returns a log with the content of a state, without cursors. It copies all data in
// memory. It fails if the state is not that of a log. The log owns the file of the state, unless it fails.
func (f *Files) Restore(state *State) (*Log, error) {
	if f == nil && state.File != nil {
		f = NewFiles("", nil)
	}
	l := f.New(state.Limits)
	l.window.paced = false
	l.exitedSeq, l.evictedExit = state.EvictedExit, record{kind: Exited, before: state.EvictedExitBytes}
	err := l.restore(state)
	if err == nil && state.File != nil {
		err = l.tier.restore(state.File, l.records.end)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to restore an event log: %w", err)
	}
	if state.File != nil {
		f.count(1, l.tier.size)
	}
	l.window.acked = position{next: state.Acknowledged + 1, before: state.AcknowledgedBytes, inexact: state.Inexact}
	if state.Held {
		l.window.start(l.window.acked)
	}
	l.settle()
	return l, nil
}

func (m *memoryTier) restore(state *State) error {
	runs := runsOf(state.Events, m.limits.largestBlock())
	closed := len(state.Events) > 0 && state.Events[len(state.Events)-1].Kind == Closed
	for _, saved := range state.Streams {
		if saved.Stream == 0 || saved.Stream >= streamEnd || m.streams[saved.Stream] != nil {
			return fmt.Errorf("%v is unknown or occurs twice", saved.Stream)
		}
		retained := uint64(0)
		for _, n := range runs[saved.Stream] {
			retained += uint64(n)
		}
		if err := m.stream(saved.Stream).restoreEvicted(&m.blocks, saved, retained, m.limits.SnapshotBytes, closed); err != nil {
			return err
		}
		m.totalBytes += saved.Total - retained
	}
	for i, e := range state.Events {
		if i == 0 {
			m.records.first, m.records.end = e.Seq, e.Seq
		}
		if e.Seq == 0 || e.Seq != m.records.end {
			return fmt.Errorf("event %d follows event %d", e.Seq, m.lastSeq())
		}
		if err := m.restoreEvent(e, &runs[e.Stream%streamEnd]); err != nil {
			return err
		}
	}
	for _, s := range m.streams {
		if s != nil {
			s.dropBlock(&m.blocks)
		}
	}
	if state.Acknowledged > m.lastSeq() {
		return errFuture(state.Acknowledged, m.lastSeq())
	}
	return nil
}

// restoreEvicted restores what a stream has beside its retained events. The ends of one of a
// closed log may be missing, because its file could not be read.
func (s *stream) restoreEvicted(a *blocks, saved StreamState, retained uint64, snapshot int, closed bool) error {
	evicted := saved.Total - retained
	missing := closed && len(saved.Head)+len(saved.Tail) == 0
	if saved.Total < retained || uint64(len(saved.Head)) != min(evicted, uint64(snapshot)) && !missing ||
		uint64(len(saved.Tail)) > evicted || uint64(len(saved.Tail))+retained < min(saved.Total, uint64(snapshot)) && !missing {
		return fmt.Errorf("%v has %d bytes in all, %d retained and %d and %d of its ends", s.id, saved.Total, retained, len(saved.Head), len(saved.Tail))
	}
	s.total = evicted
	s.head, s.headBytes = a.copySpan(saved.Head), len(saved.Head)
	s.tail, s.tailBytes = a.copySpan(saved.Tail), len(saved.Tail)
	return nil
}

// copySpan copies data into a block that the result keeps alive.
func (a *blocks) copySpan(data []byte) []span {
	if len(data) == 0 {
		return nil
	}
	b := a.alloc(len(data))
	b.used = copy(b.buf, data)
	return []span{{b, 0, b.used}}
}

// runsOf divides the output of each stream into runs of whole events, each of at most the
// size of a block, or one event. A run fills its block, which keeps the bound of memory.
func runsOf(events []Event, block int) (runs [streamEnd][]int) {
	for _, e := range events {
		if e.Kind != Output || e.Stream >= streamEnd {
			continue
		}
		of := &runs[e.Stream]
		if last := len(*of) - 1; last >= 0 && (*of)[last]+len(e.Data) <= block {
			(*of)[last] += len(e.Data)
		} else {
			*of = append(*of, len(e.Data))
		}
	}
	return runs
}

// restoreEvent appends an event. The first of runs is the size of the next block of its
// stream.
func (m *memoryTier) restoreEvent(e Event, runs *[]int) error {
	var s *stream
	if e.Stream < streamEnd {
		s = m.streams[e.Stream]
	}
	switch {
	case m.closedSeq != 0:
	case e.Kind == Exited && m.exitedSeq == 0:
		m.exitedSeq = m.push(record{kind: Exited, before: m.totalBytes})
		return nil
	case e.Kind == Closed && m.exitedSeq != 0:
		m.closedSeq = m.push(record{kind: Closed, before: m.totalBytes})
		m.blocks.dropSpare()
		return nil
	case e.Kind == Output && s != nil && e.Offset == s.total && e.UnixNano >= m.time && 0 < len(e.Data) && len(e.Data) <= MaxChunkBytes:
		if s.cur == nil || s.cur.free() == 0 {
			s.dropBlock(&m.blocks)
			s.cur = m.blocks.alloc((*runs)[0])
			*runs = (*runs)[1:]
		}
		start := s.cur.used
		s.cur.used += copy(s.cur.buf[start:], e.Data)
		m.time = e.UnixNano
		m.appendOutput(s, s.cur, start, len(e.Data))
		return nil
	}
	return fmt.Errorf("event %d cannot be %v of %d bytes at %d of %v", e.Seq, e.Kind, len(e.Data), e.Offset, e.Stream)
}

// ReleasedOwner returns an owner whose ownership has ended as by Release.
func (l *Log) ReleasedOwner() *Owner {
	return &Owner{cursor{log: l, owns: true, failed: ErrClosed, detached: true}}
}
