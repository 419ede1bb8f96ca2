package fsops_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/gitignore"
)

func TestWatch_ChangeKinds(t *testing.T) {
	dir := build(t, "old = x", "d/", "d/f = x", "changed = x", "chmodded = x", "l -> d")
	f := follow(t, fsops.NewWatcher(wideLimits), fsops.WatchRequest{Path: dir, Recursive: true, Settle: time.Millisecond})
	do(t, os.WriteFile(dir+"/new", []byte("x"), 0o600), os.WriteFile(dir+"/changed", []byte("y"), 0o600), os.Chmod(dir+"/chmodded", 0o600),
		os.Remove(dir+"/old"), os.Rename(dir+"/d/f", dir+"/d/g"), os.Symlink("nowhere", dir+"/link"), syscall.Mkfifo(dir+"/pipe", 0o600),
		os.WriteFile(dir+"/d/bad\xff\nname", nil, 0o600))
	f.catchUpWith("last")
	want := map[string]struct {
		kind fsops.ChangeKind
		of   fsops.Type
	}{
		"new": {fsops.Created, fsops.Regular}, "changed": {fsops.Modified, fsops.Regular}, "chmodded": {fsops.MetadataChanged, fsops.Regular},
		"old": {fsops.Removed, 0}, "d/f": {fsops.Removed, 0}, "d/g": {fsops.Created, fsops.Regular}, "link": {fsops.Created, fsops.Symlink},
		"pipe": {fsops.Created, fsops.FIFO}, "d/bad\xff\nname": {fsops.Created, fsops.Regular},
	}
	for name, w := range want {
		at := slices.IndexFunc(f.reported, func(c fsops.Change) bool { return c.Path == name })
		if at < 0 || f.reported[at].Kind != w.kind || f.reported[at].Type != w.of {
			t.Errorf("of %q the change %v is missing in %v", name, w, f.reported)
		}
	}
	if len(f.lost) > 0 || f.overflow > 0 {
		t.Errorf("lost: %v, overflows: %d", f.lost, f.overflow)
	}
}

// Changes in quick succession are one change until it is received.
func TestWatch_ChangesOfPath_AreMerged(t *testing.T) {
	dir := t.TempDir()
	f := follow(t, fsops.NewWatcher(wideLimits), fsops.WatchRequest{Path: dir, Settle: 300 * time.Millisecond})
	for range 100 {
		do(t, os.WriteFile(dir+"/f", []byte("x"), 0o600), os.Chmod(dir+"/f", 0o644))
	}
	do(t, os.WriteFile(dir+"/gone", nil, 0o600), os.Remove(dir+"/gone"))
	f.catchUpWith("last")
	for _, path := range []string{"f", "gone"} {
		if got := len(f.kinds(path)); got > 10 {
			t.Errorf("%d changes of %s were reported", got, path)
		}
	}
	// A client can have listed the directory meanwhile.
	if kinds := f.kinds("gone"); len(kinds) == 0 || kinds[len(kinds)-1] != fsops.Removed {
		t.Errorf("a file that was created and removed was reported with %v", kinds)
	}
}

func TestWatch_NotRecursive(t *testing.T) {
	dir := build(t, "d/", "d/f = x")
	f := follow(t, fsops.NewWatcher(wideLimits), fsops.WatchRequest{Path: dir})
	do(t, os.WriteFile(dir+"/d/g", nil, 0o600), os.MkdirAll(dir+"/e/f", 0o755), os.WriteFile(dir+"/h", nil, 0o600))
	f.until("h", func() bool { return len(f.kinds("h")) > 0 })
	if len(f.kinds("d/g"))+len(f.kinds("e/f")) > 0 || !slices.Equal(f.kinds("e"), []fsops.ChangeKind{fsops.Created}) {
		t.Errorf("got the changes %v", f.reported)
	}
}

