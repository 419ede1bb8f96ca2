package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/testproc"
)

// prepared makes calls in a child, then executes a program, and returns its output.
func prepared(t *testing.T, p *childCalls, program ...string) (output []byte, err error) {
	t.Helper()
	p.execFailed = func(errno syscall.Errno) error { return failed(NotStarted, "", "cannot be executed", errno) }
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	files := []int{int(null.Fd()), int(theirs.Fd()), int(null.Fd())}
	pid, err := forkExec(Program{Path: program[0], Argv: program[1:], Env: []string{"A=b"}, Dir: "/", Files: files, calls: p})
	_ = theirs.Close()
	output, readErr := io.ReadAll(ours)
	killGroup(pid)
	if readErr != nil {
		t.Fatal(readErr)
	}
	return output, err
}

// The result of a call is an argument of several others, and the program gets its
// arguments and environment.
func TestChildCalls_UseResultsOfOthers(t *testing.T) {
	dir := build(t)
	var p childCalls
	at := p.call(unix.SYS_OPENAT, cwdFD, p.text(dir), literal(unix.O_PATH), literal(0))
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		p.directory(at, name, 0o700)
	}
	p.close(at)
	output, err := prepared(t, &p, "/bin/sh", "sh", "-c", `echo "$0 $1 $A"`, "x", "y z")
	if err != nil || string(output) != "x y z b\n" {
		t.Errorf("the program said %q: %v", output, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 5 {
		t.Errorf("%v are there: %v", entries, err)
	}
}

// The error names the failed call, and later ones are not made.
func TestChildCalls_FirstFailure_IsReported(t *testing.T) {
	dir := build(t)
	for name, want := range map[string]Error{
		"first":   {Path: "/first", Errno: unix.ENOENT},
		"last":    {Path: "/last", Errno: unix.ENOENT},
		"program": {Errno: unix.EACCES},
	} {
		var p childCalls
		for _, path := range []string{"/first", "/middle", "/last"} {
			p.describe(path, "cannot be opened")
			if path != "/"+name {
				p.close(p.openNoSymlinks(dir))
				continue
			}
			p.openNoSymlinks(filepath.Join(dir, "missing"))
		}
		output, err := prepared(t, &p, dir, "sh", "-c", "echo x")
		var typed *Error
		if !errors.As(err, &typed) || typed.Kind != NotStarted || typed.Path != want.Path || typed.Errno != want.Errno {
			t.Errorf("%s: %v", name, err)
		}
		if len(output) > 0 {
			t.Errorf("%s: the program said %q", name, output)
		}
	}
}

// An unchanged file passes, another one at the same path does not.
func TestCheckIdentity_OfAnotherFile_Fails(t *testing.T) {
	dir := build(t, "a/", "b/")
	var stat unix.Stat_t
	if err := unix.Stat(dir+"/a", &stat); err != nil {
		t.Fatal(err)
	}
	is := fileIDOf(&stat)
	for path, other := range map[string]fileID{"/a": is, "/b": is, "/a device": {dev: is.dev + 1, ino: is.ino}} {
		path, _, isOther := strings.Cut(path, " ")
		var p childCalls
		p.describe(path, pathChanged)
		p.checkIdentity(p.openNoSymlinks(dir+path), other)
		output, err := prepared(t, &p, "/bin/echo", "echo", "known")
		if path == "/a" && !isOther {
			if err != nil || string(output) != "known\n" {
				t.Errorf("it is not known: %v", err)
			}
			continue
		}
		var typed *Error
		if !errors.As(err, &typed) || typed.Errno != unix.ESTALE || typed.Path != path || len(output) > 0 {
			t.Errorf("%s: got %v, %q", path, typed, output)
		}
	}
}

// linkRounds is how many programs are started while symbolic links replace mount
// points.
const linkRounds = 150

// bwrap follows symbolic links in the paths of mount points. Programs that replace
// mount points by links must not make it create or empty files, for any user, whether
// something is writable or not.
func TestBubblewrap_MountsOnlyOnUnwritableFiles(t *testing.T) {
	for user, as := range map[string][]string{
		"root":                {"--bounding-set=+sys_admin"},
		"root of a container": {"--bounding-set=-sys_admin", "--inh-caps=-sys_admin"},
		"ordinary user":       {"--reuid=65534", "--regid=65534", "--clear-groups"},
	} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			dir := build(t, "precious = precious", "other/precious = precious", "inside/kept/precious = precious", "inside/denied = x")
			letPass(t, dir)
			program := filepath.Join(dir, "program")
			copyProgram(t, program, 0o755)
			owned := exec.CommandContext(t.Context(), "chown", "-R", "65534:65534", dir)
			if user != "ordinary user" {
				owned = exec.CommandContext(t.Context(), "true")
			}
			if output, err := owned.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, output)
			}
			argv := append(as, program)
			command := exec.CommandContext(t.Context(), "setpriv", append(argv, testproc.Argv("sandbox-links", dir)[1:]...)...)
			command.Env = []string{promptExit, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir}
			output, err := command.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, output)
			}
			t.Logf("%s", output)
			for _, made := range []string{"made", "other/made", "inside/kept/made"} {
				if _, err := os.Lstat(filepath.Join(dir, made)); !os.IsNotExist(err) {
					t.Errorf("%s was made: %v", made, err)
				}
			}
			for _, precious := range []string{"precious", "other/precious", "inside/kept/precious"} {
				if content, err := os.ReadFile(filepath.Join(dir, precious)); string(content) != "precious" {
					t.Errorf("%s has %q: %v", precious, content, err)
				}
			}
		})
	}
}

