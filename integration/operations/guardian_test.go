package operations

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

// A tree of four processes in three sessions that ignore signals to end.
const (
	treeSize   = 4
	treeScript = `trap "" TERM HUP INT QUIT
setsid sh -c 'setsid sleep 1000 & exec sleep 1000' &
sleep 1000 &
exec sleep 1000`
)

// hostileWays are those in which descendants of a hostile process try to survive.
var hostileWays = []string{"child", "stopped", "group", "session", "daemon", "daemon-chain"}

// forest is a server with process trees, and an unrelated process.
type forest struct {
	*harness.Command
	trees     []harness.ProcessIdentity
	report    string // of a hostile process and all its descendants
	cgroups   string // the directory of the server's cgroups; "" without
	bystander harness.ProcessIdentity
}

func plant(t *testing.T, trees int, settings ...string) *forest {
	t.Helper()
	f := &forest{Command: harness.Serve(t, settings...)}
	unrelated := exec.Command("sleep", "1000")
	unrelated.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := unrelated.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unrelated.Process.Kill()
		_ = unrelated.Wait()
	})
	t.Cleanup(func() { // of what is only left if the test has failed
		for _, b := range f.trees {
			if stillAlive(b) {
				_ = unix.Kill(b.Pid, unix.SIGKILL)
			}
		}
		hostiles, _ := testproc.ReadHostile(f.report)
		for _, h := range hostiles {
			h.Kill()
		}
	})
	var last *execwirev1.Process
	for range trees {
		last = start(f.Command, t, harness.Shell(treeScript))
	}
	f.report = filepath.Join(t.TempDir(), "report")
	start(f.Command, t, harness.Program("hostile", append([]string{"-hold", "-chain", "2m", "-report", f.report}, hostileWays...)...))
	harness.Eventually(t, "the hostile ones are in place", func() bool {
		report, _ := os.ReadFile(f.report)
		return strings.Count(string(report), "settled ") >= len(hostileWays)
	})
	harness.Eventually(t, "all trees have grown", func() bool {
		f.trees = nil
		for _, k := range harness.Descendants(f.Process.Pid) {
			if k.Name == "sleep" {
				f.trees = append(f.trees, k.ProcessIdentity)
			}
		}
		return len(f.trees) == trees*treeSize
	})
	f.cgroups = cgroupOf(t, int(last.GetPid()))
	for _, k := range harness.ListProcesses() {
		if k.Pid == unrelated.Process.Pid {
			f.bystander = k.ProcessIdentity
		}
	}
	return f
}

// start starts a process without an owner.
func start(c *harness.Command, t *testing.T, argv []string) *execwirev1.Process {
	t.Helper()
	response, err := harness.Remote(t, c, harness.UnixTransport).StartProcess(harness.Context(t), &execwirev1.StartProcessRequest{
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
			Direct: &execwirev1.DirectCommand{Argv: argv, WorkingDirectory: "/", Env: harness.Environment()}}}})
	if err != nil {
		t.Fatal(err)
	}
	return response.GetProcess()
}

// hostiles returns all hostile processes so far.
func (f *forest) hostiles(t *testing.T) []testproc.Hostile {
	t.Helper()
	found, err := testproc.ReadHostile(f.report)
	if err != nil || len(found) <= len(hostileWays) {
		t.Fatalf("the hostile ones reported %v, %v", found, err)
	}
	return found
}

// expectEnded checks that no process of the trees is alive, and that their control groups are
// gone.
func (f *forest) expectEnded(t *testing.T) {
	t.Helper()
	for _, b := range f.trees {
		if stillAlive(b) {
			t.Errorf("process %d is alive", b.Pid)
		}
	}
	for _, h := range f.hostiles(t) {
		if h.Alive() {
			t.Errorf("the hostile process %d is alive", h.PID)
			h.Kill()
		}
	}
	if _, err := os.Stat(f.cgroups); f.cgroups != "" && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cgroup %s is left: %v", f.cgroups, err)
	}
	if !stillAlive(f.bystander) {
		t.Error("a process that has nothing to do with the server is gone")
	}
}

// expectFelled checks that no process of the trees is alive after the command has ended, and
// that another server can start at its place immediately.
func (f *forest) expectFelled(t *testing.T) {
	t.Helper()
	f.expectEnded(t)
	heir := harness.NewCommand("serve", "--listen", f.URLs[harness.UnixTransport], "--listen", f.URLs[harness.TCPTransport])
	said, err := heir.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	heir.Launch(t)
	for _, d := range harness.NetworkTransports {
		line := make([]byte, len(f.URLs[d])+1)
		if _, err := said.Read(line); err != nil || strings.TrimSpace(string(line)) != f.URLs[d] {
			t.Errorf("the next server prints %q, %v; want %s", line, err, f.URLs[d])
		}
	}
}

// forestSize is how many trees there are: more where there is time.
func forestSize() int {
	if testing.Short() {
		return 5
	}
	return 50
}

