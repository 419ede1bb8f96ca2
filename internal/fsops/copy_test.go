package fsops_test

import (
	"bytes"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/fsops"
)

// The tree and the order of the copies are those that were recorded from the
// reference.
func TestCopy(t *testing.T) {
	dir := build(t, "f mode=750 = src", "g mode=600 = older and longer", "d/", "d/sub/ mode=700", "d/a mode=755 = a", "d/sub/b = data",
		"d/la -> a", "d/dangling -> nowhere", "d/lsub -> sub", "lf -> f", "ld -> d", "dangling -> nowhere", "fifo |", "exist/", "exist/keep = kept")
	old := time.Unix(1_000_000_000, 0)
	if err := os.Chtimes(dir+"/f", old, old); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		from, to  string
		recursive bool
		kind      fsops.Kind
		errno     syscall.Errno
	}{
		{"f", "f1", false, 0, 0},
		{"f", "f2", true, 0, 0},
		{"f", "g", false, 0, 0},
		{"f", "f", false, 0, 0},
		{"f", "d", false, fsops.IsADirectory, unix.EISDIR},
		{"f", "none/x", false, fsops.NotFound, unix.ENOENT},
		{"none", "x1", false, fsops.NotFound, unix.ENOENT},
		{"d", "d1", false, fsops.IsADirectory, 0},
		{"d", "d2", true, 0, 0},
		{"d", "exist", true, 0, 0},
		{"d", "made/on/the/way", true, 0, 0},
		{"d", "f1", true, fsops.AlreadyExists, unix.EEXIST},
		{"d", "f1/x", true, fsops.NotADirectory, unix.ENOTDIR},
		{"d", "dangling", true, fsops.AlreadyExists, unix.EEXIST},
		{"d", "d/inside", true, fsops.CopyIntoItself, 0},
		{"d", "d/sub/far/inside", true, fsops.CopyIntoItself, 0},
		{"d", "ld/inside", true, fsops.CopyIntoItself, 0},
		{"d", "ld", true, fsops.CopyIntoItself, 0},
		{"d", "d", true, fsops.CopyIntoItself, 0},
		{"lf", "lf1", false, 0, 0},
		{"ld", "ld1", true, 0, 0},
		{"dangling", "dangling1", false, 0, 0},
		{"lf", "g", false, fsops.AlreadyExists, unix.EEXIST},
		{"fifo", "fifo1", true, fsops.NotRegular, 0},
		{"f", "lf", false, 0, 0},
		{"f", "dangling", false, 0, 0},
	}
	for _, tt := range tests {
		omitted, err := fsops.Copy(t.Context(), dir+"/"+tt.from, dir+"/"+tt.to, tt.recursive)
		wantError(t, tt.from+" to "+tt.to, err, tt.kind, tt.errno)
		if omitted != 0 {
			t.Errorf("%s: %d files were omitted", tt.from, omitted)
		}
	}
	if info, err := os.Stat(dir + "/f1"); err != nil || info.ModTime().Equal(old) {
		t.Errorf("the copy has the modification time of the source: %v", err)
	}
	copied := func(name string) []string {
		return []string{name + "/ mode=755", name + "/a mode=755 = a", name + "/sub/ mode=755", name + "/sub/b mode=644 = data",
			name + "/la -> a", name + "/dangling -> nowhere", name + "/lsub -> sub"}
	}
	want := []string{"f mode=750 = src", "g mode=750 = src", "lf -> f", "ld -> d", "dangling -> nowhere", "nowhere mode=750 = src", "fifo |",
		"f1 mode=750 = src", "f2 mode=750 = src", "exist/keep mode=644 = kept", "lf1 -> f", "ld1 -> d", "dangling1 -> nowhere",
		"made/ mode=755", "made/on/ mode=755", "made/on/the/ mode=755",
		"d/ mode=755", "d/sub/ mode=700", "d/a mode=755 = a", "d/sub/b mode=644 = data", "d/la -> a", "d/dangling -> nowhere", "d/lsub -> sub"}
	for _, name := range []string{"d2", "exist", "made/on/the/way"} {
		want = append(want, copied(name)...)
	}
	wantTree(t, dir, want...)
}

