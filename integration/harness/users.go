package harness

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testproc"
)

func init() { testproc.Register("with-small-mounts", withMounts) }

// Sizes of the file systems of withMounts.
const (
	FullBytes        = 256 << 10
	MountedFileBytes = 100 << 10
)

// withMounts DIR COMMAND... mounts two small file systems in DIR, which no
// other process sees, and executes the command: full, with space for one more copy of
// kept and not for two, and frozen, which is read-only.
func withMounts(args []string) int {
	runtime.LockOSThread() // the mounts are of the thread that executes
	full, frozen := args[0]+"/full", args[0]+"/frozen"
	kept := []byte(strings.Repeat("k", MountedFileBytes))
	for _, step := range []func() error{
		func() error { return unix.Unshare(unix.CLONE_NEWNS) },
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error {
			return unix.Mount("none", full, "tmpfs", 0, fmt.Sprintf("size=%d,nr_inodes=32", FullBytes))
		},
		func() error { return os.WriteFile(full+"/kept", kept, 0o640) },
		func() error { return os.WriteFile(full+"/other", kept, 0o640) },
		func() error { return unix.Mount("none", frozen, "tmpfs", 0, "size=1m") },
		func() error { return os.WriteFile(frozen+"/kept", kept, 0o640) },
		func() error { return os.MkdirAll(frozen+"/d/e", 0o755) },
		func() error { return unix.Mount("none", frozen, "", unix.MS_REMOUNT|unix.MS_RDONLY, "") },
		func() error { return unix.Exec(args[1], args[1:], os.Environ()) },
	} {
		if err := step(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

// PublicListeners are the arguments of a server with listeners for every user.
var PublicListeners = []string{"serve", "--listen", "grpc://127.0.0.1:0", "--listen", "ws://127.0.0.1:0"}

// MountedServer runs a server that sees the file systems of withMounts, and
// returns their directory.
func MountedServer(t *testing.T) (c *Command, dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"full", "frozen"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c = NewCommand(PublicListeners...)
	argv := testproc.Argv("with-small-mounts", append([]string{dir}, c.Args...)...)
	c.Path, c.Args = argv[0], argv
	c.Listen(t, 2)
	return c, dir
}

// ExpectUnseen fails unless the process does not exist for the caller.
func ExpectUnseen(s *Scenario, id string) {
	s.Helper()
	_, err := s.Processes.GetProcess(s.Ctx, &execwirev1.GetProcessRequest{ProcessId: id})
	s.ExpectReason(err, "PROCESS_NOT_FOUND")
	s.ExpectReason(s.Watch(id, 0).Failure(), "PROCESS_NOT_FOUND")
	_, err = s.Processes.TerminateProcess(s.Ctx, &execwirev1.TerminateProcessRequest{ProcessId: id})
	s.ExpectReason(err, "PROCESS_NOT_FOUND")
	_, err = s.Processes.WriteStdin(s.Ctx, &execwirev1.WriteStdinRequest{ProcessId: id, Data: []byte("x")})
	s.ExpectReason(err, "PROCESS_NOT_FOUND")
}

// NobodyUID is the ID of the user nobody.
const NobodyUID = 65534

// CopyFile copies a file that can be executed.
func CopyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	syscall.ForkLock.RLock() // a child forked meanwhile would have the file open for writing, and it could not be executed
	defer syscall.ForkLock.RUnlock()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// PublicDir returns a directory of the test that every user can enter.
func PublicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "integration-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// ServeAs runs a server as another user, in a control group with at most so many
// processes and threads, and with as many of the user. It fails without both
// limits, because a fork bomb would take all of the machine.
func ServeAs(t *testing.T, user, most, userMost int, settings ...string) *Command {
	t.Helper()
	binary := filepath.Join(PublicDir(t), "execwire")
	CopyFile(t, Execwire, binary)
	group := NewTestGroup(t, "pids", map[string]string{"pids.max": strconv.Itoa(most)})
	script := fmt.Sprintf(`set -e
echo $$ > %s/cgroup.procs
ulimit -u %d
exec setpriv --reuid=%d --regid=%[3]d --clear-groups "$0" "$@"`, group, userMost, user)
	c := Prepare(exec.Command("/bin/bash", "-c", script, binary, "serve", "--listen", "grpc://127.0.0.1:0"))
	c.Env = append(c.Env, settings...)
	c.Listen(t, 1)
	return c
}
