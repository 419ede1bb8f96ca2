package eventlog

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// machine applies the same random operations to a log and its model.
type machine struct {
	log     *Log
	limits  Limits
	model   modelLog
	writers [streamEnd]*Writer
	buffers [streamEnd][]byte
	counter byte
	clock   int64 // ns; it may be set back

	owner     *Owner
	ownerView *modelCursor
	acked     uint64
	held      bool
	freed     bool // the owner was freed
	replaced  []*Owner
	observers []*observer

	files    *Files // nil: the log has no second tier
	noWrites error  // of files
	noReads  error
	gaps     int  // by failed reads
	offloads bool // a log was offloaded
	noEnds   bool // a state could not include the ends of streams
	mayLose  bool
	maxAcked uint64

	kept     []Event            // their Data is valid for as long as it is referenced
	borrowed map[nexter][]Event // the last batches of cursors that borrow
	lent     []Event            // of an owner that borrows until it acknowledges

	excess  int // bytes above the window that the writers did not cause
	ignored int // bytes and blocks of Append while paced
}

type observer struct {
	reader *Reader
	view   *modelCursor
}

func TestLog_MatchesModel(t *testing.T) {
	directory := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t, directory)
		defer m.discard(t)
		t.Repeat(m.actions(map[string]func(*rapid.T){
			"buffer": m.buffer,
			"commit": m.commit,
			"flood":  m.flood,
			"drip":   m.drip,
			"append": m.append,
			"exit":   m.exit,
			"stale":  m.stale,
		}))
		m.finish(t)
	})
}

// A closed log is offloaded at any time between what readers, owners and upgrades do.
func TestClosedLog_MatchesModel(t *testing.T) {
	directory := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t, directory)
		defer m.discard(t)
		for range rapid.IntRange(0, 8).Draw(t, "writes") {
			rapid.SampledFrom([]func(*rapid.T){m.flood, m.drip, m.disk}).Draw(t, "write")(t)
		}
		m.end()
		if rapid.Bool().Draw(t, "written after the exit") {
			m.flood(t)
		}
		m.end()
		t.Repeat(m.actions(map[string]func(*rapid.T){"offload": m.offload}))
		m.finish(t)
	})
}

// actions adds what readers and owners do, upgrades and failures of the disk.
func (m *machine) actions(of map[string]func(*rapid.T)) map[string]func(*rapid.T) {
	maps.Copy(of, map[string]func(*rapid.T){
		"":         m.check,
		"own":      m.own,
		"ownNext":  m.ownNext,
		"ownAck":   m.ownAck,
		"release":  m.release,
		"free":     m.free,
		"observe":  m.observe,
		"read":     m.read,
		"unwatch":  m.unwatch,
		"snapshot": m.snapshot,
		"restore":  m.restore,
		"disk":     m.disk,
	})
	return of
}

func newMachine(t *rapid.T, directory string) *machine {
	limits := Limits{
		RetainedBytes:  rapid.SampledFrom([]int{256, 300, 1000, 4096, 20_000}).Draw(t, "retained"),
		RetainedEvents: rapid.SampledFrom([]int{8, 9, 100, 1000}).Draw(t, "events"),
		WindowBytes:    rapid.SampledFrom([]int{0, 16, 63, 200, 5000}).Draw(t, "window"),
		SnapshotBytes:  rapid.SampledFrom([]int{1, 10, 100, 500}).Draw(t, "snapshot"),
		MaxReaders:     3,
		Held:           rapid.Bool().Draw(t, "held"),
	}
	m := &machine{held: limits.Held, borrowed: map[nexter][]Event{}}
	if size := rapid.SampledFrom([]int64{0, 500, 3000, 1 << 20}).Draw(t, "file"); size > 0 {
		m.useFiles(directory, size, rapid.SampledFrom([]int64{size, size / 2, 10 * size}).Draw(t, "files"))
	}
	m.log = m.files.New(limits)
	m.ownerView = m.view(nil, 0)
	m.ownerView.mayMiss = 1
	m.limits = m.log.Limits()
	ids := []Stream{Stdout, Stderr, Terminal}
	for _, id := range ids[:rapid.IntRange(1, 3).Draw(t, "streams")] {
		m.writers[id] = m.log.Writer(id)
	}
	return m
}

