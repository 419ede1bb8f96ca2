package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testport"
)

// detach starts a process without an owner.
func detach(c *harness.Command, t testing.TB, d harness.Transport, id string, argv []string, flags ...string) {
	t.Helper()
	args := append(append(c.Through(d, "--detach", "--id", id), flags...), "--")
	if got := harness.Run(t, nil, append(args, argv...)...); got != (harness.Result{Stdout: id + "\n"}) {
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
	LastOutput []struct{ Stream, Text string } `json:"last_output"`
}

func TestList_DetachedProcesses(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		id := "lives in " + string(d)
		over := "over " + string(d)
		detach(server, t, d, id, []string{"sleep", "1000"})
		detach(server, t, d, over, harness.Shell("echo bye; exit 3"))
		server.ExpectCommand(t, d, harness.Result{Code: 3}, "wait", "--closed", over)

		got := harness.Run(t, nil, server.Remotely(d, "ps", "-q")...)
		if lines := strings.Split(got.Stdout, "\n"); !slices.Contains(lines, id) || slices.Contains(lines, over) {
			t.Errorf("ps -q: %+v", got)
		}
		got = harness.Run(t, nil, server.Remotely(d, "ps", "-a", "--json")...)
		for _, p := range objects[listed](t, got.Stdout) {
			switch p.ID {
			case id:
				if p.State != "running" || p.PID == 0 || !slices.Equal(p.Argv, []string{"sleep", "1000"}) || p.Owned || p.Exit != nil {
					t.Errorf("what runs is %+v", p)
				}
			case over:
				if len(p.LastOutput) != 1 || p.LastOutput[0].Stream != "stdout" || p.LastOutput[0].Text != "bye\n" {
					t.Errorf("the last output of what is over is %+v", p.LastOutput)
				}
				if p.State != "closed" || p.Exit == nil || *p.Exit.ExitCode != 3 || p.Exit.Cause != "exited" {
					t.Errorf("what is over is %+v", p)
				}
			}
		}
		got = harness.Run(t, nil, server.Remotely(d, "ps", "-a")...)
		if lines := strings.Split(got.Stdout, "\n"); lines[0] != "ID\tSTATE\tPID\tUSER\tAGE\tDURATION\tEXIT\tCOMMAND" ||
			!strings.Contains(got.Stdout, over+"\tclosed\t") || !strings.Contains(got.Stdout, "\t3\t/bin/sh -c 'echo bye; exit 3'\n") {
			t.Errorf("ps -a: %+v", got)
		}
		server.ExpectCommand(t, d, harness.Result{Code: 125, Stderr: "execwire: session \"none\" does not exist\n" +
			"  list what is there with: execwire sessions\n"}, "ps", "--session", "none")
	}
}

// More processes than fit on a page are listed whole, and in order.
func TestList_AllPages(t *testing.T) {
	server := harness.Serve(t)
	processes := harness.Remote(t, server, harness.UnixTransport)
	want := ""
	for i := range 120 {
		id := fmt.Sprintf("p%03d", i)
		want = id + "\n" + want // the newest first
		if _, err := processes.StartProcess(harness.Context(t), &execwirev1.StartProcessRequest{ProcessId: id,
			Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
				Direct: &execwirev1.DirectCommand{Argv: []string{"/bin/true"}, WorkingDirectory: "/"}}}}); err != nil {
			t.Fatal(err)
		}
	}
	server.ExpectCommand(t, harness.UnixTransport, harness.Result{Stdout: want}, "ps", "-a", "-q")
}

