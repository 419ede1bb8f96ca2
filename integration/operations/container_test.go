package operations

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testrace"
)

// containerUID is a user ID as OpenShift chooses it: without a name.
const containerUID = 1000660000

// container returns a command that runs execwire as the first process of a container
// without privileges: its own process IDs, a user without a name, capabilities or a home
// directory, a read-only root, read-only control groups, and no further user namespaces.
// shared is a directory that the container can write to; with tmp, so is /tmp.
func container(t *testing.T, shared string, tmp bool, args ...string) *harness.Command {
	t.Helper()
	binary := filepath.Join(shared, "execwire")
	if _, err := os.Stat(binary); err != nil {
		harness.CopyFile(t, harness.Execwire, binary)
	}
	c := exec.Command("bwrap", "--unshare-all", "--share-net", "--unshare-user", "--disable-userns",
		"--uid", strconv.Itoa(containerUID), "--gid", "0", "--as-pid-1", "--die-with-parent", "--new-session",
		"--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", shared, shared)
	if !tmp {
		c.Args = append(c.Args, "--remount-ro", "/tmp")
	}
	c.Args = append(append(c.Args, "--chdir", "/", "--", binary), args...)
	if os.Getuid() == 0 { // so that nothing works because of the user of the test
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: containerUID, Gid: containerUID}}
		if err := os.Chown(shared, containerUID, containerUID); err != nil {
			t.Fatal(err)
		}
	}
	prepared := harness.Prepare(c)
	prepared.Env = []string{"PATH=/usr/bin:/bin", "GORACE=" + harness.Environment()["GORACE"]}
	return prepared
}

// firstProcess returns the process that is number 1 in the container.
func firstProcess(t *testing.T, c *harness.Command) harness.ProcessIdentity {
	t.Helper()
	for _, p := range harness.Descendants(c.Process.Pid) {
		status, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Pid), "status"))
		if slices.ContainsFunc(strings.Split(string(status), "\n"), func(line string) bool {
			fields := strings.Fields(line)
			return len(fields) > 2 && fields[0] == "NSpid:" && fields[len(fields)-1] == "1" && p.Name == "execwire"
		}) {
			return p.ProcessIdentity
		}
	}
	t.Fatal("the container has no first process")
	return harness.ProcessIdentity{}
}

