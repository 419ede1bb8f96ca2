package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/testproc"
)

func TestProtectedNames_AreUnchanged(t *testing.T) {
	dir := build(t, "w/.git/config = x", "w/deep/er/.env = secret", "w/deep/other = x", "v/")
	policy := Policy{WorkspaceRoots: []string{dir + "/w"}, Entries: []Entry{
		{Special: SpecialRoot, Access: AccessRead}, {Special: SpecialProjectRoots, Access: AccessWrite},
		{Glob: dir + "/w/**/.env", Access: AccessNone}, {Path: dir + "/w/x/y", Access: AccessNone},
	}}
	plan := resolve(t, policy)
	sandboxes := probed(t, Bubblewrap)
	for script, works := range map[string]bool{
		"echo > w/new":                true,
		"echo > w/deep/er/new":        true,
		"mkdir w/dir && mv w/dir w/d": true,
		"cat w/.git/config":           true,
		"echo > w/.git/config":        false,
		"rm -r w/.git/config":         false,
		"mv w/.git w/git":             false,
		"mkdir w/.agents":             false,
		"echo > w/.codex":             false,
		"echo > w/.codex/x":           false,
		"ln -s /tmp w/.agents2":       true,
		"rmdir w/.agents":             false,
		"mv w/.agents w/a":            false,
		"mkdir w/x":                   false,
		"mkdir -p w/x/y":              false,
		"cat w/deep/er/.env":          false,
		"chmod 700 w/deep/er/.env":    false,
		"rm w/deep/er/.env":           false,
		"mv w/deep w/moved":           false,
		"mv w/deep/er w/moved":        false,
		"mv w/deep/other w/deep/o":    true,
		"mv w w2":                     false,
	} {
		output, status := runProgram(t, sandboxes, plan, shell("cd "+dir+" && "+script))
		if (status == 0) != works {
			t.Errorf("%s: %#x %s", script, status, output)
		}
	}
	for _, name := range []string{"w/.agents", "w/.codex", "w/x"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was left behind: %v", name, err)
		}
	}
	if len(sandboxes.placeholders.all) > 0 {
		t.Errorf("placeholders are still held: %v", sandboxes.placeholders.all)
	}
}

// TestNestedRepository_IsWritable unless an entry names it: only the top of a workspace
// is protected; see docs/security.md.
func TestNestedRepository_IsWritable(t *testing.T) {
	dir := build(t, "w/.git/", "w/vendor/lib/.git/hooks/", "w/vendor/named/.git/hooks/")
	plan := resolve(t, Policy{WorkspaceRoots: []string{dir + "/w"}, Entries: []Entry{
		{Special: SpecialRoot, Access: AccessRead}, {Special: SpecialProjectRoots, Access: AccessWrite},
		{Path: dir + "/w/vendor/named/.git", Access: AccessRead}}})
	sandboxes := probed(t, Bubblewrap)
	for script, works := range map[string]bool{
		"echo > .git/new":                    false,
		"echo > vendor/lib/.git/hooks/new":   true,
		"mkdir src && mkdir src/.git":        true,
		"echo > vendor/named/.git/hooks/new": false,
		"mv vendor/named vendor/moved":       false,
	} {
		if output, status := runProgram(t, sandboxes, plan, shell("cd "+dir+"/w && "+script)); (status == 0) != works {
			t.Errorf("%s: %#x %s", script, status, output)
		}
	}
}

