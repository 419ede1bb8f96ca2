package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/testproc"
)

// Bubblewrap follows a link that somebody puts where it is about to mount. Of root it can make nothing outside of what
// is writable, and empty nothing, wherever that leads.
func TestLinksLeadBubblewrapNowhere(t *testing.T) {
	dir := build(t, "precious = precious", "inside/kept/precious = precious", "inside/denied = x")
	inside, kept := filepath.Join(dir, "inside"), filepath.Join(dir, "inside", "kept")
	precious, made := filepath.Join(dir, "precious"), filepath.Join(dir, "made")
	denied := filepath.Join(inside, "denied")
	for link, target := range map[string]string{"1": made, "2": precious, "3": filepath.Join(kept, "precious"), "4": filepath.Join(kept, "made")} {
		if err := os.Symlink("/oldroot"+target, filepath.Join(inside, link)); err != nil {
			t.Fatal(err)
		}
	}
	policy := Policy{Entries: []Entry{
		{Special: SpecialRoot, Access: AccessRead}, {Path: inside, Access: AccessWrite}, {Path: kept, Access: AccessRead},
		{Path: denied, Access: AccessNone},
	}}
	plan := resolve(t, policy)
	sandboxes := probed(t, Bubblewrap)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			for _, link := range []string{"1", "2", "3", "4"} {
				select {
				case <-stop:
					return
				default:
				}
				for range 2 { // there and back
					_ = unix.Renameat2(unix.AT_FDCWD, denied, unix.AT_FDCWD, filepath.Join(inside, link), unix.RENAME_EXCHANGE)
				}
			}
		}
	}()
	ran := 0
	for range 300 {
		if _, _, err := tryProgram(t, sandboxes, plan, shell("true")); err == nil {
			ran++
		}
	}
	close(stop)
	<-stopped
	t.Logf("%d of 300 programs were started", ran)
	for _, path := range []string{made, filepath.Join(kept, "made")} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s was made: %v", path, err)
		}
	}
	for _, path := range []string{precious, filepath.Join(kept, "precious")} {
		if content, err := os.ReadFile(path); string(content) != "precious" {
			t.Errorf("%s has %q: %v", path, content, err)
		}
	}
}

// Root of a container has no power over mounts outside of a user namespace.
func TestRootOfAContainerIsConfined(t *testing.T) {
	argv := testproc.Argv("sandbox-protect", build(t), "mkdir .git; true")
	argv = append([]string{"--bounding-set=-sys_admin", "--inh-caps=-sys_admin"}, argv...)
	command := exec.CommandContext(t.Context(), "setpriv", argv...)
	command.Env = []string{promptExit, "PATH=" + os.Getenv("PATH")}
	output, err := command.CombinedOutput()
	if err != nil || string(output) != "nothing was made" {
		t.Errorf("%v: %s", err, output)
	}
}

// What is done to a thread does not show in what others see of this process.
func TestOwnThreadsAreNotTheFirst(t *testing.T) {
	was, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			failed := errors.New("failed")
			err := onOwnThread(func() error {
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
