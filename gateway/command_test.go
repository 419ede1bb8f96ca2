package gateway

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCommandExec_StartToExit(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	params := startOf("p", "echo out; echo err >&2; exit 7", "outputBytesCap", 16384, "arg0", nil, "unknown", 1)
	const result = `{"processId":"p","running":true,"exitCode":null,"stdout":null,"stderr":null}`
	if got := cl.must("command/exec", params); string(got) != result {
		t.Errorf("command/exec returned %s", got)
	}
	streams, code := cl.commandOutput("p", 1)
	if want := map[string]string{"stdout": "out\n", "stderr": "err\n"}; code != 7 || !maps.Equal(streams, want) {
		t.Errorf("it wrote %q and exited with %d", streams, code)
	}
	if got := cl.methodsOf("p"); !slices.Equal(got, []string{"command/exec/outputDelta", "command/exec/exited"}) {
		t.Errorf("the client received %q", got)
	}
	for _, f := range cl.all() {
		want := map[string]string{
			"command/exec/exited":      `{"method":"command/exec/exited","params":{"processId":"p","exitCode":7}}`,
			"command/exec/outputDelta": fmt.Sprintf(`{"method":"command/exec/outputDelta","params":{"processId":"p","seq":%d,"stream":"stdout","chunk":"b3V0Cg=="}}`, f.Params.Seq),
		}[f.Method]
		if f.Method != "" && f.Params.Stream != "stderr" && string(f.raw) != want {
			t.Errorf("got %s, want %s", f.raw, want)
		}
	}
}

func TestCommandExec_Terminal(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	cl.command("p", "stty size; cat", "tty", true)
	cl.wait("the size", func(frame) bool { return outputIn(cl.frames, "p") == "24 80\r\n" })
	if got := cl.must("command/exec/write", writeOf("p", "typed\n")); string(got) != `{"accepted":true}` {
		t.Errorf("a write returned %s", got)
	}
	cl.wait("the echo", func(frame) bool { return strings.Count(outputIn(cl.frames, "p"), "typed\r\n") == 2 })
	end := map[string]any{"processId": "p"}
	if got := cl.must("command/exec/terminate", end); string(got) != `{"running":true}` {
		t.Errorf("a termination returned %s", got)
	}
	streams, code := cl.commandOutput("p", 1)
	if code != 137 || len(streams) != 1 || streams["stdout"] != "24 80\r\ntyped\r\ntyped\r\n" {
		t.Errorf("it wrote %q and exited with %d", streams, code)
	}
	for _, id := range []string{"p", "unknown", ""} {
		if got := cl.must("command/exec/terminate", map[string]any{"processId": id}); string(got) != `{"running":false}` {
			t.Errorf("%.10q: got %s", id, got)
		}
	}
	cl.refused("command/exec/write", writeOf("p", "late"), -32600, "stdin of process p is closed")
}

