package rendezvous

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	relayv1 "github.com/execwire/execwire/gen/go/codex/exec_server/relay/v1"
	"github.com/execwire/execwire/relay"
)

// The frames are those recorded from the reference implementation (OBSERVED): no
// acknowledgements, and no headers of this project.
func TestHub_ReferencePeers_ExchangeFrames(t *testing.T) {
	hub := startHub(t, Config{})
	executor := hub.executor("build-1", "")
	harness, neighbour := hub.harness("build-1", "ann", false), hub.harness("build-1", "bob", false)
	resume := &relayv1.RelayMessageFrame{Version: 1, StreamId: "a", Body: &relayv1.RelayMessageFrame_Resume{Resume: &relayv1.RelayResume{}}}
	harness.send(resume, data("a", 0, `{"id":1}`))
	executor.expect(resume)
	executor.expect(data("a", 0, `{"id":1}`))
	neighbour.send(data("b", 0, `{"id":2}`))
	executor.expect(data("b", 0, `{"id":2}`))
	executor.send(data("b", 0, `{"to":"bob"}`), data("a", 0, `{"to":"ann"}`), data("unknown", 0, "x"), data("a", 1, "more"))
	harness.expect(data("a", 0, `{"to":"ann"}`))
	harness.expect(data("a", 1, "more"))
	neighbour.expect(data("b", 0, `{"to":"bob"}`))

	harness.close()
	executor.expectReset("a", relay.ReasonHarnessGone)
	executor.close()
	neighbour.expectReset("b", relay.ReasonExecutorGone)
	neighbour.send(data("c", 0, "late"))
	neighbour.expectReset("c", relay.ReasonExecutorGone)
}

// An executor and a harness that retransmit continue their stream on other
// websockets; plain streams beside it end.
func TestHub_ResumableStreams_SurviveReconnect(t *testing.T) {
	hub := startHub(t, Config{})
	const instance = "8d3f7b52-7d0e-4d2e-9d25-1f6c8b2c1a01"
	executor := hub.executor("build-1", instance)
	harness, plain := hub.harness("build-1", "ann", true), hub.harness("build-1", "ann", false)
	harness.send(data("a", 0, "1"))
	executor.expect(data("a", 0, "1"))
	plain.send(data("p", 0, "1"))
	executor.expect(data("p", 0, "1"))

	executor.cut()
	plain.expectReset("p", relay.ReasonExecutorGone)
	executor = hub.executor("build-1", instance)
	executor.expectReset("p", relay.ReasonExecutorGone)
	executor.send(data("a", 0, "2"))
	harness.expect(data("a", 0, "2"))

	harness.cut()
	harness = hub.harness("build-1", "ann", true)
	harness.send(data("a", 1, "3"))
	executor.expect(data("a", 1, "3"))
	executor.send(data("a", 1, "4"))
	harness.expect(data("a", 1, "4"))
}

func TestHub_NewInstance_TakesOverAndEndsStreams(t *testing.T) {
	hub := startHub(t, Config{})
	first := hub.executor("build-1", "one")
	late := hub.register("build-1", "three") // connects after the next
	harness := hub.harness("build-1", "ann", true)
	harness.send(data("a", 0, "1"))
	first.expect(data("a", 0, "1"))
	second := hub.executor("build-1", "two")
	first.expectClosed(CodeSuperseded, reasonSuperseded)
	harness.expectReset("a", relay.ReasonExecutorGone)
	harness.send(data("b", 0, "2"))
	second.expect(data("b", 0, "2"))

	expectRefused(t, late, nil, http.StatusConflict, codeSuperseded)
	second.send(data("b", 0, "3"))
	harness.expect(data("b", 0, "3"))
}

// A principal cannot join a stream of another.
func TestHub_Stream_BelongsToItsPrincipal(t *testing.T) {
	hub := startHub(t, Config{})
	executor := hub.executor("build-1", "one")
	harness, thief := hub.harness("build-1", "ann", true), hub.harness("build-1", "bob", true)
	harness.send(data("a", 0, "1"))
	executor.expect(data("a", 0, "1"))
	thief.send(data("a", 1, "stolen"), data("b", 0, "own"))
	executor.expect(data("b", 0, "own"))
	executor.send(data("a", 0, "for ann"), data("b", 0, "for bob"))
	harness.expect(data("a", 0, "for ann"))
	thief.expect(data("b", 0, "for bob"))
	harness.cut()
	thief.send(data("a", 2, "stolen"), data("b", 1, "own"))
	executor.expect(data("b", 1, "own"))
	if n := hub.shared.stats.dropped[dropForbidden].Load(); n != 2 {
		t.Errorf("%d frames were dropped as foreign, want 2", n)
	}
}

