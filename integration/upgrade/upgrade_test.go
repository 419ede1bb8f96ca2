package upgrade

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/handover"
)

// server is a server that is upgraded.
type server struct {
	*harness.Command
	t   *testing.T
	pid int
}

func serve(t *testing.T, settings ...string) *server {
	s := &server{Command: harness.Serve(t, settings...), t: t}
	s.pid = s.ServerPID(t)
	return s
}

// upgrade upgrades the server to a binary, or to that of its path, and checks the result. In a
// soak it comes at any moment of what else goes on.
func (s *server) upgrade(binary ...string) {
	s.t.Helper()
	if harness.Soak() {
		pause := rand.N(100 * time.Millisecond)
		s.t.Logf("an upgrade after %v", pause)
		time.Sleep(pause)
	}
	result := harness.Run(s.t, nil, s.Remotely(harness.UnixTransport, "upgrade", append(binary, "--json")...)...)
	var done struct {
		Previous string  `json:"previous_version"`
		Version  string  `json:"version"`
		Pause    float64 `json:"pause_seconds"`
	}
	if err := json.Unmarshal([]byte(result.Stdout), &done); result.Code != 0 || err != nil || done.Version == "" || done.Previous == "" || done.Pause <= 0 {
		s.t.Fatalf("upgrade: %+v, %v", result, err)
	}
	if now := s.ServerPID(s.t); now != s.pid {
		s.t.Fatalf("the server is process %d, and was %d", now, s.pid)
	}
}

// expect runs a command line for the server, and checks what it prints.
func (s *server) expect(stdout string, name string, args ...string) {
	s.t.Helper()
	s.ExpectCommand(s.t, harness.UnixTransport, harness.Result{Stdout: stdout}, name, args...)
}

// upgrades is how often a server is upgraded in a row.
func upgrades() int {
	if harness.Soak() {
		return 200
	}
	return 3
}

