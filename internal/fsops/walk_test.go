package fsops_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/gitignore"
)

// found records what a walk reports.
type found struct {
	entries []fsops.WalkEntry
	errs    map[string]*fsops.Error
	batch   func([]fsops.WalkEntry) error // called for each batch; nil: not called
}

func (f *found) Entries(entries []fsops.WalkEntry) error {
	f.entries = append(f.entries, entries...)
	if f.batch != nil {
		return f.batch(entries)
	}
	return nil
}

func (f *found) Error(relative string, err *fsops.Error) error {
	if f.errs == nil {
		f.errs = make(map[string]*fsops.Error)
	}
	f.errs[relative] = err
	return nil
}

// lines lists the entries. Directories end in a slash, links in ->, and links to
// directories in ->/.
func (f *found) lines() []string {
	var lines []string
	for _, e := range f.entries {
		line := e.Path
		if e.Type == fsops.Symlink {
			line += "->"
		}
		if e.Type == fsops.Directory || e.Target == fsops.Directory {
			line += "/"
		}
		lines = append(lines, line)
	}
	return lines
}

// everything does not limit a walk.
var everything = fsops.WalkOptions{MaxDepth: math.MaxInt, MaxDirectories: fsops.MaxWalkDirectories, MaxEntries: math.MaxUint64}

// walk returns what a walk with changed options reports.
func walk(t *testing.T, dir string, change func(*fsops.WalkOptions)) (*found, fsops.WalkLimit) {
	t.Helper()
	options, f := everything, &found{}
	if change != nil {
		change(&options)
	}
	limit, err := fsops.Walk(t.Context(), dir, options, f)
	if err != nil {
		t.Fatal(err)
	}
	return f, limit
}

func TestWalk(t *testing.T) {
	dir := build(t, "d/", "d/a = ", "d/sub/", "d/sub/b = ", "d/sub/deep/", "d/sub/deep/c = ", "d/.hid/", "d/.hid/x = ", "d/.h = ",
		"d/lf -> a", "d/ld -> sub", "d/dang -> nowhere", "d/fifo |", "outside/", "outside/o = ", "d/up -> ../outside", "d/loop -> .")
	globs, err := gitignore.ParseAll([]string{"*.h*", "sub/deep/", "l[df]"})
	if err != nil {
		t.Fatal(err)
	}
	top := ".h .hid/ a dang-> fifo ld-> lf-> loop-> sub/ up->"
	tests := []struct {
		name   string
		change func(*fsops.WalkOptions)
		want   string
		limit  fsops.WalkLimit
	}{
		{"everything", nil, top + " .hid/x sub/b sub/deep/ sub/deep/c", 0},
		{"the first directory", func(o *fsops.WalkOptions) { o.MaxDepth = 0 }, top, 0},
		{"one more level", func(o *fsops.WalkOptions) { o.MaxDepth = 1 }, top + " .hid/x sub/b sub/deep/", 0},
		{"few entries", func(o *fsops.WalkOptions) { o.MaxEntries = 2 }, ".h .hid/", fsops.WalkedEntries},
		{"no entries", func(o *fsops.WalkOptions) { o.MaxEntries = 0 }, "", fsops.WalkedEntries},
		{"exactly as many entries", func(o *fsops.WalkOptions) { o.MaxEntries = 14 }, top + " .hid/x sub/b sub/deep/ sub/deep/c", 0},
		{"two directories", func(o *fsops.WalkOptions) { o.MaxDirectories = 2 }, top + " .hid/x", fsops.WalkedDirectories},
		{"exactly as many directories", func(o *fsops.WalkOptions) { o.MaxDirectories = 4 }, top + " .hid/x sub/b sub/deep/ sub/deep/c", 0},
		{"no directories", func(o *fsops.WalkOptions) { o.MaxDirectories = 0 }, "", fsops.WalkedDirectories},
		{"without hidden files", func(o *fsops.WalkOptions) { o.SkipHidden = true }, top + " sub/b sub/deep/ sub/deep/c", 0},
		{"not ignored", func(o *fsops.WalkOptions) { o.Ignore = globs }, "a dang-> fifo loop-> sub/ up-> sub/b", 0},
		{"directory links", func(o *fsops.WalkOptions) { o.FollowDirectoryLinks = true },
			".h .hid/ a dang-> fifo ld->/ lf-> loop->/ sub/ up->/ .hid/x ld/b ld/deep/ up/o ld/deep/c", 0},
	}
	for _, tt := range tests {
		f, limit := walk(t, dir+"/d", tt.change)
		if got := strings.Join(f.lines(), " "); got != tt.want || limit != tt.limit || f.errs != nil {
			t.Errorf("%s: %s (limit %v, errors %v), want %s (%v)", tt.name, got, limit, f.errs, tt.want, tt.limit)
		}
	}
	if f, _ := walk(t, dir+"/d/ld", nil); strings.Join(f.lines(), " ") != "b deep/ deep/c" {
		t.Errorf("a link as the first: %v", f.lines())
	}
	for root, want := range map[string]struct {
		kind  fsops.Kind
		errno unix.Errno
	}{
		"/d/a": {fsops.NotADirectory, 0}, "/d/fifo": {fsops.NotADirectory, 0}, "/d/a/x": {fsops.NotADirectory, unix.ENOTDIR},
		"/none": {fsops.NotFound, unix.ENOENT}, "/d/dang": {fsops.NotFound, unix.ENOENT},
	} {
		_, err := fsops.Walk(t.Context(), dir+root, everything, &found{})
		wantError(t, root, err, want.kind, want.errno)
	}
}

