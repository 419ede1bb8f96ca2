package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/testrace"
	"github.com/execwire/execwire/internal/wsconn"
)

// checkOrder checks that responses precede the notifications that they cause:
// that of a start all of its process. It also checks that seqs are contiguous.
func checkOrder(t *testing.T, frames []frame, starts map[string]string) {
	t.Helper()
	answered, seqs := map[string]bool{}, map[string]uint64{}
	for i, f := range frames {
		if f.Method == "" {
			answered[string(f.ID)] = true
			continue
		}
		id := f.Params.ProcessID
		if !answered[starts[id]] {
			t.Fatalf("frame %d, %s, precedes the response to the start", i, f.raw)
		}
		if f.Params.Seq != seqs[id]+1 {
			t.Fatalf("frame %d, %s, follows seq %d", i, f.raw, seqs[id])
		}
		seqs[id]++
	}
}

// Many of a thousand processes run at a time on one connection.
func TestResponses_PrecedeEffects(t *testing.T) {
	testrace.Slow(t)
	const runs, atOnce = 1000, 16
	cl, _ := newTestServer(t).attach("")
	starts := map[string]string{}
	for i := range runs {
		if i >= atOnce {
			cl.event(fmt.Sprint("p", i-atOnce), "process/closed")
		}
		id := fmt.Sprint("p", i)
		starts[id] = cl.ask("process/start", startOf(id, "echo a; echo b >&2; exit 3"))
	}
	for id := range starts {
		if text, code := cl.output(id, 1); len(text) != 4 || code != 3 {
			t.Fatalf("%s wrote %q and exited with %d", id, text, code)
		}
	}
	checkOrder(t, cl.all(), starts)
}

func TestResponses_WriteAndTerminate_PrecedeEffects(t *testing.T) {
	cl, _ := newTestServer(t, patientHolds).attach("")
	for i := range 50 {
		id := fmt.Sprint("p", i)
		start := cl.ask("process/start", startOf(id, "exec cat", "pipeStdin", true))
		write := cl.ask("process/write", writeOf(id, "x"))
		cl.event(id, "process/output")
		end := cl.ask("process/terminate", map[string]any{"processId": id})
		cl.event(id, "process/closed")
		checkOrder(t, cl.all(), map[string]string{id: start})
		place := map[string]int{}
		for n, f := range cl.all() {
			if f.Params.ProcessID == id {
				place[f.Method] = n
			} else if f.Method == "" {
				place[string(f.ID)] = n
			}
		}
		if place[write] > place["process/output"] || place[end] > place["process/exited"] {
			t.Fatalf("an effect precedes its response: %s", summary(cl.all()))
		}
		cl.mu.Lock()
		cl.frames = nil
		cl.mu.Unlock()
	}
}

func TestRequests_Pipelined_SeeEarlierEffects(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	for i := range 20 {
		id := fmt.Sprint("p", i)
		start := cl.ask("process/start", startOf(id, "cat; exit 5", "pipeStdin", true))
		var writes []string
		for n := range 20 {
			writes = append(writes, cl.ask("process/write", writeOf(id, fmt.Sprintf("%02d ", n))))
		}
		read := cl.ask("process/read", map[string]any{"processId": id})
		again := cl.ask("process/start", startOf(id, "true"))
		for _, ask := range append(writes, start, read) {
			if f := cl.reply(ask); f.Error != nil {
				t.Fatalf("%s", f.raw)
			}
		}
		if f := cl.reply(again); f.Error == nil || f.Error.Code != -32600 {
			t.Fatalf("a second start: got %s", f.raw)
		}
		want := ""
		for n := range 20 {
			want += fmt.Sprintf("%02d ", n)
		}
		cl.wait("the echo", func(frame) bool { return len(outputIn(cl.frames, id)) >= len(want) })
		if got := outputIn(cl.all(), id); got != want {
			t.Fatalf("the writes were echoed as %q", got)
		}
	}
	// A failed start unblocks the requests that wait for it.
	start := cl.ask("process/start", startOf("none", "true", "argv", []string{"/no/such"}))
	write := cl.ask("process/write", writeOf("none", "x"))
	end := cl.ask("process/terminate", map[string]any{"processId": "none"})
	if f := cl.reply(start); f.Error == nil {
		t.Errorf("%s", f.raw)
	}
	if f := cl.reply(write); !strings.Contains(string(f.Result), "unknownProcess") {
		t.Errorf("%s", f.raw)
	}
	if f := cl.reply(end); !strings.Contains(string(f.Result), "false") {
		t.Errorf("%s", f.raw)
	}
}