// TestPlaceholders_AreShared ends one of two programs that use the same placeholder,
// and puts something into it.
func TestPlaceholders_AreShared(t *testing.T) {
	dir := build(t, "w/")
	plan := resolve(t, Policy{WorkspaceRoots: []string{dir + "/w"}, Entries: []Entry{
		{Special: SpecialRoot, Access: AccessRead}, {Special: SpecialProjectRoots, Access: AccessWrite}}})
	sandboxes := probed(t, Bubblewrap)
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	program := shell("read line; mkdir " + dir + "/w/.git 2>/dev/null")
	program.Files, program.Terminal = []int{int(ours.Fd()), 1, 2}, -1
	pid, release, err := launchProgram(program, sandboxes, plan)
	_ = ours.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, status := runProgram(t, sandboxes, plan, shell("true")); status != 0 {
		t.Error(status)
	}
	if _, err := theirs.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	if status := reap(pid); status == 0 {
		t.Error("a protected directory came into being after another program had ended")
	}
	if err := os.WriteFile(dir+"/w/.git/config", nil, 0o600); err != nil {
		t.Error(err)
	}
	release()
	if _, err := os.Stat(dir + "/w/.git/config"); err != nil {
		t.Errorf("what another process has put into it is gone: %v", err)
	}
	if _, err := os.Stat(dir + "/w/.agents"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a placeholder was left behind: %v", err)
	}
}

// TestPlaceholders_OfOthers_AreKept resolves a policy that names a placeholder of
// another program, and ends that program before or after the start.
func TestPlaceholders_OfOthers_AreKept(t *testing.T) {
	sandboxes := probed(t, Bubblewrap)
	for _, endsFirst := range []bool{false, true} {
		for _, named := range []string{"w/.git", "w/.git/hooks", "w/a/b/c"} {
			dir := build(t, "w/")
			policy := Policy{WorkspaceRoots: []string{dir + "/w"}, Entries: []Entry{
				{Special: SpecialRoot, Access: AccessRead}, {Special: SpecialProjectRoots, Access: AccessWrite},
				{Path: dir + "/" + named, Access: AccessRead}}}
			sleeper := shell("read line")
			wait, end, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			sleeper.Files, sleeper.Terminal = []int{int(wait.Fd()), 1, 2}, -1
			first, releaseFirst, err := launchProgram(sleeper, sandboxes, resolve(t, policy))
			_ = wait.Close()
			if err != nil {
				t.Fatal(err)
			}
			plan := resolve(t, policy)
			endFirst := func() {
				_ = end.Close()
				reap(first)
				releaseFirst()
			}
			if endsFirst {
				endFirst()
			}
			wait, goOn, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			program := shell("read line; cd " + dir + " && mkdir -p " + named + "/new 2>/dev/null")
			program.Files, program.Terminal = []int{int(wait.Fd()), 1, 2}, -1
			second, releaseSecond, err := launchProgram(program, sandboxes, plan)
			_ = wait.Close()
			if err != nil {
				t.Fatalf("%s, when the other has ended: %v: %v", named, endsFirst, err)
			}
			if !endsFirst {
				endFirst()
			}
			_ = goOn.Close()
			if status := reap(second); status == 0 {
				t.Errorf("%s came into being when the program had ended that it was kept for", named)
			}
			releaseSecond()
			if left, err := os.ReadDir(dir + "/w"); err != nil || len(left) > 0 {
				t.Errorf("%s: left behind are %v, %v", named, left, err)
			}
		}
	}
	if len(sandboxes.placeholders.all) > 0 {
		t.Errorf("placeholders are still held: %v", sandboxes.placeholders.all)
	}
}

// TestStart_ReplacedPath_Fails replaces a directory by a link or another directory
// between Resolve and the start.
func TestStart_ReplacedPath_Fails(t *testing.T) {
	for name, swap := range map[string]func(dir string) error{
		"link":      func(dir string) error { return os.Symlink("secret", dir+"/w") },
		"directory": func(dir string) error { return os.Rename(dir+"/secret", dir+"/w") },
	} {
		for _, backend := range []Backend{Bubblewrap, Landlock} {
			t.Run(name+" "+backend.String(), func(t *testing.T) {
				dir := build(t, "w/", "secret/")
				plan := resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}, {Path: dir + "/w", Access: AccessWrite}}})
				if err := errors.Join(os.Rename(dir+"/w", dir+"/old"), swap(dir)); err != nil {
					t.Fatal(err)
				}
				_, _, err := tryProgram(t, probed(t, backend), plan, shell("true"))
				var typed *Error
				if !errors.As(err, &typed) || typed.Kind != NotStarted || typed.Path != dir+"/w" {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

// TestBubblewrap_Root_CannotWriteOutside checks the attributes of all mounts of a
// program of root: those of the machine are read-only. The escape attempts do not try
// this on the machine's devices.
func TestBubblewrap_Root_CannotWriteOutside(t *testing.T) {
	plan := resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}}})
	sandboxes := probed(t, Bubblewrap)
	text, _ := runProgram(t, sandboxes, plan, Program{Path: "/bin/cat", Argv: []string{"cat", "/proc/self/mountinfo"}, Dir: "/"})
	ours := map[string]bool{"/dev/shm": true, "/dev/pts": true}
	top := map[string]string{} // what is mounted last at a place covers what else is there
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		top[fields[4]] = fields[5]
	}
	for at, options := range top {
		if !ours[at] && !slices.Contains(strings.Split(options, ","), "ro") {
			t.Errorf("%s is mounted with %s", at, options)
		}
	}
	script := "echo > /dev/null && head -c 4 /dev/zero | wc -c && echo x > /dev/shm/x && ! echo > /dev/x"
	if output, status := runProgram(t, sandboxes, plan, shell(script+" 2>&1")); status != 0 {
		t.Errorf("%#x: %s", status, output)
	}
}

