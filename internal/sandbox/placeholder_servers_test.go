package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// keeping starts a program in a workspace without .git. It runs until end is called.
func keeping(t *testing.T, sandboxes *Sandboxes, dir, script string) (end func()) {
	t.Helper()
	plan := resolve(t, Policy{WorkspaceRoots: []string{dir}, Entries: []Entry{
		{Special: SpecialRoot, Access: AccessRead}, {Special: SpecialProjectRoots, Access: AccessWrite},
		{Special: SpecialProjectRoots, SubPath: ".git", Access: AccessRead, SkipMissing: true},
	}})
	confinement, err := sandboxes.Confine(plan)
	if err != nil {
		t.Fatal(err)
	}
	in, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	program := shell("read line; " + script)
	program.Files, program.Terminal = []int{int(in.Fd()), int(null.Fd()), int(null.Fd())}, -1
	pid := 0
	usage, err := confinement.Start(context.Background(), program, func(p Program) (err error) {
		pid, err = forkExec(p)
		return err
	})
	_, _ = in.Close(), null.Close()
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = ours.Close()
		reap(pid)
		usage.Release()
	}
}

// A server that stops does not remove a placeholder that the programs of another one
// use, in any order of starts and ends.
func TestPlaceholder_OfTwoServers_IsShared(t *testing.T) {
	dir := build(t, "w/") + "/w"
	first, second := probed(t, Bubblewrap), probed(t, Bubblewrap)
	endFirst := keeping(t, first, dir, "true")
	endSecond := keeping(t, second, dir, "rmdir .git; mkdir -p "+dir+"/.git/hooks")
	endFirst()
	if _, err := os.Lstat(dir + "/.git"); err != nil {
		t.Errorf("it is not kept: %v", err)
	}
	endSecond()
	if _, err := os.Lstat(dir + "/.git"); !errors.Is(err, os.ErrNotExist) {
		left, _ := filepath.Glob(dir + "/.git/*")
		t.Errorf("there is .git with %q: %v", left, err)
	}
}

// The placeholder of a killed server is removed by the next one, unless another process
// has put something into it.
func TestPlaceholder_OfAKilledServer_IsRemoved(t *testing.T) {
	dir := build(t, "w/") + "/w"
	sandboxes := probed(t, Bubblewrap)
	killed := probed(t, Bubblewrap)
	var l launch
	if there, err := killed.placeholders.acquire(dir+"/.git", &l); !there || err != nil {
		t.Fatal(there, err)
	}
	_ = killed.placeholders.all[dir+"/.git"].lock.Close() // as its end does
	keeping(t, sandboxes, dir, "true")()
	if _, err := os.Lstat(dir + "/.git"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}
	end := keeping(t, sandboxes, dir, "true")
	if err := os.WriteFile(dir+"/.git/config", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	end()
	var stat unix.Stat_t
	if err := unix.Stat(dir+"/.git", &stat); err != nil || stat.Mode&unix.S_ISVTX != 0 {
		t.Errorf("the .git of another process has the mode %o: %v", stat.Mode, err)
	}
}