// A third request waits for the stuck write.
func TestRequests_LongPollAndStuckWrite_DelayNothingElse(t *testing.T) {
	cl, _ := newTestServer(t, func(s *serverSettings) { s.limits.StdinQueueBytes = 4096 }).attach("")
	cl.start("deaf", "echo ready; exec sleep 1000", "pipeStdin", true)
	cl.event("deaf", "process/output")
	cl.start("other", "exec cat", "pipeStdin", true)
	poll := cl.ask("process/read", map[string]any{"processId": "other", "waitMs": 3_600_000})
	var stuck []string
	for range 100 {
		stuck = append(stuck, cl.ask("process/write", writeOf("deaf", strings.Repeat("x", 4096))))
	}
	cl.must("environment/status", nil)
	cl.must("process/write", writeOf("other", "heard"))
	cl.event("other", "process/output")
	if f := cl.reply(poll); f.Error != nil || !strings.Contains(string(f.Result), `"nextSeq":2`) {
		t.Errorf("the poll: got %s", f.raw)
	}
	if got := cl.readOutput("deaf"); got.text() != "ready\n" {
		t.Errorf("%+v", got)
	}
	cl.must("process/terminate", map[string]any{"processId": "deaf"})
	cl.event("deaf", "process/closed")
	for _, ask := range stuck {
		cl.reply(ask)
	}
}

// The process writes output and does not read its input.
func TestEventGate_StuckWrite_IsLimited(t *testing.T) {
	cl, _ := newTestServer(t, func(s *serverSettings) { s.limits.StdinQueueBytes = 4096 }).attach("")
	cl.start("p", "while :; do echo tick; sleep 0.01; done", "pipeStdin", true)
	for range 30 {
		cl.ask("process/write", writeOf("p", strings.Repeat("x", 4096)))
	}
	cl.wait("ten ticks", func(frame) bool { return strings.Count(outputIn(cl.frames, "p"), "tick") >= 10 })
	at := len(cl.all())
	cl.wait("more of them", func(frame) bool {
		return len(cl.frames) > at && strings.Count(outputIn(cl.frames[at:], "p"), "tick") >= 10
	})
	cl.must("process/terminate", map[string]any{"processId": "p"})
}

func TestRequests_AboveLimit_Fail(t *testing.T) {
	cl, _ := newTestServer(t).attach("", func(_ *pipe, c *Config) { c.Requests, c.ControlRequests = 3, 1 })
	cl.start("p", "exec sleep 1000")
	var polls []string
	for range 3 {
		polls = append(polls, cl.ask("process/read", map[string]any{"processId": "p", "waitMs": 3_600_000}))
	}
	refusal := cl.refused("process/read", map[string]any{"processId": "p"}, -32005, "requests_per_connection")
	if refusal.Data["limit"] != 3.0 {
		t.Errorf("the data is %v", refusal.Data)
	}
	cl.must("process/terminate", map[string]any{"processId": "p"}) // uses a reserved permit
	for _, poll := range polls {
		if f := cl.reply(poll); f.Error != nil {
			t.Errorf("%s", f.raw)
		}
	}
	cl.readOutput("p") // the permits are released
}

// Control requests use ordinary permits first. A client that closes many files
// can still terminate.
func TestPermits_ControlRequests_AreReserved(t *testing.T) {
	var p permits
	p.configure(Config{Requests: 3, ControlRequests: 1, Incoming: 1 << 20}, new(wsconn.Share))
	var releases []func()
	enter := func(control bool, setting string) {
		t.Helper()
		release, refused := p.acquire(control, 100)
		switch {
		case refused == nil && setting == "":
			releases = append(releases, release)
		case refused == nil, refused.Data.(map[string]any)["setting"] != setting:
			t.Fatalf("enter(%v) = %v, want %q", control, refused, setting)
		}
	}
	for range 4 {
		enter(true, "")
	}
	enter(true, "control_requests_per_connection")
	enter(false, "requests_per_connection")
	releases[0]()
	enter(false, "")
	enter(true, "control_requests_per_connection")
	releases[3]()
	enter(false, "requests_per_connection")
	enter(true, "")
}