// useFiles gives the log a second tier, whose disk fails when the machine says so.
func (m *machine) useFiles(directory string, perLog, total int64) {
	m.files = NewFiles(directory, nil)
	m.files.SetLimits(perLog, total)
	m.files.writeAt = func(f *os.File, data []byte, offset int64) (int, error) {
		if m.noWrites != nil {
			n, _ := f.WriteAt(data[:len(data)/2], offset)
			return n, m.noWrites
		}
		return f.WriteAt(data, offset)
	}
	m.files.readAt = func(f *os.File, data []byte, offset int64) (int, error) {
		if m.noReads != nil {
			m.gaps++
			return 0, m.noReads
		}
		return f.ReadAt(data, offset)
	}
}

// view returns the view of a cursor after a seq.
func (m *machine) view(c nexter, after uint64) *modelCursor {
	return &modelCursor{log: &m.model, machine: m, cursor: c, next: after + 1, fresh: true}
}

// disk breaks or repairs the disk.
func (m *machine) disk(t *rapid.T) {
	if m.files == nil {
		return
	}
	broken := []error{nil, nil, nil, nil, syscall.EIO, syscall.ENOSPC}
	m.noWrites = rapid.SampledFrom(broken).Draw(t, "writes")
	m.noReads = rapid.SampledFrom(broken).Draw(t, "reads")
	m.mayLose = m.mayLose || m.noWrites != nil
}

// discard ends all cursors and checks that nothing remains on the disk.
func (m *machine) discard(t *rapid.T) {
	file := m.log.tier.file
	m.log.Discard()
	for _, o := range m.observers {
		o.reader.Close()
	}
	for _, o := range append(m.replaced, m.owner) {
		if o != nil {
			o.Release(false)
		}
	}
	if s := m.files.Stats(); s.Open != 0 || s.Bytes != 0 {
		t.Fatalf("%d files of %d bytes remain", s.Open, s.Bytes)
	}
	if file != nil && file.Close() == nil {
		t.Fatal("the file was not closed")
	}
}

// rarely skips most calls of an action that would end the run early.
func rarely(t *rapid.T, of int) {
	if rapid.IntRange(1, of).Draw(t, "rarely") != of/2 {
		t.Skip("skipped at random")
	}
}

func (m *machine) paced() bool  { return m.owner != nil && !m.freed || m.held }
func (m *machine) closed() bool { return m.model.seqOf(Closed) != 0 }

func (m *machine) anyWriter(t *rapid.T) Stream {
	var ids []Stream
	for id, w := range m.writers {
		if w != nil {
			ids = append(ids, Stream(id))
		}
	}
	if m.closed() || len(ids) == 0 {
		t.Skip("closed")
	}
	return rapid.SampledFrom(ids).Draw(t, "stream")
}

// nextBytes fills b with the next bytes; each differs from its neighbours.
func (m *machine) nextBytes(b []byte) {
	for i := range b {
		m.counter++
		b[i] = m.counter
	}
}

// tick changes the clock.
func (m *machine) tick(t *rapid.T) { m.clock += rapid.Int64Range(-5, 10).Draw(t, "tick") }

// commitAt reads data into the buffer of a stream, at the time of the clock.
func (m *machine) commitAt(id Stream, data []byte) {
	m.nextBytes(data)
	if len(data) > 0 {
		m.model.time = max(m.model.time, m.clock)
	}
	m.record(id, data)
	m.writers[id].Commit(len(data), time.Unix(0, m.clock))
}

// record adds output to the model, in the same chunks as the log.
func (m *machine) record(id Stream, data []byte) {
	for len(data) > 0 {
		n := min(len(data), m.limits.chunkBytes())
		m.model.add(Event{Kind: Output, Stream: id, Data: bytes.Clone(data[:n])})
		data = data[n:]
	}
}

func (m *machine) buffer(t *rapid.T) {
	id := m.anyWriter(t)
	m.log.spill()
	buf := m.writers[id].Buffer()
	if buf != nil && len(buf) == 0 {
		t.Fatal("an empty buffer")
	}
	if buf == nil && (!m.paced() || m.entitled(id)) {
		t.Fatalf("%v got no buffer, paced %v", id, m.paced())
	}
	m.buffers[id] = buf
}

// entitled reports whether a stream must get a buffer independently of the others: it has
// nothing unacknowledged, and the others are within their share of the window. Output from
// before an owner arrived may exceed it.
func (m *machine) entitled(id Stream) bool {
	limits := m.limits
	for other, s := range m.log.streams {
		if s == nil {
			continue
		}
		if Stream(other) == id {
			if s.unackedEvents > 0 {
				return false
			}
			continue
		}
		if s.writer == nil && s.unackedEvents > 0 ||
			s.unackedBytes+s.reservedBytes > m.log.window.share(limits.WindowBytes) ||
			s.unackedEvents+s.reservedEvents > m.log.window.share(limits.RetainedEvents) {
			return false
		}
	}
	return true
}