func TestHub_Close_NotifiesPeers(t *testing.T) {
	hub := startHub(t, Config{})
	executor := hub.executor("build-1", "one")
	harness, plain := hub.harness("build-1", "ann", true), hub.harness("build-1", "bob", false)
	harness.send(data("a", 0, "1"))
	executor.expect(data("a", 0, "1"))
	plain.send(data("p", 0, "1"))
	executor.expect(data("p", 0, "1"))
	closed := make(chan error, 1)
	go func() { closed <- hub.Close() }()
	plain.expectReset("p", relay.ReasonGoingAway)
	executor.expectReset("p", relay.ReasonGoingAway)
	for _, e := range []*end{plain, harness, executor} {
		e.expectClosed(1001, relay.ReasonGoingAway)
		e.close()
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// size returns the number of streams of build-1.
func (h *testHub) size() int { return h.routes.lookup("build-1").streamCount() }

func reset(stream, reason string) *relayv1.RelayMessageFrame {
	return &relayv1.RelayMessageFrame{Version: 1, StreamId: stream,
		Body: &relayv1.RelayMessageFrame_Reset_{Reset_: &relayv1.RelayReset{Reason: reason}}}
}

// A peer that opens and ends streams one after another does not exhaust the
// limits.
func TestHub_ResetByPeer_ReleasesStream(t *testing.T) {
	hub := startHub(t, Config{Limits: Limits{StreamsPerConnection: 1}})
	executor := hub.executor("build-1", "one")
	harness, plain := hub.harness("build-1", "ann", true), hub.harness("build-1", "bob", false)
	for i := range 10 {
		for _, h := range []*end{harness, plain} {
			id := fmt.Sprint("s", i)
			h.send(data(id, 0, "x"), data(id, 1, "y"))
			executor.expect(data(id, 0, "x"))
			executor.expect(data(id, 1, "y"))
			if i%2 == 0 {
				h.send(reset(id, "closed"))
				executor.expect(reset(id, "closed"))
			} else {
				executor.send(data(id, 0, "last words"), reset(id, "closed"))
				h.expect(data(id, 0, "last words"))
				h.expect(reset(id, "closed"))
			}
			eventually(t, "the stream is forgotten", func() bool { return hub.size() == 0 })
		}
	}
	plain.send(data("again", 0, "x"), reset("again", "closed"), data("again", 0, "y"))
	for _, want := range []*relayv1.RelayMessageFrame{data("again", 0, "x"), reset("again", "closed"), data("again", 0, "y")} {
		executor.expect(want)
	}
	if n := hub.size(); n != 1 {
		t.Errorf("there are %d streams after one was begun again", n)
	}
}

// There is no grace period for a peer that closed its websocket normally.
func TestHub_NormalClose_HasNoGracePeriod(t *testing.T) {
	hub := startHub(t, Config{Limits: Limits{StreamGrace: time.Hour}})
	executor := hub.executor("build-1", "one")
	harness, other := hub.harness("build-1", "ann", true), hub.harness("build-1", "bob", true)
	harness.send(data("a", 0, "x"))
	executor.expect(data("a", 0, "x"))
	harness.close()
	executor.expectReset("a", relay.ReasonHarnessGone)
	other.send(data("b", 0, "x"))
	executor.expect(data("b", 0, "x"))
	executor.close()
	other.expectReset("b", relay.ReasonExecutorGone)
	eventually(t, "nothing is waited for", func() bool {
		x := hub.routes.lookup("build-1")
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.executorGrace == nil && len(x.streams) == 0
	})
}

// slowMemory is a presence whose Put returns only after the record was read.
type slowMemory struct {
	*Memory
	once          sync.Once
	written, read chan struct{}
}

func (s *slowMemory) Get(ctx context.Context, id string) (Record, uint64, error) {
	record, revision, err := s.Memory.Get(ctx, id)
	if record.Online {
		select {
		case s.read <- struct{}{}:
		default:
		}
	}
	return record, revision, err
}

func (s *slowMemory) Put(ctx context.Context, record Record, revision uint64) (uint64, error) {
	revision, err := s.Memory.Put(ctx, record, revision)
	if record.Online {
		s.once.Do(func() { close(s.written) })
		<-s.read
	}
	return revision, err
}

// A harness that has read that an executor is connected can connect to it.
func TestHub_RecordedExecutor_IsReachable(t *testing.T) {
	presence := &slowMemory{Memory: NewMemory(), written: make(chan struct{}), read: make(chan struct{}, 1)}
	hub := startHub(t, Config{Presence: presence})
	url := hub.register("build-1", "")
	var connecting sync.WaitGroup
	connecting.Go(func() {
		if _, err := dial(t, url, nil); err != nil {
			t.Error(err)
		}
	})
	<-presence.written
	_, body := hub.ask(http.MethodGet, "/v1/executors", "ann", nil)
	if list, _ := body["executors"].([]any); len(list) != 1 || list[0].(map[string]any)["connected"] != true {
		t.Errorf("the list is %v", body)
	}
	if err := hub.checkReachable(t.Context(), "build-1", false); err != nil {
		t.Errorf("a harness is refused: %v", err)
	}
	connecting.Wait()
}

// Frames keep their content in the queues while further frames are received and
// the buffers of sent ones are reused.
func TestHub_QueuedFrames_KeepTheirContent(t *testing.T) {
	hub := startHub(t, Config{})
	executor := mustDialUnread(t, hub.register("build-1", ""), nil)
	const harnesses, frames = 4, 60
	payload := func(stream string, seq uint32) string {
		size := []int{1, 900, 3 << 10, 3900, 40 << 10, 62 << 10, 65_400, 100_000}[seq%8]
		return strings.Repeat(string(rune('a'+(int(stream[1])+int(seq))%26)), size)
	}
	var sending sync.WaitGroup
	for i := range harnesses {
		stream := fmt.Sprintf("s%d", i)
		harness := hub.harness("build-1", "ann", false)
		sending.Go(func() {
			for seq := range uint32(frames) {
				harness.send(data(stream, seq, payload(stream, seq)))
			}
		})
	}
	eventually(t, "frames are queued", func() bool { return hub.shared.queueBudget.inUse() > 1<<20 })
	executor.read()
	next := map[string]uint32{}
	for range harnesses * frames {
		got := executor.next()
		stream := got.GetStreamId()
		if want := data(stream, next[stream], payload(stream, next[stream])); !proto.Equal(got, want) {
			t.Fatalf("frame %d of %s has another content", next[stream], stream)
		}
		next[stream]++
	}
	sending.Wait()
}

// A stream that the hub opens itself is like that of a harness, for both ends: it counts
// for its principal, ends with either end, and the hub waits for it.
func TestHub_OwnStream_IsAHarness(t *testing.T) {
	hub := startHub(t, Config{Limits: Limits{Connections: 2}})
	if _, err := hub.Open(t.Context(), "ann", "build-1"); refusalOf(err).Code != codeExecutorNotFound {
		t.Errorf("an unknown executor: %v", err)
	}
	executor := relay.NewEndpoint(relay.Config{Role: relay.Executor})
	websocket := mustDialUnread(t, hub.register("build-1", "8d3f7b52-7d0e-4d2e-9d25-1f6c8b2c1a01"), nil)
	var running sync.WaitGroup
	running.Go(func() { _ = executor.Run(context.Background(), websocket.conn) })
	t.Cleanup(func() {
		_ = executor.Close(relay.ReasonGoingAway)
		running.Wait()
	})
	open := func() (near, far net.Conn) {
		t.Helper()
		near, err := hub.Open(t.Context(), "ann", "build-1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(near, "to the executor"); err != nil {
			t.Fatal(err)
		}
		stream, err := executor.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return near, relay.NewConn(stream)
	}
	expect := func(what string, from net.Conn, text string, end bool) {
		t.Helper()
		got := make([]byte, len(text))
		if _, err := io.ReadFull(from, got); err != nil || string(got) != text {
			t.Fatalf("%s: %q, %v", what, got, err)
		}
		if !end {
			return
		}
		if _, err := from.Read(make([]byte, 1)); err == nil {
			t.Fatalf("%s: more", what)
		}
	}
	near, far := open()
	large := strings.Repeat("from the executor ", 1<<16) // several windows would not fit a queue
	running.Go(func() { _, _ = io.WriteString(far, large) })
	expect("near", near, large, false)
	other, _ := open()
	if _, err := hub.Open(t.Context(), "ann", "build-1"); refusalOf(err).Code != CodeConnectionLimit {
		t.Errorf("one connection too many: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "a closed stream is not counted", func() bool { return hub.routes.lookup("build-1").streamCount() == 1 })
	if err := near.Close(); err != nil {
		t.Error(err)
	}
	expect("the executor after the end", far, "to the executor", true)
	eventually(t, "the connections are not counted", func() bool { return hub.connCounts.Held("ann") == 0 })

	near, far = open()
	if err := hub.Close(); err != nil {
		t.Error(err)
	}
	expect("near, when the hub has closed", near, "", true)
	_ = near.Close()
	_ = far.Close()
	if _, err := hub.Open(t.Context(), "ann", "build-1"); err == nil {
		t.Error("a closed hub opens a stream")
	}
}