func init() {
	testproc.Register("sandbox-links", func(args []string) int {
		ran, err := startAmongLinks(args[0])
		fmt.Printf("%d of %d programs were started", ran, linkRounds)
		if err != nil {
			fmt.Println(":", err)
			return 1
		}
		return 0
	})
}

// startAmongLinks starts programs that may write in two directories, while symbolic
// links replace a denied file in one of them. It returns how many were started.
func startAmongLinks(dir string) (ran int, err error) {
	inside := filepath.Join(dir, "inside")
	denied := filepath.Join(inside, "denied")
	targets := []string{"made", "precious", "other/made", "other/precious", "inside/kept/made", "inside/kept/precious"}
	for i, target := range targets {
		for _, root := range []string{"/oldroot", "/newroot", ""} { // what is outside is there, to bubblewrap
			if err := os.Symlink(root+filepath.Join(dir, target), filepath.Join(inside, "link"+strconv.Itoa(i)+filepath.Base(root))); err != nil {
				return 0, err
			}
		}
	}
	links, err := filepath.Glob(filepath.Join(inside, "link*"))
	if err != nil {
		return 0, err
	}
	policy := Policy{Entries: []Entry{
		{Special: SpecialRoot, Access: AccessRead}, {Path: inside, Access: AccessWrite}, {Path: filepath.Join(inside, "kept"), Access: AccessRead},
		{Path: filepath.Join(dir, "other"), Access: AccessWrite}, {Path: denied, Access: AccessNone},
	}}
	plan, err := policy.Resolve(context.Background(), ResolveOptions{})
	if err != nil {
		return 0, err
	}
	sandboxes := New(Options{Without: []Backend{Landlock}})
	defer sandboxes.Close()
	if err := sandboxes.Statuses()[Bubblewrap-1].Err; err != nil {
		return 0, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	program, fd := shell("true"), int(null.Fd())
	program.Files, program.Terminal = []int{fd, fd, fd}, -1
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			for _, link := range links {
				select {
				case <-stop:
					return
				default:
				}
				for range 2 { // there and back
					_ = unix.Renameat2(unix.AT_FDCWD, denied, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
				}
			}
		}
	}()
	for range linkRounds {
		pid, release, err := launchProgram(program, sandboxes, plan)
		if err == nil {
			reap(pid)
			release()
			ran++
		}
	}
	close(stop)
	<-stopped
	return ran, nil
}

// Root of a container has CAP_SYS_ADMIN only in a user namespace.
func TestBubblewrap_RootWithoutCapSysAdmin_IsConfined(t *testing.T) {
	argv := testproc.Argv("sandbox-protect", build(t), "mkdir .git; true")
	argv = append([]string{"--bounding-set=-sys_admin", "--inh-caps=-sys_admin"}, argv...)
	command := exec.CommandContext(t.Context(), "setpriv", argv...)
	command.Env = []string{promptExit, "PATH=" + os.Getenv("PATH")}
	output, err := command.CombinedOutput()
	if err != nil || string(output) != "nothing was made" {
		t.Errorf("%v: %s", err, output)
	}
}

// Changes of a thread's attributes do not show in /proc/PID.
func TestOnNewThread_IsNotTheMainThread(t *testing.T) {
	was, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			failed := errors.New("failed")
			err := onNewThread(func() error {
				if unix.Gettid() == os.Getpid() {
					t.Error("it is the first")
				}
				return errors.Join(failed, unix.Unshare(unix.CLONE_FS))
			})
			if !errors.Is(err, failed) {
				t.Errorf("got %v", err)
			}
		})
	}
	all.Wait()
	plan := resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}, {Path: build(t), Access: AccessWrite}}})
	sandboxes := probed(t, Bubblewrap)
	for range 20 {
		runProgram(t, sandboxes, plan, shell("true"))
	}
	for _, path := range []string{"/proc/self/ns/mnt", "/proc/thread-self/ns/mnt"} {
		if is, err := os.Readlink(path); is != was || err != nil {
			t.Errorf("%s is %s, was %s: %v", path, is, was, err)
		}
	}
}
