package gateway

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/internal/testproc"
)

// waitAnswer is the result of process/wait.
type waitAnswer struct {
	Met      *string
	TimedOut bool
	Exited   bool
	ExitCode *int
	Closed   bool
	Match    *struct {
		Stream string
		Offset int
		Chunk  []byte
		Seq    int
	}
}

func (a waitAnswer) met() string {
	if a.Met == nil {
		return ""
	}
	return *a.Met
}

func (cl *client) waited(f frame) waitAnswer {
	cl.t.Helper()
	if f.Error != nil {
		cl.t.Fatalf("a wait failed: %s", f.raw)
	}
	var a waitAnswer
	cl.decode(f.Result, &a)
	return a
}

func waitFor(id string, members ...any) map[string]any {
	return with(map[string]any{"processId": id}, members...)
}

func (cl *client) waitUntil(id string, until map[string]any, members ...any) waitAnswer {
	cl.t.Helper()
	return cl.waited(cl.call("process/wait", with(waitFor(id, members...), "until", until)))
}

func TestWait_Exit(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	start := cl.ask("process/start", startOf("p", "read line; exit 3", "pipeStdin", true))
	waits := []string{
		cl.ask("process/wait", waitFor("p")),
		cl.ask("process/wait", waitFor("p", "until", map[string]any{"exit": true}, "timeoutMs", nil)),
		cl.ask("process/wait", waitFor("p", "until", nil, "timeoutMs", uint64(1)<<63)),
	}
	closed := cl.ask("process/wait", waitFor("p", "until", map[string]any{"closed": true}))
	look := cl.must("process/wait", waitFor("p", "timeoutMs", 0))
	if want := `{"met":null,"timedOut":true,"exited":false,"exitCode":null,"closed":false}`; string(look) != want {
		t.Errorf("a poll of a running process returned %s, want %s", look, want)
	}
	if a := cl.waitUntil("p", map[string]any{"closed": true}, "timeoutMs", 1); a.met() != "" || !a.TimedOut {
		t.Errorf("%+v", a)
	}
	cl.must("process/write", writeOf("p", "\n"))
	for _, ask := range waits {
		if a := cl.waited(cl.reply(ask)); a.met() != "exit" || a.TimedOut || !a.Exited || a.ExitCode == nil || *a.ExitCode != 3 || a.Match != nil {
			t.Errorf("%+v", a)
		}
	}
	if a := cl.waited(cl.reply(closed)); a.met() != "closed" || !a.Exited || !a.Closed {
		t.Errorf("%+v", a)
	}
	checkOrder(t, cl.all(), map[string]string{"p": start})
	if a := cl.waited(cl.call("process/wait", waitFor("p", "timeoutMs", 0))); a.met() != "exit" || !a.Closed {
		t.Errorf("after the exit: %+v", a)
	}
}

func TestWait_Pattern(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	cl.start("p", "echo begin; echo error >&2; read line; echo got $line; read line", "pipeStdin", true)
	cl.wait("both lines", func(frame) bool { return len(outputIn(cl.frames, "p")) == len("begin\nerror\n") })
	ask := cl.ask("process/wait", waitFor("p", "until", map[string]any{"pattern": "got [a-z]+", "stream": "stdout"}))
	a := cl.waitUntil("p", map[string]any{"pattern": "err.r"})
	if a.met() != "pattern" || a.Match == nil || a.Match.Stream != "stderr" || string(a.Match.Chunk) != "error" || a.Match.Offset != 0 || a.Exited {
		t.Errorf("%+v %+v", a, a.Match)
	}
	if a := cl.waitUntil("p", map[string]any{"pattern": "error", "stream": "stdout"}, "timeoutMs", 10); a.met() != "" || !a.TimedOut || a.Match != nil {
		t.Errorf("%+v", a)
	}
	cl.must("process/write", writeOf("p", "something\n"))
	a = cl.waited(cl.reply(ask))
	if a.met() != "pattern" || a.Match == nil || !strings.HasPrefix("something", string(a.Match.Chunk[len("got "):])) || a.Match.Offset != len("begin\n") || a.Match.Seq != 3 {
		t.Errorf("%+v %+v", a, a.Match)
	}
	never := cl.ask("process/wait", waitFor("p", "until", map[string]any{"pattern": "begin", "afterSeq": 3}))
	cl.must("process/closeStdin", map[string]any{"processId": "p"})
	if a := cl.waited(cl.reply(never)); a.met() != "" || a.TimedOut || !a.Closed || a.ExitCode == nil {
		t.Errorf("when the process has closed: %+v", a)
	}
	cl.start("t", "echo prompt; exec cat", "tty", true)
	if a := cl.waitUntil("t", map[string]any{"pattern": "prompt", "stream": "pty"}); a.met() != "pattern" || a.Match.Stream != "pty" {
		t.Errorf("%+v", a)
	}
}