// Whatever clients do goes on through upgrades, and nothing is lost or repeated.
func TestUpgrade_LosesNothing(t *testing.T) {
	harness.Waits(t)
	s := serve(t, "EXECWIRE_OTLP_ENDPOINT=http://127.0.0.1:1") // traces of processes do not hold up an upgrade
	n := upgrades()
	pane := harness.NewPane(t, 80, 24)
	pane.Enter(strings.Join(append([]string{harness.Execwire}, s.Through(harness.TCPTransport, "-ti", "--id", "terminal", "-e", "'PS1=remote> '", "--",
		"bash", "--norc", "--noprofile")...), " "))
	pane.AwaitLine("remote>")

	transfer := startTransfer(s, n)
	held := harness.HoldCommand(t, s.Command, harness.TCPTransport, "--session", "default")
	s.expect("counter\n", "run", "--detach", "--id", "counter", "--", "sh", "-c",
		fmt.Sprintf(`n=0; trap 'n=$((n+1)); echo got $n' USR1; echo ready; while [ $n -lt %d ]; do sleep 1000 & wait $!; kill $!; done; exit 5`, n))
	rpc := harness.WebsocketClient(t, s.Address(harness.TCPTransport)).Initialize("")
	rpc.Start("rpc", harness.Program("echo"), harness.RPCParams{"pipeStdin": true})
	leaving := startLeaving(s)
	workspace := t.TempDir()
	s.expect("confined\n", "run", "--detach", "--id", "confined", "--cwd", workspace, "--sandbox", "workspace-write", "--", "sh", "-c",
		"trap 'mkdir .git 2>/dev/null && echo created; echo over; exit 6' USR1; echo ready; while :; do sleep 1000 & wait $!; kill $!; done")
	const numbers = 400_000 // more than is kept in memory, twice
	s.expect("numbers\n", "run", "--detach", "--id", "numbers", "--", "sh", "-c",
		fmt.Sprintf("trap 'seq %d %d; exit 0' USR1; seq %d; while :; do sleep 1000 & wait $!; kill $!; done", numbers+1, 2*numbers, numbers))
	harness.Eventually(t, "the confined process is ready", func() bool {
		return harness.Run(t, nil, s.Remotely(harness.UnixTransport, "logs", "confined")...).Stdout == "ready\n"
	})

	lines := "held\n"
	for i := 1; i <= n; i++ {
		transfer.proceed()
		poll := rpc.Post("process/read", harness.RPCParams{"processId": "rpc", "waitMs": 100000})
		s.upgrade()
		rpc.AwaitEnd()
		if harness.CountReplies(rpc.Record(), fmt.Sprint(poll)) > 1 {
			t.Error("a poll was answered twice")
		}
		rpc = harness.WebsocketClient(t, s.Address(harness.TCPTransport)).Initialize(rpc.Session)
		rpc.Write("rpc", "x", "accepted")

		line := fmt.Sprintf("line %d\n", i)
		if _, err := io.WriteString(held.Release, line); err != nil {
			t.Fatal(err)
		}
		lines += line
		harness.Eventually(t, "the line comes back", func() bool { return held.Received.String() == lines })

		pane.Enter(fmt.Sprintf("echo $((%d + 1000))", i))
		pane.Await("the sum", func(screen string) bool { return strings.Contains(screen, fmt.Sprintf("\n%d\n", i+1000)) })

		s.expect("sent SIGUSR1 to counter\n", "kill", "-s", "USR1", "counter")
		harness.Eventually(t, "the counter counts", func() bool {
			return strings.HasSuffix(harness.Run(t, nil, s.Remotely(harness.UnixTransport, "logs", "counter")...).Stdout, fmt.Sprintf("got %d\n", i))
		})
	}
	transfer.finish()
	leaving.finish()
	s.expect("sent SIGUSR1 to confined\n", "kill", "-s", "USR1", "confined")
	if got := harness.Run(t, nil, s.Remotely(harness.UnixTransport, "wait", "confined")...); got.Code != 6 {
		t.Errorf("wait for the confined process: %+v, want the code 6", got)
	}
	if got := harness.Run(t, nil, s.Remotely(harness.UnixTransport, "logs", "confined")...); got.Stdout != "ready\nover\n" {
		t.Errorf("what the confined process wrote: %+v", got)
	}
	harness.Eventually(t, "what kept the process from creating files is removed", func() bool {
		left, err := os.ReadDir(workspace)
		return err == nil && len(left) == 0
	})
	rpc.AwaitEnd()
	rpc = harness.WebsocketClient(t, s.Address(harness.TCPTransport)).Initialize(rpc.Session)

	_ = held.Release.Close()
	if code := held.Await(t); code != 0 || held.Received.String() != lines {
		t.Errorf("the held command exited with %d and printed %q, want %q", code, held.Received.String(), lines)
	}
	pane.Enter("exit 7")
	pane.AwaitLine("local[7]$")
	counted := "ready\n"
	for i := 1; i <= n; i++ {
		counted += fmt.Sprintf("got %d\n", i)
	}
	if got := harness.Run(t, nil, s.Remotely(harness.UnixTransport, "logs", "counter")...); got.Stdout != counted {
		t.Errorf("logs: %+v, want %q", got, counted)
	}
	if got := harness.Run(t, nil, s.Remotely(harness.UnixTransport, "wait", "counter")...); got.Code != 5 {
		t.Errorf("wait: %+v, want the code 5", got)
	}
	harness.Eventually(t, "all that was written comes back", func() bool {
		read := rpc.ReadProcess("rpc", nil)
		output := ""
		for _, chunk := range read.Chunks {
			output += string(chunk.Chunk)
		}
		return output == strings.Repeat("x", n)
	})
	s.expect("sent SIGUSR1 to numbers\n", "kill", "-s", "USR1", "numbers")
	if got := harness.Run(t, nil, s.Remotely(harness.UnixTransport, "wait", "numbers")...); got.Code != 0 {
		t.Errorf("wait for the numbers: %+v", got)
	}
	written := strings.Builder{}
	for i := range 2 * numbers {
		fmt.Fprintln(&written, i+1)
	}
	if got := harness.Run(t, nil, s.Remotely(harness.UnixTransport, "logs", "numbers")...); got.Code != 0 || got.Stdout != written.String() {
		t.Errorf("logs of the numbers: %d, %d bytes of %d, %q", got.Code, len(got.Stdout), written.Len(), got.Stderr)
	}
	// Signals that were held during an upgrade are not held in processes.
	s.expect("SigBlk:\t0000000000000000\n", "run", "--", "grep", "SigBlk", "/proc/self/status")
}

// transfer is data on its way through a process, in both directions, which a test lets move
// between upgrades.
type transfer struct {
	s       *server
	command *harness.Command
	output  io.Reader
	size    int64 // of a part
	parts   int   // that are left
	written chan [sha256.Size]byte
	sum     interface {
		io.Writer
		Sum([]byte) []byte
	}
}

func startTransfer(s *server, upgrades int) *transfer {
	s.t.Helper()
	tr := &transfer{s: s, size: 3 << 20, parts: upgrades + 1, written: make(chan [sha256.Size]byte, 1), sum: sha256.New()}
	if harness.Soak() {
		tr.size = 5 << 20 // a GiB in all
	}
	tr.command = harness.NewCommand(append(s.Through(harness.TCPTransport, "-i", "--id", "transfer", "--"), harness.Program("echo")...)...)
	input, err := tr.command.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if tr.output, err = tr.command.StdoutPipe(); err != nil {
		s.t.Fatal(err)
	}
	tr.command.Launch(s.t)
	go func() {
		sum := sha256.New()
		random := rand.NewChaCha8([32]byte{})
		_, _ = io.CopyN(io.MultiWriter(input, sum), random, tr.size*int64(tr.parts)) // a failure shows in the digest
		_ = input.Close()
		tr.written <- [sha256.Size]byte(sum.Sum(nil))
	}()
	return tr
}