func TestWalk_Metadata(t *testing.T) {
	dir := build(t, "f mode=640 = content", "l -> f", "d/")
	f, _ := walk(t, dir, func(o *fsops.WalkOptions) { o.WantMetadata = true })
	if len(f.entries) != 3 {
		t.Fatalf("%+v", f.entries)
	}
	for i, want := range []struct {
		mode   uint32
		size   int64
		target string
	}{{0o755, 0, ""}, {0o640, 7, ""}, {0o777, 1, "f"}} {
		e := f.entries[i]
		if e.Metadata.Type != e.Type || e.Metadata.Mode != want.mode || e.Type != fsops.Directory && e.Metadata.Size != want.size || e.LinkTarget != want.target {
			t.Errorf("%+v, want %+v", e, want)
		}
	}
}

func TestWalk_NonUTF8Names(t *testing.T) {
	dir := build(t, "b\xff/", "b\xff/x\n = ", "a = ")
	f, _ := walk(t, dir, nil)
	if got := f.lines(); !slices.Equal(got, []string{"a", "b\xff/", "b\xff/x\n"}) {
		t.Errorf("%q", got)
	}
}

// The tree is deeper than a path can be long, and has more branches than
// descriptors are kept.
func TestWalk_DeepTree(t *testing.T) {
	dir := t.TempDir()
	const branches, depth = 20, 24
	t.Cleanup(func() {
		if err := fsops.Remove(context.Background(), dir+"/top", fsops.Removal{Recursive: true}); err != nil {
			t.Error(err)
		}
	})
	for i := range branches {
		branch := fmt.Sprintf("%s/top/%02d", dir, i)
		if err := os.MkdirAll(branch, 0o755); err != nil {
			t.Fatal(err)
		}
		nestNamed(t, branch, strings.Repeat("n", 200), depth)
	}
	f, limit := walk(t, dir+"/top", nil)
	if limit != 0 || f.errs != nil || len(f.entries) != branches*(depth+1) {
		t.Fatalf("%d entries, limit %v, %d errors", len(f.entries), limit, len(f.errs))
	}
	last := f.entries[len(f.entries)-1].Path
	if want := fmt.Sprintf("%d%s", branches-1, strings.Repeat("/"+strings.Repeat("n", 200), depth)); last != want || len(want) < unix.PathMax {
		t.Errorf("the last entry is of %d bytes, want %d", len(last), len(want))
	}
}

