package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// remotely is a command line that is about processes of the server.
func (c *command) remotely(d door, name string, args ...string) []string {
	if name == "sessions" && len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		return append([]string{name, args[0], "--server", c.urls[d]}, args[1:]...)
	}
	return append([]string{name, "--server", c.urls[d]}, args...)
}

// expectCommand runs a command line of the server to its end.
func (c *command) expectCommand(t testing.TB, d door, want result, name string, args ...string) {
	t.Helper()
	if got := run(t, nil, c.remotely(d, name, args...)...); got != want {
		t.Errorf("%s %q through %s: %+v, want %+v", name, args, d, got, want)
	}
}

// detach starts a process that nobody owns.
func (c *command) detach(t testing.TB, d door, id string, argv []string, flags ...string) {
	t.Helper()
	args := append(append(c.through(d, "--detach", "--id", id), flags...), "--")
	if got := run(t, nil, append(args, argv...)...); got != (result{stdout: id + "\n"}) {
		t.Fatalf("run --detach: %+v", got)
	}
}

// objects are the lines of --json.
func objects[T any](t testing.TB, text string) (list []T) {
	t.Helper()
	for line := range strings.Lines(text) {
		var object T
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		list = append(list, object)
	}
	return list
}

type listed struct {
	ID, State string
	PID       int
	Argv      []string
	Owned     bool
	Exit      *struct {
		ExitCode *int `json:"exit_code"`
		Signal   string
		Cause    string
	}
}

func TestDetachedProcessesAreListed(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		id := "lives in " + string(d)
		over := "over " + string(d)
		server.detach(t, d, id, []string{"sleep", "1000"})
		server.detach(t, d, over, shell("exit 3"))
		server.expectCommand(t, d, result{code: 3}, "wait", "--closed", over)

		got := run(t, nil, server.remotely(d, "ps", "-q")...)
		if lines := strings.Split(got.stdout, "\n"); !slices.Contains(lines, id) || slices.Contains(lines, over) {
			t.Errorf("ps -q: %+v", got)
		}
		got = run(t, nil, server.remotely(d, "ps", "-a", "--json")...)
		for _, p := range objects[listed](t, got.stdout) {
			switch p.ID {
			case id:
				if p.State != "running" || p.PID == 0 || !slices.Equal(p.Argv, []string{"sleep", "1000"}) || p.Owned || p.Exit != nil {
					t.Errorf("what runs is %+v", p)
				}
			case over:
				if p.State != "closed" || p.Exit == nil || *p.Exit.ExitCode != 3 || p.Exit.Cause != "exited" {
					t.Errorf("what is over is %+v", p)
				}
			}
		}
		got = run(t, nil, server.remotely(d, "ps", "-a")...)
		if lines := strings.Split(got.stdout, "\n"); lines[0] != "ID\tSTATE\tPID\tAGE\tEXIT\tCOMMAND" ||
			!strings.Contains(got.stdout, over+"\tclosed\t") || !strings.Contains(got.stdout, "\t3\t/bin/sh -c 'exit 3'\n") {
			t.Errorf("ps -a: %+v", got)
		}
		server.expectCommand(t, d, result{code: 125, stderr: "execwire: session \"none\" does not exist\n" +
			"  list what is there with: execwire sessions\n"}, "ps", "--session", "none")
	}
}

// More processes than fit on a page are listed whole, and in order.
func TestAllPagesAreListed(t *testing.T) {
	server := serve(t)
	processes := remote(t, server, unixDoor)
	want := ""
	for i := range 120 {
		id := fmt.Sprintf("p%03d", i)
		want += id + "\n"
		if _, err := processes.StartProcess(testContext(t), &execwirev1.StartProcessRequest{ProcessId: id,
			Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
				Direct: &execwirev1.DirectCommand{Argv: []string{"/bin/true"}, WorkingDirectory: "/"}}}}); err != nil {
			t.Fatal(err)
		}
	}
	server.expectCommand(t, unixDoor, result{stdout: want}, "ps", "-a", "-q")
}

