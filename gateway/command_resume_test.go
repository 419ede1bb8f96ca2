package gateway

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// numbered is what seq prints.
func numbered(lines int) string {
	var b strings.Builder
	for i := range lines {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

func TestAResumedSessionKeepsTheDialect(t *testing.T) {
	core := newCore(t)
	cl, id := core.attach("")
	cl.command("old", "echo before; read line; echo after $line; read line; exit 5", "tty", true)
	cl.command("silent", "read line; echo heard $line", "tty", true)
	cl.start("new", "read line; echo $line", "pipeStdin", true)
	cl.wait("the beginning", func(frame) bool { return saidIn(cl.frames, "old") == "before\r\n" })
	cl.drop()
	other, _ := core.attach(id) // in which nobody knew the processes
	for _, name := range []string{"old", "silent", "new"} {
		other.must("process/write", writeOf(name, "one\n"))
	}
	if streams, code := other.commandOutput("silent", 1); streams["stdout"] != "one\r\nheard one\r\n" || code != 0 {
		t.Errorf("the silent one said %q and exited with %d", streams, code)
	}
	if text, _ := other.output("new", 1); text != "one\n" {
		t.Errorf("the new one said %q", text)
	}
	other.wait("more", func(frame) bool { return saidIn(other.frames, "old") == "one\r\nafter one\r\n" })
	a := other.readOutput("old")
	if a.text() != "before\r\none\r\nafter one\r\n" || a.Exited {
		t.Errorf("process/read says %+v", a)
	}
	other.must("command/exec/write", writeOf("old", "two\n"))
	if _, code := other.commandOutput("old", 2); code != 5 {
		t.Errorf("the old one exited with %d", code)
	}
}

// TestAnExitIsToldOnceAcrossACut cuts the connection before and after the exit is
// told of a process that has left something behind.
func TestAnExitIsToldOnceAcrossACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, core := newScriptedCore(t)
		cl, _ := core.attach("")
		cl.command("p", "")
		s.sendEvents("p", outputEvent(1, 1), exitedEvent(2), outputEvent(3, 1))
		time.Sleep(closeTimeout / 2)
		cl.expectNews("1 3")
		if told := s.wasTold(); told != "p 1" {
			t.Errorf("before the exit is told, the core is told %q", told)
		}
		time.Sleep(closeTimeout)
		cl.expectNews("1 3 exited")
		if told := s.wasTold(); told != "p 1, p 3" {
			t.Errorf("after it was told, the core is told %q", told)
		}
		cl.drop()
		s.last["p"] = 3
		cl, _ = core.attach("s")
		s.sendEvents("p", outputEvent(4, 1), closedEvent(5)) // what follows what it was told
		time.Sleep(time.Hour)
		cl.expectNews("4")
	})
}

// TestExactBytesOfACommandAcrossCuts cuts a connection again and again while a
// command writes, and reads what it missed by the seqs of what it was told.
func TestExactBytesOfACommandAcrossCuts(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: runs in make test-all")
	}
	const lines, cuts = 400_000, 12
	core := newCore(t)
	cl, id := core.attach("")
	cl.command("p", fmt.Sprintf("seq 1 %d; exit 9", lines), "outputBytesCap", 4096)
	var said strings.Builder
	have := uint64(0)
	take := func(seq uint64, chunk []byte) {
		if seq > have+1 {
			t.Fatalf("seq %d comes after %d", seq, have)
		}
		if seq == have+1 {
			have = seq
			said.Write(chunk)
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
		cl.wait("something new", func(frame) bool {
			return len(cl.frames) > before+cut && cl.frames[len(cl.frames)-1].Method != ""
		})
		cl.drop()
		takeAll()
		cl, _ = core.attach(id)
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
	if want := numbered(lines); said.String() != want || *exited.Params.ExitCode != 9 {
		t.Errorf("%d bytes came of %d, and the exit code is %d", said.Len(), len(want), *exited.Params.ExitCode)
	}
}

// TestExactBytesOfACommandForASlowReader has a client that reads nothing for as
// long as the command can go on, of which little is kept.
func TestExactBytesOfACommandForASlowReader(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: runs in make test-all")
	}
	const lines = 500_000
	core := newCore(t)
	cl, id := core.attach("")
	for i, members := range [][]any{nil, {"outputBytesCap", 0}, {"tty", true}, {"tty", true, "outputBytesCap", 4096}} {
		name := fmt.Sprint("p", i)
		cl.stopReading()
		started := cl.ask("command/exec", with(startOf(name, fmt.Sprintf("seq 1 %d", lines)), members...))
		core.waitHeld(id, name)
		cl.resumeReading()
		cl.reply(started)
		streams, code := cl.commandOutput(name, 1)
		want := numbered(lines)
		if len(members) > 0 && members[0] == "tty" {
			want = strings.ReplaceAll(want, "\n", "\r\n")
		}
		if streams["stdout"] != want || len(streams) != 1 || code != 0 {
			t.Errorf("%v: %d bytes came of %d, and the exit code is %d", members, len(streams["stdout"]), len(want), code)
		}
		cl.mu.Lock()
		cl.frames = nil
		cl.mu.Unlock()
	}
}

// TestTheCapOfACommandOnlyLowersWhatIsKept reads everything again that is kept of
// a megabyte.
func TestTheCapOfACommandOnlyLowersWhatIsKept(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: runs in make test-all")
	}
	const kept, bytes = 1 << 20, 1 << 20
	core := newCore(t)
	cl, id := core.attach("")
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
				t.Errorf("%d bytes came", len(streams["stdout"]))
			}
			last := cl.lastAcknowledged(core, id, name)
			a := cl.readOutput(name)
			if got := len(a.text()); got < test.least || got > test.most || a.NextSeq != last+1 {
				t.Errorf("%d bytes are kept, want %d to %d", got, test.least, test.most)
			}
			if (a.Gap == nil) != (len(a.text()) == bytes) {
				t.Errorf("of what is not kept, process/read says %v", a.Gap)
			}
		})
	}
}

// lastAcknowledged waits until the core knows that the client has all of a
// process, and returns its last seq.
func (cl *client) lastAcknowledged(c *core, sessionID, processID string) uint64 {
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

// TestASmallWindowIsProvenInTime has a process whose window is smaller than the
// session's, also after a resume: it must not wait for the next watermark.
func TestASmallWindowIsProvenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, core := newScriptedCore(t)
		s.labels["p"], s.last["p"] = processMode{legacy: true, window: 100}.labels(), 0
		cl, _ := core.attach("s")
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

// TestLabelsOfOthersAreNoManner has labels that the gateway did not write.
func TestLabelsOfOthersAreNoManner(t *testing.T) {
	for _, m := range []processMode{{}, {legacy: true}, {window: 1 << 16}, {legacy: true, window: 1 << 20}} {
		if got := processModeOf(&execwirev1.Process{Labels: m.labels()}); got != m {
			t.Errorf("%+v comes back as %+v", m, got)
		}
	}
	for _, labels := range []map[string]string{
		{"gateway.dialect": "command/exec2"}, {"gateway.window_bytes": "-1"}, {"gateway.window_bytes": "x"}, {"gateway.window_bytes": ""}, {"other": "command/exec"},
	} {
		if got := processModeOf(&execwirev1.Process{Labels: labels}); got != (processMode{}) {
			t.Errorf("%v is taken for %+v", labels, got)
		}
	}
}