func TestCommandExec_Errors(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	cl.command("pipes", "exec sleep 1000")
	cl.start("older", "exec sleep 1000")
	start := func(members ...any) map[string]any { return with(startOf("p", "true"), members...) }
	without := func(member string) map[string]any {
		params := start()
		delete(params, member)
		return params
	}
	for name, test := range map[string]struct {
		method string
		params any
		code   int
		text   string
	}{
		"unknown method":                 {"command/exec/read", start(), -32601, "`command/exec/read`"},
		"no parameters":                  {"command/exec", nil, -32602, ""},
		"parameters of another type":     {"command/exec", "p", -32602, ""},
		"no id":                          {"command/exec", without("processId"), -32602, "missing field `processId`"},
		"no argv":                        {"command/exec", without("argv"), -32602, "missing field `argv`"},
		"no cwd":                         {"command/exec", without("cwd"), -32602, "missing field `cwd`"},
		"no env":                         {"command/exec", without("env"), -32602, "missing field `env`"},
		"no tty":                         {"command/exec", without("tty"), -32602, "missing field `tty`"},
		"numeric id":                     {"command/exec", start("processId", 1), -32602, ""},
		"an empty argv":                  {"command/exec", start("argv", []string{}), -32602, "argv must not be empty"},
		"a relative directory":           {"command/exec", start("cwd", "tmp"), -32602, ""},
		"negative cap":                   {"command/exec", start("outputBytesCap", -1), -32602, ""},
		"cap as a string":                {"command/exec", start("outputBytesCap", "1"), -32602, ""},
		"a long id":                      {"command/exec", start("processId", strings.Repeat("x", 1025)), -32602, "processId is longer than 1024 bytes"},
		"no such program":                {"command/exec", start("argv", []string{"/no/such"}), -32603, "No such file or directory"},
		"id in use":                      {"command/exec", start("processId", "pipes"), -32600, "process pipes already exists"},
		"id in use by the other dialect": {"command/exec", start("processId", "older"), -32600, "process older already exists"},
		"id in use by the older dialect": {"process/start", start("processId", "pipes"), -32600, "process pipes already exists"},
		"write to an unknown process":    {"command/exec/write", writeOf("unknown", "x"), -32600, "unknown process id unknown"},
		"termination with a long id":     {"command/exec/terminate", map[string]any{"processId": strings.Repeat("x", 1025)}, -32602, "processId is longer than 1024 bytes"},
		"write with a long id":           {"command/exec/write", writeOf(strings.Repeat("x", 1025), "x"), -32602, "processId is longer than 1024 bytes"},
		"write without a terminal":       {"command/exec/write", writeOf("pipes", "x"), -32600, "stdin of process pipes is closed"},
		"write of invalid base64":        {"command/exec/write", map[string]any{"processId": "pipes", "chunk": "***"}, -32602, "Invalid symbol 42, offset 0."},
		"write without a chunk":          {"command/exec/write", map[string]any{"processId": "pipes"}, -32602, "missing field `chunk`"},
		"termination without an id":      {"command/exec/terminate", map[string]any{}, -32602, "missing field `processId`"},
	} {
		t.Run(name, func(t *testing.T) { cl.refused(test.method, test.params, test.code, test.text) })
	}
	cl.notify("command/exec/exited", map[string]any{"processId": "pipes", "exitCode": 0})
	f, _ := cl.wait("an error", func(f frame) bool { return string(f.ID) == "-1" })
	if f.Error == nil || f.Error.Code != -32600 {
		t.Errorf("a notification got the response %s", f.raw)
	}
	cl.command("p", "true") // none of the failed starts uses the id
}

// Each process also gets requests of the other dialect.
func TestDialect_BothOnOneConnection(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	cl.start("new", "cat; exit 3", "pipeStdin", true)
	cl.command("old", "cat; exit 4", "tty", true)
	cl.must("command/exec/write", writeOf("new", "to the new\n"))
	if got := cl.must("process/write", writeOf("old", "to the old\n")); string(got) != `{"status":"accepted"}` {
		t.Errorf("a write returned %s", got)
	}
	cl.wait("both", func(frame) bool {
		return outputIn(cl.frames, "new") == "to the new\n" && outputIn(cl.frames, "old") == strings.Repeat("to the old\r\n", 2)
	})
	if a := cl.readOutput("old"); a.text() != strings.Repeat("to the old\r\n", 2) || a.Chunks[0].Stream != "pty" {
		t.Errorf("process/read of the old process returned %+v", a)
	}
	if got := cl.must("command/exec/terminate", map[string]any{"processId": "new"}); string(got) != `{"running":true}` {
		t.Errorf("a termination returned %s", got)
	}
	cl.must("process/signal", map[string]any{"processId": "old", "signal": "interrupt"})
	if _, code := cl.output("new", 1); code != 137 {
		t.Errorf("the new process exited with %d", code)
	}
	if _, code := cl.commandOutput("old", 1); code != 130 {
		t.Errorf("the old process exited with %d", code)
	}
	if a := cl.readOutput("old", "waitMs", 60_000, "afterSeq", 2); !a.Exited || *a.ExitCode != 130 {
		t.Errorf("process/read of the old process returned %+v", a)
	}
	for id, want := range map[string][]string{
		"new": {"process/output", "process/exited", "process/closed"},
		"old": {"command/exec/outputDelta", "command/exec/exited"},
	} {
		if got := cl.methodsOf(id); !slices.Equal(got, want) {
			t.Errorf("the client received for the %s process %q", id, got)
		}
	}
}

