package fsops_test

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/fsops"
)

// hang is how long a test waits for what must happen.
const hang = 2 * time.Minute

// roomy are bounds that tests do not reach unless they want to.
var roomy = fsops.WatcherOptions{Watches: 1000, AwaitedPaths: 10_000, Directories: 100_000, PendingBytes: 1 << 20}

// follower follows a watch as clients are meant to: it has a picture of the tree
// that the changes keep true.
type follower struct {
	t        *testing.T
	dir      string
	watch    *fsops.Watch
	ignore   fsops.Globs
	picture  map[string]bool // paths, and whether they are directories
	overflow int
	lost     []fsops.Lost
	told     []fsops.Change
}

func follow(t *testing.T, w *fsops.Watcher, r fsops.WatchRequest) *follower {
	t.Helper()
	watch, err := w.Watch(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{t: t, dir: r.Path, watch: watch, ignore: r.Ignore}
	t.Cleanup(watch.Close)
	f.picture = f.real()
	return f
}

// real is the tree as it is.
func (f *follower) real() map[string]bool {
	picture := map[string]bool{}
	_ = filepath.WalkDir(f.dir, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(f.dir, path)
		switch {
		case d == nil || name == ".": // or gone meanwhile
		case f.ignore.Match(name, d.IsDir()) && d.IsDir():
			return fs.SkipDir
		case f.ignore.Match(name, d.IsDir()):
		case err == nil:
			picture[name] = d.IsDir()
		}
		return nil
	})
	return picture
}

// next takes a batch into the picture.
func (f *follower) next(ctx context.Context) error {
	batch, err := f.watch.Next(ctx)
	if err != nil {
		return err
	}
	if batch.Overflowed {
		f.overflow++
		f.picture = f.real()
	}
	for _, c := range batch.Changes {
		if c.Kind == fsops.Created || c.Kind == fsops.Removed {
			maps.DeleteFunc(f.picture, func(name string, _ bool) bool {
				return name == c.Path || strings.HasPrefix(name, c.Path+"/")
			})
		}
		if c.Kind == fsops.Created {
			f.picture[c.Path] = c.Type == fsops.Directory
		}
	}
	f.told = append(f.told, batch.Changes...)
	f.lost = append(f.lost, batch.Lost...)
	return nil
}

// catchUp follows until the picture is true.
func (f *follower) catchUp() {
	f.t.Helper()
	ctx, cancel := context.WithTimeoutCause(f.t.Context(), hang, context.DeadlineExceeded)
	defer cancel()
	for !maps.Equal(f.picture, f.real()) {
		if err := f.next(ctx); err != nil {
			f.t.Fatalf("%v: the picture is not true:\n%s", err, f.difference())
		}
	}
}

// catchUpWith follows until a file that it makes has been told of, and with it all
// that was before, and wants the picture to be true.
func (f *follower) catchUpWith(name string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), nil, 0o600); err != nil {
		f.t.Fatal(err)
	}
	f.until("the last file", func() bool { _, ok := f.picture[name]; return ok })
	f.catchUp()
}

// until follows until something is so.
func (f *follower) until(what string, isSo func() bool) {
	f.t.Helper()
	ctx, cancel := context.WithTimeoutCause(f.t.Context(), hang, context.DeadlineExceeded)
	defer cancel()
	for !isSo() {
		if err := f.next(ctx); err != nil {
			f.t.Fatalf("%s: %v; told were %v, lost %v", what, err, f.told, f.lost)
		}
	}
}

func (f *follower) difference() string {
	var lines []string
	real := f.real()
	for name := range real {
		if _, ok := f.picture[name]; !ok {
			lines = append(lines, "not told of: "+name)
		}
	}
	for name, isDir := range f.picture {
		if realDir, ok := real[name]; !ok || realDir != isDir {
			lines = append(lines, "told of: "+name)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines[:min(len(lines), 20)], "\n")
}

// kinds are what was told of a path, in order.
func (f *follower) kinds(path string) (kinds []fsops.ChangeKind) {
	for _, c := range f.told {
		if c.Path == path {
			kinds = append(kinds, c.Kind)
		}
	}
	return kinds
}

// do does what a test needs done.
func do(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// instances is how many inotify instances this process has.
func instances(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	do(t, err)
	for _, e := range entries {
		if target, _ := os.Readlink("/proc/self/fd/" + e.Name()); target == "anon_inode:inotify" {
			n++
		}
	}
	return n
}