func TestLogs_StreamsAreSeparate(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		id := string(d)
		detach(server, t, d, id, harness.Shell(`printf out; printf err >&2; sleep 0.05; printf '\377more'; exit 3`))
		server.ExpectCommand(t, d, harness.Result{Stdout: "out\xffmore", Stderr: "err"}, "logs", "-f", id)
		server.ExpectCommand(t, d, harness.Result{Stdout: "out\xffmore", Stderr: "err"}, "logs", id)
		server.ExpectCommand(t, d, harness.Result{Stdout: "out\xffmore"}, "logs", "--stdout", id)
		server.ExpectCommand(t, d, harness.Result{Stderr: "err"}, "logs", "--stderr", id)
		server.ExpectCommand(t, d, harness.Result{Stdout: "ore"}, "logs", "-c", "3", id)
		server.ExpectCommand(t, d, harness.Result{Stdout: "re"}, "logs", "-f", "--bytes", "2", id)
		got := harness.Run(t, nil, server.Remotely(d, "logs", "--json", "--stdout", id)...)
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
		for _, e := range objects[event](t, got.Stdout) {
			said = append(said, e.Event)
			switch {
			case e.Event == "output" && (e.Stream != "stdout" || e.Offset == 0 && *e.Text != "out" || e.Offset == 3 && (e.Text != nil || string(e.Data) != "\xffmore")):
				t.Errorf("output is %+v", e)
			case e.Event == "exited" && e.Exit.ExitCode != 3, e.Seq == 0:
				t.Errorf("an event is %+v", e)
			}
			if e.Offset == 3 {
				server.ExpectCommand(t, d, harness.Result{}, "logs", "--stdout", "--since-seq", fmt.Sprint(e.Seq), id)
			}
		}
		if !slices.Equal(said, []string{"output", "output", "exited", "closed"}) {
			t.Errorf("events are %v", said)
		}
		server.ExpectCommand(t, d, harness.Result{Code: 125, Stderr: "execwire: process \"nobody\" does not exist\n" +
			"  list what is there with: execwire ps -a\n"}, "logs", "nobody")
	}
}

// Evicted output is reported, not left out silently.
func TestLogs_MissingOutput_IsReported(t *testing.T) {
	server := harness.Serve(t, "EXECWIRE_RETAINED_OUTPUT_BYTES_PER_PROCESS=64KiB", "EXECWIRE_OUTPUT_FILE_BYTES_PER_PROCESS=0")
	for _, d := range harness.NetworkTransports {
		id := string(d)
		detach(server, t, d, id, harness.Program("flood", "-bytes", "1000000"))
		server.ExpectCommand(t, d, harness.Result{}, "wait", "--closed", id)
		for _, args := range [][]string{{id}, {"-f", id}} {
			got := harness.Run(t, nil, server.Remotely(d, "logs", args...)...)
			missing := 0
			if _, err := fmt.Sscanf(got.Stderr, "execwire: %d bytes of output are missing here", &missing); err != nil ||
				missing == 0 || missing+len(got.Stdout) != 1_000_000 {
				t.Errorf("%d bytes and %q", len(got.Stdout), got.Stderr)
			}
		}
		got := harness.Run(t, nil, server.Remotely(d, "logs", "--json", id)...)
		type gap struct {
			Event        string
			DroppedBytes int `json:"dropped_bytes"`
		}
		if first := objects[gap](t, got.Stdout)[0]; first.Event != "gap" || first.DroppedBytes == 0 {
			t.Errorf("the first event is %+v", first)
		}
	}
}

