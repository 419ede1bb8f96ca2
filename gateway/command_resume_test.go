package gateway

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testrace"
)

// numbered returns the output of seq.
func numbered(lines int) string {
	var b strings.Builder
	for i := range lines {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

func TestDialect_ResumedSession_BothDialects(t *testing.T) {
	srv := newTestServer(t)
	cl, id := srv.attach("")
	cl.command("old", "echo before; read line; echo after $line; read line; exit 5", "tty", true)
	cl.command("silent", "read line; echo heard $line", "tty", true)
	cl.start("new", "read line; echo $line", "pipeStdin", true)
	cl.wait("the beginning", func(frame) bool { return outputIn(cl.frames, "old") == "before\r\n" })
	cl.drop()
	other, _ := srv.attach(id) // a connection without records of the processes
	for _, name := range []string{"old", "silent", "new"} {
		other.must("process/write", writeOf(name, "one\n"))
	}
	if streams, code := other.commandOutput("silent", 1); streams["stdout"] != "one\r\nheard one\r\n" || code != 0 {
		t.Errorf("the silent process wrote %q and exited with %d", streams, code)
	}
	if text, _ := other.output("new", 1); text != "one\n" {
		t.Errorf("the new process wrote %q", text)
	}
	other.wait("more", func(frame) bool { return outputIn(other.frames, "old") == "one\r\nafter one\r\n" })
	a := other.readOutput("old")
	if a.text() != "before\r\none\r\nafter one\r\n" || a.Exited {
		t.Errorf("process/read returned %+v", a)
	}
	other.must("command/exec/write", writeOf("old", "two\n"))
	if _, code := other.commandOutput("old", 2); code != 5 {
		t.Errorf("the old process exited with %d", code)
	}
}

// The connection is cut before and after the exit notification of a process whose
// descendant keeps the streams open.
func TestCommandExit_Cut_IsSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		cl, _ := srv.attach("")
		cl.command("p", "")
		s.sendEvents("p", outputEvent(1, 1), exitedEvent(2), outputEvent(3, 1))
		time.Sleep(closeTimeout / 2)
		cl.expectNotifications("1 3")
		if acknowledged := s.acknowledgements(); acknowledged != "p 1" {
			t.Errorf("before the exit was sent, the server received %q", acknowledged)
		}
		time.Sleep(closeTimeout)
		cl.expectNotifications("1 3 exited")
		if acknowledged := s.acknowledgements(); acknowledged != "p 1, p 3" {
			t.Errorf("after the exit was sent, the server received %q", acknowledged)
		}
		cl.drop()
		s.last["p"] = 3
		cl, _ = srv.attach("s")
		s.sendEvents("p", outputEvent(4, 1), closedEvent(5)) // after the acknowledged events
		time.Sleep(time.Hour)
		cl.expectNotifications("4")
	})
}

// The client reads what it missed by the seqs of its notifications.
func TestCommandOutput_Cuts_LosesNothing(t *testing.T) {
	testrace.Slow(t)
	const lines, cuts = 400_000, 12
	srv := newTestServer(t)
	cl, id := srv.attach("")
	cl.command("p", fmt.Sprintf("seq 1 %d; exit 9", lines), "outputBytesCap", 4096)
	var output strings.Builder
	have := uint64(0)
	take := func(seq uint64, chunk []byte) {
		if seq > have+1 {
			t.Fatalf("seq %d follows %d", seq, have)
		}
		if seq == have+1 {
			have = seq
			output.Write(chunk)
		}
	}
	takeAll := func() {
		for _, f := range cl.all() {
			if f.Method == "command/exec/outputDelta" {
				take(f.Params.Seq, f.Params.Chunk)
			}
		}
	}
	for cut := range cuts {
		before := len(cl.all())
		cl.wait("a new notification", func(frame) bool {
			return len(cl.frames) > before+cut && cl.frames[len(cl.frames)-1].Method != ""
		})
		cl.drop()
		takeAll()
		cl, _ = srv.attach(id)
		a := cl.readOutput("p", "afterSeq", have)
		if a.Gap != nil || a.Exited {
			t.Fatalf("%+v", a)
		}
		for _, c := range a.Chunks {
			take(c.Seq, c.Chunk)
		}
	}
	exited := cl.event("p", "command/exec/exited")
	takeAll()
	if want := numbered(lines); output.String() != want || *exited.Params.ExitCode != 9 {
		t.Errorf("got %d bytes of %d, and exit code %d", output.Len(), len(want), *exited.Params.ExitCode)
	}
}

