package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// stress is one log with concurrent writers and readers. Each stream writes pattern(size), so
// that readers know the expected bytes.
type stress struct {
	*testing.T
	log  *Log
	want [streamEnd][]byte
}

func newStress(t *testing.T, files *Files, limits Limits, size int) *stress {
	s := &stress{T: t, log: files.New(limits)}
	s.want[Stdout] = pattern(size)
	s.want[Stderr] = pattern(size / 3)
	return s
}

// writeAll runs the two writers and then closes the log.
func (s *stress) writeAll(ctx context.Context) {
	var writers sync.WaitGroup
	for _, id := range []Stream{Stdout, Stderr} {
		w := s.log.Writer(id)
		writers.Go(func() {
			defer w.Close()
			rng := rand.New(rand.NewPCG(uint64(id), 1))
			for rest := s.want[id]; len(rest) > 0; {
				buf := w.Buffer()
				if buf == nil {
					if err := w.WaitSpace(ctx); err != nil {
						s.Errorf("%v: %v", id, err)
						return
					}
					continue
				}
				n := copy(buf[:1+rng.IntN(len(buf))], rest)
				w.Commit(n, noTime)
				rest = rest[n:]
			}
		})
	}
	writers.Wait()
	s.log.AppendExited()
	s.log.AppendClosed()
}

// watch reads to the end as an observer, and returns how many bytes it has missed. Missing output
// must be declared in gaps.
func (s *stress) watch(ctx context.Context, seed uint64) (dropped uint64) {
	r, err := s.log.NewReader(0)
	if err != nil {
		s.Error(err)
		return 0
	}
	defer r.Close()
	rng := rand.New(rand.NewPCG(seed, 2))
	if seed > 0 {
		r.Borrow()
	}
	next, got := uint64(1), uint64(0)
	for {
		b, err := r.Next(ctx, rng.IntN(3000))
		if err == io.EOF {
			break
		}
		if err != nil {
			s.Error(err)
			return 0
		}
		if b.Gap != nil {
			next = b.Gap.FirstAvailableSeq
			dropped += b.Gap.DroppedBytes
		}
		for _, e := range b.Events {
			s.checkEvent(e, next)
			next++
			got += uint64(len(e.Data))
		}
	}
	if total := uint64(len(s.want[Stdout]) + len(s.want[Stderr])); got+dropped != total {
		s.Errorf("observer got %d bytes and misses %d, together not %d", got, dropped, total)
	}
	return dropped
}

func (s *stress) checkEvent(e Event, seq uint64) {
	if e.Seq != seq {
		s.Errorf("seq %d, want %d", e.Seq, seq)
	}
	if e.Kind != Output {
		return
	}
	want := s.want[e.Stream][e.Offset:]
	if !bytes.HasPrefix(want, e.Data) {
		s.Errorf("%v at %d: %d bytes are not what was written", e.Stream, e.Offset, len(e.Data))
	}
}

// ownerClient is the client that owns the log. Its connection breaks repeatedly.
type ownerClient struct {
	*stress
	rng   *rand.Rand
	taken uint64 // last seq received
	sums  [streamEnd]uint32
	bytes [streamEnd]int
}

// run receives everything exactly once, over many ownerships.
func (k *ownerClient) run(ctx context.Context) {
	acked := uint64(0)
	for {
		after := acked // a resume may begin before the last seq received; it skips duplicates
		if k.rng.IntN(2) == 0 {
			after = k.taken
		}
		o, err := k.log.Own(after)
		if err != nil {
			k.Error(err)
			return
		}
		switch k.rng.IntN(4) {
		case 0:
		case 1:
			o.Borrow()
		default:
			o.BorrowUntilAcknowledged()
		}
		err = k.connection(ctx, o, after, &acked)
		if k.rng.IntN(2) == 0 {
			o.Release(true)
		} else {
			defer o.Release(true) // released only after it was replaced
		}
		if err == io.EOF {
			return
		}
		if err != nil && !errors.Is(err, errCut) {
			k.Error(err)
			return
		}
	}
}

var errCut = errors.New("connection cut")

