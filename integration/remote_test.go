package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/client"
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
	server := serve(t, "EXECWIRE_RETAINED_OUTPUT_BYTES=64KiB")
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

func TestWaitSaysByItsCodeWhatHappened(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		server.detach(t, d, "three", shell("echo ready to go; exit 3"))
		server.detach(t, d, "zero", shell("exit 0"))
		server.detach(t, d, "killed", shell("kill -KILL $$"))
		server.detach(t, d, "lives", program("sleep"))
		for _, tt := range []struct {
			args []string
			want result
		}{
			{[]string{"three"}, result{code: 3}},
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
				stderr: "execwire: pattern.regular_expression is not an expression in RE2 syntax: missing closing ): \"(\"" +
					" (pattern.regular_expression: is not an expression in RE2 syntax: missing closing ): \"(\")\n"}},
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
		got := run(t, nil, server.remotely(d, "kill", "--timeout", "50ms", names["gentle"], "nobody", names["stubborn"])...)
		lines := strings.Split(got.stdout, "\n")
		if got.code != 1 || len(lines) != 3 || !strings.HasPrefix(lines[0], "ended "+names["gentle"]+": ") ||
			!strings.HasPrefix(lines[1], "ended "+names["stubborn"]+": ") || got.stderr != "execwire: nobody: process \"nobody\" does not exist\n" {
			t.Errorf("kill: %+v", got)
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

func TestAttachBehavesLikeTheProcess(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		id := string(d)
		server.detach(t, d, id, shell("echo before; cat; echo apart >&2; exit 5"), "-i")
		server.expectCommand(t, d, result{stdout: "before\n"}, "wait", "--pattern", "before", id)
		// By keys it is left alone, with what was typed before them.
		got := newCommand(server.remotely(d, "attach", "-i", id)...).complete(t, strings.NewReader("typed \x10\x11not this"))
		if got.code != 0 || !strings.Contains(got.stderr, "detached from "+id) || !strings.HasPrefix("before\ntyped ", got.stdout) {
			t.Fatalf("detaching: %+v", got)
		}
		got = newCommand(server.remotely(d, "attach", "-i", id)...).complete(t, strings.NewReader("and more"))
		if want := (result{code: 5, stdout: "before\ntyped and more", stderr: "apart\n"}); got != want {
			t.Errorf("attached again: %+v, want %+v", got, want)
		}
		server.expectCommand(t, d, result{code: 5, stdout: "typed and more", stderr: "apart\n"}, "attach", "--since-seq", "1", id)
		got = run(t, nil, server.remotely(d, "attach", "nobody")...)
		if got.code != 125 || !strings.Contains(got.stderr, "execwire ps -a") {
			t.Errorf("attached to nobody: %+v", got)
		}
	}
}

// A newer owner is told of to the older one; a signal is passed on.
func TestAttachTakesOverAndPassesSignals(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		id := string(d)
		server.detach(t, d, id, shell("trap 'echo got it; exit 6' TERM; echo ready; while :; do sleep 0.02; done"))
		first := newCommand(server.remotely(d, "attach", id)...)
		var said lockedBuffer
		first.Stdout = &said
		first.launch(t)
		eventually(t, "the first owner", func() bool { return said.String() == "ready\n" })
		second := newCommand(server.remotely(d, "attach", id)...)
		var saidSecond lockedBuffer
		second.Stdout = &saidSecond
		second.launch(t)
		if code := first.await(t); code != 125 || !strings.Contains(first.errors.String(), "taken "+id+" over") {
			t.Errorf("the first ended with %d and %q", code, first.errors.String())
		}
		eventually(t, "the second owner", func() bool { return saidSecond.String() == "ready\n" })
		second.send(t, unix.SIGTERM)
		if code := second.await(t); code != 6 || saidSecond.String() != "ready\ngot it\n" {
			t.Errorf("the second ended with %d and %q", code, saidSecond.String())
		}
	}
}

// A terminal that is closed takes attach with it, and not the process.
func TestAttachLeavesTheProcessWhenItsTerminalIsGone(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		id := string(d)
		server.detach(t, d, id, shell("trap 'exit 1' HUP; echo ready; while :; do sleep 0.02; done"))
		attached := newCommand(server.remotely(d, "attach", "--grace", "0", id)...)
		var said lockedBuffer
		attached.Stdout = &said
		attached.launch(t)
		eventually(t, "the owner", func() bool { return said.String() == "ready\n" })
		attached.send(t, unix.SIGHUP)
		if code := attached.await(t); code != 0 || !strings.Contains(attached.errors.String(), "detached from "+id) {
			t.Errorf("it ended with %d and %q", code, attached.errors.String())
		}
		server.expectCommand(t, d, result{code: 124, stderr: "execwire: " + id + ": the timeout is over\n"}, "wait", "--timeout", "50ms", id)
	}
}

func TestSessionsAreListedGrantedAndClosed(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		c, err := client.Dial(testContext(t), server.urls[d])
		if err != nil {
			t.Fatal(err)
		}
		session, err := c.AttachSession(testContext(t), client.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		id := session.ID()
		t.Cleanup(func() {
			_ = session.Detach(testContext(t))
			_ = c.Close()
		})
		server.expectCommand(t, d, result{stdout: "lives\n"}, "run", "--detach", "--session", id, "--id", "lives", "--", "sleep", "1000")
		server.expectCommand(t, d, result{stdout: "lives\n"}, "ps", "--session", id, "-q")
		server.expectCommand(t, d, result{}, "ps", "-q")
		got := run(t, nil, server.remotely(d, "sessions")...)
		if !strings.HasPrefix(got.stdout, "ID\tSTATE\tPROCESSES\t") || !strings.Contains(got.stdout, "\n"+id+"\tattached\t1\t") {
			t.Errorf("sessions: %+v", got)
		}
		for _, step := range []struct{ access, shown string }{{"view", `"grants":{"uid:99":"view"}`}, {"write", `"grants":{"uid:99":"write"}`}, {"none", ""}} {
			server.expectCommand(t, d, result{}, "sessions", "grant", id, "uid:99", step.access)
			got = run(t, nil, server.remotely(d, "sessions", "--json")...)
			if !strings.Contains(got.stdout, `"id":"`+id+`","attached":true,"processes":1,`) || !strings.Contains(got.stdout, step.shown) ||
				strings.Contains(got.stdout, "grants") != (step.shown != "") {
				t.Errorf("granted for %s: %+v", step.access, got)
			}
		}
		server.expectCommand(t, d, result{}, "sessions", "close", id)
		got = run(t, nil, server.remotely(d, "ps", "--session", id)...)
		if got.code != 125 || !strings.Contains(got.stderr, "execwire sessions") {
			t.Errorf("ps of a closed session: %+v", got)
		}
		server.expectCommand(t, d, result{stdout: "ID\tSTATE\tPROCESSES\tAGE\tENDS IN\tPRINCIPAL\n"}, "sessions")
	}
}
