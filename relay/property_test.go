package relay

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/testrace"
)

// Environment variables of the property tests: the number of scenarios, and the
// number of the only scenario to run.
const (
	runsEnv     = "EXECWIRE_RELAY_RUNS"
	scenarioEnv = "EXECWIRE_RELAY_SCENARIO"
)

// scenarios checks a property in 10,000 scenarios, or a tenth of that with
// -short, and stops at the first failure.
func scenarios(t *testing.T, holds func(rng *rand.Rand) error) {
	t.Helper()
	testrace.WithoutRace(t)
	runs := uint64(10_000)
	if testing.Short() {
		runs = 1000
	}
	first := uint64(0)
	for name, value := range map[string]*uint64{runsEnv: &runs, scenarioEnv: &first} {
		if text := os.Getenv(name); text != "" {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			*value = n
		}
	}
	if os.Getenv(scenarioEnv) != "" {
		runs = first + 1
	}
	for i := first; i < runs; i++ {
		if err := holds(rand.New(rand.NewPCG(i, 1))); err != nil {
			t.Fatalf("scenario %d: %v", i, err)
		}
	}
}

// settings returns small limits, and sequence numbers that are about to wrap.
func settings(rng *rand.Rand, role Role, most int) Config {
	c := Config{
		Role:         role,
		SegmentBytes: 1 + rng.IntN(most/4),
		WindowFrames: 1 + rng.IntN(ackedBits),
		MessageBytes: most,
		QueueBytes:   1 + rng.IntN(2*most),
		LargeBytes:   10 * most,
	}
	c.WindowBytes = c.SegmentBytes + rng.IntN(most)
	return c
}

// firsts returns an initial sequence number.
func firsts(rng *rand.Rand) uint32 {
	if rng.IntN(2) == 0 {
		return 0
	}
	return uint32(-rng.IntN(100))
}

// hostileNetwork returns a network with every kind of fault.
func hostileNetwork(rng *rand.Rand) network {
	n := network{
		ordered: rng.IntN(2) == 0,
		delay:   time.Duration(rng.Int64N(int64(500 * time.Millisecond))),
		down:    time.Duration(rng.Int64N(int64(3 * time.Second))),
		calm:    begin.Add(time.Duration(rng.Int64N(int64(20 * time.Second)))),
	}
	if rng.IntN(3) > 0 {
		n.loss = rng.IntN(400)
	}
	if rng.IntN(3) > 0 {
		n.twice = rng.IntN(300)
	}
	if rng.IntN(3) > 0 {
		n.cut = rng.IntN(50)
	}
	return n
}

// Two endpoints talk over a network that loses, duplicates, delays, reorders and
// cuts, and later becomes perfect: every message arrives exactly once and in
// order, bounds hold, and nothing is left over. A stream may end instead if
// nothing arrived while the harness probed its peer and messages dropped by then
// were lost, which is rare.
func TestProperty_EveryMessageOnceInOrder(t *testing.T) {
	streamsRun, streamsLost := 0, 0
	scenarios(t, func(rng *rand.Rand) error {
		most := 8 + rng.IntN(200)
		streams, messages := 1+rng.IntN(2), 1+rng.IntN(12)
		first := firsts(rng)
		end := func(role Role) *ownParty {
			c := settings(rng, role, most)
			c.first = first
			o := newOwnParty(rng, c, streams, messages, most)
			o.slow = rng.IntN(900)
			return o
		}
		h, x := end(Harness), end(Executor)
		h.peer, x.peer = x, h
		w := &simulation{rng: rng, now: begin, parties: [2]party{h, x}, network: hostileNetwork(rng), back: [2]time.Time{begin, begin}}
		if err := w.run(); err != nil {
			return err
		}
		for _, o := range []*ownParty{h, x} {
			for _, one := range o.talks {
				streamsRun++
				if one.ended {
					streamsLost++
					if !slices.Contains([]string{ReasonUnknownStream, ReasonCarrierLost, ReasonPeerSilent}, one.state.flow.ended.Reason) {
						return fmt.Errorf("the %v lost stream %s: %w", o.config.Role, one.id, one.state.flow.ended)
					}
				}
			}
			if err := o.end(w.now); err != nil {
				return fmt.Errorf("the %v: %w", o.config.Role, err)
			}
		}
		return nil
	})
	if streamsLost > 2+streamsRun/1000 {
		t.Errorf("%d of %d streams ended before all had arrived", streamsLost, streamsRun)
	}
}

// Each role talks with the reference implementation over carriers that are
// perfect until they are cut: every message arrives once and in order, or the
// stream ends with the carrier.
func TestProperty_PlainPeers(t *testing.T) {
	scenarios(t, func(rng *rand.Rand) error {
		most, streams, messages := 8+rng.IntN(200), 1+rng.IntN(2), 1+rng.IntN(40)
		role := Role(rng.IntN(2))
		c := settings(rng, role, most)
		c.PlainQueueBytes, c.LargeBytes = 50*(most+messageOverhead), 150*(most+messageOverhead)
		o, r := newOwnParty(rng, c, streams, messages, most), newReferenceParty(1-role, streams, messages, most)
		o.peer, o.slow = r, rng.IntN(900)
		w := &simulation{rng: rng, now: begin, parties: [2]party{o, r}, back: [2]time.Time{begin, begin}}
		w.network = network{both: true, ordered: true, cut: rng.IntN(3) * rng.IntN(20), delay: w.upTo(time.Second), down: w.upTo(3 * time.Second), calm: begin.Add(20 * time.Second)}
		if err := w.run(); err != nil {
			return err
		}
		for _, one := range o.talks {
			if end := one.state.flow.ended; end != nil && (!r.cut || end.Reason != ReasonCarrierLost && end.Reason != ReasonPeerSilent) {
				return fmt.Errorf("our %v ended stream %s: %w", role, one.id, end)
			}
		}
		return o.end(w.now)
	})
}

// The network dies: each end has received all messages, or its stream ended
// because the peer is silent.
func TestProperty_SilenceEndsStreams(t *testing.T) {
	scenarios(t, func(rng *rand.Rand) error {
		most := 8 + rng.IntN(200)
		c := settings(rng, Harness, most)
		h := newOwnParty(rng, c, 1, 12, most)
		c.Role = Executor
		x := newOwnParty(rng, c, 0, 12, most)
		w := &simulation{rng: rng, now: begin, parties: [2]party{h, x}, network: hostileNetwork(rng), back: [2]time.Time{begin, begin}}
		w.network.dead = true
		w.network.calm = begin.Add(w.upTo(5 * time.Second))
		if err := w.run(); err != nil {
			return err
		}
		for _, o := range []*ownParty{h, x} {
			for _, one := range o.talks {
				if end := one.state.flow.ended; end != nil && end.Reason != ReasonPeerSilent && end.Reason != ReasonCarrierLost {
					return fmt.Errorf("the %v ended stream %s: %w", o.config.Role, one.id, end)
				}
			}
		}
		return nil
	})
}