func (k *ownerClient) connection(ctx context.Context, o *Owner, after uint64, acked *uint64) error {
	life := 5 + k.rng.IntN(200)
	*acked = after
	var held []Event // until they are acknowledged
	recheck := func() {
		for _, e := range held {
			k.checkEvent(e, e.Seq)
		}
		held = slices.DeleteFunc(held, func(e Event) bool { return e.Seq <= *acked })
	}
	for next := after + 1; life > 0; life-- {
		b, ok, err := o.TryNext(k.rng.IntN(5000))
		if !ok && err == nil { // the writers may be blocked by this owner
			*acked = next - 1
			recheck()
			o.Acknowledge(*acked)
			b, err = o.Next(ctx, k.rng.IntN(5000))
		}
		if err != nil {
			return err
		}
		if b.Gap != nil {
			return fmt.Errorf("owner after %d, acknowledged %d: gap %+v", after, *acked, *b.Gap)
		}
		for _, e := range b.Events {
			k.checkEvent(e, next)
			next++
			if e.Seq > k.taken {
				k.take(e)
			}
		}
		if o.holds {
			held = append(held, b.Events...)
		}
		if k.rng.IntN(3) == 0 {
			*acked = next - 1 - uint64(k.rng.IntN(len(b.Events)))
			recheck()
			if err := o.Acknowledge(*acked); err != nil {
				return err
			}
		}
	}
	return errCut
}

func (k *ownerClient) take(e Event) {
	k.taken = e.Seq
	k.sums[e.Stream] = crc32.Update(k.sums[e.Stream], crc32.IEEETable, e.Data)
	k.bytes[e.Stream] += len(e.Data)
}

func TestLog_ConcurrentUse(t *testing.T) {
	for name, limits := range map[string]Limits{
		"tiny":     {RetainedBytes: 512, RetainedEvents: 16, SnapshotBytes: 32},
		"window":   {RetainedBytes: 8 << 10, WindowBytes: 1 << 10},
		"defaults": {},
	} {
		t.Run(name, func(t *testing.T) {
			size := 300_000
			if name == "defaults" {
				size = 8 << 20
			}
			limits.MaxReaders = 1000 // owners released only at the end
			s := newStress(t, nil, limits, size)
			ctx := testContext(t)
			k := &ownerClient{stress: s, rng: rand.New(rand.NewPCG(3, 4))}
			var all sync.WaitGroup
			o := must[*Owner](t)(s.log.Own(0)) // so that nothing is evicted before k starts
			all.Go(func() { s.writeAll(ctx) })
			for seed := range uint64(3) {
				all.Go(func() { s.watch(ctx, seed) })
			}
			all.Go(func() { k.run(ctx) })
			all.Go(func() { s.queryRepeatedly(ctx) })
			all.Wait()
			o.Release(true)
			for _, id := range []Stream{Stdout, Stderr} {
				if k.bytes[id] != len(s.want[id]) || k.sums[id] != crc32.ChecksumIEEE(s.want[id]) {
					t.Errorf("the owner received %d bytes of %v with sum %x, want %d with %x", k.bytes[id], id, k.sums[id],
						len(s.want[id]), crc32.ChecksumIEEE(s.want[id]))
				}
			}
		})
	}
}

// queryRepeatedly calls Stats and Snapshot repeatedly, and checks what always holds.
func (s *stress) queryRepeatedly(ctx context.Context) {
	for ctx.Err() == nil {
		stats := s.log.Stats()
		if most := s.log.Limits().MaxHeldBytes(2, stats.Readers); stats.HeldBytes > most {
			s.Errorf("holds %d bytes, the bound is %d", stats.HeldBytes, most)
			return
		}
		for _, id := range []Stream{Stdout, Stderr} {
			got := s.log.Snapshot(id)
			if want := s.want[id]; !bytes.HasPrefix(want, got.Head) ||
				!bytes.HasSuffix(want[:got.Total], got.Tail) {
				s.Errorf("snapshot of %v at %d is wrong", id, got.Total)
			}
		}
		if stats.Closed {
			return
		}
	}
}

// A slow owner reads one event and then stops. The writer stops at the window and continues
// whenever there is space.
func TestWindow_SlowOwner_BlocksOnlyWriter(t *testing.T) {
	s := newStress(t, nil, tight, 5000)
	ctx := testContext(t)
	o := must[*Owner](t)(s.log.Own(0))
	defer o.Release(false)
	idle := must[*Reader](t)(s.log.NewReader(0))
	defer idle.Close()
	var all sync.WaitGroup
	all.Go(func() { s.writeAll(ctx) })
	all.Go(func() { s.watch(ctx, 1) })
	defer all.Wait()
	got := 0
	for want := 5000 + 5000/3; got < want; {
		if want-got > 64 {
			untilWaiting(t, s.log, &s.log.writers, 1) // at least one stream is blocked
		}
		b, err := o.Next(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range b.Events {
			got += len(e.Data)
			o.Acknowledge(e.Seq)
		}
	}
}
