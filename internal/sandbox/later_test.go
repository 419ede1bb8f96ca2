package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/testproc"
)

// TestBubblewrap_LaterMounts_AreNotWritable mounts a file system while a read-only
// program of root runs, as automounters do. On most machines mounts are shared, so
// without precautions the mount would appear in the program's namespace, writable.
func TestBubblewrap_LaterMounts_AreNotWritable(t *testing.T) {
	for backend, want := range map[Backend]string{0: "it wrote", Bubblewrap: "it could not write", Landlock: "it could not write"} {
		t.Run(strconv.Itoa(int(backend)), func(t *testing.T) {
			t.Parallel()
			argv := testproc.Argv("sandbox-later", strconv.Itoa(int(backend)), build(t))
			command := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			command.Env = append(os.Environ(), promptExit)
			command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS} // what is mounted goes with it
			output, err := command.Output()
			if said := strings.TrimSpace(string(output)); err != nil || said != want {
				t.Errorf("%v: %s, want %s", err, said, want)
			}
		})
	}
}

func init() { testproc.Register("sandbox-later", mountLater) }

// TestBubblewrap_MountsOutside_AreUnchanged: programs make mounts private and read-only
// in their own namespace, also if all mounts are shared.
func TestBubblewrap_MountsOutside_AreUnchanged(t *testing.T) {
	for user, as := range map[string][]string{"root": {"--nnp"}, "ordinary user": {"--reuid=65534", "--regid=65534", "--clear-groups"}} {
		t.Run(user, func(t *testing.T) {
			dir := build(t, "w/")
			letPass(t, dir)
			program := filepath.Join(dir, "program")
			copyProgram(t, program, 0o755)
			argv := append([]string{"--mount", "--propagation", "shared", "setpriv"}, append(as, program)...)
			command := exec.CommandContext(t.Context(), "unshare", append(argv, testproc.Argv("sandbox-mounts", dir)[1:]...)...)
			command.Env = append(os.Environ(), promptExit)
			output, err := command.Output()
			if said := strings.TrimSpace(string(output)); err != nil || said != "they stayed" {
				t.Errorf("%v: %s", err, said)
			}
		})
	}
}

func init() {
	testproc.Register("sandbox-mounts", func(args []string) int {
		if err := compareMounts(args[0]); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("they stayed")
		return 0
	})
}

// compareMounts compares the mounts before and after a confined program has run.
func compareMounts(dir string) error {
	sandboxes := New(Options{Without: []Backend{Landlock}})
	defer sandboxes.Close()
	policy := Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}, {Path: dir + "/w", Access: AccessWrite}}}
	plan, err := policy.Resolve(context.Background(), ResolveOptions{})
	if err != nil {
		return err
	}
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if !strings.Contains(string(before), " shared:") {
		return fmt.Errorf("no mount is shared: %s", before)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	fd := int(null.Fd())
	script := "! grep -E 'shared:|master:' /proc/self/mountinfo"
	if os.Geteuid() == 0 {
		script = "grep -q ' /dev/null ro,' /proc/self/mountinfo && " + script
	}
	program := shell(script)
	program.Files, program.Terminal = []int{fd, fd, fd}, -1
	pid, release, err := launchProgram(program, sandboxes, plan)
	if err != nil {
		return err
	}
	status := reap(pid)
	release()
	after, err := os.ReadFile("/proc/self/mountinfo")
	switch {
	case err != nil:
		return err
	case status != 0:
		return fmt.Errorf("the program's mounts are not read-only and private: %#x", status)
	case string(after) != string(before):
		return fmt.Errorf("the mounts were\n%sand are\n%s", before, after)
	}
	return nil
}

// mountLater BACKEND DIR starts a program, mounts a file system, has the program write
// to it, and prints the result.
func mountLater(args []string) int {
	said, err := writeLater(args[0], args[1])
	if err != nil {
		said = err.Error()
	}
	fmt.Println(said)
	return 0
}

func writeLater(backend, dir string) (string, error) {
	var sandboxes *Sandboxes
	if b, err := strconv.Atoi(backend); err != nil || b > 0 {
		sandboxes = New(Options{Without: others(Backend(b))})
		defer sandboxes.Close()
	}
	later := filepath.Join(dir, "later")
	if err := errors.Join(
		unix.Mount("none", dir, "tmpfs", 0, ""), unix.Mount("", dir, "", unix.MS_SHARED, ""), os.Mkdir(later, 0o755),
	); err != nil {
		return "", err
	}
	policy := Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}}}
	plan, err := policy.Resolve(context.Background(), ResolveOptions{})
	if err != nil {
		return "", err
	}
	input, ready, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer input.Close()
	program := shell("read line; echo x 2>/dev/null >" + later + "/file")
	program.Files, program.Terminal = []int{int(input.Fd()), 1, 2}, -1
	pid, release, err := launchProgram(program, sandboxes, plan)
	if err != nil {
		return "", err
	}
	defer release()
	if err := errors.Join(unix.Mount("none", later, "tmpfs", 0, ""), ready.Close()); err != nil {
		return "", err
	}
	reap(pid)
	if _, err := os.Stat(later + "/file"); err == nil {
		return "it wrote", nil
	}
	return "it could not write", nil
}