// Following resumes at its position after a lost connection, and the times of lines are the
// same for all readers.
func TestLogs_FollowWithCuts(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		wire := harness.NewProxy(t, d.Network(), server.Address(d))
		go_ := filepath.Join(harness.ShortDir(t), "go")
		detach(server, t, d, string(d), harness.Shell("echo before; until [ -e "+go_+" ]; do sleep 0.02; done; echo after"))
		follower := harness.NewCommand("logs", "--server", wire.URL(), "-f", "-t", string(d))
		var stdout harness.LockedBuffer
		follower.Stdout = &stdout
		follower.Launch(t)
		harness.Eventually(t, "the first line", func() bool { return strings.HasSuffix(stdout.String(), " before\n") })
		wire.Cut()
		if err := os.WriteFile(go_, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		code := follower.Await(t)
		var times [2]time.Time
		lines := strings.SplitAfter(stdout.String(), "\n")
		for i, word := range []string{" before\n", " after\n"} {
			text, isWord := strings.CutSuffix(lines[min(i, len(lines)-1)], word)
			at, err := time.Parse(time.RFC3339Nano, text)
			if times[i] = at; err != nil || !isWord {
				t.Errorf("line %d of %q: %v", i+1, stdout.String(), err)
			}
		}
		if code != 0 || len(lines) != 3 || wire.CutCount() == 0 || time.Since(times[0]).Abs() > time.Hour || times[1].Before(times[0]) {
			t.Errorf("through %s it ended with %d, %q and %q", d, code, stdout.String(), follower.Errors.String())
		}
		server.ExpectCommand(t, d, harness.Result{Stdout: stdout.String()}, "logs", "-t", string(d))
	}
}

func TestWait_ExitCodes(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		detach(server, t, d, "three", harness.Shell("echo ready to go; exit 3"))
		detach(server, t, d, "zero", harness.Shell("exit 0"))
		detach(server, t, d, "killed", harness.Shell("kill -KILL $$"))
		detach(server, t, d, "lives", harness.Program("sleep"))
		port := strconv.Itoa(int(testport.Reserve(t)))
		detach(server, t, d, "listens", harness.Program("listen-child", "127.0.0.1:"+port), "-i")
		for _, tt := range []struct {
			args []string
			want harness.Result
		}{
			{[]string{"three"}, harness.Result{Code: 3}},
			{[]string{"--port", port, "listens"}, harness.Result{}},
			{[]string{"--timeout", "10ms", "--port", port, "lives"}, harness.Result{Code: 124, Stderr: "execwire: lives: timed out\n"}},
			{[]string{"--closed", "zero"}, harness.Result{}},
			{[]string{"killed"}, harness.Result{Code: 128 + 9}},
			{[]string{"zero", "killed", "three"}, harness.Result{Code: 128 + 9}},
			{[]string{"--pattern", `r\w+`, "three"}, harness.Result{Stdout: "ready\n"}},
			{[]string{"--pattern", "x", "three"}, harness.Result{Code: 1, Stderr: "execwire: three closed first (3)\n"}},
			{[]string{"--pattern", "x", "--stream", "stderr", "three"}, harness.Result{Code: 1, Stderr: "execwire: three closed first (3)\n"}},
			{[]string{"--port", "1", "zero"}, harness.Result{Code: 1, Stderr: "execwire: zero closed first (0)\n"}},
			{[]string{"--timeout", "0s", "lives"}, harness.Result{Code: 124, Stderr: "execwire: lives: timed out\n"}},
			{[]string{"--timeout", "10ms", "--port", "1", "lives"}, harness.Result{Code: 124, Stderr: "execwire: lives: timed out\n"}},
			{[]string{"--idle", "10ms", "lives"}, harness.Result{}},
			{[]string{"--idle", "10ms", "lives", "zero"}, harness.Result{}},
			{[]string{"--pattern", "(", "lives"}, harness.Result{Code: 125,
				Stderr: "execwire: --pattern is not an expression in RE2 syntax: missing closing ): \"(\"\n"}},
		} {
			server.ExpectCommand(t, d, tt.want, "wait", tt.args...)
		}
		got := harness.Run(t, nil, server.Remotely(d, "wait", "nobody", "zero", "none")...)
		if got.Code != 125 || !strings.Contains(got.Stderr, `"nobody"`) || !strings.Contains(got.Stderr, `"none"`) {
			t.Errorf("of an unknown process: %+v", got)
		}
		got = harness.Run(t, nil, server.Remotely(d, "wait", "--json", "--pattern", "go", "three")...)
		if !strings.HasPrefix(got.Stdout, `{"id":"three","satisfied":true,"state":"closed","exit":{"exit_code":3,`) ||
			!strings.Contains(got.Stdout, `"match":{"stream":"stdout","offset":9,"data":"Z28=","seq":1}}`) {
			t.Errorf("as JSON: %+v", got)
		}
		server.ExpectCommand(t, d, harness.Result{Stdout: "sent SIGKILL to lives\n"}, "kill", "-s", "kill", "lives")
		server.ExpectCommand(t, d, harness.Result{Code: 128 + 9}, "wait", "--closed", "lives")
		server = harness.Serve(t) // the ids are taken
	}
}

