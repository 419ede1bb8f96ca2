package sandbox

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStart_Concurrent_LeavesNothing starts programs from many goroutines: some run,
// some cannot be executed, some are not forked, and some are aborted at each stage. No
// descriptor, process or placeholder remains.
func TestStart_Concurrent_LeavesNothing(t *testing.T) {
	dir := build(t, "w/", "r/")
	for _, backend := range []Backend{Bubblewrap, Landlock} {
		t.Run(backend.String(), func(t *testing.T) {
			sandboxes := probed(t, backend)
			policy := Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}, {Path: dir + "/r", Access: AccessRead}}}
			if backend == Bubblewrap {
				policy.WorkspaceRoots = []string{dir + "/w"}
				policy.Entries = append(policy.Entries, Entry{Special: SpecialProjectRoots, Access: AccessWrite})
			}
			confinement, err := sandboxes.Confine(resolve(t, policy))
			if err != nil {
				t.Fatal(err)
			}
			startEach(t, confinement) // what is kept for all starts is open then
			before := descriptors(t)
			const goroutines, rounds = 8, 5
			var starting sync.WaitGroup
			for range goroutines {
				starting.Go(func() {
					for range rounds {
						startEach(t, confinement)
					}
				})
			}
			starting.Wait()
			if after := descriptors(t); after != before {
				t.Errorf("%d descriptors are open, %d were before", after, before)
			}
			if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); !errors.Is(err, unix.ECHILD) {
				t.Errorf("a child is left: %d, %v", pid, err)
			}
			if len(sandboxes.placeholders.all) > 0 {
				t.Errorf("placeholders are still held: %v", sandboxes.placeholders.all)
			}
			if entries, err := os.ReadDir(dir + "/w"); err != nil || len(entries) > 0 {
				t.Errorf("%v are left in the writable place: %v", entries, err)
			}
		})
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// startEach starts one program of each kind and reaps it.
func startEach(t *testing.T, confinement *Confinement) {
	none, gone := errors.New("no processes left"), errors.New("the caller has gone")
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer null.Close()
	fd := int(null.Fd())
	for name, test := range map[string]struct {
		path   string
		cancel string // when
		spawn  error
		kind   Kind
		want   error
	}{
		"runs":                        {path: "/bin/true"},
		"is not there":                {path: "/nowhere/true", kind: NotExecuted, want: unix.ENOENT},
		"is not forked":               {path: "/bin/true", spawn: none, want: none},
		"is given up before the fork": {path: "/bin/true", cancel: "before", want: gone},
		"is given up after the fork":  {path: "/bin/true", cancel: "after", want: gone},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if test.cancel == "before" {
			cancel(gone)
		}
		pid := 0
		usage, err := confinement.Start(ctx, Program{Path: test.path, Argv: []string{"true"}, Dir: "/", Files: []int{fd, fd, fd}, Terminal: -1}, func(p Program) (err error) {
			if test.spawn != nil {
				return test.spawn
			}
			pid, err = forkExec(p)
			if test.cancel == "after" {
				cancel(gone)
			}
			return err
		})
		switch {
		case err != nil:
			killGroup(pid)
		case reap(pid) != 0:
			t.Errorf("%s: it failed", name)
		}
		if err == nil {
			usage.Release()
		}
		cancel(nil)
		if test.cancel == "after" && err == nil {
			continue // it was faster
		}
		if !errors.Is(err, test.want) || test.kind != 0 && KindOf(err) != test.kind {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}