// What needs no privileges works in a container without them.
func TestContainer_WithoutPrivileges_Works(t *testing.T) {
	testrace.WithoutRace(t)
	shared := harness.PublicDir(t)
	server := container(t, shared, true, "serve", "--listen", "unix://"+filepath.Join(shared, "s"))
	server.Env = append(server.Env, "EXECWIRE_SHUTDOWN_GRACE_PERIOD=2m")
	server.Listen(t, 1)
	first := firstProcess(t, server)
	ctx := harness.Context(t)
	c, err := client.Dial(ctx, server.URLs[harness.UnixTransport])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	run := func(t *testing.T, input string, command client.Command) (stdout, stderr string, exit client.Exit) {
		t.Helper()
		var out, errOut bytes.Buffer
		options := client.RunOptions{Process: command.Request(), Stdout: &out, Stderr: &errOut}
		if input != "" {
			options.Stdin = strings.NewReader(input)
		}
		exit, err := c.Run(ctx, options)
		if err != nil {
			t.Fatal(err)
		}
		return out.String(), errOut.String(), exit
	}
	shell := func(t *testing.T, script string) string {
		t.Helper()
		out, errOut, _ := run(t, "", client.Command{Argv: []string{"sh", "-c", script}})
		return out + errOut
	}
	// Whether a command line exists in the container: ps is not in every image.
	lists := func(t *testing.T, line string) bool {
		t.Helper()
		return strings.Contains(shell(t, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"), line)
	}

	t.Run("identity", func(t *testing.T) {
		if got := strings.TrimSpace(shell(t, `id -u; echo "home=$HOME"; unshare --user true 2>/dev/null || echo confined`)); got != strconv.Itoa(containerUID)+"\nhome=\nconfined" {
			t.Errorf("the container is %q", got)
		}
		environment, err := c.Describe(ctx)
		if err != nil || environment.GetHomeDirectory() != "" || environment.GetShell() != "/bin/sh" || !environment.GetGuarded() {
			t.Errorf("the environment is %v, %v", environment, err)
		}
	})
	t.Run("run", func(t *testing.T) {
		if out, _, exit := run(t, "input", client.Command{Argv: []string{"sh", "-c", "cat; exit 3"}}); out != "input" || exit.Code != 3 {
			t.Errorf("%q, %+v", out, exit)
		}
		if out, _, exit := run(t, "", client.Command{Argv: []string{"tty"}, Terminal: &execwirev1.TerminalSize{}}); !strings.HasPrefix(out, "/dev/pts/") || exit.Code != 0 {
			t.Errorf("in a terminal: %q, %+v", out, exit)
		}
	})
	t.Run("kill", func(t *testing.T) {
		tree, err := c.StartDetached(ctx, client.Command{ID: "tree", Argv: []string{"sh", "-c", `trap "" TERM
setsid sh -c 'setsid sleep 7001 & exec sleep 7001' &
exec sleep 7001`}}.Request())
		if err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "the tree has grown", func() bool {
			return strings.Count(shell(t, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"), "sleep 7001 ") >= 3
		})
		answer, err := c.Terminate(ctx, client.ProcessRef{ProcessID: tree.GetProcessId()}, client.Termination{Force: true})
		if err != nil || answer.GetMethod() == execwirev1.KillMethod_KILL_METHOD_CGROUP || !answer.GetVerifiedEmpty() {
			t.Errorf("it is killed by %v, %v", answer, err)
		}
		if lists(t, "sleep 7001 ") {
			t.Error("a part of the tree is alive")
		}
	})
	t.Run("orphan", func(t *testing.T) {
		shell(t, "setsid sh -c 'sleep 7002 & sleep 7002' >/dev/null 2>&1 </dev/null & exit 0")
		harness.Eventually(t, "an orphan of a process that ended is killed", func() bool { return !lists(t, "sleep 7002 ") })
		harness.Eventually(t, "no zombie is left", func() bool { return !strings.Contains(shell(t, "cat /proc/[0-9]*/status"), "Z (zombie)") })
	})
	t.Run("files", func(t *testing.T) {
		content := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
		_, err := c.Upload(ctx, "/tmp/up", bytes.NewReader(content), client.UploadOptions{})
		got, readErr := c.ReadFile(ctx, "/tmp/up")
		if err := errors.Join(err, readErr); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if info, err := c.Stat(ctx, "/tmp/up"); err != nil || info.Metadata.GetSize() != uint64(len(content)) {
			t.Errorf("Stat: %v, %v", info, err)
		}
		if err := c.WriteFile(ctx, "/usr/execwire-test", nil); err == nil || !strings.Contains(err.Error(), "read-only file system") {
			t.Errorf("a file in the read-only root: %v", err)
		}
	})
	t.Run("detach", func(t *testing.T) {
		process, err := c.StartDetached(ctx, client.Command{ID: "detached", Argv: []string{"echo", "later"}}.Request())
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		exit, err := c.Follow(ctx, client.ProcessRef{ProcessID: process.GetProcessId()}, client.FollowOptions{Stdout: &out})
		if err != nil || exit.Code != 0 || out.String() != "later\n" {
			t.Errorf("%q, %+v, %v", out.String(), exit, err)
		}
	})
	t.Run("sandbox", func(t *testing.T) {
		out, _, exit := run(t, "", client.Command{Argv: []string{"sh", "-c", "cat /etc/os-release >/dev/null && echo read; echo x >/tmp/denied"}, Sandbox: harness.ReadOnly()})
		if out != "read\n" || exit.Code == 0 {
			t.Errorf("read-only: %q, %+v", out, exit)
		}
		if err := c.WithSandbox(harness.ReadOnly()).WriteFile(ctx, "/tmp/denied", nil); err == nil {
			t.Error("a confined file call has written")
		}
		// Landlock cannot protect a path below a writable directory, and bubblewrap does not
		// work: the start is refused, not weakened.
		if err := c.MkdirAll(ctx, "/tmp/work/.git", nil); err != nil {
			t.Fatal(err)
		}
		_, err := c.Run(ctx, client.RunOptions{Process: client.Command{Argv: []string{"true"}, Dir: "/tmp/work",
			Sandbox: withoutGit(client.Sandbox{Temporary: true}.Policy())}.Request()})
		var refused *client.Error
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), "bubblewrap") {
			t.Errorf("what Landlock cannot enforce: %v", err)
		}
	})
	t.Run("guardian", func(t *testing.T) { // the first process adopts and reaps what others leave
		if out := shell(t, "cat /proc/1/cmdline | tr '\\0' ' '"); !strings.Contains(out, "execwire serve") {
			t.Errorf("the first process is %q", out)
		}
	})
	t.Run("stop", func(t *testing.T) {
		draining, err := c.Start(ctx, client.StartOptions{Process: client.Command{Argv: []string{"sh", "-c", `setsid sleep 7003 >/dev/null 2>&1 & echo ready; read line; exit 4`}, PipeStdin: true}.Request()})
		if err != nil {
			t.Fatal(err)
		}
		for event, err := range draining.Events(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			if _, isOutput := event.(*client.OutputEvent); isOutput {
				break
			}
		}
		if err := unix.Kill(first.Pid, unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		// Within the grace period a process ends as it would have.
		harness.Eventually(t, "the server drains", func() bool { return strings.Contains(server.Errors.String(), "waiting for processes to end") })
		_, err = draining.Write([]byte("end\n"))
		exit, waitErr := draining.Wait(ctx)
		if err := errors.Join(err, waitErr); err != nil || exit.Code != 4 {
			t.Errorf("a process in the grace period: %+v, %v", exit, err)
		}
		if code := server.Await(t); code != 0 {
			t.Errorf("the server exits with %d: %s", code, server.Errors.String())
		}
	})
}

// withoutGit denies reading a path below a writable directory, too.
func withoutGit(policy *execwirev1.SandboxPolicy) *execwirev1.SandboxPolicy {
	files := policy.GetManaged().GetFileSystem().GetRestricted()
	files.Entries = append(files.Entries, &execwirev1.SandboxEntry{Access: execwirev1.SandboxAccess_SANDBOX_ACCESS_READ,
		Place: &execwirev1.SandboxEntry_Path{Path: "/tmp/work/.git"}})
	return policy
}

// What does not work in a container without privileges is reported.
func TestContainer_Doctor_ReportsWhatIsMissing(t *testing.T) {
	testrace.WithoutRace(t)
	for name, test := range map[string]struct {
		tmp     bool
		missing []string
	}{
		"with a temporary directory": {true, []string{"audit-log", "bubblewrap", "control-groups", "home-directory", "metrics", "principals", "user-name"}},
		"without": {false, []string{"audit-log", "bubblewrap", "control-groups", "home-directory", "landlock", "metrics", "output-directory", "principals", "sandbox",
			"temporary-directory", "user-name"}},
	} {
		t.Run(name, func(t *testing.T) {
			var missing []string
			got := container(t, harness.PublicDir(t), test.tmp, "doctor", "--json").Complete(t, nil)
			for line := range strings.Lines(got.Stdout) {
				var check struct {
					Check, Detail, Fix string
					Works              bool
				}
				if err := json.Unmarshal([]byte(line), &check); err != nil {
					t.Fatal(err)
				}
				if !check.Works {
					missing = append(missing, check.Check)
				}
				sandbox := check.Check == "bubblewrap" || check.Check == "landlock" // whose detail says what to do
				if !check.Works && (check.Detail == "" || check.Fix == "" && !sandbox) {
					t.Errorf("%s does not say why, or what to do: %+v", check.Check, check)
				}
			}
			slices.Sort(missing)
			if got.Code != 0 || !slices.Equal(missing, test.missing) {
				t.Errorf("exit code %d, missing %q, want %q\n%s%s", got.Code, missing, test.missing, got.Stdout, got.Stderr)
			}
		})
	}
}