// TestBubblewrap_Root_CannotChangeDevices changes the mode of the machine's /dev/null
// to what it is: by path, as standard input, and through another process.
func TestBubblewrap_Root_CannotChangeDevices(t *testing.T) {
	plan := resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}}})
	argv := testproc.Argv("sandbox-null")
	program := Program{Path: argv[0], Argv: argv, Env: []string{promptExit}, Dir: "/"}
	if output, status := runProgram(t, nil, nil, program); output != "by name: <nil>, open: <nil>, others: <nil>, writing: <nil>" {
		t.Errorf("without a sandbox: %#x: %s", status, output)
	}
	want := fmt.Sprintf("by name: %v, open: %[1]v, others: no such file or directory, writing: <nil>", unix.EROFS)
	if output, status := runProgram(t, probed(t, Bubblewrap), plan, program); output != want {
		t.Errorf("%#x: %s, want %s", status, output, want)
	}
}

func init() {
	testproc.Register("sandbox-null", func([]string) int {
		_, err := unix.Write(0, []byte("x"))
		if err == unix.EBADF { // outside it is only open for reading
			err = write(os.DevNull)
		}
		others := error(unix.ENOENT)
		fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
		for _, fd := range fds {
			if target, err := os.Readlink(fd); err == nil && target == os.DevNull && unix.Chmod(fd, 0o666) == nil {
				others = nil
			}
		}
		fmt.Printf("by name: %v, open: %v, others: %v, writing: %v", unix.Chmod(os.DevNull, 0o666), unix.Fchmod(0, 0o666), others, err)
		return 0
	})
}

// TestNamespaces_RestrictedPrograms_ShareAnEmptyNetwork, if they are root's.
func TestNamespaces_RestrictedPrograms_ShareAnEmptyNetwork(t *testing.T) {
	restricted := resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}}})
	enabled := resolve(t, Policy{Network: NetworkEnabled, Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}}})
	sandboxes := probed(t, Bubblewrap)
	network := func(plan *Plan) string {
		output, status := runProgram(t, sandboxes, plan, shell("readlink /proc/self/ns/net; cat /proc/net/dev"))
		if status != 0 {
			t.Errorf("%#x: %s", status, output)
		}
		name, devices, _ := strings.Cut(output, "\n")
		if count := strings.Count(devices, "\n") - 2; plan == restricted && count != 1 { // but for the headings
			t.Errorf("it has %d devices, want the loopback: %s", count, devices)
		}
		return name
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	machines, err := os.Readlink(threadNetwork)
	if err != nil {
		t.Fatal(err)
	}
	if first, second := network(restricted), network(restricted); first == machines || first != second {
		t.Errorf("networks %s and %s, that of the machine is %s", first, second, machines)
	}
	if name := network(enabled); name != machines {
		t.Errorf("network %s, want %s", name, machines)
	}
	if now, err := os.Readlink(threadNetwork); err != nil || now != machines {
		t.Errorf("the thread has stayed in %s: %v", now, err)
	}
}
