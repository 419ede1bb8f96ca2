package relay

import (
	"bytes"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// party is one end of a simulation: a table with its application, or a plain
// peer.
type party interface {
	attach(now time.Time)
	detach(now time.Time)
	receive(now time.Time, b []byte)
	next(now time.Time) []byte
	deadline() time.Time
	fireTimers(now time.Time)
	act(now time.Time) // one step of the application
	finished() bool    // everything was sent and received, or ended
	check() error      // checks the invariants
}

// flight is a frame in transit.
type flight struct {
	at   time.Time
	to   int
	life int // number of the receiver's carrier; the frame reaches no later one
	b    []byte
}

type flights []flight

func (f flights) Len() int           { return len(f) }
func (f flights) Less(i, j int) bool { return f[i].at.Before(f[j].at) }
func (f flights) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *flights) Push(x any)        { *f = append(*f, x.(flight)) }
func (f *flights) Pop() any {
	last := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return last
}

// network describes faults. Chances are out of 1000.
type network struct {
	loss, twice, cut int
	both             bool          // both carriers are cut and restored at the same time
	ordered          bool          // frames are not reordered
	delay, down      time.Duration // maxima: of a frame, and between two carriers
	calm             time.Time     // when it becomes perfect
	dead             bool          // instead it never delivers anything again
}

// simulation is a simulation: two parties, a network and a clock.
type simulation struct {
	rng     *rand.Rand
	now     time.Time
	parties [2]party
	network network
	air     flights
	latest  [2]time.Time // when the latest frame arrives, if ordered
	up      [2]bool      // it has a carrier
	back    [2]time.Time // when it gets the next carrier
	lives   [2]int
	stalled [2]time.Time // until when its carrier accepts nothing
	events  int
}

const mostEvents = 100_000

// run advances the simulation until both parties have finished.
func (w *simulation) run() error {
	for {
		w.events++
		if w.events > mostEvents {
			return fmt.Errorf("not finished after %d events and %v", w.events, w.now.Sub(begin))
		}
		for i, p := range w.parties {
			p.act(w.now)
			w.transmit(i)
			if err := p.check(); err != nil {
				return err
			}
		}
		if w.parties[0].finished() && w.parties[1].finished() {
			return nil
		}
		if err := w.advance(); err != nil {
			return err
		}
	}
}

func (w *simulation) chance(of1000 int) bool { return w.rng.IntN(1000) < of1000 }

func (w *simulation) upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(w.rng.Int64N(int64(d)))
}

func (w *simulation) perfect() bool { return !w.now.Before(w.network.calm) }

// transmit puts a frame of a party in transit.
func (w *simulation) transmit(from int) {
	for w.up[from] && !w.stalled[from].After(w.now) {
		b := w.parties[from].next(w.now)
		if b == nil {
			return
		}
		if w.perfect() {
			if !w.network.dead {
				w.schedule(from, b, 0)
			}
			continue
		}
		if w.chance(20) {
			w.stalled[from] = w.now.Add(w.upTo(time.Second))
		}
		if w.chance(w.network.cut) {
			first := w.rng.IntN(2)
			w.drop(first)
			if w.network.both {
				w.drop(1 - first)
				w.back[from] = w.back[1-from]
				continue
			}
		}
		if !w.chance(w.network.loss) {
			w.schedule(from, b, w.upTo(w.network.delay))
		}
		if w.chance(w.network.twice) {
			w.schedule(from, b, w.upTo(w.network.delay))
		}
	}
}

func (w *simulation) schedule(from int, b []byte, delay time.Duration) {
	to := 1 - from
	at := w.now.Add(time.Millisecond + delay)
	if w.network.ordered && !at.After(w.latest[to]) {
		at = w.latest[to].Add(1)
	}
	w.latest[to] = at
	heap.Push(&w.air, flight{at: at, to: to, life: w.lives[to], b: slices.Clone(b)})
}

// drop ends a party's carrier.
func (w *simulation) drop(i int) {
	if w.up[i] {
		w.up[i] = false
		w.lives[i]++
		w.back[i] = w.now.Add(w.upTo(w.network.down))
		w.parties[i].detach(w.now)
	}
}

// advance processes the next event.
func (w *simulation) advance() error {
	soonest := w.now.Add(time.Hour)
	before := func(t time.Time) {
		if !t.IsZero() && t.Before(soonest) {
			soonest = t
		}
	}
	if len(w.air) > 0 {
		before(w.air[0].at)
	}
	for i, p := range w.parties {
		before(p.deadline())
		if !w.up[i] {
			before(w.back[i])
		} else if w.stalled[i].After(w.now) {
			before(w.stalled[i])
		}
	}
	before(w.now.Add(time.Millisecond + w.upTo(time.Second))) // the application acts
	if soonest.Before(w.now) {
		return fmt.Errorf("at %v something is due since %v", w.now.Sub(begin), soonest.Sub(begin))
	}
	w.now = soonest
	for i, p := range w.parties {
		if !w.up[i] && !w.back[i].After(w.now) {
			w.up[i] = true
			p.attach(w.now)
		}
		if due := p.deadline(); !due.IsZero() && !due.After(w.now) {
			p.fireTimers(w.now)
		}
	}
	for len(w.air) > 0 && !w.air[0].at.After(w.now) {
		f := heap.Pop(&w.air).(flight)
		if w.up[f.to] && f.life == w.lives[f.to] {
			w.parties[f.to].receive(w.now, f.b)
		}
	}
	return nil
}

// begin is the start time of simulations.
var begin = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// text is the message with this number in a stream and direction.
func text(id string, from Role, number, most int) []byte {
	h := uint32(number)*2654435761 + uint32(from)*40503 + uint32(id[0])*97
	h ^= h >> 13
	b := bytes.Repeat([]byte{byte(h)}, 1+int(h>>3)%most)
	copy(b, fmt.Sprint(number, " ", id, " ", from))
	return b
}
