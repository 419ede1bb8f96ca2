package gateway

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestProcess_StartToClose(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	if got := cl.must("process/start", startOf("p", "echo out; echo err >&2; exit 7")); string(got) != `{"processId":"p","sandboxType":"none"}` {
		t.Errorf("process/start returned %s", got)
	}
	text, code := cl.output("p", 1)
	if code != 7 || !strings.Contains(text, "out\n") || !strings.Contains(text, "err\n") {
		t.Errorf("it wrote %q and exited with %d", text, code)
	}
	for _, f := range cl.all() {
		switch f.Method {
		case "process/output":
			want := map[string]string{"out\n": "stdout", "err\n": "stderr"}[string(f.Params.Chunk)]
			if f.Params.Stream != want {
				t.Errorf("%s was read from %s", f.Params.Chunk, f.Params.Stream)
			}
		case "process/exited":
			want := fmt.Sprintf(`{"method":"process/exited","params":{"processId":"p","seq":%d,"exitCode":7,"sandboxDenied":false}}`, f.Params.Seq)
			if string(f.raw) != want {
				t.Errorf("got %s, want %s", f.raw, want)
			}
		case "process/closed":
			want := fmt.Sprintf(`{"method":"process/closed","params":{"processId":"p","seq":%d}}`, f.Params.Seq)
			if string(f.raw) != want {
				t.Errorf("got %s, want %s", f.raw, want)
			}
		}
	}
}

func TestProcess_Terminal(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	cl.start("p", "stty size; echo ${SHELL:+has a shell}; cat", "tty", true, "pipeStdin", true)
	cl.wait("the shell", func(frame) bool { return strings.Contains(outputIn(cl.frames, "p"), "shell\r\n") })
	cl.must("process/write", writeOf("p", "typed\n\x04"))
	text, code := cl.output("p", 1)
	if code != 0 || !strings.Contains(text, "24 80\r\nhas a shell\r\n") || strings.Count(text, "typed\r\n") != 2 {
		t.Errorf("it wrote %q and exited with %d", text, code)
	}
	if f := cl.event("p", "process/output"); f.Params.Stream != "pty" {
		t.Errorf("the output is of the stream %s", f.Params.Stream)
	}
	if got := cl.must("process/write", writeOf("p", "late")); string(got) != `{"status":"accepted"}` {
		t.Errorf("a write after the exit: got %s", got)
	}
}

func TestStart_AcceptsAllMembersOfClients(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	directory := t.TempDir()
	policy := map[string]any{"inherit": "core", "ignoreDefaultExcludes": false, "exclude": []string{"h?me"}, "set": map[string]string{"S": "1"}, "includeOnly": []string{}}
	cl.start("p", "echo $0 $(pwd) $(env | sort | tr '\\n' ' ')",
		"cwd", "file://localhost"+directory+"/../"+filepath.Base(directory), "arg0", "named", "envPolicy", policy,
		"env", map[string]string{"E": "2"}, "metadata", map[string]any{"threadId": "t"}, "shellSnapshot", nil, "networkProxy", nil,
		"credentialProviders", nil, "sandbox", nil, "enforceManagedNetwork", false, "managedNetwork", nil, "later", []int{1})
	text, code := cl.output("p", 1)
	if code != 0 || !strings.HasPrefix(text, "named "+directory+" E=2 ") || !strings.HasSuffix(text, " S=1\n") || strings.Contains(text, "HOME") {
		t.Errorf("it wrote %q and exited with %d", text, code)
	}
	for _, sandbox := range []string{
		`{"permissions":{"type":"disabled"},"windowsSandboxLevel":"disabled"}`, `{"permissions":{"type":"external","network":"restricted"},"windowsSandboxLevel":"elevated"}`,
		`{"permissions":{"type":"managed","file_system":{"type":"unrestricted"},"network":"enabled"},"windowsSandboxLevel":"disabled"}`,
	} {
		cl.start("sandbox"+sandbox, "true", "sandbox", rawJSON(sandbox))
	}
}

type rawJSON string

func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }

