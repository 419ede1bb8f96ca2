package rendezvous

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
)

func TestLimitsBelowZeroAreRefused(t *testing.T) {
	for name, l := range map[string]Limits{
		"FrameBytes": {FrameBytes: -1}, "QueueBytes": {QueueBytes: -1}, "PlainQueueBytes": {PlainQueueBytes: -1},
		"ConnectionQueueBytes": {ConnectionQueueBytes: -1}, "TotalQueueBytes": {TotalQueueBytes: -1}, "Connections": {Connections: -1},
		"StreamsPerConnection": {StreamsPerConnection: -1}, "StreamsPerPrincipal": {StreamsPerPrincipal: -1},
		"StreamsPerExecutor": {StreamsPerExecutor: -1}, "Executors": {Executors: -1}, "ExecutorsPerPrincipal": {ExecutorsPerPrincipal: -1}, "StreamGrace": {StreamGrace: -1},
		"StreamIdle": {StreamIdle: -1}, "URLLifetime": {URLLifetime: -1}, "ExecutorRetention": {ExecutorRetention: -1},
		"PresenceInterval": {PresenceInterval: -1},
	} {
		_, err := New(Config{Limits: l})
		var typed *LimitsError
		if !errors.As(err, &typed) || typed.Name != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAFrameBeyondTheLimitEndsItsWebsocketOnly(t *testing.T) {
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

func TestConnectionsOfAPrincipalAreLimited(t *testing.T) {
	hub := startHub(t, Config{Limits: Limits{Connections: 2}})
	hub.executor("build-1", "one")
	first := hub.harness("build-1", "ann", true)
	hub.harness("build-1", "ann", true)
	url := "ws" + strings.TrimPrefix(hub.url, "http") + "/executor/build-1?role=harness"
	expectRefused(t, url, http.Header{"Authorization": {"Bearer ann"}}, http.StatusTooManyRequests, codeConnectionLimit)
	hub.harness("build-1", "bob", true)
	first.close()
	eventually(t, "there is room again", func() bool {
		again, err := dial(t, url, http.Header{"Authorization": {"Bearer ann"}})
		if err == nil {
			again.close()
		}
		return err == nil
	})
}

func TestStreamsAreLimited(t *testing.T) {
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
	// Of the executor: one gives way of the principal and the connection with the
	// most, the one that was used least recently.
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

// A harness with all the streams of an executor leaves its place to others, up to
// as many as it has itself, and the executor is never sent more than it takes.
func TestStreams_OfOneConnection_GiveWayToOthers(t *testing.T) {
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

// One principal whose harnesses do not read holds a part of the hub's bytes, and
// what another sends has room.
func TestQueues_OfOnePrincipal_LeaveRoomToOthers(t *testing.T) {
	large := strings.Repeat("x", 300<<10)
	x, _, executor, _ := bare(t, Limits{TotalQueueBytes: 4 << 20, PlainQueueBytes: 1 << 20}, "")
	connect := func(principal string) *line {
		l := newLine(principal, false)
		x.connectHarness(l)
		return l
	}
	echo := func(l *line, id string, n int) {
		x.fromHarness(l, encode(id, "x"))
		drain(executor)
		for range n {
			x.fromExecutor(executor, encode(id, large))
		}
	}
	for i := range 100 {
		echo(connect("heavy"), fmt.Sprint("h", i), 3)
	}
	held := x.total.inUse()
	if held > 2<<20 || held < 1<<20 {
		t.Errorf("one principal holds %d bytes", held)
	}
	for i := range 3 {
		l := connect("light")
		echo(l, fmt.Sprint("l", i), 1)
		if got := strings.Join(drain(l), " "); got != fmt.Sprint("l", i) {
			t.Errorf("the other one gets %q", got)
		}
	}
	if x.total.inUse() != held {
		t.Errorf("%d bytes are held, not %d", x.total.inUse(), held)
	}
}

// bare is an exchange with an executor and lines of harnesses that nobody serves.
func bare(t *testing.T, limits Limits, instance string) (x *exchange, clock *fakeClock, executor *line, harness func(resumable bool) *line) {
	t.Helper()
	limits, err := limits.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	clock = newFakeClock()
	x = newExchange(&hubwide{limits: limits, clock: clock, total: newBudget(limits.TotalQueueBytes), streams: newTally(), counts: new(counts)}, "x")
	executor = newLine("fleet", instance != "")
	x.connectExecutor(executor, instance)
	return x, clock, executor, func(resumable bool) *line {
		l := newLine("ann", resumable)
		x.connectHarness(l)
		return l
	}
}

// drain takes all that waits for a line, as texts.
func drain(l *line) (said []string) {
	for {
		frame, _ := l.next()
		if frame == nil {
			return said
		}
		said = append(said, describe(frame))
	}
}

func TestStreamsTakeTurns(t *testing.T) {
	x, _, executor, harness := bare(t, Limits{}, "one")
	l := harness(true)
	for _, id := range []string{"a", "a", "a", "a", "b", "c", "b"} {
		x.fromHarness(l, encode(id, "x"))
	}
	if got := strings.Join(drain(executor), " "); got != "a b c a b a a" {
		t.Errorf("the order is %s", got)
	}
}

func TestAFullQueueEndsItsStreamOnly(t *testing.T) {
	x, _, executor, harness := bare(t, Limits{PlainQueueBytes: 4 * minFrameBytes}, "one")
	l := harness(false)
	for range 5 {
		x.fromHarness(l, encode("a", "x"))
	}
	x.fromHarness(l, encode("b", "x"))
	x.fromHarness(l, encode("a", "late"))
	if got := strings.Join(drain(executor), " "); got != "b" {
		t.Errorf("the executor gets %s: it has seen nothing of a yet", got)
	}
	if got := strings.Join(drain(l), " "); got != "a:slow_consumer" {
		t.Errorf("the harness gets %s", got)
	}
}

// What does not fit is sent again by ends that do that, unless nothing moves.
func TestAFullQueueOfEndsThatRetransmitEndsWhenNothingMoves(t *testing.T) {
	x, clock, executor, harness := bare(t, Limits{QueueBytes: 2 * minFrameBytes}, "one")
	l := harness(true)
	send := func(n int) {
		for range n {
			x.fromHarness(l, encode("a", "x"))
		}
	}
	send(5)
	clock.advance(DefaultStreamGrace - time.Second)
	send(1)
	if got := strings.Join(drain(executor), " "); got != "a a" {
		t.Errorf("the executor gets %s", got)
	}
	clock.advance(2 * time.Second)
	send(5) // something has left since
	clock.advance(DefaultStreamGrace)
	send(1)
	if got := strings.Join(drain(executor), " "); got != "a:slow_consumer" {
		t.Errorf("the executor gets %s", got)
	}
	if got := strings.Join(drain(l), " "); got != "a:slow_consumer" {
		t.Errorf("the harness gets %s", got)
	}
	if n := x.counts.dropped[dropFull].Load(); n != 4+4 {
		t.Errorf("%d frames did not fit", n)
	}
}

func TestQueuesOfAConnectionAndOfTheHubAreBounded(t *testing.T) {
	large := strings.Repeat("x", 2*ownBytes)
	for name, limits := range map[string]Limits{"connection": {ConnectionQueueBytes: 7 * ownBytes}, "hub": {TotalQueueBytes: 6*ownBytes + ownBytes/2}} {
		x, _, executor, harness := bare(t, limits, "")
		l := harness(false)
		for _, id := range []string{"a", "b", "c", "d"} {
			x.fromHarness(l, encode(id, large))
		}
		if got := strings.Join(drain(l), " "); got != "d:slow_consumer" {
			t.Errorf("%s: the harness gets %s", name, got)
		}
		if got := strings.Join(drain(executor), " "); got != "a b c" || x.total.inUse() != 0 || executor.queued != 0 {
			t.Errorf("%s: the executor gets %s, and %d bytes are left", name, got, x.total.inUse())
		}
	}
}

// Who floods an executor that is slow is the one who loses.
func TestTheLongestQueueGivesWay(t *testing.T) {
	for instance, want := range map[string]string{"": "b c", "one": "b c"} {
		x, _, executor, harness := bare(t, Limits{ConnectionQueueBytes: 10 * minFrameBytes}, instance)
		flood, quiet := harness(instance != ""), harness(instance != "")
		for range 10 {
			x.fromHarness(flood, encode("a", "x"))
		}
		x.fromHarness(quiet, encode("b", "x"))
		x.fromHarness(quiet, encode("c", "x"))
		if got := strings.Join(drain(executor), " "); got != want {
			t.Errorf("%q: the executor gets %s, want %s", instance, got, want)
		}
		told := map[string]string{"": "a:slow_consumer", "one": ""}[instance]
		if got := strings.Join(drain(flood), " "); got != told || len(drain(quiet)) != 0 {
			t.Errorf("%q: the harness is told %q", instance, got)
		}
		if x.total.inUse() != 0 || executor.queued != 0 {
			t.Errorf("%q: %d and %d bytes are left", instance, x.total.inUse(), executor.queued)
		}
	}
}

// What little a stream sends has room when the hub is full.
func TestLittleAlwaysHasRoom(t *testing.T) {
	x, _, executor, harness := bare(t, Limits{TotalQueueBytes: 1}, "")
	l := harness(false)
	x.fromHarness(l, encode("a", strings.Repeat("x", ownBytes/2)))
	x.fromHarness(l, encode("b", "x"))
	x.fromHarness(l, encode("a", strings.Repeat("x", ownBytes)))
	if got := strings.Join(append(drain(executor), drain(l)...), " "); got != "b a:slow_consumer" {
		t.Errorf("%s comes", got)
	}
}

func TestAStreamThatNobodyUsesIsForgotten(t *testing.T) {
	x, clock, _, harness := bare(t, Limits{}, "one")
	l, plain := harness(true), harness(false)
	x.fromHarness(l, encode("a", "x"))
	x.fromHarness(l, encode("b", "x"))
	x.fromHarness(plain, encode("p", "x"))
	clock.advance(DefaultStreamIdle - time.Second)
	x.fromHarness(l, encode("b", "x"))
	x.forget()
	if x.size() != 3 {
		t.Errorf("there are %d streams", x.size())
	}
	clock.advance(time.Second)
	x.forget()
	if _, there := x.streams["a"]; there || x.size() != 2 {
		t.Errorf("there are %d streams", x.size())
	}
}

func TestWhoDoesNotReadResetsIsClosed(t *testing.T) {
	x, _, _, harness := bare(t, Limits{StreamsPerConnection: 1, StreamsPerExecutor: 2}, "one")
	l := harness(true)
	for _, id := range []string{"a", "b", "c", "d"} { // all but the first beyond the limit
		x.fromHarness(l, encode(id, "x"))
	}
	if l.over {
		t.Error("it is closed after three resets")
	}
	x.fromHarness(l, encode("e", "x"))
	if code, reason := l.ending(); !l.over || code != wsconn.CodePolicy || reason != relay.ReasonSlowConsumer {
		t.Errorf("it is closed: %v, with %d and %q", l.over, code, reason)
	}
}

func TestMalformedFramesAreDropped(t *testing.T) {
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
	if n := hub.shared.counts.dropped[dropMalformed].Load(); n != 7 {
		t.Errorf("%d frames were dropped as malformed, want 7", n)
	}
}
