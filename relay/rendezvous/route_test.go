package rendezvous

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	relayv1 "github.com/execwire/execwire/gen/go/codex/exec_server/relay/v1"
	"github.com/execwire/execwire/internal/quota"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
)

// run is a route next to its model.
type run struct {
	t         *testing.T
	rand      *rand.Rand
	clock     *fakeClock
	route     *executorRoute
	model     *model
	harnesses []*pair // of harnesses
	executors []*pair // of executors, the latest last
	count     int
	log       []string // log of the steps
}

type pair struct {
	conn  *peerConn
	model *modelConn
}

func newRun(t *testing.T, seed uint64) *run {
	limits := Limits{StreamsPerConnection: 3, StreamsPerPrincipal: 4, StreamsPerExecutor: 5,
		QueueBytes: 3 * minFrameBytes, PlainQueueBytes: 4 * minFrameBytes}.withDefaults()
	clock := newFakeClock()
	shared := &hubState{limits: limits, clock: clock, queueBudget: newBudget(limits.TotalQueueBytes), streamCounts: quota.Counter{Most: limits.StreamsPerPrincipal}, stats: new(stats), onLimit: func(string) {}}
	return &run{t: t, rand: rand.New(rand.NewPCG(seed, 8)), clock: clock, route: newExecutorRoute(shared, "x"), model: newModel(limits, clock.now())}
}

func (r *run) logf(format string, args ...any) { r.log = append(r.log, fmt.Sprintf(format, args...)) }

func (r *run) fail(format string, args ...any) {
	r.t.Helper()
	for _, decoded := range r.log {
		r.t.Log(decoded)
	}
	r.t.Fatalf(format, args...)
}

func pick[T any](r *run, from ...T) T { return from[r.rand.IntN(len(from))] }

func (r *run) pair(principal string, resumable bool) *pair {
	r.count++
	return &pair{conn: newPeerConn(principal, resumable), model: newModelConn(principal, resumable, r.count)}
}

// step does one random action.
func (r *run) step() {
	switch n := r.rand.IntN(100); {
	case n < 6:
		instance := pick(r, "", "one", "one", "two")
		p := r.pair("fleet", instance != "")
		r.logf("executor %d connects as %q", p.model.number, instance)
		r.route.connectExecutor(p.conn, instance)
		r.model.connectExecutor(p.model, instance)
		r.executors = append(r.executors, p)
	case n < 10 && len(r.executors) > 0:
		p := r.executors[len(r.executors)-1]
		r.logf("executor %d departs", p.model.number)
		r.disconnectExecutor(p)
	case n < 18 && len(r.harnesses) < 4:
		p := r.pair(pick(r, "ann", "bob"), pick(r, true, true, false))
		r.logf("harness %d of %s connects, %v", p.model.number, p.model.principal, p.model.resumable)
		r.route.connectHarness(p.conn)
		r.harnesses = append(r.harnesses, p)
	case n < 23 && len(r.harnesses) > 0:
		r.disconnectHarness(pick(r, r.harnesses...))
	case n < 28:
		d := pick(r, time.Second, 7*time.Second, 16*time.Second, 31*time.Second)
		r.logf("%v pass", d)
		r.clock.advance(d)
		r.model.pass(r.clock.now())
	case n < 60 && len(r.harnesses) > 0:
		p := pick(r, r.harnesses...)
		id, payload := r.frame()
		r.logf("harness %d sends %s of %s", p.model.number, payload, id)
		r.route.handleHarnessFrame(p.conn, encode(id, payload))
		r.model.handleHarnessFrame(p.model, id, payload)
	case n < 85 && len(r.executors) > 0:
		p := r.executors[len(r.executors)-1]
		if r.rand.IntN(10) == 0 {
			p = pick(r, r.executors...) // one that was superseded and does not know yet
		}
		id, payload := r.frame()
		r.logf("executor %d sends %s of %s", p.model.number, payload, id)
		r.route.handleExecutorFrame(p.conn, encode(id, payload))
		r.model.handleExecutorFrame(p.model, id, payload)
	case len(r.harnesses) > 0:
		r.read(pick(r, r.harnesses...), 1+r.rand.IntN(4))
	}
	if len(r.executors) > 0 && r.rand.IntN(4) == 0 {
		r.read(r.executors[len(r.executors)-1], 1+r.rand.IntN(4))
		r.read(pick(r, r.executors...), 1)
	}
	r.removeClosing()
}