func (m *machine) commit(t *rapid.T) {
	id := m.anyWriter(t)
	buf := m.buffers[id]
	n := rapid.IntRange(0, len(buf)).Draw(t, "n")
	m.tick(t)
	m.commitAt(id, buf[:n])
	m.buffers[id] = nil
}

// flood writes like a process that never pauses.
func (m *machine) flood(t *rapid.T) {
	id := m.anyWriter(t)
	m.tick(t)
	for range rapid.IntRange(1, 30).Draw(t, "reads") {
		m.log.spill()
		buf := m.writers[id].Buffer()
		if buf == nil {
			break
		}
		m.commitAt(id, buf)
	}
	m.buffers[id] = nil
}

// drip writes like a process that writes single bytes.
func (m *machine) drip(t *rapid.T) {
	id := m.anyWriter(t)
	m.tick(t)
	for range rapid.IntRange(1, 20).Draw(t, "bytes") {
		m.log.spill()
		buf := m.writers[id].Buffer()
		if buf == nil {
			break
		}
		m.commitAt(id, buf[:1])
	}
	m.buffers[id] = nil
}

func (m *machine) append(t *rapid.T) {
	if m.closed() {
		t.Skip("closed")
	}
	if m.files != nil {
		rarely(t, 100)
		m.mayLose = true // nothing is written to the file before it
	}
	id := Stream(rapid.IntRange(1, 3).Draw(t, "stream"))
	data := make([]byte, rapid.IntRange(0, m.limits.RetainedBytes/3).Draw(t, "size"))
	m.nextBytes(data)
	m.record(id, data)
	m.log.Append(id, data)
	if m.paced() {
		m.excess += len(data)
		m.ignored += len(data) + m.limits.largestBlock() + 16*segmentLen*recordBytes
	}
}

func (m *machine) exit(t *rapid.T) {
	if m.closed() {
		t.Skip("closed")
	}
	rarely(t, 30)
	m.end()
}

// end makes the log exited, or closed if it is that.
func (m *machine) end() {
	if m.model.seqOf(Exited) == 0 {
		m.model.add(Event{Kind: Exited})
		m.log.AppendExited()
		return
	}
	for id, w := range m.writers {
		if w != nil {
			w.Commit(0, noTime)
			m.buffers[id] = nil
		}
	}
	m.model.add(Event{Kind: Closed})
	m.log.AppendClosed()
}

// own resumes at a likely place: the start, the acknowledged seq, the last one received, the
// end, or a random one.
func (m *machine) own(t *rapid.T) {
	last := m.model.last()
	after := rapid.Uint64Range(0, last).Draw(t, "anywhere")
	places := []uint64{0, m.acked, last, after}
	if m.ownerView != nil {
		places = append(places, m.ownerView.next-1)
	}
	after = rapid.SampledFrom(places).Draw(t, "after")
	if len(m.replaced) >= m.limits.MaxReaders {
		m.stale(t)
	}
	o, err := m.takeOver(t, after)
	if err != nil {
		t.Fatal(err)
	}
	if m.owner != nil {
		m.replaced = append(m.replaced, m.owner)
	}
	m.keepLent()
	first := m.log.Stats().FirstRetainedSeq
	m.owner, m.held, m.freed, m.acked = o, false, false, after
	m.maxAcked = max(m.maxAcked, after)
	m.ownerView = m.view(o, after)
	m.ownerView.paces, m.ownerView.mayMiss = true, max(first, after+1)
	if m.ownerView.holds = rapid.Bool().Draw(t, "holds"); m.ownerView.holds {
		o.BorrowUntilAcknowledged()
	} else {
		m.ownerView.mayBorrow(t, &o.cursor)
	}
	m.excess = max(0, m.unacked()-m.limits.WindowBytes)
}

// takeOver owns after a seq, with Own or OwnAcknowledged.
func (m *machine) takeOver(t *rapid.T, after uint64) (*Owner, error) {
	if after == m.log.Stats().Acknowledged && rapid.Bool().Draw(t, "acknowledged") {
		return m.log.OwnAcknowledged()
	}
	return m.log.Own(after)
}

func (m *machine) ownNext(t *rapid.T) {
	if m.owner == nil {
		t.Skip("not owned")
	}
	m.ownerView.take(t, rapid.SampledFrom([]int{0, 1, 50, 1000}).Draw(t, "max"))
}