func TestCommandExec_ResponsesPrecedeEffects(t *testing.T) {
	cl, _ := newTestServer(t, patientHolds).attach("")
	for i := range 50 {
		id := fmt.Sprint("p", i)
		start := cl.ask("command/exec", startOf(id, "echo ready; exec cat", "tty", true))
		write := cl.ask("command/exec/write", writeOf(id, "x\n"))
		cl.wait("the echo", func(frame) bool { return strings.Contains(outputIn(cl.frames, id), "x\r\n") })
		end := cl.ask("command/exec/terminate", map[string]any{"processId": id})
		cl.event(id, "command/exec/exited")
		first := map[string]int{}
		for n, f := range cl.all() {
			what := f.Method
			switch {
			case what == "":
				what = string(f.ID)
			case strings.Contains(string(f.Params.Chunk), "x"):
				what = "echo"
			}
			if _, seen := first[what]; !seen {
				first[what] = n
			}
		}
		if delta, seen := first["command/exec/outputDelta"]; seen && first[start] > delta ||
			first[write] > first["echo"] || first[end] > first["command/exec/exited"] {
			t.Fatalf("an effect precedes its response: %s", summary(cl.all()))
		}
		cl.mu.Lock()
		cl.frames = nil
		cl.mu.Unlock()
	}
}

// The descendant keeps the streams open for longer than the close timeout.
func TestCommandExit_DescendantKeepsStreams_LateOutputIsSent(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	marker := filepath.Join(t.TempDir(), "left")
	cl.command("p", fmt.Sprintf("echo soon; (while ! test -e %s; do sleep 0.01; done; echo late) & exit 3", marker))
	streams, code := cl.commandOutput("p", 1)
	if code != 3 || streams["stdout"] != "soon\n" {
		t.Errorf("it wrote %q and exited with %d", streams, code)
	}
	if a := cl.readOutput("p"); !a.Exited || a.Closed {
		t.Errorf("%+v", a)
	}
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cl.wait("late output", func(frame) bool { return outputIn(cl.frames, "p") == "soon\nlate\n" })
	for after := 2; ; after++ { // the exit, the late output, the close
		if a := cl.readOutput("p", "afterSeq", after, "waitMs", 60_000); a.Closed {
			break
		}
	}
	cl.must("environment/status", nil)
	want := []string{"command/exec/outputDelta", "command/exec/exited", "command/exec/outputDelta"}
	if got := cl.methodsOf("p"); !slices.Equal(got, want) {
		t.Errorf("the client received %q", got)
	}
}

// The client subscribed to notifications of the newer dialect.
func TestDialect_OlderProcesses_GetOlderNotificationsOnly(t *testing.T) {
	cl := newTestServer(t).connect()
	cl.must("initialize", map[string]any{"clientName": "test", "notifications": []string{"process/started", "process/failed"}})
	cl.notify("initialized", nil)
	cl.command("p", "echo hello")
	cl.refused("command/exec", startOf("q", "", "argv", []string{"/no/such"}), -32603, "No such file or directory")
	cl.commandOutput("p", 1)
	cl.start("new", "")
	cl.event("new", "process/started")
	cl.event("new", "process/closed")
	for _, f := range cl.all() {
		if strings.HasPrefix(f.Method, "process/") && f.Params.ProcessID != "new" {
			t.Errorf("the client received %s", f.raw)
		}
	}
}
