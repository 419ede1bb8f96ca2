package rendezvous

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/quota"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
)

func TestHub_OversizedFrame_ClosesOnlyItsWebsocket(t *testing.T) {
	hub := startHub(t, Config{Limits: Limits{FrameBytes: 64 << 10}})
	executor := hub.executor("build-1", "one")
	harness, neighbour := hub.harness("build-1", "ann", true), hub.harness("build-1", "bob", true)
	whole := data("a", 0, strings.Repeat("x", 60<<10))
	harness.send(whole)
	executor.expect(whole)
	harness.send(data("a", 1, strings.Repeat("x", 64<<10)))
	<-harness.over
	var closed *wsconn.ClosedError
	if !errors.As(harness.err, &closed) || closed.Code != wsconn.CodeTooLarge || !strings.Contains(closed.Reason, "65536") {
		t.Errorf("it ended with %v", harness.err)
	}
	neighbour.send(data("b", 0, "x"))
	executor.expect(data("b", 0, "x"))
}

func TestHub_ConnectionsPerPrincipal_AreLimited(t *testing.T) {
	hub := startHub(t, Config{Limits: Limits{Connections: 2}})
	hub.executor("build-1", "one")
	first := hub.harness("build-1", "ann", true)
	hub.harness("build-1", "ann", true)
	url := "ws" + strings.TrimPrefix(hub.url, "http") + "/executor/build-1?role=harness"
	expectRefused(t, url, http.Header{"Authorization": {"Bearer ann"}}, http.StatusTooManyRequests, CodeConnectionLimit)
	hub.harness("build-1", "bob", true)
	first.close()
	eventually(t, "there is space again", func() bool {
		again, err := dial(t, url, http.Header{"Authorization": {"Bearer ann"}})
		if err == nil {
			again.close()
		}
		return err == nil
	})
}

func TestHub_Streams_AreLimited(t *testing.T) {
	hub := startHub(t, Config{Limits: Limits{StreamsPerConnection: 2, StreamsPerPrincipal: 3, StreamsPerExecutor: 4}})
	executor := hub.executor("build-1", "one")
	first, second, other := hub.harness("build-1", "ann", true), hub.harness("build-1", "ann", true), hub.harness("build-1", "bob", true)
	for _, step := range []struct {
		harness *end
		stream  string
		refused bool
	}{
		{first, "a", false}, {first, "b", false}, {first, "c", true}, // of one connection
		{second, "d", false}, {second, "e", true}, // of one principal
		{other, "f", false},
	} {
		step.harness.send(data(step.stream, 0, "x"))
		if step.refused {
			step.harness.expectReset(step.stream, relay.ReasonStreamLimit)
		} else {
			executor.expect(data(step.stream, 0, "x"))
		}
	}
	// Limit of the executor: the principal and the connection with the most
	// streams lose the one that was used least recently.
	first.send(data("a", 1, "y"))
	executor.expect(data("a", 1, "y"))
	other.send(data("g", 0, "x"))
	first.expectReset("b", relay.ReasonStreamLimit)
	executor.expectReset("b", relay.ReasonStreamLimit)
	executor.expect(data("g", 0, "x"))
	third := hub.harness("build-1", "cid", true)
	third.send(data("h", 0, "x"))
	second.expectReset("d", relay.ReasonStreamLimit)
	executor.expectReset("d", relay.ReasonStreamLimit)
	executor.expect(data("h", 0, "x"))
}

// A harness with all the streams of an executor loses streams to others, until
// they have as many, and the executor never exceeds its limit.
func TestStreams_OfOneConnection_AreEvictedForOthers(t *testing.T) {
	for _, neighbour := range []string{"ann", "bob"} {
		t.Run(neighbour, func(t *testing.T) {
			hub := startHub(t, Config{})
			executor := mustDial(t, hub.registerWith("build-1", http.Header{headerInstance: {"one"}, headerStreams: {"6"}}), nil)
			heavy, light := hub.harness("build-1", "ann", true), hub.harness("build-1", neighbour, true)
			for i := range 6 {
				heavy.send(data(fmt.Sprint("a", i), 0, "x"))
				executor.expect(data(fmt.Sprint("a", i), 0, "x"))
			}
			heavy.send(data("a6", 0, "x"))
			heavy.expectReset("a6", relay.ReasonStreamLimit)
			for i := range 3 {
				light.send(data(fmt.Sprint("b", i), 0, "x"))
				heavy.expectReset(fmt.Sprint("a", i), relay.ReasonStreamLimit)
				executor.expectReset(fmt.Sprint("a", i), relay.ReasonStreamLimit)
				executor.expect(data(fmt.Sprint("b", i), 0, "x"))
			}
			light.send(data("b3", 0, "x"))
			light.expectReset("b3", relay.ReasonStreamLimit)
			heavy.send(data("a3", 1, "y"))
			executor.expect(data("a3", 1, "y"))
		})
	}
}