func (m *machine) ownAck(t *rapid.T) {
	if m.owner == nil {
		t.Skip("not owned")
	}
	seq := rapid.Uint64Range(0, m.model.last()).Draw(t, "ahead")
	seq = rapid.SampledFrom([]uint64{seq, m.ownerView.next - 1, (m.acked + m.ownerView.next) / 2}).Draw(t, "seq")
	seq = min(seq, m.model.last())
	if err := m.owner.Acknowledge(seq); err != nil {
		t.Fatal(err)
	}
	if m.freed {
		return
	}
	m.acked = max(m.acked, seq)
	m.maxAcked = max(m.maxAcked, seq)
	m.lent = slices.DeleteFunc(m.lent, func(e Event) bool { return e.Seq <= m.acked })
	m.ownerView.mayMiss = max(m.ownerView.mayMiss, m.acked+1)
	m.excess = min(m.excess, max(0, m.unacked()-m.limits.WindowBytes))
}

func (m *machine) release(t *rapid.T) {
	if m.owner == nil {
		t.Skip("not owned")
	}
	rarely(t, 4)
	m.held = rapid.Bool().Draw(t, "hold")
	m.owner.Release(m.held)
	m.keep(m.owner)
	m.keepLent()
	m.held = m.held && !m.freed
	m.owner, m.freed = nil, false
	m.unpaced()
}

func (m *machine) free(t *rapid.T) {
	rarely(t, 10)
	m.log.Free()
	m.keepLent()
	m.held, m.freed = false, m.owner != nil
	m.ownerView.paces = false // it continues like an observer
	m.unpaced()
}

func (m *machine) unpaced() {
	if !m.held {
		m.excess, m.ignored = 0, 0
	}
}

// stale makes a replaced owner read ErrReplaced, which must have no other effect.
func (m *machine) stale(t *rapid.T) {
	for _, o := range m.replaced {
		if err := o.Acknowledge(m.model.last()); err != ErrReplaced {
			t.Fatalf("replaced owner acknowledges: %v", err)
		}
		if rapid.Bool().Draw(t, "release") {
			o.Release(rapid.Bool().Draw(t, "hold"))
			m.keep(o)
		} else if _, _, err := o.TryNext(0); err != ErrReplaced {
			t.Fatalf("replaced owner: %v", err)
		}
		delete(m.borrowed, o)
	}
	m.replaced = nil
}

