package fsops_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/testproc"
)

func init() {
	testproc.Register("fsops-unmounts", unmounts)
	testproc.Register("fsops-few-watches", fewWatches)
	testproc.Register("fsops-unreadable", unreadable)
}

// notes is what a helper prints: the result of each step.
type notes map[string]string

func (s notes) note(name string, err error) {
	s[name] = fmt.Sprint(err)
	if typed, ok := err.(*fsops.Error); ok {
		s[name] = typed.Kind.String() + " " + typed.ErrnoName() + ": " + typed.Err.Error()
	}
}

func (s notes) print(errs ...error) int {
	for _, err := range append(errs, json.NewEncoder(os.Stdout).Encode(s)) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

// firstLost follows a watch until a loss is reported.
func firstLost(w *fsops.Watch) (fsops.Lost, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, context.DeadlineExceeded)
	defer cancel()
	for {
		batch, err := w.Next(ctx)
		if err != nil {
			return fsops.Lost{}, err
		}
		if len(batch.Lost) > 0 {
			return batch.Lost[0], nil
		}
	}
}

// unmounts DIR watches a file system, and a directory with another mount, and
// unmounts both.
func unmounts(args []string) int {
	runtime.LockOSThread() // the mounts are of this thread
	dir, s := args[0], notes{}
	for _, err := range []error{
		unix.Unshare(unix.CLONE_NEWNS),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("none", dir, "tmpfs", 0, ""),
		os.MkdirAll(dir+"/in/mounted", 0o755),
		unix.Mount("none", dir+"/in/mounted", "tmpfs", 0, ""),
		os.MkdirAll(dir+"/in/mounted/a/b", 0o755),
	} {
		if err != nil {
			return s.print(err)
		}
	}
	w := fsops.NewWatcher(wideLimits)
	whole, err := w.Watch(context.Background(), fsops.WatchRequest{Path: dir + "/in", Recursive: true})
	if err != nil {
		return s.print(err)
	}
	defer whole.Close()
	if err := unix.Unmount(dir+"/in/mounted", 0); err != nil {
		return s.print(err)
	}
	lost, err := firstLost(whole)
	s.note(fmt.Sprintf("%s %d", lost.Path, lost.Reason), err)
	if err := unix.Unmount(dir, 0); err != nil {
		return s.print(err)
	}
	lost, err = firstLost(whole)
	s.note(fmt.Sprintf("root %q %d", lost.Path, lost.Reason), err)
	_, err = whole.Next(context.Background())
	s.note("end", err)
	return s.print()
}

func TestWatch_Unmount_ReportsLost(t *testing.T) {
	s := help(t, nil, "fsops-unmounts", t.TempDir())
	wantSaid(t, s, map[string]string{
		fmt.Sprintf("mounted %d", fsops.LostUnmounted):   "<nil>",
		fmt.Sprintf("root \"\" %d", fsops.LostUnmounted): "<nil>",
		"end": "not found : its file system was unmounted",
	})
}

// fewWatches DIR has a user namespace with five inotify watches and one instance.
func fewWatches(args []string) int {
	dir, s := args[0], notes{}
	if err := os.WriteFile("/proc/sys/user/max_inotify_watches", []byte("5"), 0o600); err != nil {
		return s.print(err)
	}
	w := fsops.NewWatcher(wideLimits)
	whole, err := w.Watch(context.Background(), fsops.WatchRequest{Path: dir, Recursive: true})
	s.note("too many directories", err)
	if err == nil {
		whole.Close()
	}
	_, err = w.AwaitPaths("", []string{dir + "/1/none", dir + "/2/none", dir + "/3/none", dir + "/4/none", dir + "/5/none"}, nil)
	s.note("too many paths", err)
	if err := os.WriteFile("/proc/sys/user/max_inotify_watches", []byte("40"), 0o600); err != nil {
		return s.print(err)
	}
	if whole, err = w.Watch(context.Background(), fsops.WatchRequest{Path: dir, Recursive: true}); err != nil {
		return s.print(err)
	}
	defer whole.Close()
	for n := range 40 {
		if err := os.Mkdir(fmt.Sprintf("%s/new-%d", dir, n), 0o755); err != nil {
			return s.print(err)
		}
	}
	lost, err := firstLost(whole)
	s.note(fmt.Sprintf("%.4s %d", lost.Path, lost.Reason), err)
	s["why"] = lost.Message
	if err := os.WriteFile("/proc/sys/user/max_inotify_instances", []byte("0"), 0o600); err != nil {
		return s.print(err)
	}
	_, err = fsops.NewWatcher(wideLimits).AwaitPaths("", []string{dir + "/none"}, nil)
	s.note("no instance", err)
	return s.print()
}

