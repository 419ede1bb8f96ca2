package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/osuser"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/testproc"
)

func init() {
	testproc.Register("escape-user", escapeUser)
	testproc.Register("privileged-start", startPrivileged)
}

// ofNobody makes the process of a Spec one of the user nobody, with two supplementary groups.
func ofNobody(spec Spec) Spec {
	spec.User = &osuser.User{Name: "nobody", UID: nobody, GID: nobody, Groups: []uint32{1, 2}, Home: "/"}
	return spec
}

// requireRoot fails a test of other users unless this program may change users.
func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("run the tests as root: they start processes of another user")
	}
}

// publicCopy copies this test binary to a place where every user can execute it, and returns its
// path and a directory of nobody.
func publicCopy(t *testing.T) (program, work string) {
	t.Helper()
	requireRoot(t)
	dir, err := os.MkdirTemp("/var/tmp", "execwire-test-") // searchable by other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program, work = filepath.Join(dir, "process.test"), filepath.Join(dir, "work")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	syscall.ForkLock.RLock() // a child forked meanwhile would have it open for writing, and it could not be executed
	defer syscall.ForkLock.RUnlock()
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(program, content, 0o755), os.Mkdir(work, 0o700), os.Chown(work, nobody, nobody))
	}
	if err != nil {
		t.Fatal(err)
	}
	return program, work
}

// noPrivileges are the capabilities of a process of an ordinary user.
const noPrivileges = "CapInh: 0000000000000000\nCapPrm: 0000000000000000\nCapEff: 0000000000000000\nCapAmb: 0000000000000000\n"

// showPrivileges prints the user, the groups and the capabilities.
const showPrivileges = `id -u; id -g; id -G; grep -E '^(Uid|Gid):' /proc/self/status | tr '\t' ' '; grep -E 'Cap(Inh|Prm|Eff|Amb)' /proc/self/status | tr '\t' ' '; `

func TestStart_OtherUser_HasItsGroupsAndNoPrivileges(t *testing.T) {
	requireRoot(t)
	_, work := publicCopy(t)
	privileges := fmt.Sprintf("%[1]d\n%[1]d\n%[1]d 1 2\nUid: %[1]d %[1]d %[1]d %[1]d\nGid: %[1]d %[1]d %[1]d %[1]d\n", nobody) + noPrivileges
	script := showPrivileges + `pwd; stat -L -c %u /proc/self/fd/1; ls /proc/self/fd | wc -l; echo again >/dev/stdout`
	// What ls has open for the directory is the fourth descriptor.
	want := privileges + work + "\n65534\n4\nagain\n"
	spec := ofNobody(shell(script))
	spec.Cwd = work // which only nobody and root can enter
	spec.PipeStdin = true
	p := start(t, spec)
	if err := p.CloseStdin(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if output := readLog(t, p).all(); output.stdout != want || output.stderr != "" {
		t.Errorf("with pipes: %+v; want %q", output, want)
	}
	spec.PipeStdin = false
	if output, _ := run(t, onTerminal(spec, 0, 0)); strings.ReplaceAll(output.terminal, "\r", "") != want {
		t.Errorf("on a terminal: %q; want %q", output.terminal, want)
	}
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		want := want
		if by := confine(readOnly); by.Report().Backend == sandbox.Bubblewrap {
			want = strings.Replace(want, "65534 1 2\n", "65534\n", 1) // its user namespace has no other groups
		}
		if output, _ := run(t, confined(spec, confine(readOnly))); output.stdout != want {
			t.Errorf("with pipes: %+v; want %q", output, want)
		}
		terminal := onTerminal(spec, 0, 0)
		terminal.Argv = shell(showPrivileges + `echo again >/dev/tty`).Argv
		if output, _ := run(t, confined(terminal, confine(readOnly))); !strings.HasSuffix(strings.ReplaceAll(output.terminal, "\r", ""), noPrivileges+"again\n") {
			t.Errorf("on a terminal: %+v", output)
		}
		// It can read by its groups, and write what it may write itself.
		if err := errors.Join(os.WriteFile(filepath.Join(work, "shared"), []byte("shared\n"), 0o040), os.Chmod(filepath.Join(work, "shared"), 0o040), os.Chown(filepath.Join(work, "shared"), 0, 2)); err != nil {
			t.Fatal(err)
		}
		spec := spec
		spec.Argv = shell(`cat shared; echo own >mine && cat mine; rm mine; echo x >/etc/passwd; echo no >/var/tmp/no-one; ls /root`).Argv
		if output, _ := run(t, confined(spec, confine(writableOnly(work)))); output.stdout != "shared\nown\n" || strings.Count(output.stderr, "\n") != 3 {
			t.Errorf("files: %+v", output)
		}
	})
}

