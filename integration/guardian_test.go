package integration

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
	"github.com/execwire/execwire/internal/testproc"
)

// A tree of four processes in three sessions that ignore what asks them to end.
const (
	treeSize   = 4
	treeScript = `trap "" TERM HUP INT QUIT
setsid sh -c 'setsid sleep 1000 & exec sleep 1000' &
sleep 1000 &
exec sleep 1000`
)

// hostileWays are those in which descendants of a hostile process try to survive.
var hostileWays = []string{"child", "stopped", "group", "session", "daemon", "daemon-chain"}

// forest is a server with trees of processes, and somebody who has nothing to
// do with it.
type forest struct {
	*command
	trees     []being
	report    string // of a hostile process and all its descendants
	cgroups   string // the directory of the server's cgroups; "" without
	bystander being
}

func plant(t *testing.T, trees int, settings ...string) *forest {
	t.Helper()
	f := &forest{command: serve(t, settings...)}
	stranger := exec.Command("sleep", "1000")
	stranger.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stranger.Process.Kill()
		_ = stranger.Wait()
	})
	t.Cleanup(func() { // of what is only left if the test has failed
		for _, b := range f.trees {
			if b.alive() {
				_ = unix.Kill(b.pid, unix.SIGKILL)
			}
		}
		hostiles, _ := testproc.ReadHostile(f.report)
		for _, h := range hostiles {
			h.Kill()
		}
	})
	var last *execwirev1.Process
	for range trees {
		last = f.start(t, shell(treeScript))
	}
	f.report = filepath.Join(t.TempDir(), "report")
	f.start(t, program("hostile", append([]string{"-hold", "-chain", "1h", "-report", f.report}, hostileWays...)...))
	eventually(t, "the hostile ones are in place", func() bool {
		report, _ := os.ReadFile(f.report)
		return strings.Count(string(report), "settled ") >= len(hostileWays)
	})
	eventually(t, "all trees have grown", func() bool {
		f.trees = nil
		for _, k := range descendants(f.Process.Pid) {
			if k.name == "sleep" {
				f.trees = append(f.trees, k.being)
			}
		}
		return len(f.trees) == trees*treeSize
	})
	f.cgroups = cgroupOf(t, int(last.GetPid()))
	for _, k := range everybody() {
		if k.pid == stranger.Process.Pid {
			f.bystander = k.being
		}
	}
	return f
}

// start starts a process that nobody owns.
func (c *command) start(t *testing.T, argv []string) *execwirev1.Process {
	t.Helper()
	response, err := remote(t, c, unixDoor).StartProcess(testContext(t), &execwirev1.StartProcessRequest{
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
			Direct: &execwirev1.DirectCommand{Argv: argv, WorkingDirectory: "/", Env: environment()}}}})
	if err != nil {
		t.Fatal(err)
	}
	return response.GetProcess()
}

// hostiles are all hostile processes that there have been.
func (f *forest) hostiles(t *testing.T) []testproc.Hostile {
	t.Helper()
	found, err := testproc.ReadHostile(f.report)
	if err != nil || len(found) <= len(hostileWays) {
		t.Fatalf("the hostile ones reported %v, %v", found, err)
	}
	return found
}