func TestWatch_SystemLimits_AreReported(t *testing.T) {
	dir := build(t, "1/", "2/", "3/", "4/", "5/", "6/")
	root := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	s := help(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: root, GidMappings: root}, "fsops-few-watches", dir)
	for _, name := range []string{"too many directories", "too many paths"} {
		if got := s[name]; !strings.HasPrefix(got, "watch unavailable ENOSPC") || !strings.Contains(got, "fs.inotify.max_user_watches") {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := s["no instance"]; !strings.HasPrefix(got, "watch unavailable EMFILE") || !strings.Contains(got, "fs.inotify.max_user_instances") {
		t.Errorf("no instance: %s", got)
	}
	if got := s[fmt.Sprintf("new- %d", fsops.LostNoWatches)]; got != "<nil>" || !strings.Contains(s["why"], "fs.inotify.max_user_watches") {
		t.Errorf("the reported loss is %v", s)
	}
}

// unreadable DIR watches, as an unprivileged user, a directory with a
// subdirectory that it may not read.
func unreadable(args []string) int {
	dir, s := args[0], notes{}
	for _, err := range []error{syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)} {
		if err != nil {
			return s.print(err)
		}
	}
	w := fsops.NewWatcher(wideLimits)
	_, err := w.Watch(context.Background(), fsops.WatchRequest{Path: dir + "/locked"})
	s.note("locked", err)
	_, err = w.AwaitPaths("", []string{dir + "/locked/f"}, nil)
	s.note("in locked", err)
	whole, err := w.Watch(context.Background(), fsops.WatchRequest{Path: dir, Recursive: true, Settle: time.Millisecond})
	if err != nil {
		return s.print(err)
	}
	defer whole.Close()
	lost, err := firstLost(whole)
	s.note(fmt.Sprintf("%s %d", lost.Path, lost.Reason), err)
	return s.print()
}

func TestWatch_UnreadableDirectory_ReportsLost(t *testing.T) {
	dir := build(t, "locked/ mode=700", "open/")
	makeAccessible(t, dir)
	do(t, os.Chmod(dir, 0o755))
	s := help(t, nil, "fsops-unreadable", dir)
	wantSaid(t, s, map[string]string{
		"locked":    "permission denied EACCES: permission denied",
		"in locked": "permission denied EACCES: permission denied",
		fmt.Sprintf("locked %d", fsops.LostNotAllowed): "<nil>",
	})
}

// help runs a helper and returns its notes.
func help(t *testing.T, attributes *syscall.SysProcAttr, args ...string) notes {
	t.Helper()
	argv := testproc.Argv(args[0], args[1:]...)
	command := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	command.Stderr, command.SysProcAttr = os.Stderr, attributes
	output, err := command.Output()
	if err != nil {
		t.Fatalf("the helper failed; it needs root: %v", err)
	}
	var s notes
	if err := json.Unmarshal(output, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func wantSaid(t *testing.T, got notes, want map[string]string) {
	t.Helper()
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s: %q, want %q (%v)", name, got[name], text, got)
		}
	}
}