func TestStart_Fails_ReportsReasonAndFreesID(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	directory := t.TempDir()
	plain, garbage := filepath.Join(directory, "plain"), filepath.Join(directory, "garbage")
	for path, mode := range map[string]os.FileMode{plain: 0o644, garbage: 0o755} {
		if err := os.WriteFile(path, []byte("\x01\x02 no program"), mode); err != nil {
			t.Fatal(err)
		}
	}
	argv := func(argv ...string) []any { return []any{"argv", append([]string{}, argv...)} }
	for _, test := range []struct {
		name    string
		members []any
		code    int
		text    string
	}{
		{"no argv", argv(), -32602, "argv must not be empty"},
		{"no program", argv(""), -32603, "missing program for pipe spawn"},
		{"unknown program", argv("no-such-program"), -32603, "No such file or directory (os error 2)"},
		{"unknown path", argv("/no/such"), -32603, "No such file or directory (os error 2)"},
		{"a directory", argv(directory), -32603, "Permission denied (os error 13)"},
		{"no permission", argv(plain), -32603, "Permission denied (os error 13)"},
		{"no format", argv(garbage), -32603, "Exec format error (os error 8)"},
		{"no such cwd", []any{"cwd", directory + "/none"}, -32603, "No such file or directory (os error 2)"},
		{"a file as cwd", []any{"cwd", plain}, -32603, "Not a directory (os error 20)"},
		{"a relative cwd", []any{"cwd", "tmp"}, -32602, "relative URL without a base"},
		{"another host", []any{"cwd", "file://other/tmp"}, -32602, "is invalid on 'linux'"},
		{"NUL in argv", argv("echo", "a\x00b"), -32603, "nul byte found in provided data"},
		{"NUL in env", []any{"env", map[string]string{"A": "\x00"}}, -32603, "nul byte found in provided data"},
		{"NUL in a policy", []any{"envPolicy", map[string]any{"inherit": "all", "ignoreDefaultExcludes": true, "exclude": []string{}, "set": map[string]string{"A": "\x00"}, "includeOnly": []string{}}}, -32603, "nul byte"},
		{"too much", argv("true", strings.Repeat("x", 3<<20)), -32603, "Argument list too long (os error 7)"},
		{"no env", []any{"env", nil}, -32602, "invalid type: null, expected a map"},
		{"pipeStdin null", []any{"pipeStdin", nil}, -32602, "expected a boolean"},
		{"half a policy", []any{"envPolicy", map[string]any{"inherit": "none"}}, -32602, "missing field `ignoreDefaultExcludes`"},
		{"a wrong policy", []any{"envPolicy", map[string]any{"inherit": "some"}}, -32602, "unknown variant `some`, expected one of `core`, `all`, `none`"},
		{"too many patterns", []any{"envPolicy", map[string]any{"inherit": "all", "ignoreDefaultExcludes": true, "exclude": make([]string, 300), "set": map[string]string{}, "includeOnly": []string{}}}, -32602, "exclude"},
		{"a sandbox", []any{"sandbox", rawJSON(`{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[]},"network":"restricted"},"windowsSandboxLevel":"disabled"}`)}, -32600, "sandbox"},
		{"no network", []any{"sandbox", rawJSON(`{"permissions":{"type":"managed","file_system":{"type":"unrestricted"},"network":"restricted"},"windowsSandboxLevel":"disabled"}`)}, -32600, "sandbox"},
		{"an old sandbox", []any{"sandbox", rawJSON(`{"permissions":{"network":{"enabled":true}},"windowsSandboxLevel":"disabled"}`)}, -32600, "sandbox"},
		{"an older sandbox", []any{"sandbox", rawJSON(`{"sandboxPolicy":{}}`)}, -32602, "missing field `type`"},
		{"a sandbox of another shape", []any{"sandbox", rawJSON(`{"policy":{}}`)}, -32602, "missing field `permissions`"},
		{"the oldest sandbox", []any{"sandboxPolicy", rawJSON(`{"type":"readOnly"}`)}, -32600, "sandbox"},
		{"an unknown sandbox", []any{"sandbox", rawJSON(`{"permissions":{"type":"magic"},"windowsSandboxLevel":"disabled"}`)}, -32602, "unknown variant `magic`"},
		{"a managed network", []any{"enforceManagedNetwork", true}, -32600, "a managed network is demanded"},
		{"managed ports", []any{"managedNetwork", map[string]any{"loopbackPorts": []int{1}}}, -32600, "`managedNetwork` cannot be enforced"},
		{"a proxy", []any{"networkProxy", map[string]any{}}, -32600, "`networkProxy` cannot be enforced"},
		{"a long id", []any{"processId", strings.Repeat("x", 1025)}, -32602, "processId is longer than 1024 bytes"},
		{"an id that becomes long", []any{"processId", "~" + strings.Repeat("x", 1023)}, -32602, "processId is longer than 1024 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cl.refused("process/start", with(startOf("p", "true"), test.members...), test.code, test.text)
		})
	}
	cl.start("p", "true")
	refusal := cl.refused("process/start", startOf("p", "true"), -32600, "process p already exists")
	if refusal.Data["reason"] != "PROCESS_ALREADY_EXISTS" {
		t.Errorf("the data is %v", refusal.Data)
	}
}

