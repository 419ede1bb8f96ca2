package fsops_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/fsops"
)

// mayOpen limits the descriptors of the process until the end of the test.
func mayOpen(t *testing.T, descriptors uint64) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: descriptors, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	})
}

// Open handles leave descriptors for file calls, and file calls leave descriptors
// for everything else.
func TestDescriptorBudget_LeavesDescriptors(t *testing.T) {
	dir := build(t, "f = content", "d/")
	const all = 1000
	mayOpen(t, all)
	handles := newHandles(t, fsops.HandleLimits{})
	open := func(i int) error {
		_, err := handles.Open(fmt.Sprint(i), dir+"/f", fsops.ReadMode)
		return err
	}
	kept := 0
	for kept < all && open(kept) == nil {
		kept++
	}
	if kept < all/4 || kept > all/2 {
		t.Errorf("%d handles could be opened, of %d descriptors", kept, all)
	}
	wantError(t, "one more handle", open(kept), fsops.Exhausted, unix.EMFILE)
	_, err := handles.Open("w", dir+"/f", fsops.ReplaceMode)
	wantError(t, "a handle to write by", err, fsops.Exhausted, unix.EMFILE)
	uploads := fsops.NewUploads(time.Minute, 4, 4)
	defer uploads.Close()
	_, err = uploads.Begin(t.Context(), fsops.Replacement{Path: dir + "/f", ID: "u"})
	wantError(t, "an upload", err, fsops.Exhausted, unix.EMFILE)
	if err := fsops.WriteFile(t.Context(), dir+"/f", []byte("written")); err != nil {
		t.Error(err)
	}

	var read []*fsops.File
	defer func() {
		for _, f := range read {
			f.Close()
		}
	}()
	for len(read) < all {
		f, err := fsops.Open(dir + "/f")
		if err != nil {
			wantError(t, "reading", err, fsops.Exhausted, unix.EMFILE)
			break
		}
		read = append(read, f)
	}
	if taken := kept + len(read); taken < all/2 || taken > all*3/4 {
		t.Errorf("%d files could be opened, of %d descriptors", taken, all)
	}
	for what, err := range map[string]error{
		"writing":            fsops.WriteFile(t.Context(), dir+"/f", nil),
		"writing a new file": fsops.WriteFile(t.Context(), dir+"/new", nil),
		"copying":            copyOf(t, dir+"/f", dir+"/new"),
		"stat without links": func() error { _, err := fsops.Stat(dir+"/d/x", fsops.NoSymlinks); return err }(),
	} {
		wantError(t, what, err, fsops.Exhausted, unix.EMFILE)
	}
	if content, err := os.ReadFile(dir + "/f"); err != nil || string(content) != "written" {
		t.Errorf("another reader got %q: %v", content, err)
	}
	wantTree(t, dir, "f mode=644 = written", "d/ mode=755")

	handles.Close()
	if err := fsops.WriteFile(t.Context(), dir+"/f", []byte("again")); err != nil {
		t.Errorf("after Close: %v", err)
	}
}

func copyOf(t *testing.T, from, to string) error {
	_, err := fsops.Copy(t.Context(), from, to, false)
	return err
}
