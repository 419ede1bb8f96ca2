package gateway

import (
	"strings"
	"testing"

	"github.com/execwire/execwire/gateway/call"
)

// snapshotAnswer is the result of process/snapshot.
type snapshotAnswer struct {
	Stdout, Stderr, Terminal []byte
	Truncated                bool
	Omitted                  map[string]struct{ Offset, Bytes int }
	Running, Closed          bool
	ExitCode                 *int
}

func (cl *client) snapshot(id string) snapshotAnswer {
	cl.t.Helper()
	var a snapshotAnswer
	cl.decode(cl.must("process/snapshot", map[string]any{"processId": id}), &a)
	return a
}

func TestSnapshot_HasBothStreams(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	cl.start("p", "echo out; echo err >&2; read line; exit 3", "pipeStdin", true)
	cl.wait("both lines", func(frame) bool { return len(outputIn(cl.frames, "p")) == len("out\nerr\n") })
	got := cl.must("process/snapshot", map[string]any{"processId": "p"})
	const running = `{"stdout":"b3V0Cg==","stderr":"ZXJyCg==","terminal":"","truncated":false,"omitted":{},"running":true,"exitCode":null,"closed":false}`
	if string(got) != running {
		t.Errorf("the snapshot is %s, want %s", got, running)
	}
	cl.must("process/write", writeOf("p", "\n"))
	cl.event("p", "process/closed")
	got = cl.must("process/snapshot", map[string]any{"processId": "p"})
	ended := strings.Replace(running, `"running":true,"exitCode":null,"closed":false`, `"running":false,"exitCode":3,"closed":true`, 1)
	if string(got) != ended {
		t.Errorf("the snapshot is %s, want %s", got, ended)
	}
	cl.start("t", "echo said; exec cat", "tty", true)
	cl.event("t", "process/output")
	if a := cl.snapshot("t"); string(a.Terminal) != "said\r\n" || len(a.Stdout) != 0 || !a.Running {
		t.Errorf("a terminal: %+v", a)
	}
	cl.refused("process/snapshot", map[string]any{"processId": "unknown"}, -32600, "unknown process id unknown")
	cl.refused("process/snapshot", map[string]any{"processId": strings.Repeat("x", 2000)}, -32602, "processId is longer")
	cl.refused("process/snapshot", map[string]any{}, -32602, "missing field `processId`")
}

// A snapshot has the end of each stream, also when the middle was dropped, and
// consumes nothing.
func TestSnapshot_ReportsOmittedBytes(t *testing.T) {
	cl, _ := newTestServer(t, func(s *serverSettings) { s.limits.SnapshotBytes = 1 << 10 }).attach("")
	cl.start("p", "printf begin; head -c 100000 /dev/zero; printf end; printf short >&2")
	text, _ := cl.output("p", 1)
	a := cl.snapshot("p")
	stdout := string(a.Stdout)
	omitted := a.Omitted["stdout"]
	if !a.Truncated || !strings.HasPrefix(stdout, "begin") || !strings.HasSuffix(stdout, "end") || len(a.Omitted) != 1 ||
		omitted.Offset != 1<<10 || omitted.Bytes != 100_008-len(stdout) || string(a.Stderr) != "short" {
		t.Errorf("%d bytes of stdout, %q of stderr, omitted %v", len(stdout), a.Stderr, a.Omitted)
	}
	if again := cl.readOutput("p"); again.text() != text {
		t.Errorf("after a snapshot %d bytes of %d can be read", len(again.text()), len(text))
	}
}

// Few snapshots are prepared at a time, and all are sent in the end.
func TestSnapshot_SlowReader_GetsAll(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	cl.start("p", "head -c 100000 /dev/zero")
	cl.output("p", 1)
	cl.stopReading()
	var asks []string
	for range 3 * call.MaxLarge {
		asks = append(asks, cl.ask("process/snapshot", map[string]any{"processId": "p"}))
	}
	cl.resumeReading()
	for _, ask := range asks {
		if f := cl.reply(ask); f.Error != nil || len(f.raw) < 100_000 {
			t.Errorf("%.200s", f.raw)
		}
	}
}