// The client always has as many requests in flight as permitted.
func TestPermits_Response_ReleasesPermit(t *testing.T) {
	cl, _ := newTestServer(t).attach("", func(_ *pipe, c *Config) { c.Requests = 1 })
	for i := range 1000 {
		cl.refused("process/read", map[string]any{"processId": fmt.Sprint(i)}, -32600, "unknown process id")
	}
}

func TestPermits_RequestBytes_AreBounded(t *testing.T) {
	cl, _ := newTestServer(t, func(s *serverSettings) { s.limits.StdinQueueBytes = 1000 }).attach("", func(_ *pipe, c *Config) { c.Incoming = 300_000 })
	cl.start("p", "exec sleep 1000", "pipeStdin", true)
	for range 6 { // some of them block
		cl.ask("process/write", writeOf("p", strings.Repeat("x", 100_000)))
	}
	f, _ := cl.wait("an error", func(f frame) bool { return f.Error != nil })
	if f.Error.Code != -32005 || !strings.Contains(f.Error.Message, "incoming_bytes_per_connection") {
		t.Errorf("the error is %s", f.raw)
	}
	cl.must("process/terminate", map[string]any{"processId": "p"})
}

// A connection that sends little is not affected.
func TestPermits_RequestBytesOfAllConnections_AreBounded(t *testing.T) {
	srv := newTestServer(t, func(s *serverSettings) { s.limits.StdinQueueBytes = 1000 })
	budget := wsconn.NewBudget(250_000)
	share := func(_ *pipe, c *Config) { c.Budget = budget }
	one, _ := srv.attach("", share)
	other, _ := srv.attach("", share)
	large := strings.Repeat("x", 200_000)
	for _, cl := range []*client{one, other} {
		cl.start("p", "exec sleep 1000", "pipeStdin", true)
	}
	for range 2 { // fills the pipe and the queue
		one.must("process/write", writeOf("p", large[:40_000]))
	}
	waits := one.ask("process/write", writeOf("p", large[:100_000]))
	one.must("environment/status", nil) // the write was received
	f := other.call("process/write", writeOf("p", large))
	if f.Error == nil || f.Error.Code != -32005 || f.Error.Data["setting"] != "incoming_bytes_total" {
		t.Errorf("above the budget: %.300s", f.raw)
	}
	other.must("process/write", writeOf("p", large[:30_000]))
	one.must("process/terminate", map[string]any{"processId": "p"})
	one.reply(waits)
	deadline := time.Now().Add(patience)
	for f := (frame{Error: &wireError{}}); f.Error != nil; { // the budget is released after the response
		if f = other.call("process/write", writeOf("p", large)); time.Now().After(deadline) {
			t.Fatalf("below the budget: %.300s", f.raw)
		}
	}
}

// The requests of the lost connection are never answered.
func TestPermits_Disconnect_ReleasesBytes(t *testing.T) {
	srv := newTestServer(t, func(s *serverSettings) { s.limits.StdinQueueBytes = 1000 })
	budget := wsconn.NewBudget(250_000)
	share := func(_ *pipe, c *Config) { c.Budget = budget }
	large := strings.Repeat("x", 150_000) // a second one exceeds the limit
	for range 3 {
		cl, _ := srv.attach("", share)
		cl.start("p", "exec sleep 1000", "pipeStdin", true)
		for range 2 {
			cl.must("process/write", writeOf("p", large[:40_000]))
		}
		waits := cl.ask("process/write", writeOf("p", large))
		cl.must("environment/status", nil) // the write was received
		for _, f := range cl.all() {
			if string(f.ID) == waits {
				t.Fatalf("the write does not block: %.300s", f.raw)
			}
		}
		cl.drop()
	}
}