func (r *run) disconnectExecutor(p *pair) {
	r.route.disconnectExecutor(p.conn)
	r.model.disconnectExecutor(p.model)
	p.conn.fail(wsconn.CodeNormal, "")
	r.executors = slices.DeleteFunc(r.executors, func(o *pair) bool { return o == p })
}

func (r *run) disconnectHarness(p *pair) {
	r.logf("harness %d departs", p.model.number)
	r.route.disconnectHarness(p.conn)
	r.model.disconnectHarness(p.model)
	p.conn.fail(wsconn.CodeNormal, "")
	r.harnesses = slices.DeleteFunc(r.harnesses, func(o *pair) bool { return o == p })
}

// removeClosing removes connections that the route is closing, as serve does.
func (r *run) removeClosing() {
	for _, p := range slices.Clone(r.harnesses) {
		if p.conn.isClosing != p.model.closed {
			r.fail("harness %d is closing: %v, want %v", p.model.number, p.conn.isClosing, p.model.closed)
		}
		if p.conn.isClosing {
			r.disconnectHarness(p)
		}
	}
	for i, p := range slices.Clone(r.executors) {
		if latest := i == len(r.executors)-1; p.conn.isClosing && (!latest || p.conn.code != CodeSuperseded) && r.model.executor != p.model {
			r.disconnectExecutor(p)
		} else if p.conn.isClosing {
			r.fail("executor %d is closing with %d", p.model.number, p.conn.code)
		}
	}
}

func (r *run) frame() (id, payload string) {
	r.count++
	return fmt.Sprintf("s%d", r.rand.IntN(7)), fmt.Sprint(r.count)
}

func encode(id, payload string) []byte {
	frame, err := proto.Marshal(data(id, 0, payload))
	if err != nil {
		panic(err)
	}
	return frame
}

// describe returns a frame's stream, with the reason if it is a reset.
func describe(frame []byte) string {
	decoded := new(relayv1.RelayMessageFrame)
	if err := proto.Unmarshal(frame, decoded); err != nil {
		return err.Error()
	}
	if reset := decoded.GetReset_(); reset != nil {
		return decoded.GetStreamId() + ":" + reset.GetReason()
	}
	return decoded.GetStreamId()
}

// read takes up to limit frames and compares each with the model.
func (r *run) read(p *pair, limit int) {
	for range limit {
		frame, more := taken(p.conn)
		if frame == nil {
			if more && (len(p.model.resets) > 0 || len(p.model.frames) > 0) {
				r.fail("connection %d has nothing, want %v and %v", p.model.number, p.model.resets, p.model.frames)
			}
			return
		}
		r.check(p, frame)
	}
}

func (r *run) check(p *pair, frame []byte) {
	decoded := new(relayv1.RelayMessageFrame)
	if err := proto.Unmarshal(frame, decoded); err != nil {
		r.fail("%q came: %v", frame, err)
	}
	if reset := decoded.GetReset_(); reset != nil {
		i := slices.Index(p.model.resets, pendingReset{decoded.GetStreamId(), reset.GetReason()})
		if i < 0 {
			r.fail("connection %d receives %v, want %v", p.model.number, decoded, p.model.resets)
		}
		p.model.resets = slices.Delete(p.model.resets, i, i+1)
		return
	}
	want, expected := r.model.received(p.model, decoded.GetStreamId())
	if got := string(decoded.GetData().GetPayload()); !expected || got != want {
		r.fail("connection %d receives %v, want %q (%v)", p.model.number, decoded, want, expected)
	}
}

// finish reads everything, disconnects all peers, lets all grace periods end, and
// checks that nothing is left.
func (r *run) finish() {
	for _, p := range r.harnesses {
		r.read(p, 1000)
	}
	if len(r.executors) > 0 {
		r.read(r.executors[len(r.executors)-1], 1000)
	}
	for len(r.harnesses) > 0 {
		r.disconnectHarness(r.harnesses[0])
	}
	for len(r.executors) > 0 {
		r.disconnectExecutor(r.executors[len(r.executors)-1])
	}
	r.clock.advance(time.Hour)
	x := r.route
	counts := &x.hubState.streamCounts
	held := counts.Held("ann") + counts.Held("bob")
	if !x.idle() || x.queueBudget.inUse() != 0 || held != 0 || len(x.executorResets) != 0 || len(r.clock.timers) != 0 {
		r.fail("left over: %d streams, %d bytes, %d counted streams, %v, %d timers", len(x.streams), x.queueBudget.inUse(), held, x.executorResets, len(r.clock.timers))
	}
}