func TestKilledServer_LeavesNoProcess(t *testing.T) {
	harness.WithAndWithoutCgroups(t, func(t *testing.T, setting string) {
		f := plant(t, forestSize(), setting)
		f.KillServer(t)
		if code := f.Await(t); code != 128+9 || !strings.Contains(f.Errors.String(), "signal (killed)") {
			t.Errorf("the guardian ended with %d and %q", code, f.Errors.String())
		}
		f.expectFelled(t)
	})
}

// Processes that only fork and end cannot escape from the guardian: none of them exists long
// enough to be found and killed alone.
func TestKilledServer_ForkBomb_LeavesNoProcess(t *testing.T) {
	server := harness.Serve(t, "EXECWIRE_CGROUP=off") // which would end them all at one instant
	var groups []int
	const script = `sh -c "$0" "$0" &`
	for range 3 {
		groups = append(groups, int(start(server, t, append(harness.Shell(script), script)).GetPid()))
	}
	// A look at all processes does not see them, but their group is there.
	gone := func() bool {
		return !slices.ContainsFunc(groups, func(group int) bool { return unix.Kill(-group, 0) == nil })
	}
	if gone() {
		t.Fatal("they do not fork")
	}
	t.Cleanup(func() {
		for _, group := range groups {
			if t.Failed() {
				_ = unix.Kill(-group, unix.SIGKILL)
			}
		}
	})
	server.KillServer(t)
	if code := server.Await(t); code != 128+9 {
		t.Errorf("the guardian ended with %d: %s", code, server.Errors.String())
	}
	harness.Eventually(t, "nobody forks", gone)
}

func TestGuardian_Killed_LeavesNoProcess(t *testing.T) {
	harness.WithAndWithoutCgroups(t, func(t *testing.T, setting string) {
		f := plant(t, forestSize(), setting)
		pid := f.ServerPID(t)
		var server harness.ProcessIdentity
		for _, k := range harness.Descendants(f.Process.Pid) {
			if k.Pid == pid {
				server = k.ProcessIdentity
			}
		}
		f.Send(t, unix.SIGKILL)
		f.Await(t)
		harness.Eventually(t, "the server is gone, too", func() bool { return !stillAlive(server) })
		if said := f.Errors.String(); !strings.Contains(said, "guardian was killed") {
			t.Errorf("the server wrote %q", said)
		}
		f.expectFelled(t)
	})
}

// What a server and its guardian leave that are killed at the same instant is killed by the
// next server, if it is in control groups. They are those of this test alone: another test's
// server would be the next one, too.
func TestServerAndGuardian_Killed_NextServerKillsTheRest(t *testing.T) {
	tree := newCgroupTree(t)
	if tree == "" {
		return // nothing could find the rest
	}
	f := plant(t, 1, "EXECWIRE_CGROUP="+tree)
	server := f.ServerPID(t)
	kill := func(pid int, signal unix.Signal) {
		t.Helper()
		if err := unix.Kill(pid, signal); err != nil {
			t.Fatal(err)
		}
	}
	kill(server, unix.SIGSTOP) // stopped, it does nothing about its guardian
	harness.Eventually(t, "the server is stopped", func() bool { return isStopped(server) })
	kill(f.Process.Pid, unix.SIGKILL)
	kill(server, unix.SIGKILL)
	f.Await(t)
	for _, b := range f.trees {
		if !stillAlive(b) {
			t.Errorf("process %d was ended by somebody else", b.Pid)
		}
	}
	harness.Eventually(t, "the server is gone", func() bool { return !harness.ProcessAlive(int32(server)) })
	heir := harness.NewCommand("serve", "--cgroup", tree, "--listen", f.URLs[harness.UnixTransport], "--listen", f.URLs[harness.TCPTransport])
	heir.Listen(t, 2)
	f.expectEnded(t)
}

// Signals that stop a server reach it through its guardian; a second one stops it immediately.
func TestStoppedServer_LeavesNoProcess(t *testing.T) {
	f := plant(t, 3)
	h := harness.HoldCommand(t, f.Command, harness.TCPTransport)
	f.Send(t, unix.SIGTERM)
	harness.Eventually(t, "the server says that it waits", func() bool { return strings.Contains(f.Errors.String(), "waiting for processes") })
	f.Send(t, unix.SIGINT)
	if code := h.Await(t); code != 128+9 || !strings.Contains(h.Errors.String(), "server shut down") {
		t.Errorf("the client ended with %d and %q", code, h.Errors.String())
	}
	if code := f.Await(t); code != 0 {
		t.Errorf("the guardian ended with %d: %s", code, f.Errors.String())
	}
	f.expectFelled(t)
}

// The keys of a terminal reach a server once: its guardian forwards them.
func TestGuardian_Server_HasItsOwnProcessGroup(t *testing.T) {
	server := harness.Serve(t)
	pid := server.ServerPID(t)
	if group, err := unix.Getpgid(pid); err != nil || group != pid {
		t.Errorf("the server %d is in the group %d, %v", pid, group, err)
	}
}

