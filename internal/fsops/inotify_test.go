package fsops

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// After an overflow of the kernel's queue, watches report it and continue, and
// waits find paths that appeared meanwhile.
func TestInotify_QueueOverflow_Rescans(t *testing.T) {
	dir := t.TempDir()
	w := NewWatcher(WatcherOptions{Watches: 1, AwaitedPaths: 1, Directories: 10, PendingBytes: 1 << 20})
	watch, err := w.Watch(t.Context(), WatchRequest{Path: dir, Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	wait, err := w.AwaitPaths("", []string{dir + "/d/f"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer wait.Close()

	// The events of the kernel are dropped meanwhile.
	i := watch.inotify
	i.mu.Lock()
	marks := i.marks
	i.marks = map[int]*mark{}
	i.mu.Unlock()
	for _, err := range []error{os.Mkdir(dir+"/d", 0o755), os.WriteFile(dir+"/d/f", nil, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	i.mu.Lock()
	i.marks = marks
	i.deliver(-1, inotifyEvent{mask: unix.IN_Q_OVERFLOW})
	i.mu.Unlock()

	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Minute, context.DeadlineExceeded)
	defer cancel()
	if got, err := wait.Next(ctx); err != nil || !got.Exists {
		t.Errorf("the wait ended with %v, %v", got, err)
	}
	for overflowed := false; !overflowed; {
		batch, err := watch.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		overflowed = batch.Overflowed
	}
	if err := os.WriteFile(dir+"/d/after", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for reported := false; !reported; {
		batch, err := watch.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range batch.Changes {
			reported = reported || c.Path == "d/after"
		}
	}
}

func TestInotify_ReadFails_EndsWatchesAndWaits(t *testing.T) {
	dir := t.TempDir()
	w := NewWatcher(WatcherOptions{Watches: 2, AwaitedPaths: 2, Directories: 10, PendingBytes: 1 << 20})
	watch, err := w.Watch(t.Context(), WatchRequest{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	wait, err := w.AwaitPaths("", []string{dir + "/f"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer wait.Close()
	watch.inotify.fail(errors.New("read failed"))

	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Minute, context.DeadlineExceeded)
	defer cancel()
	if _, err := wait.Next(ctx); KindOf(err) != Failed {
		t.Errorf("the wait ended with %v", err)
	}
	if batch, err := watch.Next(ctx); err != nil || len(batch.Lost) != 1 {
		t.Errorf("the watch reported %v, %v", batch, err)
	}
	if late, err := w.Watch(ctx, WatchRequest{Path: dir}); KindOf(err) != Failed {
		t.Errorf("another watch returned %v", err)
		if err == nil {
			late.Close()
		}
	}
	if late, err := w.AwaitPaths("", []string{dir + "/g"}, nil); KindOf(err) != Failed {
		t.Errorf("another wait returned %v", err)
		if err == nil {
			late.Close()
		}
	}
}