func TestWait_Port(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	mine, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mine.Close() }()
	port := mine.Addr().(*net.TCPAddr).Port
	cl.start("p", "read line", "pipeStdin", true)
	if a := cl.waitUntil("p", map[string]any{"port": port}, "timeoutMs", 50); a.met() != "" || !a.TimedOut {
		t.Errorf("a port of another process: %+v", a)
	}
	wait := cl.ask("process/wait", waitFor("p", "until", map[string]any{"port": port}))
	cl.must("process/terminate", map[string]any{"processId": "p"})
	if a := cl.waited(cl.reply(wait)); a.met() != "" || a.TimedOut || !a.Closed {
		t.Errorf("when the process has closed: %+v", a)
	}

	_ = mine.Close()
	cl.start("l", "", "argv", testproc.Argv("listen", mine.Addr().String()), "pipeStdin", true)
	if a := cl.waitUntil("l", map[string]any{"port": port}); a.met() != "port" || a.Exited {
		t.Errorf("%+v", a)
	}
}

func TestWait_Quiet(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	cl.start("p", "while :; do echo tick; sleep 0.01; done")
	if a := cl.waitUntil("p", map[string]any{"idleMs": 3_600_000}, "timeoutMs", 10); a.met() != "" || !a.TimedOut {
		t.Errorf("%+v", a)
	}
	cl.start("silent", "exec sleep 1000")
	if a := cl.waitUntil("silent", map[string]any{"idleMs": 20}); a.met() != "idle" || a.TimedOut || a.Exited {
		t.Errorf("%+v", a)
	}
}

// The client may wait for longer than one call to the server.
func TestWait_LongerThanServerWait(t *testing.T) {
	cl, _ := newTestServer(t, func(s *serverSettings) { s.limits.MaxWait = durationpb.New(5 * time.Millisecond) }).attach("")
	cl.start("p", "read line; echo said; exit 4", "pipeStdin", true)
	var asks []string
	for _, until := range []map[string]any{{"exit": true}, {"closed": true}, {"pattern": "sa.d"}} {
		asks = append(asks, cl.ask("process/wait", waitFor("p", "until", until)), cl.ask("process/wait", waitFor("p", "until", until, "timeoutMs", 3_600_000)))
	}
	if a := cl.waitUntil("p", map[string]any{"exit": true}, "timeoutMs", 100); !a.TimedOut {
		t.Errorf("%+v", a)
	}
	for _, f := range cl.all() {
		for _, ask := range asks {
			if string(f.ID) == ask {
				t.Fatalf("a wait ends before its condition: %s", f.raw)
			}
		}
	}
	cl.must("process/write", writeOf("p", "\n"))
	for _, ask := range asks {
		if a := cl.waited(cl.reply(ask)); a.Met == nil {
			t.Errorf("%+v", a)
		}
	}
}

func TestWait_Invalid_Fails(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	cl.start("p", "exec sleep 1000")
	for _, test := range []struct{ until, field, text string }{
		{`{}`, "until", "`until` has no condition: give exit, closed, pattern, port or idleMs"},
		{`{"exit":true,"port":1}`, "until", "`until` has both exit and port: give one condition"},
		{`{"exit":false}`, "until.exit", "is false"},
		{`{"closed":false}`, "until.closed", "is false"},
		{`{"exit":true,"stream":"stdout"}`, "until.stream", "is for a pattern"},
		{`{"exit":true,"afterSeq":1}`, "until.afterSeq", "is for a pattern"},
		{`{"port":0}`, "until.port", "is 0: use 1 to 65535"},
		{`{"port":65536}`, "until.port", "expected u16"},
		{`{"idleMs":0}`, "until.idleMs", "is 0: set how long"},
		{`{"pattern":"("}`, "until.pattern", "`until.pattern`"},
		{`{"pattern":"x","stream":"pty"}`, "until.stream", "which the process does not have"},
		{`{"pattern":"x","stream":"terminal"}`, "until.stream", "unknown variant `terminal`, expected one of `stdout`, `stderr`, `pty`"},
		{`"exit"`, "until", "expected struct"},
	} {
		refusal := cl.refused("process/wait", rawJSON(`{"processId":"p","until":`+test.until+`}`), -32602, test.text)
		if refusal.Data["field"] != test.field {
			t.Errorf("%s: the data is %v, want the field %s", test.until, refusal.Data, test.field)
		}
	}
	cl.refused("process/wait", rawJSON(`{"processId":"p","until":{"pattern":"x","afterSeq":99}}`), -32600, "not reached that seq")
	cl.refused("process/wait", rawJSON(`{"processId":"p","timeoutMs":-1}`), -32602, "expected u64")
	cl.refused("process/wait", waitFor("unknown"), -32600, "unknown process id unknown")
	cl.refused("process/wait", map[string]any{}, -32602, "missing field `processId`")
}

// A wait holds a permit like any request, and ends with the connection.
func TestWait_Disconnect_Ends(t *testing.T) {
	cl, _ := newTestServer(t).attach("", func(_ *pipe, c *Config) { c.Requests = 2 })
	cl.start("p", "exec sleep 1000")
	cl.ask("process/wait", waitFor("p"))
	cl.ask("process/wait", waitFor("p", "until", map[string]any{"port": 1}))
	cl.refused("process/wait", waitFor("p"), -32005, "requests_per_connection")
	cl.cut()
	if err := cl.ended(); !errors.Is(err, errLost) {
		t.Errorf("Serve returned %v", err)
	}
}