// escapeUser PID prints which attempts to get at a process of another user, or at its privileges,
// do not fail as they have to.
func escapeUser(args []string) int {
	runtime.LockOSThread()
	server, _ := strconv.Atoi(args[0])
	proc := "/proc/" + args[0]
	read := func(path string) error { _, err := os.ReadFile(path); return err }
	call := func(number uintptr, args ...uintptr) error {
		args = append(args, 0, 0, 0, 0, 0, 0)
		if _, _, errno := unix.RawSyscall6(number, args[0], args[1], args[2], args[3], args[4], args[5]); errno != 0 {
			return errno
		}
		return nil
	}
	const unchanged = ^uintptr(0)
	full := [2]unix.CapUserData{{Effective: 1 << unix.CAP_SETUID, Permitted: 1 << unix.CAP_SETUID}}
	word := make([]byte, 8)
	local := []unix.Iovec{{Base: &word[0], Len: 8}}
	for name, attempt := range map[string]func() error{
		"signal":        func() error { return unix.Kill(server, 0) },
		"ptrace":        func() error { return unix.PtraceSeize(server) },
		"environ":       func() error { return read(proc + "/environ") },
		"memory":        func() error { return read(proc + "/mem") },
		"maps":          func() error { return read(proc + "/maps") },
		"descriptors":   func() error { _, err := os.ReadDir(proc + "/fd"); return err },
		"a descriptor":  func() error { return read(proc + "/fd/0") },
		"root":          func() error { _, err := os.ReadDir(proc + "/root/"); return err },
		"oom_score_adj": func() error { return os.WriteFile(proc+"/oom_score_adj", []byte("1000"), 0) },
		"read memory": func() error {
			_, err := unix.ProcessVMReadv(server, local, []unix.RemoteIovec{{Base: 4096, Len: 8}}, 0)
			return err
		},
		"limits":         func() error { return unix.Prlimit(server, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: 3}, nil) },
		"take over":      func() error { fd, _ := unix.PidfdOpen(server, 0); _, err := unix.PidfdGetfd(fd, 0, 0); return err },
		"real user":      func() error { return call(unix.SYS_SETRESUID, 0, unchanged, unchanged) },
		"effective user": func() error { return call(unix.SYS_SETRESUID, unchanged, 0, unchanged) },
		"saved user":     func() error { return call(unix.SYS_SETRESUID, unchanged, unchanged, 0) },
		"group":          func() error { return call(unix.SYS_SETRESGID, 0, 0, 0) },
		"groups":         func() error { return call(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&word[0]))) },
		"capabilities": func() error {
			return unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &full[0])
		},
		"ambient": func() error { return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SETUID, 0, 0) },
	} {
		if err := attempt(); !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
			fmt.Println(name, err)
		}
	}
	spec := shell("id")
	spec.User = &osuser.User{Name: "root", Home: "/"}
	if _, err := NewSupervisor(Config{}).Start(testContext(nil), spec); KindOf(err) != UserUnavailable {
		fmt.Println("start as root", err)
	}
	fmt.Println("done")
	return 0
}

func TestStart_OtherUser_CannotReachServer(t *testing.T) {
	program, _ := publicCopy(t)
	spec := ofNobody(shell(""))
	argv := testproc.Argv("escape-user", strconv.Itoa(os.Getpid()))
	spec.Argv = append([]string{program}, argv[1:]...)
	if output, _ := run(t, spec); output.stdout != "done\n" {
		t.Errorf("these attempts did not fail for want of permission: %+v", output)
	}
}

// startPrivileged starts a process of nobody from a thread that is not root, but has capabilities
// that its children would inherit, and prints the output.
func startPrivileged([]string) int {
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	err := errors.Join(unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0), unix.Capget(&header, &sets[0]))
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 1, 1, 1); err != nil || errno != 0 {
		return 90
	}
	for i := range sets {
		sets[i].Effective, sets[i].Inheritable = sets[i].Permitted, sets[i].Permitted
	}
	if unix.Capset(&header, &sets[0]) != nil {
		return 91
	}
	for _, capability := range []uintptr{unix.CAP_SETUID, unix.CAP_DAC_OVERRIDE} {
		if unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, capability, 0, 0) != nil {
			return 92
		}
	}
	p, err := NewSupervisor(Config{}).Start(testContext(nil), ofNobody(shell(showPrivileges)))
	if err != nil {
		fmt.Println(err)
		return 93
	}
	fmt.Print(readLog(&failing{}, p).all().stdout)
	return 0
}

func TestStart_OtherUser_InheritsNoCapabilities(t *testing.T) {
	requireRoot(t)
	argv := testproc.Argv("privileged-start")
	output, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	want := fmt.Sprintf("%[1]d\n%[1]d\n%[1]d 1 2\nUid: %[1]d %[1]d %[1]d %[1]d\nGid: %[1]d %[1]d %[1]d %[1]d\n", nobody) + noPrivileges
	if err != nil || string(output) != want {
		t.Errorf("%v: %s; want %s", err, output, want)
	}
}