// The reference truncates the file.
func TestCopy_OntoItself_KeepsContent(t *testing.T) {
	dir := build(t, "f mode=640 = precious", "d/", "l -> f", "d/out -> ..")
	if err := os.Link(dir+"/f", dir+"/hard"); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"f", "hard", "l", "d/../f", "d/out/f"} {
		if _, err := fsops.Copy(t.Context(), dir+"/f", dir+"/"+to, false); err != nil {
			t.Errorf("onto %s: %v", to, err)
		}
	}
	wantTree(t, dir, "f mode=640 = precious", "hard mode=640 = precious", "l -> f", "d/ mode=755", "d/out -> ..")
}

func TestCopy_SpecialFiles_AreOmitted(t *testing.T) {
	dir := build(t, "d/", "d/f = x", "d/fifo |", "d/sub/", "d/sub/fifo |")
	omitted, err := fsops.Copy(t.Context(), dir+"/d", dir+"/e", true)
	if err != nil || omitted != 2 {
		t.Errorf("%d were omitted: %v", omitted, err)
	}
	wantTree(t, dir+"/e", "f mode=644 = x", "sub/ mode=755")
}

// A link in the destination is followed, unless it leads into the source.
func TestCopy_LinkInDestination_IsFollowed(t *testing.T) {
	dir := build(t, "d/", "d/sub/", "d/sub/f = x", "e/", "e/sub -> ../other", "other/", "loop/", "loop/sub -> ../d/sub", "file/", "file/sub = ")
	if _, err := fsops.Copy(t.Context(), dir+"/d", dir+"/e", true); err != nil {
		t.Error(err)
	}
	wantTree(t, dir+"/other", "f mode=644 = x")
	_, err := fsops.Copy(t.Context(), dir+"/d", dir+"/loop", true)
	wantError(t, "into the source", err, fsops.CopyIntoItself, 0)
	_, err = fsops.Copy(t.Context(), dir+"/d", dir+"/file", true)
	wantError(t, "over a file", err, fsops.AlreadyExists, unix.EEXIST)
	wantTree(t, dir+"/d", "sub/ mode=755", "sub/f mode=644 = x")
}

func TestCopy_MaxDepth(t *testing.T) {
	dir := build(t, "d/", "deeper/")
	nest(t, dir+"/d", fsops.MaxCopyDepth-1)
	nest(t, dir+"/deeper", fsops.MaxCopyDepth)
	if _, err := fsops.Copy(t.Context(), dir+"/d", dir+"/e", true); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	_, err := fsops.Copy(t.Context(), dir+"/deeper", dir+"/f", true)
	wantError(t, "above the limit", err, fsops.TreeTooDeep, 0)
	if typed, ok := err.(*fsops.Error); ok && typed.Limit != fsops.MaxCopyDepth {
		t.Errorf("the reported limit is %d", typed.Limit)
	}
}

func TestCopy_LargeFile(t *testing.T) {
	dir := build(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 600_000)
	if err := os.WriteFile(dir+"/f", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := fsops.Copy(t.Context(), dir+"/f", dir+"/g", false); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(dir + "/g"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes of %d: %v", len(got), len(data), err)
	}
}

// The source reports size 0. The destination is on another file system.
func TestCopy_FileWithoutSize(t *testing.T) {
	dir := build(t)
	if _, err := fsops.Copy(t.Context(), "/proc/version", dir+"/v", false); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("/proc/version")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(dir + "/v"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%q: %v", got, err)
	}
}

// Set-user-ID refers to the owner of the source, not to that of the copy.
func TestCopy_SetIDBits_AreNotCopied(t *testing.T) {
	dir := build(t, "f = x")
	if err := os.Chmod(dir+"/f", 0o755|os.ModeSetuid|os.ModeSetgid|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if _, err := fsops.Copy(t.Context(), dir+"/f", dir+"/g", false); err != nil {
		t.Fatal(err)
	}
	if m, err := fsops.Stat(dir + "/g"); err != nil || m.Mode != 0o755 {
		t.Errorf("the mode of the copy is %o: %v", m.Mode, err)
	}
}