// expectFelled wants that nothing is left of the trees once the command has
// ended, and that a server can take the place of this one at once.
func (f *forest) expectFelled(t *testing.T) {
	t.Helper()
	for _, b := range f.trees {
		if b.alive() {
			t.Errorf("process %d is alive", b.pid)
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
	if !f.bystander.alive() {
		t.Error("a process that has nothing to do with the server is gone")
	}
	heir := newCommand("serve", "--listen", f.urls[unixDoor], "--listen", f.urls[tcpDoor])
	said, err := heir.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	heir.launch(t)
	for _, d := range wires {
		line := make([]byte, len(f.urls[d])+1)
		if _, err := said.Read(line); err != nil || strings.TrimSpace(string(line)) != f.urls[d] {
			t.Errorf("the next server says %q, %v; want %s", line, err, f.urls[d])
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

// withAndWithoutCgroups runs a test with what makes killing easy, and without.
func withAndWithoutCgroups(t *testing.T, test func(t *testing.T, setting string)) {
	for _, cgroup := range []string{"auto", "off"} {
		t.Run("cgroup "+cgroup, func(t *testing.T) { test(t, "EXECWIRE_CGROUP="+cgroup) })
	}
}

func TestAKilledServerLeavesNothing(t *testing.T) {
	withAndWithoutCgroups(t, func(t *testing.T, setting string) {
		f := plant(t, forestSize(), setting)
		f.killServer(t)
		if code := f.await(t); code != 128+9 || !strings.Contains(f.errors.String(), "signal (killed)") {
			t.Errorf("the guardian ended with %d and %q", code, f.errors.String())
		}
		f.expectFelled(t)
	})
}

// Processes that do nothing but fork and end cannot outrun the guardian: none of
// them is ever there for long enough to be found and killed alone.
func TestAKilledServerLeavesNoForks(t *testing.T) {
	server := serve(t, "EXECWIRE_CGROUP=off") // which would end them all at one instant
	var groups []int
	const script = `sh -c "$0" "$0" &`
	for range 3 {
		groups = append(groups, int(server.start(t, append(shell(script), script)).GetPid()))
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
	server.killServer(t)
	if code := server.await(t); code != 128+9 {
		t.Errorf("the guardian ended with %d: %s", code, server.errors.String())
	}
	eventually(t, "nobody forks", gone)
}

func TestAKilledGuardianLeavesNothing(t *testing.T) {
	withAndWithoutCgroups(t, func(t *testing.T, setting string) {
		f := plant(t, forestSize(), setting)
		pid := f.serverPID(t)
		var server being
		for _, k := range descendants(f.Process.Pid) {
			if k.pid == pid {
				server = k.being
			}
		}
		f.send(t, unix.SIGKILL)
		f.await(t)
		eventually(t, "the server is gone, too", func() bool { return !server.alive() })
		if said := f.errors.String(); !strings.Contains(said, "guardian was killed") {
			t.Errorf("the server said %q", said)
		}
		f.expectFelled(t)
	})
}

// What stops a server stops it through its guardian, too, and twice is at once.
func TestAStoppedServerLeavesNothing(t *testing.T) {
	f := plant(t, 3)
	h := hold(t, f.command, tcpDoor)
	f.send(t, unix.SIGTERM)
	eventually(t, "the server says that it waits", func() bool { return strings.Contains(f.errors.String(), "waiting for processes") })
	f.send(t, unix.SIGINT)
	if code := h.await(t); code != 128+9 || !strings.Contains(h.errors.String(), "server shut down") {
		t.Errorf("the client ended with %d and %q", code, h.errors.String())
	}
	if code := f.await(t); code != 0 {
		t.Errorf("the guardian ended with %d: %s", code, f.errors.String())
	}
	f.expectFelled(t)
}

// The keys of a terminal reach a server once: its guardian passes them on.
func TestAGuardedServerHasAGroupOfItsOwn(t *testing.T) {
	server := serve(t)
	pid := server.serverPID(t)
	if group, err := unix.Getpgid(pid); err != nil || group != pid {
		t.Errorf("the server %d is in the group %d, %v", pid, group, err)
	}
}

// At a terminal Ctrl-C lets processes end, and a second one ends them: one key
// press is one signal, although there are two processes.
func TestCtrlCReachesAServerOnce(t *testing.T) {
	url := "unix://" + filepath.Join(shortDir(t), "s")
	p := newPane(t, 150, 24)
	p.enter(execwire + " serve --listen " + url)
	p.await("the URL", func(screen string) bool { return strings.Contains(screen, "\n"+url) })
	server := &command{urls: map[door]string{unixDoor: url}}
	h := hold(t, server, unixDoor)
	p.key("C-c")
	p.await("that it waits", func(screen string) bool { return strings.Contains(screen, "waiting for processes") })
	if _, err := h.release.Write([]byte("still\n")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process answers", func() bool { return strings.Contains(h.stdout.String(), "still") })
	p.key("C-c")
	p.awaitLine("local[0]$")
	if code := h.await(t); code != 128+9 {
		t.Errorf("the client ended with %d: %s", code, h.errors.String())
	}
}

// execServer starts a server in the place of a shell that ran a script.
func execServer(t *testing.T, script string) *command {
	t.Helper()
	c := newCommand()
	c.Path, c.Args = "/bin/sh", []string{"sh", "-c", script + ` exec "$0" serve --listen grpc://127.0.0.1:0`, execwire}
	said, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.launch(t)
	url := make([]byte, 100)
	n, err := said.Read(url)
	if err != nil {
		t.Fatal(err)
	}
	c.urls = map[door]string{tcpDoor: strings.TrimSpace(string(url[:n]))}
	return c
}

// Signals other than those to stop come to the server, too; what nohup ignores
// comes to nobody.
func TestAGuardianPassesSignalsOn(t *testing.T) {
	server := execServer(t, "")
	server.send(t, unix.SIGQUIT)
	if code := server.await(t); code != 2 || !strings.Contains(server.errors.String(), "SIGQUIT: quit") {
		t.Errorf("the guardian ended with %d and %q", code, server.errors.String())
	}
	server = execServer(t, "trap '' HUP;")
	server.send(t, unix.SIGHUP)
	if got := run(t, nil, server.through(tcpDoor, "--", "true")...); got.code != 0 {
		t.Errorf("a server under nohup: %+v", got)
	}
	server.send(t, unix.SIGTERM)
	if code := server.await(t); code != 0 {
		t.Errorf("the guardian ended with %d: %s", code, server.errors.String())
	}
}

// Children that the program had before it was the guardian are nobody's
// business.
func TestAGuardianLeavesItsOldChildrenAlone(t *testing.T) {
	c := execServer(t, "sleep 1000 <>/dev/null >&0 2>&0 &")
	var child being
	for _, k := range descendants(c.Process.Pid) {
		if k.name == "sleep" {
			child = k.being
		}
	}
	c.killServer(t)
	if code := c.await(t); code != 128+9 {
		t.Errorf("the guardian ended with %d: %s", code, c.errors.String())
	}
	if !child.alive() {
		t.Fatal("the child is gone")
	}
	_ = unix.Kill(child.pid, unix.SIGKILL)
}

// A server that cannot serve says so once, and its code is the command's.
func TestAGuardianEndsAsItsServer(t *testing.T) {
	server := serve(t)
	got := run(t, nil, "serve", "--listen", server.urls[tcpDoor])
	if got.code != 125 || strings.Count(got.stderr, "execwire: failed to listen") != 1 || got.stdout != "" {
		t.Errorf("a second server ends with %+v", got)
	}
	got = run(t, nil, "serve", "--no-such-flag")
	if got.code != 2 || !strings.Contains(got.stderr, "--help") {
		t.Errorf("a wrong flag ends with %+v", got)
	}
}

// Without a guardian the command is the server itself, and says so.
func TestAServerWithoutAGuardian(t *testing.T) {
	for setting, guarded := range map[string]bool{"on": true, "off": false} {
		server := serve(t, "EXECWIRE_GUARDIAN="+setting)
		if _, found := serverOf(server.Process.Pid); found != guarded {
			t.Errorf("with guardian=%s there is a guardian: %v", setting, found)
		}
		environ := execwirev1.NewEnvironmentServiceClient(dial(t, "unix", server.address(unixDoor)))
		response, err := environ.GetEnvironment(testContext(t), &execwirev1.GetEnvironmentRequest{})
		if err != nil || response.GetGuarded() != guarded {
			t.Errorf("with guardian=%s the server says guarded %v, %v", setting, response.GetGuarded(), err)
		}
		got := run(t, nil, server.through(unixDoor, "--env-inherit", "all", "--", "env")...)
		if got.code != 0 || strings.Contains(got.stdout, "GUARDIAN_PIPE") {
			t.Errorf("processes are told of the guardian: %+v", got)
		}
		server.send(t, unix.SIGTERM)
		if code := server.await(t); code != 0 {
			t.Errorf("with guardian=%s the command ends with %d", setting, code)
		}
	}
}