// A harness receives what an executor sent before it disconnected, up to its reset.
func TestRoute_ExecutorResetsAndDisconnects_HarnessReceivesThat(t *testing.T) {
	for _, instance := range []string{"", "one"} {
		r := newRun(t, 0)
		executor, harness := newPeerConn("fleet", instance != ""), newPeerConn("ann", instance != "")
		r.route.connectExecutor(executor, instance)
		r.route.connectHarness(harness)
		r.route.handleHarnessFrame(harness, encode("ended", "1"))
		r.route.handleHarnessFrame(harness, encode("open", "1"))
		r.route.handleExecutorFrame(executor, encode("ended", "last"))
		r.route.handleExecutorFrame(executor, relay.ResetFrame("ended", relay.ReasonGoingAway))
		r.route.disconnectExecutor(executor)
		r.route.peerClosed(executor)
		var got []string
		for frame, _ := taken(harness); frame != nil; frame, _ = taken(harness) {
			got = append(got, describe(frame))
		}
		if want := []string{"open:" + relay.ReasonExecutorGone, "ended", "ended:" + relay.ReasonGoingAway}; !slices.Equal(got, want) {
			t.Errorf("instance %q: the harness receives %v, want %v", instance, got, want)
		}
		if len(r.route.streams) > 0 {
			t.Errorf("instance %q: %d streams are left", instance, len(r.route.streams))
		}
	}
}

// A stream whose executor has reset it and is gone ends with that reset, or with
// another one if its harness has another connection by then. The next executor
// receives none of its frames.
func TestRoute_ExecutorResetsAndIsReplaced_StreamEndsAndIsNotContinued(t *testing.T) {
	for _, next := range []string{"none", "", "two"} {
		r := newRun(t, 0)
		executor, harness, later := newPeerConn("fleet", true), newPeerConn("ann", true), newPeerConn("ann", true)
		r.route.connectExecutor(executor, "one")
		r.route.connectHarness(harness)
		for _, id := range []string{"kept", "moved"} {
			r.route.handleHarnessFrame(harness, encode(id, "1"))
		}
		for frame, _ := taken(executor); frame != nil; frame, _ = taken(executor) {
		}
		for _, id := range []string{"kept", "moved"} {
			r.route.handleExecutorFrame(executor, relay.ResetFrame(id, relay.ReasonGoingAway))
		}
		r.route.disconnectExecutor(executor)
		r.route.peerClosed(executor)
		replacement := newPeerConn("fleet", next != "")
		if next != "none" {
			r.route.connectExecutor(replacement, next)
		}
		r.route.connectHarness(later)
		r.route.handleHarnessFrame(harness, encode("kept", "2"))
		r.route.handleHarnessFrame(later, encode("moved", "2"))
		for c, want := range map[*peerConn]string{harness: "kept:" + relay.ReasonGoingAway, later: "moved:" + relay.ReasonExecutorGone} {
			var got []string
			for frame, _ := taken(c); frame != nil; frame, _ = taken(c) {
				got = append(got, describe(frame))
			}
			if !slices.Equal(got, []string{want}) {
				t.Errorf("next executor %q: a harness receives %v, want %v", next, got, want)
			}
		}
		if len(replacement.ready)+len(replacement.resets) > 0 {
			t.Errorf("next executor %q: it receives frames of streams that are not its own", next)
		}
		if len(r.route.streams) > 0 {
			t.Errorf("next executor %q: %d streams are left", next, len(r.route.streams))
		}
	}
}

// Frames reach the right end, once and in order, and resets are sent exactly
// once, whatever peers connect, disconnect, take over or do not read.
func TestRoute_BehavesLikeModel(t *testing.T) {
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

// taken returns the next frame to send, as if it was sent.
func taken(c *peerConn) (frame []byte, more bool) {
	frame, more = c.next()
	if frame == nil {
		return nil, more
	}
	defer c.sent(frame, true)
	return bytes.Clone(frame), more
}