// A principal whose harnesses do not read cannot use up the hub's bytes.
func TestQueues_OfOnePrincipal_LeaveSpaceForOthers(t *testing.T) {
	large := strings.Repeat("x", 300<<10)
	r, _, executor, _ := bare(t, Limits{TotalQueueBytes: 4 << 20, PlainQueueBytes: 1 << 20}, "")
	connect := func(principal string) *peerConn {
		c := newPeerConn(principal, false)
		r.connectHarness(c)
		return c
	}
	echo := func(c *peerConn, id string, n int) {
		r.handleHarnessFrame(c, encode(id, "x"))
		drain(executor)
		for range n {
			r.handleExecutorFrame(executor, encode(id, large))
		}
	}
	for i := range 100 {
		echo(connect("heavy"), fmt.Sprint("h", i), 3)
	}
	held := r.queueBudget.inUse()
	if held > 2<<20 || held < 1<<20 {
		t.Errorf("one principal holds %d bytes", held)
	}
	for i := range 3 {
		c := connect("light")
		echo(c, fmt.Sprint("l", i), 1)
		if got := strings.Join(drain(c), " "); got != fmt.Sprint("l", i) {
			t.Errorf("the other one gets %q", got)
		}
	}
	if r.queueBudget.inUse() != held {
		t.Errorf("%d bytes are held, not %d", r.queueBudget.inUse(), held)
	}
}

// bare returns a route with an executor, and adds harnesses, whose connections
// nothing serves.
func bare(t *testing.T, limits Limits, instance string) (r *executorRoute, clock *fakeClock, executor *peerConn, harness func(resumable bool) *peerConn) {
	t.Helper()
	limits = limits.withDefaults()
	clock = newFakeClock()
	r = newExecutorRoute(&hubState{limits: limits, clock: clock, queueBudget: newBudget(limits.TotalQueueBytes), streamCounts: quota.Counter{Most: limits.StreamsPerPrincipal}, stats: new(stats), onLimit: func(string) {}}, "x")
	executor = newPeerConn("fleet", instance != "")
	r.connectExecutor(executor, instance)
	return r, clock, executor, func(resumable bool) *peerConn {
		c := newPeerConn("ann", resumable)
		r.connectHarness(c)
		return c
	}
}

// drain takes all frames queued for a connection, as text.
func drain(c *peerConn) (frames []string) {
	for {
		frame, _ := taken(c)
		if frame == nil {
			return frames
		}
		frames = append(frames, describe(frame))
	}
}

func TestStreams_AreServedRoundRobin(t *testing.T) {
	r, _, executor, harness := bare(t, Limits{}, "one")
	c := harness(true)
	for _, id := range []string{"a", "a", "a", "a", "b", "c", "b"} {
		r.handleHarnessFrame(c, encode(id, "x"))
	}
	if got := strings.Join(drain(executor), " "); got != "a b c a b a a" {
		t.Errorf("the order is %s", got)
	}
}

func TestQueue_Full_EndsOnlyItsStream(t *testing.T) {
	r, _, executor, harness := bare(t, Limits{PlainQueueBytes: 4 * minFrameBytes}, "one")
	c := harness(false)
	for range 5 {
		r.handleHarnessFrame(c, encode("a", "x"))
	}
	r.handleHarnessFrame(c, encode("b", "x"))
	r.handleHarnessFrame(c, encode("a", "late"))
	if got := strings.Join(drain(executor), " "); got != "b" {
		t.Errorf("the executor gets %s: it has seen nothing of a yet", got)
	}
	if got := strings.Join(drain(c), " "); got != "a:slow_consumer" {
		t.Errorf("the harness gets %s", got)
	}
}

// Frames that do not fit are dropped if the ends retransmit, until the queue is
// stuck.
func TestQueue_FullAndResumable_EndsWhenStuck(t *testing.T) {
	r, clock, executor, harness := bare(t, Limits{QueueBytes: 2 * minFrameBytes}, "one")
	c := harness(true)
	send := func(n int) {
		for range n {
			r.handleHarnessFrame(c, encode("a", "x"))
		}
	}
	send(5)
	clock.advance(DefaultStreamGrace - time.Second)
	send(1)
	if got := strings.Join(drain(executor), " "); got != "a a" {
		t.Errorf("the executor gets %s", got)
	}
	clock.advance(2 * time.Second)
	send(5) // something has left the queue since
	clock.advance(DefaultStreamGrace)
	send(1)
	if got := strings.Join(drain(executor), " "); got != "a:slow_consumer" {
		t.Errorf("the executor gets %s", got)
	}
	if got := strings.Join(drain(c), " "); got != "a:slow_consumer" {
		t.Errorf("the harness gets %s", got)
	}
	if n := r.stats.dropped[dropFull].Load(); n != 4+4 {
		t.Errorf("%d frames did not fit", n)
	}
}