func TestWatch_IgnoredPaths_AreNotReported(t *testing.T) {
	dir := build(t, "node_modules/", "src/")
	ignore, err := gitignore.ParseAll([]string{"node_modules/", "*.tmp", "/build"})
	do(t, err)
	f := follow(t, fsops.NewWatcher(wideLimits), fsops.WatchRequest{Path: dir, Recursive: true, Ignore: ignore})
	do(t, os.WriteFile(dir+"/node_modules/f", nil, 0o600), os.MkdirAll(dir+"/src/node_modules/x", 0o755), os.WriteFile(dir+"/src/x.tmp", nil, 0o600),
		os.MkdirAll(dir+"/build/x", 0o755), os.MkdirAll(dir+"/src/build/x", 0o755), os.Rename(dir+"/src/x.tmp", dir+"/src/x"))
	f.catchUpWith("last")
	for _, c := range f.reported {
		if ignore.Match(c.Path, c.Type == fsops.Directory) || strings.Contains(c.Path, "node_modules") {
			t.Errorf("%v was reported", c)
		}
	}
	if len(f.kinds("src/x")) == 0 || len(f.kinds("src/build/x")) == 0 {
		t.Errorf("got the changes %v", f.reported)
	}
}

// Thousands of files are created in directories that are created at the same
// time.
func TestWatch_NewDirectories_MissNothing(t *testing.T) {
	dir := t.TempDir()
	f := follow(t, fsops.NewWatcher(wideLimits), fsops.WatchRequest{Path: dir, Recursive: true})
	var group sync.WaitGroup
	for branch := range 4 {
		group.Go(func() {
			for i := range 50 {
				at := fmt.Sprintf("%s/%d/%d/%d/x", dir, branch, i%10, i)
				if err := os.MkdirAll(at, 0o755); err != nil {
					t.Error(err)
				}
				for n := range 10 {
					if err := os.WriteFile(at+"/"+strconv.Itoa(n), nil, 0o600); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	f.catchUp()
	if len(f.model) < 2000 {
		t.Errorf("the model has %d names", len(f.model))
	}
}

func TestWatch_MovedDirectory_IsFollowed(t *testing.T) {
	dir, outside := build(t, "d/", "d/sub/", "d/sub/f = x", "e/", "x/", "x/in-x = ", "y/", "empty/"), build(t, "in/", "in/sub/", "in/f = x")
	f := follow(t, fsops.NewWatcher(wideLimits), fsops.WatchRequest{Path: dir, Recursive: true})
	do(t, os.Rename(dir+"/d/sub", dir+"/e/moved"), os.WriteFile(dir+"/e/moved/g", nil, 0o600))
	f.catchUpWith("1")
	do(t, os.Rename(outside+"/in", dir+"/in"), os.WriteFile(dir+"/in/sub/g", nil, 0o600))
	f.catchUpWith("2")
	do(t, os.Rename(dir+"/e/moved", outside+"/out"), os.WriteFile(outside+"/out/unseen", nil, 0o600))
	f.catchUpWith("3")
	do(t, syscall.Rename(dir+"/in", dir+"/empty"), os.WriteFile(dir+"/empty/sub/h", nil, 0o600)) // over an existing directory
	f.catchUpWith("4")
	do(t, unix.Renameat2(unix.AT_FDCWD, dir+"/x", unix.AT_FDCWD, dir+"/y", unix.RENAME_EXCHANGE),
		os.WriteFile(dir+"/x/now-in-x", nil, 0o600), os.WriteFile(dir+"/y/now-in-y", nil, 0o600))
	f.catchUpWith("5")
	for _, c := range f.reported {
		if strings.Contains(c.Path, "unseen") {
			t.Errorf("%v was reported", c)
		}
	}
}

func TestWatch_RootRemovedOrMoved_ReportsLost(t *testing.T) {
	type step func(dir string) error
	tests := []struct {
		name string
		path string
		do   step
		want fsops.LostReason
	}{
		{"removed", "/a/root", func(dir string) error { return os.RemoveAll(dir + "/a/root") }, fsops.LostRemoved},
		{"moved", "/a/root", func(dir string) error { return os.Rename(dir+"/a/root", dir+"/b") }, fsops.LostMoved},
		{"replaced", "/a/root", func(dir string) error {
			return errors.Join(os.Rename(dir+"/a/root", dir+"/b"), os.Mkdir(dir+"/a/root", 0o755))
		}, fsops.LostMoved},
		{"parent moved", "/a/root", func(dir string) error { return os.Rename(dir+"/a", dir+"/c") }, fsops.LostMoved},
		{"link changed", "/l/root", func(dir string) error {
			return errors.Join(os.Mkdir(dir+"/other", 0o755), os.Symlink("other", dir+"/l2"), os.Rename(dir+"/l2", dir+"/l"))
		}, fsops.LostMoved},
	}
	w := fsops.NewWatcher(wideLimits)
	for _, tt := range tests {
		dir := build(t, "a/root/", "a/root/f = x", "l -> a")
		f := follow(t, w, fsops.WatchRequest{Path: dir + tt.path, Recursive: true})
		do(t, tt.do(dir))
		f.until(tt.name, func() bool { return len(f.lost) > 0 })
		if l := f.lost[0]; l.Path != "" || l.Reason != tt.want || l.Message == "" {
			t.Errorf("%s: the reported loss is %v, want %v", tt.name, l, tt.want)
		}
		if _, err := f.watch.Next(t.Context()); fsops.KindOf(err) != fsops.NotFound {
			t.Errorf("%s: then Next returned %v", tt.name, err)
		}
	}
}

func TestWatch_Errors(t *testing.T) {
	dir := build(t, "f = x", "loop -> loop", "d/", "d/e/", "l -> none")
	few := wideLimits
	few.Watches, few.Directories = 1, 2
	w := fsops.NewWatcher(few)
	for path, want := range map[string]fsops.Kind{
		"x": fsops.InvalidPath, dir + "/none": fsops.NotFound, dir + "/f": fsops.NotADirectory, dir + "/loop": fsops.SymlinkLoop,
		dir + "/l": fsops.NotFound, dir + "/f/x": fsops.NotADirectory, dir: fsops.WatchUnavailable,
	} {
		if _, err := w.Watch(t.Context(), fsops.WatchRequest{Path: path, Recursive: true}); fsops.KindOf(err) != want {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	one, err := w.Watch(t.Context(), fsops.WatchRequest{Path: dir + "/d", Recursive: true, Owner: "a"})
	do(t, err)
	if _, err := w.Watch(t.Context(), fsops.WatchRequest{Path: dir, Owner: "a"}); fsops.KindOf(err) != fsops.TooManyWatches {
		t.Errorf("above the limit: %v", err)
	}
	other, err := w.Watch(t.Context(), fsops.WatchRequest{Path: dir, Owner: "b"})
	do(t, err)
	other.Close()
	one.Close()
	one, err = w.Watch(t.Context(), fsops.WatchRequest{Path: dir, Owner: "a"})
	do(t, err)
	one.Close()
	ctx, cancel := cancellable(t)
	cancel(context.DeadlineExceeded)
	if _, err := w.Watch(ctx, fsops.WatchRequest{Path: dir}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the context has ended: %v", err)
	}
	if n := instances(t); n != 0 {
		t.Errorf("%d inotify instances are left", n)
	}
}

// The directory above the limit is reported as lost. All others are still
// watched.
func TestWatch_TooManyDirectories_ReportsLost(t *testing.T) {
	few := wideLimits
	few.Directories = 2
	dir := t.TempDir()
	f := follow(t, fsops.NewWatcher(few), fsops.WatchRequest{Path: dir, Recursive: true})
	do(t, os.Mkdir(dir+"/a", 0o755))
	f.until("the first", func() bool { return len(f.kinds("a")) > 0 })
	do(t, os.Mkdir(dir+"/b", 0o755))
	f.until("the second", func() bool { return len(f.lost) > 0 })
	if l := f.lost[0]; l.Path != "b" || l.Reason != fsops.LostNoWatches || !strings.Contains(l.Message, "watched_directories_per_watch") {
		t.Errorf("the reported loss is %v", l)
	}
	do(t, os.WriteFile(dir+"/a/f", nil, 0o600))
	f.until("a file", func() bool { return len(f.kinds("a/f")) > 0 })
	do(t, os.RemoveAll(dir+"/a"), os.RemoveAll(dir+"/b"), os.Mkdir(dir+"/c", 0o755), os.WriteFile(dir+"/c/f", nil, 0o600))
	f.until("a file in another", func() bool { return len(f.kinds("c/f")) > 0 })
}

// A watch that is not read loses its own changes, reports an overflow, and then
// continues.
func TestWatch_SlowReader_OverflowsAlone(t *testing.T) {
	small := wideLimits
	small.PendingBytes = 4 << 10
	dir := t.TempDir()
	w := fsops.NewWatcher(wideLimits)
	slowly := fsops.NewWatcher(small)
	slow := follow(t, slowly, fsops.WatchRequest{Path: dir, Recursive: true})
	quick := follow(t, w, fsops.WatchRequest{Path: dir, Recursive: true})
	for i := range 500 {
		do(t, os.MkdirAll(fmt.Sprintf("%s/%d/d", dir, i%20), 0o755), os.WriteFile(fmt.Sprintf("%s/%d/d/%d", dir, i%20, i), nil, 0o600))
	}
	slow.until("the overflow", func() bool { return slow.overflow > 0 })
	slow.catchUp()
	quick.catchUp()
	if quick.overflow > 0 {
		t.Error("the other watch overflowed, too")
	}
	do(t, os.WriteFile(dir+"/7/d/after", nil, 0o600))
	slow.catchUp()
}

// A model that applies the reported changes equals the tree in the end.
func TestWatch_RandomChanges_ModelMatchesTree(t *testing.T) {
	for _, settle := range []time.Duration{0, 20 * time.Millisecond} {
		for _, pendingBytes := range []int{1 << 20, 8 << 10} {
			options := wideLimits
			options.PendingBytes = pendingBytes
			checkModel(t, options, settle)
		}
	}
}

func checkModel(t *testing.T, options fsops.WatcherOptions, settle time.Duration) {
	t.Helper()
	dir, outside := t.TempDir(), t.TempDir()
	w := fsops.NewWatcher(options)
	f := follow(t, w, fsops.WatchRequest{Path: dir, Recursive: true, Settle: settle})
	other := follow(t, w, fsops.WatchRequest{Path: dir, Recursive: true, Settle: settle})
	ctx, cancel := cancellable(t)
	var following, operating sync.WaitGroup
	following.Go(func() {
		for f.next(ctx) == nil { //nolint:revive // until the operations are over
		}
	})
	seed := rand.Uint64()
	for n := range 4 {
		operating.Go(func() { operate(rand.New(rand.NewPCG(seed, uint64(n))), dir, outside, 400) })
	}
	operating.Wait()
	cancel(nil)
	following.Wait()
	f.catchUpWith("last")
	other.catchUpWith("last of all")
	if t.Failed() {
		t.Logf("the seed was %d", seed)
	}
}

// The root of the watch is moved away and back.
func TestWatch_RootMovedBack_MissesNothingOrIsLost(t *testing.T) {
	dir := build(t, "root/", "root/a/")
	f := follow(t, fsops.NewWatcher(wideLimits), fsops.WatchRequest{Path: dir + "/root", Recursive: true})
	var moving sync.WaitGroup
	moving.Go(func() {
		for range 50 {
			if err := errors.Join(os.Rename(dir+"/root", dir+"/away"), os.Rename(dir+"/away", dir+"/root")); err != nil {
				t.Error(err)
			}
		}
	})
	for n := range 200 {
		at := fmt.Sprintf("%s/root/a/%d", dir, n)
		_ = errors.Join(os.Mkdir(at, 0o755), os.Mkdir(at+"/d", 0o755)) // fails while the root is moved away
	}
	moving.Wait()
	_ = os.WriteFile(dir+"/root/last", nil, 0o600)
	f.until("the last file, or the loss", func() bool { _, reported := f.model["last"]; return reported || len(f.lost) > 0 })
	if len(f.lost) == 0 {
		f.catchUp()
	}
}

// operate changes a tree at random, and moves parts of it in and out.
func operate(random *rand.Rand, dir, outside string, times int) {
	name := func(base string) string {
		parts := []string{base}
		for range 1 + random.IntN(3) {
			parts = append(parts, string(rune('a'+random.IntN(4))))
		}
		return filepath.Join(parts...)
	}
	for range times {
		// A failed operation leaves the tree unchanged.
		switch random.IntN(10) {
		case 0, 1:
			_ = os.Mkdir(name(dir), 0o755)
		case 2:
			_ = os.MkdirAll(name(dir), 0o755)
		case 3, 4:
			_ = os.WriteFile(name(dir), []byte("x"), 0o600)
		case 5:
			_ = os.Remove(name(dir))
		case 6:
			_ = os.RemoveAll(name(dir))
		case 7:
			_ = os.Rename(name(dir), name(dir))
		case 8:
			_ = unix.Renameat2(unix.AT_FDCWD, name(dir), unix.AT_FDCWD, name(dir), unix.RENAME_EXCHANGE)
		case 9:
			if random.IntN(2) == 0 {
				_ = os.Rename(name(dir), name(outside))
			} else {
				_ = os.Rename(name(outside), name(dir))
			}
		}
	}
}
