package gateway

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/testrace"
)

// drop breaks the client's connection and waits for all of its goroutines.
func (cl *client) drop() {
	cl.t.Helper()
	cl.cut()
	if err := cl.ended(); !errors.Is(err, errLost) {
		cl.t.Fatalf("Serve returned %v", err)
	}
	cl.resumeReading()
	cl.reading.Wait() // all returns the last frame, too
}

// explain merges notifications and a read, as clients do, and
// fails if a seq is missing before the end of the response.
func explain(t *testing.T, have uint64, a readAnswer) {
	t.Helper()
	next := have + 1
	for _, c := range a.Chunks {
		if c.Seq != next {
			t.Fatalf("chunk %d follows %d", c.Seq, next-1)
		}
		next++
	}
	ends := uint64(0)
	if a.Exited && a.NextSeq > next {
		ends++
	}
	if a.Closed && a.NextSeq > next+ends {
		ends++
	}
	if next+ends != a.NextSeq {
		t.Fatalf("the chunks end at %d, nextSeq is %d, exited %v, closed %v", next-1, a.NextSeq, a.Exited, a.Closed)
	}
}

func TestResume_MissesNothing(t *testing.T) {
	srv := newTestServer(t)
	cl, id := srv.attach("")
	cl.start("p", "echo before; read line; echo after $line; read line; echo live $line", "pipeStdin", true)
	cl.event("p", "process/output")
	cl.drop()

	// Another connection uses the process meanwhile.
	other, _ := srv.attach("")
	other.refused("process/read", map[string]any{"processId": "p"}, -32600, "unknown process id p")
	cl, resumed := srv.attach(id)
	if resumed != id {
		t.Fatalf("session %s was resumed as %s", id, resumed)
	}
	cl.must("process/write", writeOf("p", "one\n"))
	cl.event("p", "process/output")
	cl.drop()
	cl, _ = srv.attach(id)
	a := cl.readOutput("p", "afterSeq", 1, "waitMs", 0)
	explain(t, 1, a)
	if a.text() != "after one\n" || a.Exited {
		t.Errorf("%+v", a)
	}
	cl.must("process/write", writeOf("p", "two\n"))
	if text, code := cl.output("p", 3); text != "live two\n" || code != 0 {
		t.Errorf("it wrote %q and exited with %d", text, code)
	}
	cl.drop()
	cl, _ = srv.attach(id)
	a = cl.readOutput("p", "afterSeq", 2)
	explain(t, 2, a)
	if a.text() != "live two\n" || !a.Exited || !a.Closed || a.NextSeq != 6 || *a.ExitCode != 0 {
		t.Errorf("%+v", a)
	}
}

func TestResume_AttachedOrUnknown_Fails(t *testing.T) {
	srv := newTestServer(t)
	cl, id := srv.attach("")
	second := srv.connect()
	refusal := second.refused("initialize", map[string]any{"clientName": "x", "resumeSessionId": id}, -32010,
		"session "+id+" is already attached to another connection")
	if refusal.Data["reason"] != "SESSION_ATTACHED" {
		t.Errorf("%+v", refusal)
	}
	cl.must("environment/status", nil) // the first connection is not affected
	cl.drop()
	if got := second.initialize(id); got != id {
		t.Errorf("the session is %s", got)
	}
}

// The client neither reads nor answers pings.
func TestResume_DeadClient_IsTakenOver(t *testing.T) {
	testrace.Slow(t)
	srv := newTestServer(t)
	dead, id := srv.attach("", func(p *pipe, _ *Config) { p.ignoresPings = true })
	second, _ := srv.attach(id)
	if err := dead.ended(); err == nil || dead.pipe.code != 1008 || !strings.Contains(dead.pipe.reason, "took the session over") {
		t.Errorf("Serve returned %v, code %d, reason %q", err, dead.pipe.code, dead.pipe.reason)
	}
	second.must("environment/status", nil) // the session is still open
}

func TestNormalClose_ClosesSession(t *testing.T) {
	srv := newTestServer(t)
	cl, id := srv.attach("")
	cl.start("p", "exec sleep 1000", "pipeStdin", true)
	asked := cl.ask("process/write", writeOf("p", "x")) // still answered
	close(cl.pipe.finished)
	cl.reply(asked)
	if err := cl.ended(); err != nil {
		t.Errorf("Serve returned %v", err)
	}
	srv.connect().refused("initialize", map[string]any{"clientName": "x", "resumeSessionId": id}, -32600, "unknown session id "+id)
}

func TestConfig_Grace_IsApplied(t *testing.T) {
	srv := newTestServer(t)
	none := time.Duration(0)
	cl, id := srv.attach("", func(_ *pipe, c *Config) { c.Grace = &none })
	cl.drop()
	srv.connect().refused("initialize", map[string]any{"clientName": "x", "resumeSessionId": id}, -32600, "unknown session id "+id)
	cl = srv.connect(func(_ *pipe, c *Config) { tooLong := 1000 * time.Hour; c.Grace = &tooLong })
	cl.refused("initialize", map[string]any{"clientName": "x"}, -32602, "maximum")
}

func TestInitialize_TooManySessions_Fails(t *testing.T) {
	srv := newTestServer(t, func(s *serverSettings) { s.sessions.SessionsPerPrincipal = 1 })
	srv.attach("")
	refusal := srv.connect().refused("initialize", map[string]any{"clientName": "x"}, -32005, "")
	if refusal.Data["reason"] != "TOO_MANY_SESSIONS" {
		t.Errorf("%+v", refusal)
	}
}