func TestStart_AnyProcessID(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	for _, id := range []string{"", "~", "~~", "~x", "spaces and é \x00nul", strings.Repeat("x", 1024), `"`, "\u2028", "<&>"} {
		cl.start(id, "read line; echo $line", "pipeStdin", true)
		cl.must("process/write", writeOf(id, "good\n"))
		if text, _ := cl.output(id, 1); text != "good\n" {
			t.Errorf("process %q wrote %q", id, text)
		}
		if a := cl.readOutput(id); a.text() != "good\n" || !a.Closed {
			t.Errorf("process/read of %q returned %+v", id, a)
		}
		cl.refused("process/start", startOf(id, "true"), -32600, "process "+id+" already exists")
	}
}

func FuzzProcessID(f *testing.F) {
	for _, id := range []string{"", "~", "~~", "~a", "a~", "\x00"} {
		f.Add(id, "")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		one, other := processID(a), processID(b)
		if got := clientProcessID(one.server()); got != one {
			t.Errorf("%q is decoded as %q", one, got)
		}
		if one.server() == "" || one != other && one.server() == other.server() {
			t.Errorf("%q and %q are encoded as %q and %q", one, other, one.server(), other.server())
		}
	})
}

func TestWrite(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	status := func(params map[string]any) string {
		t.Helper()
		var result struct{ Status string }
		cl.decode(cl.must("process/write", params), &result)
		return result.Status
	}
	cl.start("cat", "cat", "pipeStdin", true)
	cl.start("none", "exec sleep 1000")
	if got := status(writeOf("unknown", "x")); got != "unknownProcess" {
		t.Errorf("unknown: %s", got)
	}
	cl.refused("process/write", writeOf(strings.Repeat("x", 2000), "x"), -32602, "processId is longer than 1024 bytes")
	if got := status(writeOf("none", "x")); got != "stdinClosed" {
		t.Errorf("without a pipe: %s", got)
	}
	for _, write := range []map[string]any{
		writeOf("cat", "a"), with(writeOf("cat", "b"), "writeId", "1"), with(writeOf("cat", "B"), "writeId", "1"),
		with(writeOf("cat", "c"), "writeId", nil), writeOf("cat", ""), with(writeOf("cat", "d"), "writeId", "1#1"),
		with(writeOf("cat", "e"), "writeId", strings.Repeat("y", 300)), with(writeOf("cat", "E"), "writeId", strings.Repeat("y", 300)),
		with(writeOf("cat", "f"), "writeId", strings.Repeat("y", 301)),
	} {
		if got := status(write); got != "accepted" {
			t.Errorf("%v: %s", write, got)
		}
	}
	output := func() (text string) {
		for _, f := range cl.all() {
			if f.Params.ProcessID == "cat" {
				text += string(f.Params.Chunk)
			}
		}
		return text
	}
	cl.wait("all of it", func(frame) bool { return len(outputIn(cl.frames, "cat")) == len("abcdef") })
	if got := output(); got != "abcdef" {
		t.Errorf("cat wrote %q", got)
	}
	for params, text := range map[string]string{
		`{"processId":"cat","chunk":"","writeId":""}`: "writeId must not be empty",
		`{"processId":"cat","chunk":"***"}`:           "Invalid symbol 42, offset 0.",
		`{"processId":"cat","chunk":"aGk"}`:           "Invalid padding",
		`{"processId":"cat"}`:                         "missing field `chunk`",
		`{"chunk":""}`:                                "missing field `processId`",
	} {
		cl.refused("process/write", rawJSON(params), -32602, text)
	}
	cl.must("process/terminate", map[string]any{"processId": "cat"})
	cl.event("cat", "process/closed")
	cl.refused("process/write", writeOf("cat", "x"), -32603, "failed to write to process stdin")
}

func outputIn(frames []frame, id string) (text string) {
	for _, f := range frames {
		if f.Params.ProcessID == id {
			text += string(f.Params.Chunk)
		}
	}
	return text
}

// The write is larger than the server accepts in one call.
func TestWrite_LargeRetried_IsAppliedOnce(t *testing.T) {
	cl, _ := newTestServer(t, func(s *serverSettings) { s.limits.StdinWriteBytes = 1000 }).attach("")
	cl.start("p", "head -c 10001 | wc -c; cat", "pipeStdin", true)
	chunk := strings.Repeat("x", 10_000)
	write := map[string]any{"processId": "p", "chunk": base64.StdEncoding.EncodeToString([]byte(chunk)), "writeId": "w"}
	cl.must("process/write", write)
	cl.must("process/write", write)
	cl.must("process/write", writeOf("p", "y"))
	cl.wait("the count", func(frame) bool { return strings.TrimSpace(outputIn(cl.frames, "p")) == "10001" })
}

