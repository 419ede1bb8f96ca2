package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/gateway/call"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testrace"
)

// The client stops reading while a process writes more than is retained, and
// continues later.
func TestOutput_StoppedReader_LosesNothing(t *testing.T) {
	testrace.Slow(t)
	srv := newTestServer(t)
	cl, id := srv.attach("")
	other, _ := srv.attach("")
	const bytes = 8 << 20
	cl.stopReading()
	ask := cl.ask("process/start", startOf("p", fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", bytes)))
	srv.waitBlocked(id, "p")
	other.start("p", "echo good")
	if text, _ := other.output("p", 1); text != "good\n" {
		t.Errorf("another client receives %q", text)
	}
	srv.waitBlocked(id, "p")
	cl.resumeReading()
	cl.reply(ask)
	if text, code := cl.output("p", 1); len(text) != bytes || strings.Trim(text, "x") != "" || code != 0 {
		t.Errorf("got %d bytes of %d, and exit code %d", len(text), bytes, code)
	}
	for _, f := range cl.all() {
		if f.Params.Gap != nil {
			t.Fatalf("there is a gap: %.300s", f.raw)
		}
	}
}

// waitBlocked waits until a process writes nothing for a while, which is blocked by a full
// window then: it must not end.
func (c *testServer) waitBlocked(sessionID, processID string) {
	c.t.Helper()
	processes := execwirev1.NewProcessServiceClient(c.channel)
	var last uint64
	for still := 0; still < 20; time.Sleep(10 * time.Millisecond) {
		answer, err := processes.GetProcess(c.t.Context(), &execwirev1.GetProcessRequest{SessionId: sessionID, ProcessId: processID})
		if err != nil {
			still = 0
			continue // not started yet
		}
		p := answer.GetProcess()
		if p.GetState() != execwirev1.ProcessState_PROCESS_STATE_RUNNING {
			c.t.Fatalf("the process is not blocked: %v", p)
		}
		if still++; p.GetLastSeq() != last || last == 0 {
			last, still = p.GetLastSeq(), 0
		}
	}
}

func TestEventGate_PendingResponse_GatesOneProcessOnly(t *testing.T) {
	cl, _ := newTestServer(t, func(s *serverSettings) { s.limits.StdinQueueBytes = 1000 }).attach("")
	cl.start("stuck", "echo ready; exec sleep 1000", "pipeStdin", true)
	for range 100 {
		cl.ask("process/write", writeOf("stuck", strings.Repeat("x", 4096)))
	}
	for i := range 20 {
		id := fmt.Sprint(i)
		cl.start(id, "echo good")
		if text, _ := cl.output(id, 1); text != "good\n" {
			t.Errorf("%q", text)
		}
	}
	cl.must("process/terminate", map[string]any{"processId": "stuck"})
}

// Queued responses are bounded, one line is logged, and the session keeps its
// grace period.
func TestRequests_ClientNotReading_IsDisconnected(t *testing.T) {
	srv := newTestServer(t)
	var logged strings.Builder // written by the receiving goroutine until Serve returns
	cl, id := srv.attach("", func(_ *pipe, c *Config) {
		c.Outgoing = 100_000
		c.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	cl.stopReading()
	before := memory()
	for asked := 0; ; asked++ {
		select {
		case cl.pipe.in <- []byte(`{"id":1,"method":"no/such"}`):
		case <-cl.pipe.lost:
			if asked < 100 {
				t.Errorf("after only %d requests", asked)
			}
			if err := cl.ended(); !errors.Is(err, errNotReading) {
				t.Errorf("Serve returned %v", err)
			}
			if grown := memory() - before; grown > 8<<20 {
				t.Errorf("memory grew by %d bytes", grown)
			}
			if lines := strings.Count(logged.String(), "\n"); lines != 1 {
				t.Errorf("the log has %d lines about it", lines)
			}
			srv.attach(id)
			return
		}
		if asked > 1_000_000 {
			t.Fatal("the client is not disconnected")
		}
	}
}

// As many reads as possible are in flight, each for everything that the server
// retains. Short tests use fewer.
func TestRead_ClientNotReading_MemoryIsBounded(t *testing.T) {
	const chunk, chunks, reads = 32 << 10, 32, 100
	testrace.Slow(t)
	s, srv := newScriptedServer(t)
	var given atomic.Int64
	s.read = func(req *execwirev1.ReadOutputRequest) *execwirev1.ReadOutputResponse {
		most := uint64(coreReadBytes)
		if req.MaxBytes != nil {
			most = uint64(req.GetMaxBytes())
		}
		answer := &execwirev1.ReadOutputResponse{NextAfterSeq: req.GetAfterSeq(), LastSeq: chunks}
		for bytes := uint64(chunk); bytes <= most && answer.GetNextAfterSeq() < chunks; bytes += chunk {
			answer.NextAfterSeq++
			answer.Events = append(answer.Events, outputEvent(answer.GetNextAfterSeq(), chunk))
			given.Add(chunk)
		}
		return answer
	}
	cl, _ := srv.attach("", func(p *pipe, _ *Config) { p.capacity = 1 })
	cl.stopReading()
	var asked []string
	for range reads {
		asked = append(asked, cl.ask("process/read", map[string]any{"processId": "p"}))
	}
	for last, still := int64(0), 0; last < int64(reads*smallReadBytes) || still < 20; time.Sleep(10 * time.Millisecond) {
		if now := given.Load(); now != last {
			last, still = now, 0
			continue
		}
		still++
	}
	// The client and the pipe have one or two responses.
	if most := int64(reads*smallReadBytes + (call.MaxLarge+2)*chunk*chunks); given.Load() > most {
		t.Errorf("the responses use %d bytes, want at most %d", given.Load(), most)
	}
	cl.resumeReading()
	for _, ask := range asked {
		var a readAnswer
		if cl.decode(cl.reply(ask).Result, &a); len(a.Chunks) != chunks || a.NextSeq != chunks+1 {
			t.Fatalf("a response has %d chunks, and nextSeq is %d", len(a.Chunks), a.NextSeq)
		}
	}
}

func memory() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// One transport has no pings, and the client of another one does not answer them.
func TestOutput_NoReadReceipts_DoesNotStall(t *testing.T) {
	testrace.Slow(t)
	for name, change := range map[string]func(*pipe, *Config){
		"standard streams": func(p *pipe, _ *Config) { p.confirmsReads = false },
		"no pongs":         func(p *pipe, _ *Config) { p.ignoresPings = true },
	} {
		t.Run(name, func(t *testing.T) {
			cl, _ := newTestServer(t).attach("", change)
			const bytes = 4 << 20
			cl.start("p", fmt.Sprintf("head -c %d /dev/zero", bytes))
			if text, code := cl.output("p", 1); len(text) != bytes || code != 0 {
				t.Errorf("got %d bytes of %d, and exit code %d", len(text), bytes, code)
			}
		})
	}
}

// The connection removes the record of a closed process when all of its output is
// acknowledged.
func TestWatermark_Confirmed_IsAcknowledged(t *testing.T) {
	srv := newTestServer(t)
	cl, id := srv.attach("")
	cl.start("p", "seq 1 100000; exit 2")
	cl.output("p", 1)
	cl.drop()
	cl, _ = srv.attach(id)
	a := cl.readOutput("p", "afterSeq", nil)
	if a.Gap != nil || len(a.Chunks) == 0 || !a.Closed {
		t.Errorf("output that was read is not retained: %d chunks, %+v", len(a.Chunks), a.Gap)
	}
}

func TestRead_Wait(t *testing.T) {
	cl, _ := newTestServer(t, func(s *serverSettings) { s.limits.MaxWait = durationpb.New(10 * time.Millisecond) }).attach("")
	cl.start("p", "echo one; read line; echo two; read line; exit 9", "pipeStdin", true)
	cl.event("p", "process/output")
	if a := cl.readOutput("p", "afterSeq", nil, "maxBytes", nil, "waitMs", nil); a.text() != "one\n" || a.NextSeq != 2 || a.Exited || a.ExitCode != nil {
		t.Errorf("%+v", a)
	}
	if a := cl.readOutput("p", "afterSeq", 1, "waitMs", 50); len(a.Chunks) != 0 || a.NextSeq != 2 {
		t.Errorf("after the wait: %+v", a)
	}
	if a := cl.readOutput("p", "afterSeq", 99, "waitMs", 1); len(a.Chunks) != 0 || a.NextSeq != 2 {
		t.Errorf("beyond the end: %+v", a)
	}
	poll := cl.ask("process/read", map[string]any{"processId": "p", "afterSeq": 1, "waitMs": uint64(1) << 63})
	ahead := cl.ask("process/read", map[string]any{"processId": "p", "afterSeq": 2, "waitMs": 3_600_000})
	cl.must("process/write", writeOf("p", "\n"))
	var a readAnswer
	if cl.decode(cl.reply(poll).Result, &a); a.text() != "two\n" || a.NextSeq != 3 {
		t.Errorf("the poll returned %+v", a)
	}
	last := cl.ask("process/read", map[string]any{"processId": "p", "afterSeq": 2, "waitMs": 3_600_000})
	cl.must("process/write", writeOf("p", "\n"))
	for name, ask := range map[string]string{"ahead": ahead, "last": last} {
		var a readAnswer
		if cl.decode(cl.reply(ask).Result, &a); len(a.Chunks) != 0 || !a.Exited || *a.ExitCode != 9 {
			t.Errorf("%s: %+v", name, a)
		}
	}
	cl.event("p", "process/closed")
	a = cl.readOutput("p", "afterSeq", 99, "waitMs", 3_600_000) // returns at once
	if a.NextSeq != 5 || !a.Exited || !a.Closed {
		t.Errorf("at the end: %+v", a)
	}
	cl.refused("process/read", map[string]any{"processId": "nope", "waitMs": 3_600_000}, -32600, "unknown process id nope")
	cl.refused("process/read", map[string]any{"processId": "p", "afterSeq": -1}, -32602, "")
	cl.refused("process/read", map[string]any{"processId": "p", "waitMs": 1.5}, -32602, "")
	cl.refused("process/read", []any{"p"}, -32602, "invalid length 1, expected struct ReadParams with 4 elements")
	cl.must("process/read", []any{"p", nil, 0, nil})
}

func TestRead_MaxBytes_SplitsBetweenChunks(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	cl.start("p", "for i in 1 2 3 4 5; do echo chunk$i; read line; done; exec cat", "pipeStdin", true)
	for i := range 5 {
		cl.wait("a chunk", func(f frame) bool { return f.Params.Seq == uint64(i+1) })
		cl.must("process/write", writeOf("p", "\n"))
	}
	check := func(state string, closed bool, whole uint64) {
		t.Helper()
		for _, test := range []struct{ after, most, chunks uint64 }{
			{0, 0, 1}, {0, 1, 1}, {0, 7, 1}, {0, 13, 1}, {0, 14, 2}, {0, 15, 2}, {0, 21, 3}, {2, 7, 1}, {3, 14, 2}, {4, 7, 1},
		} {
			a := cl.readOutput("p", "afterSeq", test.after, "maxBytes", test.most)
			next := test.after + test.chunks + 1
			if next == 6 {
				next = whole
			}
			if uint64(len(a.Chunks)) != test.chunks || a.NextSeq != next || a.Exited != closed || a.Closed != closed {
				t.Errorf("%s, %+v: %+v", state, test, a)
			}
		}
		if a := cl.readOutput("p", "maxBytes", 1<<40); len(a.Chunks) != 5 || a.NextSeq != whole {
			t.Errorf("%s: %+v", state, a)
		}
	}
	check("running", false, 6)
	cl.must("process/terminate", map[string]any{"processId": "p"})
	cl.event("p", "process/closed")
	check("closed", true, 8)
}

// More output is retained than one response of the server can contain.
func TestRead_ReturnsAllRetainedOutput(t *testing.T) {
	testrace.WithoutRace(t)
	cl, _ := newTestServer(t, func(s *serverSettings) { s.limits.RetainedOutputBytes = 8 << 20 }).attach("")
	const bytes = 5 << 20
	cl.start("p", fmt.Sprintf("head -c %d /dev/zero", bytes))
	cl.output("p", 1)
	a := cl.readOutput("p")
	explain(t, 0, a)
	if len(a.text()) != bytes || !a.Closed {
		t.Errorf("%d bytes of %d", len(a.text()), bytes)
	}
	const part = 2<<20 + 5
	a = cl.readOutput("p", "maxBytes", part)
	if n := len(a.text()); n > part || n < part-64<<10 || a.NextSeq != a.Chunks[len(a.Chunks)-1].Seq+1 {
		t.Errorf("%d bytes of at most %d, nextSeq %d", n, part, a.NextSeq)
	}
}

func TestRead_DroppedOutput_ReportsGap(t *testing.T) {
	cl, _ := newTestServer(t, func(s *serverSettings) { s.limits.RetainedOutputBytes = 64 << 10 }).attach("")
	cl.start("p", "head -c 1000000 /dev/zero")
	cl.output("p", 1)
	a := cl.readOutput("p")
	if a.Gap == nil || len(a.Chunks) == 0 || a.Gap.FirstAvailableSeq != a.Chunks[0].Seq || a.Gap.DroppedBytes+uint64(len(a.text())) != 1_000_000 {
		t.Errorf("%d bytes, gap %+v", len(a.text()), a.Gap)
	}
}

func TestAppendEvent_GapAndLostProcess(t *testing.T) {
	gap := &execwirev1.OutputGap{FirstAvailableSeq: 7, DroppedBytes: 1234, Cause: execwirev1.GapCause_GAP_CAUSE_DISK_FULL}
	event := &execwirev1.ProcessEvent{Seq: 7, Event: &execwirev1.ProcessEvent_Output{Output: &execwirev1.ProcessOutput{
		Stream: execwirev1.OutputStream_OUTPUT_STREAM_STDERR, Data: []byte("hi")}}}
	got := string((&process{name: []byte(`"p"`), gap: gap}).appendEvent(nil, event))
	want := `{"method":"process/output","params":{"processId":"p","seq":7,"stream":"stderr","chunk":"aGk=","gap":{"firstAvailableSeq":7,"droppedBytes":1234,"cause":"diskFull"}}}`
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	lost := &execwirev1.ProcessEvent{Seq: 8, Event: &execwirev1.ProcessEvent_Exited{Exited: &execwirev1.ProcessExited{Exit: &execwirev1.ExitRecord{}}}}
	if got := string((&process{name: []byte(`"p"`)}).appendEvent(nil, lost)); !strings.Contains(got, `"exitCode":-1,`) {
		t.Errorf("a lost process is encoded as %s", got)
	}
	if got := (&process{name: []byte(`"p"`)}).appendEvent(nil, proto.CloneOf(&execwirev1.ProcessEvent{Seq: 9})); got != nil {
		t.Errorf("an unknown event is encoded as %s", got)
	}
}
