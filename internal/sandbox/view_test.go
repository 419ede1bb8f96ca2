package sandbox

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// TestBubblewrap_HiddenProgramFile_Runs hides the program bwrap from programs, which find it only as what started them, and
// cannot change it.
func TestBubblewrap_HiddenProgramFile_Runs(t *testing.T) {
	dir := build(t, "home/bin/", "home/work/")
	installed, err := findBubblewrap("")
	if err != nil {
		t.Fatal(err)
	}
	program := dir + "/home/bin/bwrap"
	content, err := os.ReadFile(installed)
	if err := errors.Join(err, os.WriteFile(program, content, 0o755)); err != nil {
		t.Fatal(err)
	}
	sandboxes := New(Options{Bubblewrap: program, Without: []Backend{Landlock}})
	defer sandboxes.Close()
	work := Entry{Path: dir + "/home/work", Access: AccessWrite}
	for _, root := range []Access{AccessRead, AccessWrite} {
		for _, hidden := range []string{dir + "/home", dir + "/home/bin", program} {
			plan := resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: root}, {Path: hidden, Access: AccessNone}, work}})
			output, status := runProgram(t, sandboxes, plan, shell("cat "+program+" || chmod 700 /proc/1/exe || echo > /proc/1/exe || echo refused"))
			if status != 0 || !strings.HasSuffix(output, "refused\n") {
				t.Errorf("%v at the root, %s is hidden: %#x %s", root, hidden, status, output)
			}
		}
	}
	if info, err := os.Stat(program); err != nil || info.Mode().Perm() != 0o755 || info.Size() != int64(len(content)) {
		t.Errorf("it was changed: %v, %v", info, err)
	}
}

// TestBubblewrap_HiddenTmp denies /tmp, where bubblewrap mounts what it needs for itself.
func TestBubblewrap_HiddenTmp(t *testing.T) {
	sandboxes := probed(t, Bubblewrap)
	for _, root := range []Access{AccessRead, AccessWrite} {
		plan := resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: root}, {Special: SpecialSlashTmp, Access: AccessNone}}})
		output, status := runProgram(t, sandboxes, plan, shell("ls -a /tmp || chmod 700 /tmp || ls -A /dev | grep hidden || echo refused"))
		if status != 0 || !strings.HasSuffix(output, "refused\n") {
			t.Errorf("%v at the root: %#x %s", root, status, output)
		}
	}
}