func TestQueues_OfConnectionAndHub_AreBounded(t *testing.T) {
	large := strings.Repeat("x", 2*reservedBytes)
	for name, limits := range map[string]Limits{"connection": {ConnectionQueueBytes: 7 * reservedBytes}, "hub": {TotalQueueBytes: 6*reservedBytes + reservedBytes/2}} {
		r, _, executor, harness := bare(t, limits, "")
		c := harness(false)
		for _, id := range []string{"a", "b", "c", "d"} {
			r.handleHarnessFrame(c, encode(id, large))
		}
		if got := strings.Join(drain(c), " "); got != "d:slow_consumer" {
			t.Errorf("%s: the harness gets %s", name, got)
		}
		if got := strings.Join(drain(executor), " "); got != "a b c" || r.queueBudget.inUse() != 0 || executor.queuedBytes != 0 {
			t.Errorf("%s: the executor gets %s, and %d bytes are left", name, got, r.queueBudget.inUse())
		}
	}
}

// A sender that floods a slow executor loses its own stream.
func TestQueues_AtLimit_LongestIsCleared(t *testing.T) {
	for instance, want := range map[string]string{"": "b c", "one": "b c"} {
		r, _, executor, harness := bare(t, Limits{ConnectionQueueBytes: 10 * minFrameBytes}, instance)
		flood, quiet := harness(instance != ""), harness(instance != "")
		for range 10 {
			r.handleHarnessFrame(flood, encode("a", "x"))
		}
		r.handleHarnessFrame(quiet, encode("b", "x"))
		r.handleHarnessFrame(quiet, encode("c", "x"))
		if got := strings.Join(drain(executor), " "); got != want {
			t.Errorf("%q: the executor gets %s, want %s", instance, got, want)
		}
		resets := map[string]string{"": "a:slow_consumer", "one": ""}[instance]
		if got := strings.Join(drain(flood), " "); got != resets || len(drain(quiet)) != 0 {
			t.Errorf("%q: the harness is told %q", instance, got)
		}
		if r.queueBudget.inUse() != 0 || executor.queuedBytes != 0 {
			t.Errorf("%q: %d and %d bytes are left", instance, r.queueBudget.inUse(), executor.queuedBytes)
		}
	}
}

// Streams with little data are not affected by a full hub.
func TestQueues_WithinReserve_AlwaysFit(t *testing.T) {
	r, _, executor, harness := bare(t, Limits{TotalQueueBytes: 1}, "")
	c := harness(false)
	r.handleHarnessFrame(c, encode("a", strings.Repeat("x", reservedBytes/2)))
	r.handleHarnessFrame(c, encode("b", "x"))
	r.handleHarnessFrame(c, encode("a", strings.Repeat("x", reservedBytes)))
	if got := strings.Join(append(drain(executor), drain(c)...), " "); got != "b a:slow_consumer" {
		t.Errorf("%s comes", got)
	}
}

func TestStreams_Idle_AreForgotten(t *testing.T) {
	r, clock, _, harness := bare(t, Limits{}, "one")
	c, plain := harness(true), harness(false)
	r.handleHarnessFrame(c, encode("a", "x"))
	r.handleHarnessFrame(c, encode("b", "x"))
	r.handleHarnessFrame(plain, encode("p", "x"))
	clock.advance(DefaultStreamIdle - time.Second)
	r.handleHarnessFrame(c, encode("b", "x"))
	r.endIdleStreams()
	if r.streamCount() != 3 {
		t.Errorf("there are %d streams", r.streamCount())
	}
	clock.advance(time.Second)
	r.endIdleStreams()
	if _, there := r.streams["a"]; there || r.streamCount() != 2 {
		t.Errorf("there are %d streams", r.streamCount())
	}
}

func TestPeerConn_UnreadResets_CloseIt(t *testing.T) {
	r, _, _, harness := bare(t, Limits{StreamsPerConnection: 1, StreamsPerExecutor: 2}, "one")
	c := harness(true)
	for _, id := range []string{"a", "b", "c", "d"} { // all but the first exceed the limit
		r.handleHarnessFrame(c, encode(id, "x"))
	}
	if c.isClosing {
		t.Error("it is closed after three resets")
	}
	r.handleHarnessFrame(c, encode("e", "x"))
	if code, reason := c.closeStatus(); !c.isClosing || code != wsconn.CodePolicy || reason != relay.ReasonSlowConsumer {
		t.Errorf("it is closed: %v, with %d and %q", c.isClosing, code, reason)
	}
}

func TestRoute_MalformedFrames_AreDropped(t *testing.T) {
	hub := startHub(t, Config{})
	executor := hub.executor("build-1", "one")
	harness := hub.harness("build-1", "ann", false)
	for _, junk := range []string{"", "junk", "\x12\x00", "\x12\x02 a", "\x12\x01\xff", "\x12\x81\x01" + strings.Repeat("x", 129), "\x12\x05a"} {
		if err := harness.conn.Send([]byte(junk)); err != nil {
			t.Fatal(err)
		}
	}
	harness.send(data("a", 0, "x"))
	executor.expect(data("a", 0, "x"))
	if n := hub.shared.stats.dropped[dropMalformed].Load(); n != 7 {
		t.Errorf("%d frames were dropped as malformed, want 7", n)
	}
}
