package fsops_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/execwire/execwire/internal/fsops"
)

// await waits for paths, calls then, and returns the result of the wait.
func await(t *testing.T, w *fsops.Watcher, missing, present []string, then func()) fsops.Awaited {
	t.Helper()
	a, err := w.AwaitPaths("", missing, present)
	do(t, err)
	defer a.Close()
	then()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, context.DeadlineExceeded)
	defer cancel()
	got, err := a.Next(ctx)
	do(t, err)
	return got
}

// wanted is the expected result of a wait.
type wanted struct {
	path   string
	exists bool
}

func TestAwait(t *testing.T) {
	tests := []struct {
		name             string
		missing, present []string
		do               func(dir string) error
		want             wanted
	}{
		{"a file", []string{"/none", "/f"}, nil, func(dir string) error { return os.WriteFile(dir+"/f", nil, 0o600) }, wanted{path: "/f", exists: true}},
		{"a file in new directories", []string{"/a/b/f"}, nil, func(dir string) error {
			_ = os.MkdirAll(dir+"/a/b", 0o755)
			return os.WriteFile(dir+"/a/b/f", nil, 0o600)
		}, wanted{path: "/a/b/f", exists: true}},
		{"moved to", []string{"/new/sub/f"}, nil, func(dir string) error { return os.Rename(dir+"/old", dir+"/new") }, wanted{path: "/new/sub/f", exists: true}},
		{"exists", []string{"/old/sub/f"}, nil, func(string) error { return nil }, wanted{path: "/old/sub/f", exists: true}},
		{"a link to an existing file", []string{"/l"}, nil, func(dir string) error { return os.Symlink("old/sub", dir+"/l") }, wanted{path: "/l", exists: true}},
		{"the target of a link", []string{"/dangling"}, nil, func(dir string) error { return os.WriteFile(dir+"/nothing", nil, 0o600) }, wanted{path: "/dangling", exists: true}},
		{"behind a link upwards", []string{"/old/up/f"}, nil, func(dir string) error { return os.WriteFile(dir+"/f", nil, 0o600) }, wanted{path: "/old/up/f", exists: true}},
		{"a file in the place of a directory", []string{"/file/f"}, nil, func(dir string) error {
			_ = os.Remove(dir + "/file")
			_ = os.Mkdir(dir+"/file", 0o755)
			return os.WriteFile(dir+"/file/f", nil, 0o600)
		}, wanted{path: "/file/f", exists: true}},
		{"removed", nil, []string{"/old", "/old/sub/f"}, func(dir string) error { return os.Remove(dir + "/old/sub/f") }, wanted{path: "/old/sub/f"}},
		{"moved away", []string{"/x"}, []string{"/old/sub/f"}, func(dir string) error { return os.Rename(dir+"/old", dir+"/new") }, wanted{path: "/old/sub/f"}},
		{"missing from the start", nil, []string{"/none"}, func(string) error { return nil }, wanted{path: "/none"}},
		{"a link loop", []string{"/loop"}, nil, func(dir string) error { _ = os.Remove(dir + "/loop"); return os.Mkdir(dir+"/loop", 0o755) }, wanted{path: "/loop", exists: true}},
	}
	w := fsops.NewWatcher(wideLimits)
	for _, tt := range tests {
		dir := build(t, "old/", "old/sub/", "old/sub/f = x", "old/up -> ..", "dangling -> nothing", "file = x", "loop -> loop")
		within := func(paths []string) (all []string) {
			for _, p := range paths {
				all = append(all, dir+p)
			}
			return all
		}
		got := await(t, w, within(tt.missing), within(tt.present), func() {
			if err := tt.do(dir); err != nil {
				t.Fatal(err)
			}
		})
		if path := append(tt.missing, tt.present...)[got.Index]; path != tt.want.path || got.Exists != tt.want.exists {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	if n := instances(t); n != 0 {
		t.Errorf("%d inotify instances are left", n)
	}
}

func TestAwait_Limits(t *testing.T) {
	few := wideLimits
	few.AwaitedPaths = 2
	w, dir := fsops.NewWatcher(few), t.TempDir()
	for _, paths := range [][]string{nil, {"x"}, {""}, {"/\x00"}} {
		if _, err := w.AwaitPaths("", paths, nil); fsops.KindOf(err) != fsops.InvalidPath {
			t.Errorf("%q: %v", paths, err)
		}
	}
	one, err := w.AwaitPaths("a", []string{dir + "/f"}, []string{dir})
	do(t, err)
	if _, err := w.AwaitPaths("a", []string{dir + "/f"}, nil); fsops.KindOf(err) != fsops.TooManyAwaitedPaths {
		t.Errorf("above the limit: %v", err)
	}
	ctx, cancel := cancellable(t)
	cancel(context.DeadlineExceeded)
	if _, err := one.Next(ctx); err != context.DeadlineExceeded {
		t.Errorf("after the context has ended: %v", err)
	}
	one.Close()
	one, err = w.AwaitPaths("a", []string{dir + "/f", dir + "/g"}, nil)
	do(t, err)
	one.Close()
}

// All waits share one inotify instance, which is closed after the last one.
func TestAwait_ManyWaits_ShareInotifyInstance(t *testing.T) {
	w, dir := fsops.NewWatcher(wideLimits), t.TempDir()
	var group sync.WaitGroup
	for n := range 1000 {
		a, err := w.AwaitPaths(fmt.Sprint(n%200), []string{fmt.Sprintf("%s/d/%d", dir, n), dir + "/all"}, nil)
		do(t, err)
		group.Go(func() {
			defer a.Close()
			if _, err := a.Next(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	if n := instances(t); n != 1 {
		t.Errorf("there are %d inotify instances", n)
	}
	do(t, os.Mkdir(dir+"/d", 0o755), os.WriteFile(dir+"/d/7", nil, 0o600), os.WriteFile(dir+"/all", nil, 0o600))
	group.Wait()
	if n := instances(t); n != 0 {
		t.Errorf("%d inotify instances are left", n)
	}
}
