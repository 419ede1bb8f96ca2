package client

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// handlePlan is a random use of a Process.
type handlePlan struct {
	plan
	keep    int // StartOptions.KeepBytes
	readers int
}

// Readers come and go at random times while streams and connections break and input is
// written. Each reader gets every byte once and in order, or an exact gap.
func TestProcess_EveryReader_GetsAllEvents(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := handlePlan{
			plan: plan{
				seed:   rapid.Uint64().Draw(rt, "seed"),
				window: rapid.Uint64Range(1, 100_000).Draw(rt, "window"),
				cuts:   rapid.IntRange(0, 30).Draw(rt, "cuts"),
				chunks: rapid.IntRange(0, 40).Draw(rt, "chunks"),
				input:  rapid.IntRange(0, 300_000).Draw(rt, "input"),
			},
			keep:    rapid.SampledFrom([]int{-1, 10_000, 10 << 20}).Draw(rt, "keep"),
			readers: rapid.IntRange(0, 4).Draw(rt, "readers"),
		}
		var err error
		synctest.Test(t, func(t *testing.T) { err = p.use(t) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

func (p handlePlan) use(t *testing.T) error {
	fake, c := newFake(t)
	m := &model{fake: fake, window: p.window, random: rand.New(rand.NewPCG(p.seed, 0)), cuts: p.cuts, sink: stdinSink{t: t}}
	fake.beyond = m.serve
	var want [2][]byte
	for range p.chunks {
		stream := execwirev1.OutputStream(1 + m.roll(2))
		data := pattern(1 + m.roll(30_000))
		want[stream-1] = append(want[stream-1], data...)
		m.write(stream, data)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	process, err := c.Start(ctx, StartOptions{Process: Command{Argv: []string{"x"}, PipeStdin: true}.Request(), KeepBytes: p.keep})
	if err != nil {
		return err
	}
	defer process.Close()
	errs := make(chan error, p.readers+1)
	var all sync.WaitGroup
	for range p.readers {
		delay, pace := time.Duration(m.roll(2000))*time.Millisecond, time.Duration(m.roll(200))*time.Millisecond
		all.Go(func() {
			time.Sleep(delay)
			errs <- p.read(ctx, process, pace, want)
		})
	}
	input := pattern(p.input)
	all.Go(func() {
		for rest := input; len(rest) > 0; {
			n, err := process.Write(rest[:min(len(rest), 50_000)])
			if rest = rest[n:]; err != nil {
				errs <- fmt.Errorf("failed to write: %w", err)
				return
			}
		}
		_ = process.CloseStdin() // it has stdin
	})
	exit, err := process.Wait(ctx)
	all.Wait()
	close(errs)
	for read := range errs {
		if err == nil {
			err = read
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("failed after %d streams: %w", fake.callCount(), err)
	case !bytes.Equal(m.sink.data.Bytes(), input):
		return fmt.Errorf("stdin differs: %d bytes, want %d", m.sink.data.Len(), len(input))
	case exit.StdoutBytes != uint64(len(want[0])) || exit.DroppedBytes != 0:
		return fmt.Errorf("exit is %+v", exit)
	}
	return p.read(ctx, process, 0, want) // what is kept after the end
}

// read reads everything, with a pause after each event.
func (p handlePlan) read(ctx context.Context, process *Process, pace time.Duration, want [2][]byte) error {
	var at, missing [2]uint64
	gap, closed := uint64(0), false
	for event, err := range process.Events(ctx) {
		if err != nil {
			return err
		}
		switch e := event.(type) {
		case *GapEvent:
			if e.UpperBound || p.keep > 1<<20 || at != [2]uint64{} {
				return fmt.Errorf("a gap: %+v", e)
			}
			gap = e.DroppedBytes
		case *OutputEvent:
			i := e.Stream - 1
			missing[i] += e.Offset - at[i]
			if !bytes.Equal(e.Data, want[i][e.Offset:][:len(e.Data)]) {
				return fmt.Errorf("seq %d differs", e.Seq)
			}
			at[i] = e.Offset + uint64(len(e.Data))
		case *ClosedEvent:
			closed = true
		}
		time.Sleep(pace)
	}
	for i := range at {
		missing[i] += uint64(len(want[i])) - at[i]
	}
	if !closed || gap != missing[0]+missing[1] {
		return fmt.Errorf("closed is %v, %d bytes are declared missing, and %v are", closed, gap, missing)
	}
	return nil
}
