package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFindBubblewrap_ReplaceableByOthers_Fails has a bwrap that other users can
// replace.
func TestFindBubblewrap_ReplaceableByOthers_Fails(t *testing.T) {
	dir := build(t, "open/bin/bwrap = ", "own/bwrap = ", "sticky/bwrap = ", "file/bwrap = ", "theirs/bwrap = ", "links/bwrap -> ../own/bwrap",
		"group/bwrap = ", "away/bwrap -> ../open/bin/bwrap", "open/links/bwrap -> ../../own/bwrap", "none/x = ")
	for path, mode := range map[string]uint32{
		"open": 0o777, "open/bin": 0o755, "sticky": 0o777 | unix.S_ISVTX, "group": 0o775, "open/bin/bwrap": 0o755,
		"own/bwrap": 0o755, "sticky/bwrap": 0o755, "file/bwrap": 0o757, "theirs/bwrap": 0o755, "group/bwrap": 0o755,
	} {
		if err := unix.Chmod(filepath.Join(dir, path), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir+"/theirs/bwrap", nobody, nobody); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{ // where it is, or what is wrong
		"own": dir + "/own/bwrap", "sticky": dir + "/sticky/bwrap", "links": dir + "/own/bwrap",
		"open/bin": "other than root", "file": "other than root", "theirs": "other than root", "group": "other than root",
		"away": "other than root", "open/links": "other than root", "none": "no such file",
	} {
		found, err := findBubblewrap(dir + "/" + name + "/bwrap")
		if refused := !strings.HasPrefix(want, "/"); refused && (err == nil || !strings.Contains(err.Error(), want)) || !refused && found != want {
			t.Errorf("%s: %s, %v, want %s", name, found, err, want)
		}
	}
	t.Setenv("PATH", "own:"+dir+"/none:"+dir+"/open/bin:"+dir+"/links")
	if found, err := findBubblewrap(""); found != dir+"/own/bwrap" {
		t.Errorf("in PATH: %s, %v", found, err)
	}
	t.Setenv("PATH", dir+"/none:"+dir+"/open/bin")
	if found, err := findBubblewrap(""); err == nil || !strings.Contains(err.Error(), "other than root") {
		t.Errorf("in a PATH of others: %s, %v", found, err)
	}
}

// TestBubblewrap_ProgramFile_CannotBeReplaced has programs write to the directory of
// bwrap, which the next start executes outside.
func TestBubblewrap_ProgramFile_CannotBeReplaced(t *testing.T) {
	dir := build(t, "w/tools/bin/new = ")
	installed, err := findBubblewrap("")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(installed)
	if err := errors.Join(err, os.WriteFile(dir+"/w/tools/bin/bwrap", content, 0o755)); err != nil {
		t.Fatal(err)
	}
	sandboxes := New(Options{Bubblewrap: dir + "/w/tools/bin/bwrap", Without: []Backend{Landlock}})
	defer sandboxes.Close()
	for _, root := range []string{"/", dir + "/w", dir + "/w/tools/bin/bwrap"} {
		plan := resolve(t, Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}, {Path: root, Access: AccessWrite}}})
		for script, works := range map[string]bool{
			"echo > bin/bwrap":               false,
			"rm bin/bwrap":                   false,
			"mv bin moved":                   false,
			"chmod 700 bin/bwrap":            false,
			"mv ../tools ../moved":           false,
			"mv -T bin/new bin/bwrap":        false,
			"echo > bin/other && rm bin/o*r": root != dir+"/w/tools/bin/bwrap",
		} {
			output, status := runProgram(t, sandboxes, plan, shell("cd "+dir+"/w/tools && "+script))
			if (status == 0) != works {
				t.Errorf("%s writable: %s: %#x %s", root, script, status, output)
			}
		}
	}
}