// proceed lets a part move. What follows it is on its way everywhere.
func (tr *transfer) proceed() {
	tr.s.t.Helper()
	if n, err := io.CopyN(tr.sum, tr.output, tr.size); err != nil {
		tr.s.t.Fatalf("the transfer has ended after %d bytes of a part: %v", n, err)
	}
	tr.parts--
}

// finish lets the rest move, and checks all.
func (tr *transfer) finish() {
	tr.s.t.Helper()
	rest, err := io.Copy(tr.sum, tr.output)
	if want := tr.size * int64(tr.parts); rest != want || err != nil {
		tr.s.t.Errorf("the transfer ends with %d bytes, %v, want %d", rest, err, want)
	}
	if want := <-tr.written; !bytes.Equal(tr.sum.Sum(nil), want[:]) {
		tr.s.t.Error("what was read is not what was written")
	}
	if code := tr.command.Await(tr.s.t); code != 0 {
		tr.s.t.Errorf("the transfer exited with %d", code)
	}
}

// leaving are processes that end at any moment of an upgrade.
type leaving struct {
	s      *server
	runs   []*harness.Command
	inputs []io.Closer
}

func startLeaving(s *server) *leaving {
	s.t.Helper()
	l := &leaving{s: s}
	for i := range 3 {
		run := harness.NewCommand(s.Through(harness.UnixTransport, "-i", "--", "sh", "-c", fmt.Sprintf("read x; exit %d", 10+i))...)
		input, err := run.StdinPipe()
		if err != nil {
			s.t.Fatal(err)
		}
		run.Launch(s.t)
		l.runs, l.inputs = append(l.runs, run), append(l.inputs, input)
	}
	return l
}

// finish lets them end during an upgrade.
func (l *leaving) finish() {
	l.s.t.Helper()
	for _, input := range l.inputs {
		go func() { _ = input.Close() }()
	}
	l.s.upgrade()
	for i, run := range l.runs {
		if code := run.Await(l.s.t); code != 10+i {
			l.s.t.Errorf("a process that ends during an upgrade exits with %d, want %d", code, 10+i)
		}
	}
}

// A step that fails before execve changes nothing; one that fails after it ends everything.
func TestUpgrade_ThatFails(t *testing.T) {
	harness.Waits(t)
	steps := filepath.Join(harness.ShortDir(t), "steps")
	s := serve(t, handover.FailpointVariable+"="+steps)
	fail := func(step handover.Step) {
		if err := os.WriteFile(steps, []byte(step), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	held := harness.HoldCommand(t, s.Command, harness.TCPTransport)
	lines := "held\n"
	alive := func() {
		t.Helper()
		line := fmt.Sprintf("%d\n", len(lines))
		lines += line
		if _, err := io.WriteString(held.Release, line); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "the process answers", func() bool { return held.Received.String() == lines })
	}
	attempt := func(args ...string) harness.Result {
		return harness.Run(t, nil, s.Remotely(harness.UnixTransport, "upgrade", args...)...)
	}
	for _, step := range []handover.Step{handover.Freeze, handover.Frozen, handover.Written, handover.Execute} {
		fail(step)
		if got := attempt(); got.Code == 0 || !strings.Contains(got.Stderr, "goes on with all that it had") {
			t.Errorf("at %s: %+v", step, got)
		}
		alive()
	}
	other := filepath.Join(harness.ShortDir(t), "other")
	if err := os.WriteFile(other, []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for binary, why := range map[string]string{"/bin/true": "no server of execwire", "/bin/none": "no such file", "/bin": "no regular file", other: ""} {
		if got := attempt(binary); got.Code == 0 || !strings.Contains(got.Stderr, "cannot replace this server") || !strings.Contains(got.Stderr, why) {
			t.Errorf("%s: %+v", binary, got)
		}
	}
	fail("")
	s.upgrade()
	alive()
	if _, err := held.Release.Write(nil); err != nil {
		t.Fatal(err)
	}
	_ = held.Release.Close()
	if code := held.Await(t); code != 0 {
		t.Errorf("the process exited with %d", code)
	}

	for _, step := range []handover.Step{handover.Taken, handover.Restore} {
		s := serve(t, handover.FailpointVariable+"="+steps)
		s.expect("left\n", "run", "--detach", "--id", "left", "--", "sleep", "1000")
		var process struct{ PID int32 }
		described := harness.Run(t, nil, s.Remotely(harness.UnixTransport, "ps", "--json")...)
		if err := json.Unmarshal([]byte(described.Stdout), &process); err != nil || process.PID == 0 {
			t.Fatalf("ps: %+v, %v", described, err)
		}
		fail(step)
		harness.Run(t, nil, s.Remotely(harness.UnixTransport, "upgrade")...)
		if code := s.Await(t); code != 123 || !strings.Contains(s.Errors.String(), "the upgrade has failed in the new program") {
			t.Errorf("at %s the server exits with %d:\n%s", step, code, s.Errors.String())
		}
		if harness.ProcessAlive(process.PID) {
			t.Errorf("at %s a process is left", step)
		}
	}
}