func TestKill_ReportsTheResult(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		names := map[string]string{}
		for _, name := range []string{"gentle", "stubborn", "quick", "hup"} {
			names[name] = name + string(d)
		}
		detach(server, t, d, names["gentle"], harness.Program("sleep"))
		detach(server, t, d, names["stubborn"], harness.Program("ignore-term"))
		detach(server, t, d, names["quick"], harness.Program("sleep"))
		detach(server, t, d, names["hup"], harness.Shell("trap 'echo hup; exit 9' HUP; echo ready; while :; do sleep 0.02; done"))
		server.ExpectCommand(t, d, harness.Result{Stdout: "ready\n"}, "wait", "--pattern", "ready", names["stubborn"])
		server.ExpectCommand(t, d, harness.Result{Stdout: "ready\n"}, "wait", "--pattern", "ready", names["hup"])

		server.ExpectCommand(t, d, harness.Result{Stdout: "sent SIGHUP to " + names["hup"] + "\n"}, "kill", "-s", "hup", names["hup"])
		server.ExpectCommand(t, d, harness.Result{Code: 9}, "wait", names["hup"])
		got := harness.Run(t, nil, server.Remotely(d, "kill", names["gentle"], "nobody", names["hup"])...)
		lines := strings.Split(got.Stdout, "\n")
		if got.Code != 1 || len(lines) != 3 || !strings.HasPrefix(lines[0], "ended "+names["gentle"]+": ") ||
			!strings.HasPrefix(lines[1], "had ended "+names["hup"]+": ") || got.Stderr != "execwire: nobody: process \"nobody\" does not exist\n" {
			t.Errorf("kill: %+v", got)
		}
		got = harness.Run(t, nil, server.Remotely(d, "kill", "--timeout", "50ms", names["stubborn"])...)
		if got.Code != 0 || !strings.HasPrefix(got.Stdout, "ended "+names["stubborn"]+": ") {
			t.Errorf("kill of what ignores SIGTERM: %+v", got)
		}
		got = harness.Run(t, nil, server.Remotely(d, "kill", "--force", "--json", names["quick"], "nobody")...)
		type killed struct {
			ID         string
			WasRunning bool `json:"was_running"`
			Method     string
			Verified   *bool `json:"verified_empty"`
			Exit       struct{ Signal, Cause string }
			Reason     string
		}
		if list := objects[killed](t, got.Stdout); got.Code != 1 || len(list) != 2 || list[0].ID != names["quick"] || !list[0].WasRunning ||
			list[0].Verified == nil || list[0].Exit.Signal != "SIGKILL" || list[0].Exit.Cause != "terminated" || list[1].Reason != "PROCESS_NOT_FOUND" ||
			!slices.Contains([]string{"process_group", "descendants", "cgroup"}, list[0].Method) {
			t.Errorf("kill --json: %+v", got)
		}
		server.ExpectCommand(t, d, harness.Result{Code: 128 + 15}, "wait", "--closed", names["gentle"])
		server.ExpectCommand(t, d, harness.Result{Code: 128 + 9}, "wait", "--closed", names["stubborn"])
		got = harness.Run(t, nil, server.Remotely(d, "kill", names["gentle"])...)
		if got.Code != 0 || !strings.HasPrefix(got.Stdout, "had ended "+names["gentle"]+": ") {
			t.Errorf("kill of what is over: %+v", got)
		}
	}
}