func TestLogsPrintStreamsApart(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		id := string(d)
		server.detach(t, d, id, shell(`printf out; printf err >&2; sleep 0.05; printf '\377more'; exit 3`))
		server.expectCommand(t, d, result{stdout: "out\xffmore", stderr: "err"}, "logs", "-f", id)
		server.expectCommand(t, d, result{stdout: "out\xffmore", stderr: "err"}, "logs", id)
		server.expectCommand(t, d, result{stdout: "out\xffmore"}, "logs", "--stdout", id)
		server.expectCommand(t, d, result{stderr: "err"}, "logs", "--stderr", id)
		server.expectCommand(t, d, result{stdout: "ore"}, "logs", "--tail", "3", id)
		server.expectCommand(t, d, result{stdout: "re"}, "logs", "-f", "--tail", "2", id)
		got := run(t, nil, server.remotely(d, "logs", "--json", "--stdout", id)...)
		type event struct {
			Seq           uint64
			Event, Stream string
			Data          []byte
			Text          *string
			Offset        uint64
			Exit          *struct {
				ExitCode int `json:"exit_code"`
			}
		}
		var said []string
		for _, e := range objects[event](t, got.stdout) {
			said = append(said, e.Event)
			switch {
			case e.Event == "output" && (e.Stream != "stdout" || e.Offset == 0 && *e.Text != "out" || e.Offset == 3 && (e.Text != nil || string(e.Data) != "\xffmore")):
				t.Errorf("output is %+v", e)
			case e.Event == "exited" && e.Exit.ExitCode != 3, e.Seq == 0:
				t.Errorf("an event is %+v", e)
			}
			if e.Offset == 3 {
				server.expectCommand(t, d, result{}, "logs", "--stdout", "--since-seq", fmt.Sprint(e.Seq), id)
			}
		}
		if !slices.Equal(said, []string{"output", "output", "exited", "closed"}) {
			t.Errorf("events are %v", said)
		}
		server.expectCommand(t, d, result{code: 125, stderr: "execwire: process \"nobody\" does not exist\n" +
			"  list what is there with: execwire ps -a\n"}, "logs", "nobody")
	}
}

// What is not kept any more is told of, not left out.
func TestLogsTellOfMissingOutput(t *testing.T) {
	server := serve(t, "EXECWIRE_RETAINED_OUTPUT_BYTES_PER_PROCESS=64KiB")
	for _, d := range wires {
		id := string(d)
		server.detach(t, d, id, program("flood", "-bytes", "1000000"))
		server.expectCommand(t, d, result{}, "wait", "--closed", id)
		for _, args := range [][]string{{id}, {"-f", id}} {
			got := run(t, nil, server.remotely(d, "logs", args...)...)
			missing := 0
			if _, err := fmt.Sscanf(got.stderr, "execwire: %d bytes of output are missing here", &missing); err != nil ||
				missing == 0 || missing+len(got.stdout) != 1_000_000 {
				t.Errorf("%d bytes and %q", len(got.stdout), got.stderr)
			}
		}
		got := run(t, nil, server.remotely(d, "logs", "--json", id)...)
		type gap struct {
			Event        string
			DroppedBytes int `json:"dropped_bytes"`
		}
		if first := objects[gap](t, got.stdout)[0]; first.Event != "gap" || first.DroppedBytes == 0 {
			t.Errorf("the first event is %+v", first)
		}
	}
}

// Following goes on where it was when the connection is lost.
func TestLogsFollowAcrossCuts(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		wire := newProxy(t, d.network(), server.address(d))
		go_ := filepath.Join(shortDir(t), "go")
		server.detach(t, d, string(d), shell("echo before; until [ -e "+go_+" ]; do sleep 0.02; done; echo after"))
		follower := newCommand("logs", "--server", wire.url(), "-f", string(d))
		var stdout lockedBuffer
		follower.Stdout = &stdout
		follower.launch(t)
		eventually(t, "the first line", func() bool { return stdout.String() == "before\n" })
		wire.cut()
		if err := os.WriteFile(go_, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if code := follower.await(t); code != 0 || stdout.String() != "before\nafter\n" || wire.cutCount() == 0 {
			t.Errorf("through %s it ended with %d, %q and %q", d, code, stdout.String(), follower.errors.String())
		}
	}
}

// unusedPort is a port on which nobody listens.
func unusedPort(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	_ = listener.Close()
	return port
}