// At a terminal Ctrl-C lets processes end, and a second one kills them: one key press is one
// signal, although there are two processes.
func TestGuardian_ControlC_ReachesTheServerOnce(t *testing.T) {
	url := "unix://" + filepath.Join(harness.ShortDir(t), "s")
	p := harness.NewPane(t, 150, 24)
	p.Enter(harness.Execwire + " serve --listen " + url)
	p.Await("the URL", func(screen string) bool { return strings.Contains(screen, "\n"+url) })
	server := &harness.Command{URLs: map[harness.Transport]string{harness.UnixTransport: url}}
	h := harness.HoldCommand(t, server, harness.UnixTransport)
	p.Key("C-c")
	p.Await("that it waits", func(screen string) bool { return strings.Contains(screen, "waiting for processes") })
	if _, err := h.Release.Write([]byte("still\n")); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the process answers", func() bool { return strings.Contains(h.Received.String(), "still") })
	p.Key("C-c")
	p.AwaitLine("local[0]$")
	if code := h.Await(t); code != 128+9 {
		t.Errorf("the client ended with %d: %s", code, h.Errors.String())
	}
}

// execServer executes a server in place of a shell that ran a script.
func execServer(t *testing.T, script string) *harness.Command {
	t.Helper()
	c := harness.NewCommand()
	c.Path, c.Args = "/bin/sh", []string{"sh", "-c", script + ` exec "$0" serve --listen grpc://127.0.0.1:0`, harness.Execwire}
	said, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Launch(t)
	url := make([]byte, 100)
	n, err := said.Read(url)
	if err != nil {
		t.Fatal(err)
	}
	c.URLs = map[harness.Transport]string{harness.TCPTransport: strings.TrimSpace(string(url[:n]))}
	return c
}

// Other signals reach the server too. Signals ignored by nohup have no effect.
func TestGuardian_Signals_AreForwarded(t *testing.T) {
	server := execServer(t, "")
	server.Send(t, unix.SIGQUIT)
	if code := server.Await(t); code != 2 || !strings.Contains(server.Errors.String(), "SIGQUIT: quit") {
		t.Errorf("the guardian ended with %d and %q", code, server.Errors.String())
	}
	server = execServer(t, "trap '' HUP;")
	server.Send(t, unix.SIGHUP)
	if got := harness.Run(t, nil, server.Through(harness.TCPTransport, "--", "true")...); got.Code != 0 {
		t.Errorf("a server under nohup: %+v", got)
	}
	server.Send(t, unix.SIGTERM)
	if code := server.Await(t); code != 0 {
		t.Errorf("the guardian ended with %d: %s", code, server.Errors.String())
	}
}

// Children that the program had before it became the guardian are left alone.
func TestGuardian_EarlierChildren_AreNotKilled(t *testing.T) {
	c := execServer(t, "sleep 1000 <>/dev/null >&0 2>&0 &")
	var child harness.ProcessIdentity
	for _, k := range harness.Descendants(c.Process.Pid) {
		if k.Name == "sleep" {
			child = k.ProcessIdentity
		}
	}
	c.KillServer(t)
	if code := c.Await(t); code != 128+9 {
		t.Errorf("the guardian ended with %d: %s", code, c.Errors.String())
	}
	if !stillAlive(child) {
		t.Fatal("the child is gone")
	}
	_ = unix.Kill(child.Pid, unix.SIGKILL)
}

// A server that cannot serve reports that once, and the exit code is the command's.
func TestGuardian_ServerEnds_ReturnsItsStatus(t *testing.T) {
	server := harness.Serve(t)
	got := harness.Run(t, nil, "serve", "--listen", server.URLs[harness.TCPTransport])
	if got.Code != 125 || strings.Count(got.Stderr, "execwire: failed to listen") != 1 || got.Stdout != "" {
		t.Errorf("a second server ends with %+v", got)
	}
	got = harness.Run(t, nil, "serve", "--no-such-flag")
	if got.Code != 2 || !strings.Contains(got.Stderr, "--help") {
		t.Errorf("a wrong flag ends with %+v", got)
	}
}

// Without a guardian the command is the server itself, and logs that.
func TestGuardian_Disabled(t *testing.T) {
	for setting, guarded := range map[string]bool{"on": true, "off": false} {
		server := harness.Serve(t, "EXECWIRE_GUARDIAN="+setting)
		if _, found := harness.ServerOf(server.Process.Pid); found != guarded {
			t.Errorf("with guardian=%s there is a guardian: %v", setting, found)
		}
		environ := execwirev1.NewEnvironmentServiceClient(harness.Dial(t, "unix", server.Address(harness.UnixTransport)))
		response, err := environ.GetEnvironment(harness.Context(t), &execwirev1.GetEnvironmentRequest{})
		if err != nil || response.GetGuarded() != guarded {
			t.Errorf("with guardian=%s the server reports guarded %v, %v", setting, response.GetGuarded(), err)
		}
		got := harness.Run(t, nil, server.Through(harness.UnixTransport, "--env-inherit", "all", "--", "env")...)
		if got.Code != 0 || strings.Contains(got.Stdout, "GUARDIAN_PIPE") {
			t.Errorf("processes have variables of the guardian: %+v", got)
		}
		server.Send(t, unix.SIGTERM)
		if code := server.Await(t); code != 0 {
			t.Errorf("with guardian=%s the command ends with %d", setting, code)
		}
	}
}