// The client does not read until the command blocks. Little output is retained.
func TestCommandOutput_SlowReader_LosesNothing(t *testing.T) {
	testrace.Slow(t)
	const lines = 500_000
	srv := newTestServer(t)
	cl, id := srv.attach("")
	for i, members := range [][]any{nil, {"outputBytesCap", 0}, {"tty", true}, {"tty", true, "outputBytesCap", 4096}} {
		name := fmt.Sprint("p", i)
		cl.stopReading()
		started := cl.ask("command/exec", with(startOf(name, fmt.Sprintf("seq 1 %d", lines)), members...))
		srv.waitBlocked(id, name)
		cl.resumeReading()
		cl.reply(started)
		streams, code := cl.commandOutput(name, 1)
		want := numbered(lines)
		if len(members) > 0 && members[0] == "tty" {
			want = strings.ReplaceAll(want, "\n", "\r\n")
		}
		if streams["stdout"] != want || len(streams) != 1 || code != 0 {
			t.Errorf("%v: got %d bytes of %d, and exit code %d", members, len(streams["stdout"]), len(want), code)
		}
		cl.mu.Lock()
		cl.frames = nil
		cl.mu.Unlock()
	}
}

// A megabyte is written, and what is retained is read again.
func TestOutputBytesCap_LowersRetention(t *testing.T) {
	testrace.Slow(t)
	const kept, bytes = 1 << 20, 1 << 20
	srv := newTestServer(t)
	cl, id := srv.attach("")
	for name, test := range map[string]struct {
		members     []any
		least, most int
	}{
		"no cap":                        {nil, kept, kept},
		"null":                          {[]any{"outputBytesCap", nil}, kept, kept},
		"the default":                   {[]any{"outputBytesCap", kept}, kept, kept},
		"more than there is":            {[]any{"outputBytesCap", uint64(1) << 63}, kept, kept},
		"half of it, for each stream":   {[]any{"outputBytesCap", kept / 2}, kept, kept},
		"a quarter, for each stream":    {[]any{"outputBytesCap", kept / 4}, kept / 4, kept / 2},
		"a quarter, for a terminal":     {[]any{"tty", true, "outputBytesCap", kept / 4}, kept / 8, kept / 4},
		"less than the server can do":   {[]any{"outputBytesCap", 1}, leastKept / 2, leastKept},
		"none, which is less than that": {[]any{"outputBytesCap", 0}, leastKept / 2, leastKept},
	} {
		t.Run(name, func(t *testing.T) {
			cl.command(name, fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", bytes), test.members...)
			if streams, _ := cl.commandOutput(name, 1); len(streams["stdout"]) != bytes {
				t.Errorf("got %d bytes", len(streams["stdout"]))
			}
			last := cl.lastAcknowledged(srv, id, name)
			a := cl.readOutput(name)
			if got := len(a.text()); got < test.least || got > test.most || a.NextSeq != last+1 {
				t.Errorf("%d bytes are retained, want %d to %d", got, test.least, test.most)
			}
			if (a.Gap == nil) != (len(a.text()) == bytes) {
				t.Errorf("process/read reports the gap %v", a.Gap)
			}
		})
	}
}

// lastAcknowledged waits until the server knows that the client has all of a
// process, and returns its last seq.
func (cl *client) lastAcknowledged(c *testServer, sessionID, processID string) uint64 {
	cl.t.Helper()
	processes := execwirev1.NewProcessServiceClient(c.channel)
	for {
		answer, err := processes.GetProcess(c.t.Context(), &execwirev1.GetProcessRequest{SessionId: sessionID, ProcessId: processID})
		if err != nil {
			cl.t.Fatal(err)
		}
		if p := answer.GetProcess(); p.GetState() == execwirev1.ProcessState_PROCESS_STATE_CLOSED && !p.GetOwned() {
			return p.GetLastSeq()
		}
	}
}

// The window of the process is smaller than that of the session, also after a
// resume. Its output must not wait for the next watermark of the session.
func TestOutputBytesCap_SmallWindow_DoesNotStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		s.labels["p"], s.last["p"] = processMode{legacy: true, window: 100}.labels(), 0
		cl, _ := srv.attach("s")
		s.sendEvents("p", outputEvent(1, 100/watermarkPart-1))
		expect(t, s, cl, "", 1)
		s.sendEvents("p", outputEvent(2, 1))
		expect(t, s, cl, "p 2", 1, 2)
		s.sendEvents("p", outputEvent(3, 100/watermarkPart-1))
		expect(t, s, cl, "p 2", 1, 2, 3)
		s.sendEvents("other", outputEvent(1, 100))
		expect(t, s, cl, "p 2", 1, 2, 3, 1)
	})
}

// The labels were not written by the gateway.
func TestModeOfLabels_ForeignLabels_AreIgnored(t *testing.T) {
	for _, m := range []processMode{{}, {legacy: true}, {window: 1 << 16}, {legacy: true, window: 1 << 20}} {
		if got := processModeOf(&execwirev1.Process{Labels: m.labels()}); got != m {
			t.Errorf("%+v is decoded as %+v", m, got)
		}
	}
	for _, labels := range []map[string]string{
		{"gateway.dialect": "command/exec2"}, {"gateway.window_bytes": "-1"}, {"gateway.window_bytes": "x"}, {"gateway.window_bytes": ""}, {"other": "command/exec"},
	} {
		if got := processModeOf(&execwirev1.Process{Labels: labels}); got != (processMode{}) {
			t.Errorf("%v is decoded as %+v", labels, got)
		}
	}
}