func TestWaitSaysByItsCodeWhatHappened(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		server.detach(t, d, "three", shell("echo ready to go; exit 3"))
		server.detach(t, d, "zero", shell("exit 0"))
		server.detach(t, d, "killed", shell("kill -KILL $$"))
		server.detach(t, d, "lives", program("sleep"))
		port := unusedPort(t)
		server.detach(t, d, "listens", program("listen-child", "127.0.0.1:"+port), "-i")
		for _, tt := range []struct {
			args []string
			want result
		}{
			{[]string{"three"}, result{code: 3}},
			{[]string{"--port", port, "listens"}, result{}},
			{[]string{"--timeout", "10ms", "--port", port, "lives"}, result{code: 124, stderr: "execwire: lives: the timeout is over\n"}},
			{[]string{"--closed", "zero"}, result{}},
			{[]string{"killed"}, result{code: 128 + 9}},
			{[]string{"zero", "killed", "three"}, result{code: 128 + 9}},
			{[]string{"--pattern", `r\w+`, "three"}, result{stdout: "ready\n"}},
			{[]string{"--pattern", "x", "three"}, result{code: 1, stderr: "execwire: three closed first (3)\n"}},
			{[]string{"--pattern", "x", "--stream", "stderr", "three"}, result{code: 1, stderr: "execwire: three closed first (3)\n"}},
			{[]string{"--port", "1", "zero"}, result{code: 1, stderr: "execwire: zero closed first (0)\n"}},
			{[]string{"--timeout", "0s", "lives"}, result{code: 124, stderr: "execwire: lives: the timeout is over\n"}},
			{[]string{"--timeout", "10ms", "--port", "1", "lives"}, result{code: 124, stderr: "execwire: lives: the timeout is over\n"}},
			{[]string{"--idle", "10ms", "lives"}, result{}},
			{[]string{"--idle", "10ms", "lives", "zero"}, result{}},
			{[]string{"--pattern", "(", "lives"}, result{code: 125,
				stderr: "execwire: pattern.regular_expression is not an expression in RE2 syntax: missing closing ): \"(\"\n"}},
		} {
			server.expectCommand(t, d, tt.want, "wait", tt.args...)
		}
		got := run(t, nil, server.remotely(d, "wait", "nobody", "zero", "none")...)
		if got.code != 125 || !strings.Contains(got.stderr, `"nobody"`) || !strings.Contains(got.stderr, `"none"`) {
			t.Errorf("of nobody: %+v", got)
		}
		got = run(t, nil, server.remotely(d, "wait", "--json", "--pattern", "go", "three")...)
		if !strings.HasPrefix(got.stdout, `{"id":"three","satisfied":true,"state":"closed","exit":{"exit_code":3,`) ||
			!strings.Contains(got.stdout, `"match":{"stream":"stdout","offset":9,"data":"Z28=","seq":1}}`) {
			t.Errorf("as JSON: %+v", got)
		}
		server.expectCommand(t, d, result{stdout: "sent SIGKILL to lives\n"}, "kill", "-s", "kill", "lives")
		server.expectCommand(t, d, result{code: 128 + 9}, "wait", "--closed", "lives")
		server = serve(t) // the ids are taken
	}
}

func TestKillSaysWhatItDid(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		names := map[string]string{}
		for _, name := range []string{"gentle", "stubborn", "quick", "hup"} {
			names[name] = name + string(d)
		}
		server.detach(t, d, names["gentle"], program("sleep"))
		server.detach(t, d, names["stubborn"], program("ignore-term"))
		server.detach(t, d, names["quick"], program("sleep"))
		server.detach(t, d, names["hup"], shell("trap 'echo hup; exit 9' HUP; echo ready; while :; do sleep 0.02; done"))
		server.expectCommand(t, d, result{stdout: "ready\n"}, "wait", "--pattern", "ready", names["stubborn"])
		server.expectCommand(t, d, result{stdout: "ready\n"}, "wait", "--pattern", "ready", names["hup"])

		server.expectCommand(t, d, result{stdout: "sent SIGHUP to " + names["hup"] + "\n"}, "kill", "-s", "hup", names["hup"])
		server.expectCommand(t, d, result{code: 9}, "wait", names["hup"])
		got := run(t, nil, server.remotely(d, "kill", names["gentle"], "nobody", names["hup"])...)
		lines := strings.Split(got.stdout, "\n")
		if got.code != 1 || len(lines) != 3 || !strings.HasPrefix(lines[0], "ended "+names["gentle"]+": ") ||
			!strings.HasPrefix(lines[1], "had ended "+names["hup"]+": ") || got.stderr != "execwire: nobody: process \"nobody\" does not exist\n" {
			t.Errorf("kill: %+v", got)
		}
		got = run(t, nil, server.remotely(d, "kill", "--timeout", "50ms", names["stubborn"])...)
		if got.code != 0 || !strings.HasPrefix(got.stdout, "ended "+names["stubborn"]+": ") {
			t.Errorf("kill of what ignores SIGTERM: %+v", got)
		}
		got = run(t, nil, server.remotely(d, "kill", "--force", "--json", names["quick"], "nobody")...)
		type killed struct {
			ID         string
			WasRunning bool `json:"was_running"`
			Method     string
			Verified   *bool `json:"verified_empty"`
			Exit       struct{ Signal, Cause string }
			Reason     string
		}
		if list := objects[killed](t, got.stdout); got.code != 1 || len(list) != 2 || list[0].ID != names["quick"] || !list[0].WasRunning ||
			list[0].Verified == nil || list[0].Exit.Signal != "SIGKILL" || list[0].Exit.Cause != "terminated" || list[1].Reason != "PROCESS_NOT_FOUND" ||
			!slices.Contains([]string{"process_group", "descendants", "cgroup"}, list[0].Method) {
			t.Errorf("kill --json: %+v", got)
		}
		server.expectCommand(t, d, result{code: 128 + 15}, "wait", "--closed", names["gentle"])
		server.expectCommand(t, d, result{code: 128 + 9}, "wait", "--closed", names["stubborn"])
		got = run(t, nil, server.remotely(d, "kill", names["gentle"])...)
		if got.code != 0 || !strings.HasPrefix(got.stdout, "had ended "+names["gentle"]+": ") {
			t.Errorf("kill of what is over: %+v", got)
		}
	}
}