func (m *machine) observe(t *rapid.T) {
	after := rapid.Uint64Range(0, m.model.last()).Draw(t, "after")
	if rapid.Bool().Draw(t, "start") {
		after = 0
	}
	r, err := m.log.NewReader(after)
	if len(m.observers) == m.limits.MaxReaders {
		if err != ErrTooManyReaders {
			t.Fatalf("reader number %d: %v", len(m.observers)+1, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	o := &observer{r, m.view(r, after)}
	o.view.mayBorrow(t, &r.cursor)
	m.observers = append(m.observers, o)
}

func (m *machine) read(t *rapid.T) {
	if len(m.observers) == 0 {
		t.Skip("no observers")
	}
	o := rapid.SampledFrom(m.observers).Draw(t, "observer")
	o.view.take(t, rapid.SampledFrom([]int{0, 1, 50, 1000}).Draw(t, "max"))
}

func (m *machine) unwatch(t *rapid.T) {
	if len(m.observers) == 0 {
		t.Skip("no observers")
	}
	i := rapid.IntRange(0, len(m.observers)-1).Draw(t, "observer")
	m.observers[i].reader.Close()
	m.keep(m.observers[i].reader)
	m.observers = append(m.observers[:i:i], m.observers[i+1:]...)
}

// offload moves the output of a closed log to its file, which changes nothing for readers.
func (m *machine) offload(t *rapid.T) {
	before := m.readAll(t)
	m.log.Offload()
	m.offloads = m.offloads || m.log.offloaded
	if after := m.readAll(t); m.noReads == nil && !slices.Equal(after, before) {
		t.Fatalf("read %v, before %v", after, before)
	}
}

// readAll returns the events and gaps from the first on, unless there are too many readers. The cause
// of a gap is left out: only the file knows all causes.
func (m *machine) readAll(t *rapid.T) (all []string) {
	r, err := m.log.NewReader(0)
	if err != nil {
		return nil
	}
	defer r.Close()
	r.Borrow()
	for {
		b, ok, err := r.TryNext(0)
		if !ok {
			if err != io.EOF {
				t.Fatal(err)
			}
			return all
		}
		if b.Gap != nil {
			all = append(all, fmt.Sprint(b.Gap.FirstAvailableSeq, b.Gap.DroppedBytes, b.Gap.Inexact))
		}
		for _, e := range b.Events {
			all = append(all, fmt.Sprintf("%+v", e))
		}
	}
}

// mayBorrow lets the cursor borrow, or not.
func (c *modelCursor) mayBorrow(t *rapid.T, cursor *cursor) {
	if c.borrows = rapid.Bool().Draw(t, "borrows"); c.borrows {
		cursor.Borrow()
	}
}

// keep is called when a cursor was ended by another call than Next: its last batch stays valid.
func (m *machine) keep(c nexter) {
	m.kept = append(m.kept, m.borrowed[c]...)
	delete(m.borrowed, c)
}

// keepLent is called when the window of an owner ends: what it has not acknowledged stays valid.
func (m *machine) keepLent() {
	m.kept = append(m.kept, m.lent...)
	m.lent = nil
}

func (m *machine) snapshot(t *rapid.T) {
	m.kept = slices.AppendSeq(m.kept, m.log.RetainedOutput())
	if m.noEnds || m.log.offloaded && m.noReads != nil {
		return
	}
	for id := range m.model.streams {
		got := m.log.Snapshot(Stream(id))
		all, size := m.model.streams[id], m.limits.SnapshotBytes
		head := all[:min(size, len(all))]
		tail := all[max(len(head), len(all)-size):]
		if !bytes.Equal(got.Head, head) || !bytes.Equal(got.Tail, tail) ||
			got.Total != uint64(len(all)) || got.Omitted != uint64(len(all)-len(head)-len(tail)) {
			t.Fatalf("snapshot of %v: %+v, want head %x and tail %x", Stream(id), got, head, tail)
		}
	}
}

// restore goes on with a log that was restored from the state of the log. The owner is
// released with hold, and all cursors end.
func (m *machine) restore(t *rapid.T) {
	rarely(t, 4)
	for id, w := range m.writers {
		if w != nil && !m.closed() {
			w.Commit(0, noTime)
			m.buffers[id] = nil
		}
	}
	before := m.log.Stats()
	state := m.log.State()
	m.noEnds = m.noEnds || m.log.offloaded && m.noReads != nil
	var open int
	if m.log.tier.file != nil {
		open = 1
		m.files.count(-1, -m.log.tier.size) // as in another program
	}
	log, err := m.files.Restore(state)
	if err != nil {
		t.Fatalf("%v: %+v", err, state)
	}
	if err := sameState(state, log.State()); err != nil {
		t.Fatal(err)
	}
	if n := m.files.Stats().Open; n != open {
		t.Fatalf("%d files after a restore, want %d", n, open)
	}
	m.held = m.paced()
	m.owner, m.freed, m.replaced, m.observers = nil, false, nil, nil
	if first := log.Stats().FirstRetainedSeq; first != before.FirstRetainedSeq {
		t.Fatalf("evicted up to %d by a restore, before up to %d", first, before.FirstRetainedSeq)
	}
	m.log = log
	clear(m.borrowed)
	m.keepLent()
	m.kept = append(m.kept, state.Events...)
	for id, w := range m.writers {
		if w != nil && !m.closed() {
			m.writers[id] = log.Writer(Stream(id))
		}
	}
	m.unpaced()
}

// sameState returns how two states differ, or nil.
func sameState(a, b *State) error {
	x, y := fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", b)
	if a.File != nil && b.File != nil {
		x, y = fmt.Sprintf("%+v %+v", a, *a.File), fmt.Sprintf("%+v %+v", b, *b.File)
		x, y = strings.ReplaceAll(x, fmt.Sprintf("%p", a.File), ""), strings.ReplaceAll(y, fmt.Sprintf("%p", b.File), "")
	}
	if x != y {
		return fmt.Errorf("restored\n%s\nas\n%s", x, y)
	}
	return nil
}

// unacked returns the unacknowledged output and the size of buffers in use.
func (m *machine) unacked() int {
	if !m.paced() {
		return 0
	}
	s := m.log.Stats()
	n, _ := m.model.between(max(m.acked+1, s.FirstRetainedSeq), m.model.last()+1)
	return n + s.ReservedBytes
}

// finish checks that an owner that acknowledges everything unblocks every writer.
func (m *machine) finish(t *rapid.T) {
	m.own(t)
	for m.ownerView.next <= m.model.last() {
		m.ownNext(t)
	}
	if err := m.owner.Acknowledge(m.model.last()); err != nil {
		t.Fatal(err)
	}
	m.acked, m.maxAcked = m.model.last(), m.model.last()
	for _, w := range m.writers {
		if w != nil && !m.closed() {
			w.Commit(0, noTime)
			if w.Buffer() == nil {
				t.Fatal("everything was acknowledged, and a writer is still blocked")
			}
			w.Commit(0, noTime)
		}
	}
	m.check(t)
}