// More links are in use than descriptors are kept.
func TestWalk_ManyLinks_AreReopened(t *testing.T) {
	const links = 20
	lines := []string{"top/"}
	for i := range links {
		lines = append(lines, fmt.Sprintf("to%02d/sub/deep/", i), fmt.Sprintf("to%02d/sub/deep/x = ", i), fmt.Sprintf("top/%02d -> ../to%02d", i, i))
	}
	f, limit := walk(t, build(t, lines...)+"/top", func(o *fsops.WalkOptions) { o.FollowDirectoryLinks = true })
	var want []string
	for _, form := range []string{"%02d->/", "%02d/sub/", "%02d/sub/deep/", "%02d/sub/deep/x"} {
		for i := range links {
			want = append(want, fmt.Sprintf(form, i))
		}
	}
	if got := f.lines(); !slices.Equal(got, want) || limit != 0 || f.errs != nil {
		t.Errorf("%v (limit %v, errors %v), want %v", got, limit, f.errs, want)
	}
}

// A link has replaced a directory since the walk found it.
func TestWalk_DirectoryReplacedByLink_IsNotFollowed(t *testing.T) {
	lines := []string{"secret/", "secret/s = ", "top/", "top/z/", "top/l -> ../secret"}
	for i := range fsops.MaxEntries {
		lines = append(lines, fmt.Sprintf("top/a%04d = ", i))
	}
	dir := build(t, lines...)
	swap := func([]fsops.WalkEntry) error {
		return unix.Renameat2(unix.AT_FDCWD, dir+"/top/z", unix.AT_FDCWD, dir+"/top/l", unix.RENAME_EXCHANGE)
	}
	f := &found{}
	f.batch = func(entries []fsops.WalkEntry) error {
		f.batch = nil
		return swap(entries)
	}
	if _, err := fsops.Walk(t.Context(), dir+"/top", everything, f); err != nil {
		t.Fatal(err)
	}
	if f.errs["z"] == nil || slices.Contains(f.lines(), "z/s") {
		t.Errorf("the errors are %v, the last entry is %s", f.errs, f.lines()[len(f.entries)-1])
	}
}

func TestWalk_CallbackOrContextFails_Ends(t *testing.T) {
	dir := build(t, "d/", "d/f = ")
	enough := errors.New("enough")
	f := &found{batch: func([]fsops.WalkEntry) error { return enough }}
	if _, err := fsops.Walk(t.Context(), dir, everything, f); err != enough {
		t.Errorf("Walk = %v", err)
	}
	ctx, cancel := cancellable(t)
	cancel(enough)
	if _, err := fsops.Walk(ctx, dir, everything, &found{}); err != enough {
		t.Errorf("Walk = %v", err)
	}
}

// slowContext is a context whose Err takes a second.
type slowContext struct{ context.Context }

func (c slowContext) Err() error {
	time.Sleep(time.Second)
	return c.Context.Err()
}

// Entries are sent while it takes long to find more.
func TestWalk_Slow_SendsPartialBatches(t *testing.T) {
	dir := build(t, "a/", "a/x = ", "b/", "b/y = ", "c/")
	synctest.Test(t, func(t *testing.T) {
		var batches []int
		f := &found{batch: func(entries []fsops.WalkEntry) error {
			batches = append(batches, len(entries))
			return nil
		}}
		if _, err := fsops.Walk(slowContext{t.Context()}, dir, everything, f); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(batches, []int{3, 1, 1}) {
			t.Errorf("the batches have %v entries", batches)
		}
	})
}

// The queue of a walk is bounded for any tree.
func TestWalk_MaxDirectories(t *testing.T) {
	dir := t.TempDir()
	const some = 100
	for i := range some {
		if err := os.MkdirAll(fmt.Sprintf("%s/d%02d/inner", dir, i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, most := range []int{1, 50, 2 * some, 2*some + 1} {
		f, limit := walk(t, dir, func(o *fsops.WalkOptions) { o.MaxDirectories = most })
		if reported := some + min(most-1, some); len(f.entries) != reported || (limit == fsops.WalkedDirectories) != (most <= 2*some) {
			t.Errorf("%d directories: %d entries, limit %v, want %d", most, len(f.entries), limit, reported)
		}
	}
}
