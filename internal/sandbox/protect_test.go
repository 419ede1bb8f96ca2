package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestProtectedPlacesStay(t *testing.T) {
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
	if len(sandboxes.reserved.uses) > 0 {
		t.Errorf("placeholders are still held: %v", sandboxes.reserved.uses)
	}
}

// TestPlaceholdersAreShared ends one of two programs that need the same placeholder, and puts something into it.
func TestPlaceholdersAreShared(t *testing.T) {
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
		t.Errorf("what somebody else has put into it is gone: %v", err)
	}
	if _, err := os.Stat(dir + "/w/.agents"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a placeholder was left behind: %v", err)
	}
}

// TestPlacesThatChangedAreNotTrusted swaps a place for a link between the plan and the start.
func TestPlacesThatChangedAreNotTrusted(t *testing.T) {
	for _, backend := range []Backend{Bubblewrap, Landlock} {
		t.Run(backend.String(), func(t *testing.T) {
			dir := build(t, "w/", "secret/")
			plan := resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}, {Path: dir + "/w", Access: AccessWrite}}})
			if err := errors.Join(os.Remove(dir+"/w"), os.Symlink("secret", dir+"/w")); err != nil {
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

// TestRootOwnsNothingOutside looks at all mounts that root gets: what is not fresh or our own is read-only, so that it
// can change neither content nor mode. The attempts to escape do not try it on the devices of this machine.
func TestRootOwnsNothingOutside(t *testing.T) {
	plan := resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}}})
	sandboxes := probed(t, Bubblewrap)
	text, _ := runProgram(t, sandboxes, plan, Program{Path: "/bin/cat", Argv: []string{"cat", "/proc/self/mountinfo"}, Dir: "/"})
	ours := map[string]bool{"/dev/shm": true, "/dev/pts": true}
	for _, name := range deviceNames {
		ours["/dev/"+name] = true
	}
	root := map[string]string{} // of the file system that is mounted last at each place
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		at, options := fields[4], strings.Split(fields[5], ",")
		root[at] = fields[3]
		if !ours[at] && !slices.Contains(options, "ro") {
			t.Errorf("%s is mounted with %s", at, fields[5])
		}
	}
	for _, name := range deviceNames {
		if from := root["/dev/"+name]; !strings.HasPrefix(from, sandboxes.devices.dir) {
			t.Errorf("/dev/%s is %q, want one of our own", name, from)
		}
	}
	script := "echo > /dev/null && head -c 4 /dev/zero | wc -c && echo x > /dev/shm/x && ! echo > /dev/x"
	if output, status := runProgram(t, sandboxes, plan, shell(script+" 2>&1")); status != 0 {
		t.Errorf("%#x: %s", status, output)
	}
}

func TestChangedDevicesAreMadeWhole(t *testing.T) {
	plan := resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}}})
	sandboxes := probed(t, Bubblewrap)
	for range 2 {
		// The first shows that the nodes can be changed, the second that the next program does not notice.
		output, status := runProgram(t, sandboxes, plan, shell("echo > /dev/null && chmod 400 /dev/null && ! echo 2>/dev/zero > /dev/null"))
		if status != 0 {
			t.Errorf("%#x: %s", status, output)
		}
	}
	info, err := os.Stat(os.DevNull)
	if err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("the machine's own is changed: %v, %v", info.Mode(), err)
	}
}
