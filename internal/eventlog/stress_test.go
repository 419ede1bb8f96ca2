package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
)

// stress is one log with everybody at work on it at once. Each stream says
// pattern(size) from the start, so that a reader knows what must come.
type stress struct {
	*testing.T
	log  *Log
	want [streamEnd][]byte
}

func newStress(t *testing.T, limits Limits, size int) *stress {
	s := &stress{T: t, log: New(limits)}
	s.want[Stdout] = pattern(size)
	s.want[Stderr] = pattern(size / 3)
	return s
}

// speak runs the two writers to the end and closes the log.
func (s *stress) speak(ctx context.Context) {
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
				w.Commit(n)
				rest = rest[n:]
			}
		})
	}
	writers.Wait()
	s.log.AppendExited()
	s.log.AppendClosed()
}

// watch reads as an observer to the end; what it misses must be declared.
func (s *stress) watch(ctx context.Context, seed uint64) {
	r, err := s.log.NewReader(0)
	if err != nil {
		s.Error(err)
		return
	}
	defer r.Close()
	rng := rand.New(rand.NewPCG(seed, 2))
	next, got, dropped := uint64(1), uint64(0), uint64(0)
	for {
		b, err := r.Next(ctx, rng.IntN(3000))
		if err == io.EOF {
			break
		}
		if err != nil {
			s.Error(err)
			return
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
		s.Errorf("%v at %d: %d bytes are not what was said", e.Stream, e.Offset, len(e.Data))
	}
}

// taker is the one the output is for. Its connection breaks again and again.
type taker struct {
	*stress
	rng   *rand.Rand
	taken uint64 // last seq it really has
	sums  [streamEnd]uint32
	bytes [streamEnd]int
}

// run takes everything exactly once, over many ownerships.
func (k *taker) run(ctx context.Context) {
	acked := uint64(0)
	for {
		after := acked // it may know less than it has, and then skips
		if k.rng.IntN(2) == 0 {
			after = k.taken
		}
		o, err := k.log.Own(after)
		if err != nil {
			k.Error(err)
			return
		}
		err = k.connection(ctx, o, after, &acked)
		if k.rng.IntN(2) == 0 {
			o.Release(true)
		} else {
			defer o.Release(true) // found dead only later: replaced
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

func (k *taker) connection(ctx context.Context, o *Owner, after uint64, acked *uint64) error {
	life := 5 + k.rng.IntN(200)
	*acked = after
	for next := after + 1; life > 0; life-- {
		b, ok, err := o.TryNext(k.rng.IntN(5000))
		if !ok && err == nil { // the writers may wait for us
			*acked = next - 1
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
		if k.rng.IntN(3) == 0 {
			*acked = next - 1 - uint64(k.rng.IntN(len(b.Events)))
			if err := o.Acknowledge(*acked); err != nil {
				return err
			}
		}
	}
	return errCut
}

func (k *taker) take(e Event) {
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
			limits.MaxReaders = 1000 // owners found dead only at the end
			s := newStress(t, limits, size)
			ctx := testContext(t)
			k := &taker{stress: s, rng: rand.New(rand.NewPCG(3, 4))}
			var all sync.WaitGroup
			o := must[*Owner](t)(s.log.Own(0)) // so that nothing is lost before k is there
			all.Go(func() { s.speak(ctx) })
			for seed := range uint64(3) {
				all.Go(func() { s.watch(ctx, seed) })
			}
			all.Go(func() { k.run(ctx) })
			all.Go(func() { s.poke(ctx) })
			all.Wait()
			o.Release(true)
			for _, id := range []Stream{Stdout, Stderr} {
				if k.bytes[id] != len(s.want[id]) || k.sums[id] != crc32.ChecksumIEEE(s.want[id]) {
					t.Errorf("owner got %d bytes of %v with sum %x, want %d with %x", k.bytes[id], id, k.sums[id],
						len(s.want[id]), crc32.ChecksumIEEE(s.want[id]))
				}
			}
		})
	}
}

// poke asks for facts all the time, and checks those that always hold.
func (s *stress) poke(ctx context.Context) {
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

// A hostile owner takes one event and then nothing: the writer must stop at the
// window, and go on as soon as there is room, again and again.
func TestHostileSlowOwnerBlocksTheWriterOnly(t *testing.T) {
	s := newStress(t, tight, 5000)
	ctx := testContext(t)
	o := must[*Owner](t)(s.log.Own(0))
	defer o.Release(false)
	idle := must[*Reader](t)(s.log.NewReader(0))
	defer idle.Close()
	var all sync.WaitGroup
	all.Go(func() { s.speak(ctx) })
	all.Go(func() { s.watch(ctx, 1) })
	defer all.Wait()
	got := 0
	for want := 5000 + 5000/3; got < want; {
		if want-got > 64 {
			untilWaiting(t, s.log, &s.log.writers, 1) // at least one stream is full
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
