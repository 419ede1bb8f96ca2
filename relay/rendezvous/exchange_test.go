package rendezvous

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	relayv1 "github.com/execwire/execwire/gen/go/codex/exec_server/relay/v1"
	"github.com/execwire/execwire/internal/wsconn"
)

// run is an exchange beside its model.
type run struct {
	t     *testing.T
	rand  *rand.Rand
	clock *fakeClock
	x     *exchange
	m     *model
	lines []*pair // of harnesses
	old   []*pair // executors' lines, the latest last
	made  int
	said  []string // what was done
}

type pair struct {
	l *line
	m *modelLine
}

func newRun(t *testing.T, seed uint64) *run {
	limits, err := Limits{StreamsPerConnection: 3, StreamsPerPrincipal: 4, StreamsPerExecutor: 5,
		QueueBytes: 3 * minFrameBytes, PlainQueueBytes: 4 * minFrameBytes}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	clock := newFakeClock()
	shared := &hubwide{limits: limits, clock: clock, total: newBudget(limits.TotalQueueBytes), streams: newTally(), counts: new(counts)}
	return &run{t: t, rand: rand.New(rand.NewPCG(seed, 8)), clock: clock, x: newExchange(shared, "x"), m: newModel(limits, clock.now())}
}

func (r *run) note(format string, args ...any) { r.said = append(r.said, fmt.Sprintf(format, args...)) }

func (r *run) fail(format string, args ...any) {
	r.t.Helper()
	for _, said := range r.said {
		r.t.Log(said)
	}
	r.t.Fatalf(format, args...)
}

func pick[T any](r *run, from ...T) T { return from[r.rand.IntN(len(from))] }

func (r *run) pair(principal string, resumable bool) *pair {
	r.made++
	return &pair{l: newLine(principal, resumable), m: newModelLine(principal, resumable, r.made)}
}

// step does one thing of those that may happen.
func (r *run) step() {
	switch n := r.rand.IntN(100); {
	case n < 6:
		instance := pick(r, "", "one", "one", "two")
		p := r.pair("fleet", instance != "")
		r.note("executor %d connects as %q", p.m.number, instance)
		r.x.connectExecutor(p.l, instance)
		r.m.connectExecutor(p.m, instance)
		r.old = append(r.old, p)
	case n < 10 && len(r.old) > 0:
		p := r.old[len(r.old)-1]
		r.note("executor %d departs", p.m.number)
		r.departExecutor(p)
	case n < 18 && len(r.lines) < 4:
		p := r.pair(pick(r, "ann", "bob"), pick(r, true, true, false))
		r.note("harness %d of %s connects, %v", p.m.number, p.m.principal, p.m.resumable)
		r.x.connectHarness(p.l)
		r.lines = append(r.lines, p)
	case n < 23 && len(r.lines) > 0:
		r.departHarness(pick(r, r.lines...))
	case n < 28:
		d := pick(r, time.Second, 7*time.Second, 16*time.Second, 31*time.Second)
		r.note("%v pass", d)
		r.clock.advance(d)
		r.m.pass(r.clock.now())
	case n < 60 && len(r.lines) > 0:
		p := pick(r, r.lines...)
		id, payload := r.frame()
		r.note("harness %d sends %s of %s", p.m.number, payload, id)
		r.x.fromHarness(p.l, encode(id, payload))
		r.m.fromHarness(p.m, id, payload)
	case n < 85 && len(r.old) > 0:
		p := r.old[len(r.old)-1]
		if r.rand.IntN(10) == 0 {
			p = pick(r, r.old...) // one that was superseded, and does not know yet
		}
		id, payload := r.frame()
		r.note("executor %d sends %s of %s", p.m.number, payload, id)
		r.x.fromExecutor(p.l, encode(id, payload))
		r.m.fromExecutor(p.m, id, payload)
	case len(r.lines) > 0:
		r.read(pick(r, r.lines...), 1+r.rand.IntN(4))
	}
	if len(r.old) > 0 && r.rand.IntN(4) == 0 {
		r.read(r.old[len(r.old)-1], 1+r.rand.IntN(4))
		r.read(pick(r, r.old...), 1)
	}
	r.dismissFull()
}

func (r *run) departExecutor(p *pair) {
	r.x.departExecutor(p.l)
	r.m.departExecutor(p.m)
	p.l.lose(wsconn.CodeNormal, "")
	r.old = slices.DeleteFunc(r.old, func(o *pair) bool { return o == p })
}