// The connection is cut at any point while a process writes more than a window.
// The client reads what it missed.
func TestResume_Cuts_LosesNothing(t *testing.T) {
	testrace.Slow(t)
	const lines = 800_000
	srv := newTestServer(t, func(s *serverSettings) { s.limits.RetainedOutputBytes = 128 << 10 })
	cl, id := srv.attach("")
	cl.start("p", fmt.Sprintf("seq 1 %d", lines))
	var output strings.Builder
	have, closed, cuts := uint64(0), false, 0
	take := func(seq uint64, chunk []byte) {
		if seq == have+1 {
			have++
			output.Write(chunk)
		} else if seq > have+1 {
			t.Fatalf("seq %d follows %d", seq, have)
		}
	}
	for !closed {
		cl.mu.Lock()
		cl.quota = 1 + cuts%7
		cl.changed.Broadcast()
		cl.mu.Unlock()
		cl.wait("something new", func(frame) bool { return cl.quota == 0 || closedIn(cl.frames, "p") })
		cl.drop()
		for _, f := range cl.all() {
			if f.Params.ProcessID == "p" {
				take(f.Params.Seq, f.Params.Chunk)
				closed = closed || f.Method == "process/closed"
			}
		}
		if closed {
			break
		}
		cuts++
		cl, _ = srv.attach(id)
		a := cl.readOutput("p", "afterSeq", have, "waitMs", 0)
		if a.Gap != nil {
			t.Fatalf("%+v", *a.Gap)
		}
		explain(t, have, a)
		for _, c := range a.Chunks {
			take(c.Seq, c.Chunk)
		}
		have, closed = a.NextSeq-1, a.Closed
	}
	want := strings.Builder{}
	for i := range lines {
		fmt.Fprintln(&want, i+1)
	}
	if output.String() != want.String() {
		t.Errorf("got %d bytes of %d", output.Len(), want.Len())
	}
	if cuts < 10 {
		t.Errorf("only %d cuts were made", cuts)
	}
}

func closedIn(frames []frame, id string) bool {
	for _, f := range frames {
		if f.Method == "process/closed" && f.Params.ProcessID == id {
			return true
		}
	}
	return false
}

// The session is resumed after the old process closed, and a new one starts under
// its id.
func TestResume_ReusedID_IsNotified(t *testing.T) {
	srv := newTestServer(t, func(s *serverSettings) { s.sessions.ClosedRetention = time.Millisecond })
	cl, id := srv.attach("")
	cl.start("p", "echo one; echo two; sleep 0.05; echo three")
	cl.output("p", 1)
	cl.drop()
	cl, _ = srv.attach(id)
	for cl.call("process/read", map[string]any{"processId": "p", "afterSeq": 99}).Error == nil {
		time.Sleep(time.Millisecond)
	}
	cl.start("p", "echo new")
	if text, _ := cl.output("p", 1); text != "new\n" {
		t.Errorf("it wrote %q", text)
	}
}

// The processes of the resumed session closed before.
func TestResume_ClosedProcesses_AreRemoved(t *testing.T) {
	s, srv := newScriptedServer(t)
	for i := range 1000 {
		s.last[fmt.Sprint(i)] = 3
	}
	s.done = true
	c, cl := srv.serveHere()
	cl.initialize("s")
	cl.must("environment/status", nil)
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	if len(c.table.records) != 0 {
		t.Errorf("%d records are left", len(c.table.records))
	}
}

// The client closes normally, and another one takes the session over while
// responses are pending.
func TestNormalClose_TakenOverSession_IsNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		cl, _ := srv.attach("")
		cl.askSlowly(s, "p", forever)
		synctest.Wait()
		close(cl.pipe.finished)
		synctest.Wait()
		takenOver, err := status.New(codes.Aborted, "taken").WithDetails(&errdetails.ErrorInfo{Domain: errorinfo.Domain, Reason: "SESSION_TAKEN_OVER"})
		if err != nil {
			t.Fatal(err)
		}
		s.end <- takenOver.Err()
		if err := cl.ended(); err != nil {
			t.Errorf("Serve returned %v", err)
		}
		if s.finished {
			t.Error("the session was closed")
		}
	})
}

// The session is resumed before the server carries out a start that the lost
// connection requested.
func TestDialect_StartAfterResume_IsKept(t *testing.T) {
	s, srv := newScriptedServer(t)
	s.describe = func() *execwirev1.Process {
		return &execwirev1.Process{Labels: processMode{legacy: true}.labels()}
	}
	cl, _ := srv.attach("s")
	s.sendOutput("p", 1)
	cl.event("p", "command/exec/outputDelta")
}

// The session ends, so that the dialect of a start that outlives its connection
// cannot be determined.
func TestDialect_Unknown_SendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		gone, err := status.New(codes.NotFound, "gone").WithDetails(&errdetails.ErrorInfo{Domain: errorinfo.Domain, Reason: "PROCESS_NOT_FOUND"})
		if err != nil {
			t.Fatal(err)
		}
		s.unknown = gone.Err()
		cl, _ := srv.attach("s")
		cl.askSlowly(s, "q", time.Second)
		synctest.Wait()
		close(cl.pipe.finished)
		synctest.Wait()
		s.sendOutput("p", 1)
		if err := cl.ended(); err != nil {
			t.Errorf("Serve returned %v", err)
		}
		for _, f := range cl.all() {
			if f.Method != "" {
				t.Errorf("the client received %s", f.raw)
			}
		}
	})
}

// The server fails to describe a process whose start outlived its connection.
func TestDialect_GetProcessFails_ClosesConnection(t *testing.T) {
	s, srv := newScriptedServer(t)
	s.unknown = status.Error(codes.Unavailable, "connection refused")
	cl, _ := srv.attach("s")
	s.sendOutput("p", 1)
	if err := cl.ended(); status.Code(err) != codes.Unavailable {
		t.Errorf("Serve returned %v", err)
	}
}