// The directory and the program are those that the user can reach, not those of root.
func TestStart_OtherUser_LooksUpWithItsAccess(t *testing.T) {
	requireRoot(t)
	dir, err := os.MkdirTemp("/var/tmp", "execwire-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	secret, open := filepath.Join(dir, "secret"), filepath.Join(dir, "open")
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(secret, 0o700), os.Mkdir(open, 0o755),
		os.WriteFile(filepath.Join(secret, "tool"), []byte("#!/bin/sh\necho secret\n"), 0o755),
		os.WriteFile(filepath.Join(dir, "tool"), []byte("#!/bin/sh\necho mine\n"), 0o700),
		os.WriteFile(filepath.Join(open, "tool"), []byte("#!/bin/sh\necho open\n"), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	spec := ofNobody(shell(""))
	spec.Argv, spec.Env = []string{"tool"}, []string{"PATH=" + secret + ":" + dir + ":" + open}
	if output, _ := run(t, spec); output.stdout != "open\n" {
		t.Errorf("in PATH is %+v", output)
	}
	s := newSupervisor(t, Config{})
	inSecret := spec
	inSecret.Cwd = secret
	if _, err := s.Start(testContext(t), inSecret); KindOf(err) != BadWorkingDirectory {
		t.Errorf("in a directory of another user: %v", err)
	}
	for path, kind := range map[string]Kind{filepath.Join(secret, "tool"): PermissionDenied, filepath.Join(dir, "tool"): NotExecutable} {
		of := spec
		of.Argv = []string{path}
		if _, err := s.Start(testContext(t), of); KindOf(err) != kind {
			t.Errorf("%s: %v", path, err)
		}
	}
	if got := DefaultDirectory(&osuser.User{UID: nobody, GID: nobody, Home: open}); got != open {
		t.Errorf("the default directory is %s", got)
	}
	if got := DefaultDirectory(&osuser.User{UID: nobody, GID: nobody, Home: secret}); got != "/" {
		t.Errorf("without access to it the default directory is %s", got)
	}
}

// The thread on which files are looked up keeps its user, whom others cannot signal, and nothing of
// the other one is left on it.
func TestAsUser_ChangesAccessToFilesOnly(t *testing.T) {
	requireRoot(t)
	var task string
	access := func() string {
		status, err := os.ReadFile(task)
		if err != nil {
			return err.Error()
		}
		var lines []string
		for line := range strings.Lines(string(status)) {
			if strings.HasPrefix(line, "Uid:") || strings.HasPrefix(line, "Gid:") || strings.HasPrefix(line, "Groups:") || strings.HasPrefix(line, "CapEff:") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		return strings.Join(lines, " ")
	}
	task = "/proc/thread-self/status" // the first thread may have been left to another user by another test
	runtime.LockOSThread()
	before := access()
	runtime.UnlockOSThread()
	var meanwhile string
	err := asUser(ofNobody(Spec{}).User, func() error {
		task = fmt.Sprintf("/proc/self/task/%d/status", unix.Gettid())
		meanwhile = access()
		return unix.ENOTTY
	})
	if !errors.Is(err, unix.ENOTTY) || !strings.HasPrefix(meanwhile, "Uid:\t0\t0\t0\t65534 Gid:\t0\t0\t0\t65534 Groups:\t1 2 CapEff:") {
		t.Errorf("%v: the thread had %q", err, meanwhile)
	}
	if after := access(); after != before && after != "open "+task+": no such file or directory" {
		t.Errorf("the thread has %q; want %q", after, before)
	}
}

func TestTerminate_OtherUserConfined_LeavesNoDescendant(t *testing.T) {
	requireRoot(t)
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		s := newSupervisor(t, Config{AdoptOrphans: true})
		p, err := s.Start(testContext(t), confined(ofNobody(shell(`(setsid sh -c 'echo ready; exec sleep 600 >/dev/null 2>&1 </dev/null' &); exec sleep 600`)), confine(readOnly)))
		if err != nil {
			t.Fatal(err)
		}
		readLog(t, p).until("ready")
		if result := terminate(t, p, Termination{}); !result.Verified {
			t.Errorf("%+v", result)
		}
		waitClosed(t, p)
	})
}

func TestTerminate_OtherUser_LeavesNoDescendant(t *testing.T) {
	requireRoot(t)
	s := newSupervisor(t, Config{AdoptOrphans: true})
	p, err := s.Start(testContext(t), ofNobody(shell(`(setsid sh -c 'echo $$; exec sleep 600 >/dev/null 2>&1 </dev/null' &); exec sleep 600`)))
	if err != nil {
		t.Fatal(err)
	}
	orphan, err := strconv.Atoi(strings.TrimSpace(readLog(t, p).until("\n").stdout))
	if err != nil {
		t.Fatal(err)
	}
	if result := terminate(t, p, Termination{}); !result.Verified || result.Exit.Signal != syscall.SIGKILL {
		t.Errorf("%+v", result)
	}
	if err := unix.Kill(orphan, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the orphan: %v", err)
	}
	waitClosed(t, p)
}