func (r *run) departHarness(p *pair) {
	r.note("harness %d departs", p.m.number)
	r.x.departHarness(p.l)
	r.m.departHarness(p.m)
	p.l.lose(wsconn.CodeNormal, "")
	r.lines = slices.DeleteFunc(r.lines, func(o *pair) bool { return o == p })
}

// dismissFull takes lines off that the exchange has finished, as serving them
// does.
func (r *run) dismissFull() {
	for _, p := range slices.Clone(r.lines) {
		if p.l.over != p.m.over {
			r.fail("harness %d is finished: %v, want %v", p.m.number, p.l.over, p.m.over)
		}
		if p.l.over {
			r.departHarness(p)
		}
	}
	for i, p := range slices.Clone(r.old) {
		if latest := i == len(r.old)-1; p.l.over && (!latest || p.l.code != CodeSuperseded) && r.m.executor != p.m {
			r.departExecutor(p)
		} else if p.l.over {
			r.fail("executor %d is finished with %d", p.m.number, p.l.code)
		}
	}
}

func (r *run) frame() (id, payload string) {
	r.made++
	return fmt.Sprintf("s%d", r.rand.IntN(7)), fmt.Sprint(r.made)
}

func encode(id, payload string) []byte {
	frame, err := proto.Marshal(data(id, 0, payload))
	if err != nil {
		panic(err)
	}
	return frame
}

// describe is a frame's stream, with the reason if it is a reset.
func describe(frame []byte) string {
	said := new(relayv1.RelayMessageFrame)
	if err := proto.Unmarshal(frame, said); err != nil {
		return err.Error()
	}
	if reset := said.GetReset_(); reset != nil {
		return said.GetStreamId() + ":" + reset.GetReason()
	}
	return said.GetStreamId()
}

// read takes as many frames as there are, at most so many, and holds each against
// the model.
func (r *run) read(p *pair, most int) {
	for range most {
		frame, more := p.l.next()
		if frame == nil {
			if more && (len(p.m.resets) > 0 || len(p.m.frames) > 0) {
				r.fail("line %d has nothing, want %v and %v", p.m.number, p.m.resets, p.m.frames)
			}
			return
		}
		r.judge(p, frame)
	}
}

func (r *run) judge(p *pair, frame []byte) {
	said := new(relayv1.RelayMessageFrame)
	if err := proto.Unmarshal(frame, said); err != nil {
		r.fail("%q came: %v", frame, err)
	}
	if reset := said.GetReset_(); reset != nil {
		i := slices.Index(p.m.resets, notice{said.GetStreamId(), reset.GetReason()})
		if i < 0 {
			r.fail("line %d is told %v, want %v", p.m.number, said, p.m.resets)
		}
		p.m.resets = slices.Delete(p.m.resets, i, i+1)
		return
	}
	want, expected := r.m.came(p.m, said.GetStreamId())
	if got := string(said.GetData().GetPayload()); !expected || got != want {
		r.fail("line %d gets %v, want %q (%v)", p.m.number, said, want, expected)
	}
}

// finish reads everything, has all leave and all graces end, and looks whether
// anything is left.
func (r *run) finish() {
	for _, p := range r.lines {
		r.read(p, 1000)
	}
	if len(r.old) > 0 {
		r.read(r.old[len(r.old)-1], 1000)
	}
	for len(r.lines) > 0 {
		r.departHarness(r.lines[0])
	}
	for len(r.old) > 0 {
		r.departExecutor(r.old[len(r.old)-1])
	}
	r.clock.advance(time.Hour)
	x := r.x
	if !x.unused() || x.total.inUse() != 0 || len(x.hubwide.streams.of) != 0 || len(x.owed)+len(x.untold) != 0 || len(r.clock.timers) != 0 {
		r.fail("left over: %d streams, %d bytes, %v, %v, %v, %d timers", len(x.streams), x.total.inUse(), x.hubwide.streams.of, x.owed, x.untold, len(r.clock.timers))
	}
}

// Frames reach the right end, once and in order, and resets are told exactly
// once, whoever comes, goes, takes over and does not read.
func TestExchangeDoesWhatTheModelDoes(t *testing.T) {
	runs := 3000
	if testing.Short() {
		runs = 150
	}
	for seed := range runs {
		r := newRun(t, uint64(seed))
		for range 300 {
			r.step()
		}
		r.finish()
	}
}