func TestTerminate_KillsRunningProcessOnly(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	running := func(id string) bool {
		t.Helper()
		var result struct{ Running bool }
		cl.decode(cl.must("process/terminate", map[string]any{"processId": id}), &result)
		return result.Running
	}
	cl.start("p", "trap '' TERM HUP INT; sleep 1000 & echo ready; wait")
	cl.event("p", "process/output")
	if !running("p") {
		t.Error("a running process is reported as not running")
	}
	if _, code := cl.output("p", 1); code != 137 {
		t.Errorf("it exited with %d", code)
	}
	for _, id := range []string{"p", "unknown", ""} {
		if running(id) {
			t.Errorf("%.10q is reported as running", id)
		}
	}
	cl.refused("process/terminate", map[string]any{}, -32602, "missing field `processId`")
	cl.refused("process/terminate", map[string]any{"processId": strings.Repeat("x", 2000)}, -32602, "processId is longer than 1024 bytes")

	// A termination after the exit does not kill descendants.
	fifo := filepath.Join(t.TempDir(), "left")
	cl.start("leader", fmt.Sprintf("(while ! test -e %s; do sleep 0.01; done; echo still here) & exit 3", fifo))
	cl.event("leader", "process/exited")
	if running("leader") {
		t.Error("a process that has exited is reported as running")
	}
	if a := cl.readOutput("leader"); !a.Exited || a.Closed || a.NextSeq != 2 {
		t.Errorf("%+v", a)
	}
	if err := os.WriteFile(fifo, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if text, code := cl.output("leader", 1); text != "still here\n" || code != 3 {
		t.Errorf("it wrote %q and exited with %d", text, code)
	}
}

func TestSignal_Interrupt(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	for _, tty := range []bool{false, true} {
		id := fmt.Sprint("tty ", tty)
		cl.start(id, "trap 'echo got INT; exit 4' INT; echo ready; while :; do sleep 0.01; done", "tty", tty)
		cl.event(id, "process/output")
		interrupt := map[string]any{"processId": id, "signal": "interrupt"}
		if got := cl.must("process/signal", interrupt); string(got) != "{}" {
			t.Errorf("the response is %s", got)
		}
		if text, code := cl.output(id, 1); code != 4 || !strings.Contains(text, "got INT") {
			t.Errorf("it wrote %q and exited with %d", text, code)
		}
		cl.must("process/signal", interrupt)
	}
	cl.must("process/signal", map[string]any{"processId": "unknown", "signal": "interrupt"})
	cl.refused("process/signal", map[string]any{"processId": "p", "signal": "Interrupt"}, -32602, "unknown variant `Interrupt`, expected `interrupt`")
	cl.start("killed", "kill -TERM $$")
	if _, code := cl.output("killed", 1); code != 143 {
		t.Errorf("a process that TERM killed exited with %d", code)
	}
}

// The limit applies to concurrent starts, and to resumed sessions.
func TestStart_TooManyProcesses_Fails(t *testing.T) {
	const most, starts = 3, 40
	srv := newTestServer(t, func(s *serverSettings) { s.sessions.ProcessesPerSession = 10 })
	bounded := func(_ *pipe, c *Config) { c.Processes = most }
	cl, session := srv.attach("", bounded)
	var asks []string
	for i := range starts {
		asks = append(asks, cl.ask("process/start", startOf(fmt.Sprint("p", i), "exec sleep 1000")))
	}
	var running []string
	for i, ask := range asks {
		f := cl.reply(ask)
		if f.Error == nil {
			running = append(running, fmt.Sprint("p", i))
			continue
		}
		if f.Error.Code != -32005 || !strings.Contains(f.Error.Message, "max_processes_per_connection") ||
			f.Error.Data["setting"] != "max_processes_per_connection" || f.Error.Data["limit"] != "3" {
			t.Fatalf("the error is %s", f.raw)
		}
	}
	if len(running) != most {
		t.Fatalf("%d processes run, want at most %d", len(running), most)
	}
	cl.cut()
	if err := cl.ended(); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	resumed, _ := srv.attach(session, bounded)
	resumed.refused("process/start", startOf("q", "true"), -32005, "max_processes_per_connection")
	resumed.must("process/terminate", map[string]any{"processId": running[0]})
	resumed.event(running[0], "process/closed")
	resumed.start("q", "exec sleep 1000")

	other, _ := srv.attach("", bounded) // another session has its own limit
	other.start("p", "exec sleep 1000")
}

func TestStart_ServerLimit_NamesLimit(t *testing.T) {
	cl, _ := newTestServer(t, func(s *serverSettings) { s.sessions.ProcessesPerSession = 1 }).attach("")
	cl.start("one", "exec sleep 1000")
	refusal := cl.refused("process/start", startOf("two", "true"), -32005, "")
	if refusal.Data["reason"] != "TOO_MANY_PROCESSES" || refusal.Data["limit"] != "1" ||
		refusal.Data["setting"] != "processes_per_session" || refusal.Data["retryAfterMs"] != 1000.0 {
		t.Errorf("%+v", refusal)
	}
}
