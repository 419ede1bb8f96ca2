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
	"github.com/execwire/execwire/internal/gitignore"
)

// patience limits how long a test waits.
const patience = 2 * time.Minute

// wideLimits are limits that tests do not reach by accident.
var wideLimits = fsops.WatcherOptions{Watches: 1000, AwaitedPaths: 10_000, Directories: 100_000, PendingBytes: 1 << 20}

// follower follows a watch as clients do: it applies changes to a model of the
// tree.
type follower struct {
	t        *testing.T
	dir      string
	watch    *fsops.Watch
	ignore   gitignore.Patterns
	model    map[string]bool // paths, and whether they are directories
	overflow int
	lost     []fsops.Lost
	reported []fsops.Change
}

func follow(t *testing.T, w *fsops.Watcher, r fsops.WatchRequest) *follower {
	t.Helper()
	watch, err := w.Watch(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{t: t, dir: r.Path, watch: watch, ignore: r.Ignore}
	t.Cleanup(watch.Close)
	f.model = f.real()
	return f
}

// real lists the actual tree.
func (f *follower) real() map[string]bool {
	model := map[string]bool{}
	_ = filepath.WalkDir(f.dir, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(f.dir, path)
		switch {
		case d == nil || name == ".": // or removed meanwhile
		case f.ignore.Match(name, d.IsDir()) && d.IsDir():
			return fs.SkipDir
		case f.ignore.Match(name, d.IsDir()):
		case err == nil:
			model[name] = d.IsDir()
		}
		return nil
	})
	return model
}

// next applies the next batch of changes.
func (f *follower) next(ctx context.Context) error {
	batch, err := f.watch.Next(ctx)
	if err != nil {
		return err
	}
	if batch.Overflowed {
		f.overflow++
		f.model = f.real()
	}
	for _, c := range batch.Changes {
		if c.Kind == fsops.Created || c.Kind == fsops.Removed {
			maps.DeleteFunc(f.model, func(name string, _ bool) bool {
				return name == c.Path || strings.HasPrefix(name, c.Path+"/")
			})
		}
		if c.Kind == fsops.Created {
			f.model[c.Path] = c.Type == fsops.Directory
		}
	}
	f.reported = append(f.reported, batch.Changes...)
	f.lost = append(f.lost, batch.Lost...)
	return nil
}

// catchUp follows until the model equals the tree.
func (f *follower) catchUp() {
	f.t.Helper()
	ctx, cancel := context.WithTimeoutCause(f.t.Context(), patience, context.DeadlineExceeded)
	defer cancel()
	for !maps.Equal(f.model, f.real()) {
		if err := f.next(ctx); err != nil {
			f.t.Fatalf("%v: the model differs from the tree:\n%s", err, f.difference())
		}
	}
}

// catchUpWith follows until the change of a file that it makes is reported, and
// thereby all earlier changes. Then the model must equal the tree.
func (f *follower) catchUpWith(name string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), nil, 0o600); err != nil {
		f.t.Fatal(err)
	}
	f.until("the last file", func() bool { _, ok := f.model[name]; return ok })
	f.catchUp()
}

// until follows until a condition is true.
func (f *follower) until(what string, isSo func() bool) {
	f.t.Helper()
	ctx, cancel := context.WithTimeoutCause(f.t.Context(), patience, context.DeadlineExceeded)
	defer cancel()
	for !isSo() {
		if err := f.next(ctx); err != nil {
			f.t.Fatalf("%s: %v; reported were %v, lost %v", what, err, f.reported, f.lost)
		}
	}
}

func (f *follower) difference() string {
	var lines []string
	real := f.real()
	for name := range real {
		if _, ok := f.model[name]; !ok {
			lines = append(lines, "not told of: "+name)
		}
	}
	for name, isDir := range f.model {
		if realDir, ok := real[name]; !ok || realDir != isDir {
			lines = append(lines, "told of: "+name)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines[:min(len(lines), 20)], "\n")
}

// kinds returns the reported changes of a path, in order.
func (f *follower) kinds(path string) (kinds []fsops.ChangeKind) {
	for _, c := range f.reported {
		if c.Path == path {
			kinds = append(kinds, c.Kind)
		}
	}
	return kinds
}

// do fails the test if a step fails.
func do(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// instances counts the inotify instances of this process.
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
