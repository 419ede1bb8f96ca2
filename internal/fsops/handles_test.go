package fsops_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/fsops"
)

// newHandles returns a table that is closed at the end of the test.
func newHandles(t *testing.T, limits fsops.HandleLimits) *fsops.Handles {
	t.Helper()
	handles := fsops.NewHandles(limits, nil)
	t.Cleanup(handles.Close)
	return handles
}

func openHandle(t *testing.T, handles *fsops.Handles, id, path string, mode fsops.OpenMode) {
	t.Helper()
	if _, err := handles.Open(id, path, mode); err != nil {
		t.Fatal(err)
	}
}

func wantHandleError(t *testing.T, what string, err error, kind fsops.Kind) {
	t.Helper()
	var typed *fsops.Error
	if !errors.As(err, &typed) || typed.Kind != kind || typed.Error() == "" {
		t.Errorf("%s: %v, want kind %v", what, err, kind)
	}
}

func TestHandle_ReadBlock(t *testing.T) {
	dir := build(t, "f = 0123456789", "empty = ")
	handles := newHandles(t, fsops.HandleLimits{})
	openHandle(t, handles, "f", dir+"/f", fsops.ReadMode)
	openHandle(t, handles, "empty", dir+"/empty", fsops.ReadMode)
	openHandle(t, handles, "proc", "/proc/self/status", fsops.ReadMode)
	tests := []struct {
		id     string
		offset int64
		length int
		want   string
	}{
		{"f", 0, 4, "0123"}, {"f", 8, 4, "89"}, {"f", 10, 4, ""}, {"f", 99, 4, ""},
		{"f", 0, fsops.MaxBlockBytes, "0123456789"}, {"f", 3, 1, "3"},
		{"f", math.MaxInt64, 4, ""}, {"f", math.MaxInt64 - 1, fsops.MaxBlockBytes, ""},
		{"empty", 0, fsops.MaxBlockBytes, ""}, {"proc", 0, 5, "Name:"},
	}
	for _, tt := range tests {
		for _, memory := range [][]byte{nil, make([]byte, 3), make([]byte, fsops.MaxBlockBytes)} {
			data, err := handles.ReadBlock(tt.id, tt.length, tt.offset, memory)
			if err != nil || string(data) != tt.want {
				t.Errorf("%s at %d: %q, %v, want %q", tt.id, tt.offset, data, err, tt.want)
			}
			if len(memory) >= tt.length && len(data) > 0 && &data[0] != &memory[0] {
				t.Errorf("%s at %d: the given buffer is not used", tt.id, tt.offset)
			}
		}
	}
	if data, err := handles.ReadBlock("proc", fsops.MaxBlockBytes, 0, nil); err != nil || !bytes.HasSuffix(data, []byte("\n")) || len(data) < 500 {
		t.Errorf("got %d bytes of a file of /proc: %v", len(data), err)
	}
}

// The file grows after it was opened.
func TestHandle_ReadBlock_Large(t *testing.T) {
	want := bytes.Repeat([]byte("abcdefgh"), fsops.MaxBlockBytes/4)
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, want[:100], 0o644); err != nil {
		t.Fatal(err)
	}
	handles := newHandles(t, fsops.HandleLimits{})
	openHandle(t, handles, "f", path, fsops.ReadMode)
	if err := os.WriteFile(path, want, 0o644); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for len(got) <= len(want) {
		data, err := handles.ReadBlock("f", fsops.MaxBlockBytes, int64(len(got)), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, data...); len(data) < fsops.MaxBlockBytes {
			break
		}
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got %d bytes of %d", len(got), len(want))
	}
}

func TestHandle_Replace(t *testing.T) {
	dir := build(t, "old mode=640 = something long", "d/", "link -> old", "fifo |")
	handles := newHandles(t, fsops.HandleLimits{})
	before, err := fsops.Stat(dir + "/old")
	if err != nil {
		t.Fatal(err)
	}
	openHandle(t, handles, "w", dir+"/link", fsops.ReplaceMode)
	openHandle(t, handles, "new", dir+"/new", fsops.ReplaceMode)
	for _, block := range []struct {
		offset int64
		data   string
	}{{0, "abc"}, {5, "x"}, {3, "de"}} {
		if err := handles.WriteBlock("w", []byte(block.data), block.offset); err != nil {
			t.Fatal(err)
		}
	}
	_, err = handles.ReadBlock("w", 1, 0, nil)
	wantError(t, "reading a handle for writing", err, fsops.Failed, unix.EBADF)
	if err := handles.CloseFile("w"); err != nil {
		t.Error(err)
	}
	after, err := fsops.Stat(dir + "/old")
	if err != nil || before.Mode != after.Mode || before.Links != after.Links || before.BirthTime != after.BirthTime {
		t.Errorf("%+v became %+v: %v", before, after, err)
	}
	_, err = handles.Open("d", dir+"/d", fsops.ReplaceMode)
	wantError(t, "a directory", err, fsops.IsADirectory, unix.EISDIR)
	_, err = handles.Open("p", dir+"/fifo", fsops.ReplaceMode)
	wantError(t, "a FIFO", err, fsops.NotRegular, 0)
	_, err = handles.Open("p", "/dev/null", fsops.ReplaceMode)
	wantError(t, "a device", err, fsops.NotRegular, 0)
	_, err = handles.Open("m", dir+"/missing/f", fsops.ReplaceMode)
	wantError(t, "no parent", err, fsops.NotFound, unix.ENOENT)
	_, err = handles.Open("r", "relative", fsops.ReplaceMode)
	wantError(t, "a relative path", err, fsops.InvalidPath, 0)
	wantTree(t, dir, "old mode=640 = abcdex", "d/ mode=755", "link -> old", "fifo |", "new mode=644 = ")
}

func TestHandle_WrongDirection_FailsAndStaysOpen(t *testing.T) {
	dir := build(t, "f = content")
	handles := newHandles(t, fsops.HandleLimits{})
	openHandle(t, handles, "f", dir+"/f", fsops.ReadMode)
	wantError(t, "writing", handles.WriteBlock("f", []byte("x"), 0), fsops.Failed, unix.EBADF)
	if data, err := handles.ReadBlock("f", 7, 0, nil); err != nil || string(data) != "content" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestHandle_RenamedFile_IsKept(t *testing.T) {
	dir := build(t, "f = before", "g = after")
	handles := newHandles(t, fsops.HandleLimits{})
	openHandle(t, handles, "f", dir+"/f", fsops.ReadMode)
	if err := os.Rename(dir+"/g", dir+"/f"); err != nil {
		t.Fatal(err)
	}
	if data, err := handles.ReadBlock("f", 100, 0, nil); err != nil || string(data) != "before" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestHandle_IDs(t *testing.T) {
	dir := build(t, "f = content")
	handles := newHandles(t, fsops.HandleLimits{Handles: 2})
	_, err := handles.ReadBlock("f", 1, 0, nil)
	wantHandleError(t, "reading", err, fsops.HandleNotFound)
	wantHandleError(t, "writing", handles.WriteBlock("f", []byte("x"), 0), fsops.HandleNotFound)
	if err := handles.CloseFile("f"); err != nil {
		t.Errorf("closing an unknown handle: %v", err)
	}
	_, err = handles.Open("f", dir+"/missing", fsops.ReadMode)
	wantError(t, "a missing file", err, fsops.NotFound, unix.ENOENT)
	openHandle(t, handles, "f", dir+"/f", fsops.ReadMode)
	_, err = handles.Open("f", dir+"/missing", fsops.ReadMode)
	wantHandleError(t, "the same id", err, fsops.HandleExists)
	openHandle(t, handles, "g", dir+"/f", fsops.ReadMode)
	_, err = handles.Open("h", dir+"/f", fsops.ReadMode)
	wantHandleError(t, "above the limit", err, fsops.TooManyHandles)
	if err := handles.CloseFile("f"); err != nil {
		t.Error(err)
	}
	openHandle(t, handles, "f", dir+"/f", fsops.ReadMode)
	handles.Close()
	handles.Close()
	_, err = handles.ReadBlock("f", 1, 0, nil)
	wantHandleError(t, "reading after Close", err, fsops.HandleNotFound)
	_, err = handles.Open("f", dir+"/f", fsops.ReadMode)
	wantHandleError(t, "opening after Close", err, fsops.HandleNotFound)
}

// Reading an unmapped page of /proc/self/mem fails.
func TestHandle_ReadError_Closes(t *testing.T) {
	handles := newHandles(t, fsops.HandleLimits{})
	openHandle(t, handles, "mem", "/proc/self/mem", fsops.ReadMode)
	_, err := handles.ReadBlock("mem", 1, 0, nil)
	wantError(t, "page 0", err, fsops.Failed, unix.EIO)
	_, err = handles.ReadBlock("mem", 1, 0, nil)
	wantHandleError(t, "after the error", err, fsops.HandleNotFound)
	if !handles.IsEmpty() {
		t.Error("the handle is still there")
	}
}

// Calls never use a closed descriptor, or another file with the same descriptor
// number, while handles are opened and closed concurrently.
func TestHandle_ConcurrentClose_ReadsNoOtherFile(t *testing.T) {
	dir := t.TempDir()
	const files = 8
	for i := range files {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), bytes.Repeat([]byte{byte('a' + i)}, 1000), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var emptied atomic.Int32
	handles := fsops.NewHandles(fsops.HandleLimits{}, func() { emptied.Add(1) })
	var group sync.WaitGroup
	for i := range files {
		id := fmt.Sprint(i)
		group.Go(func() {
			for range 200 {
				if _, err := handles.Open(id, filepath.Join(dir, id), fsops.ReadMode); err != nil {
					t.Error(err)
				}
				if err := handles.CloseFile(id); err != nil {
					t.Error(err)
				}
			}
		})
		group.Go(func() {
			for range 500 {
				data, err := handles.ReadBlock(id, 1000, 0, nil)
				if err != nil {
					wantHandleError(t, id, err, fsops.HandleNotFound)
				} else if !bytes.Equal(data, bytes.Repeat([]byte{byte('a' + i)}, 1000)) {
					t.Errorf("%s: another file was read", id)
				}
			}
		})
	}
	group.Wait()
	if !handles.IsEmpty() || emptied.Load() == 0 {
		t.Errorf("the table is not empty, or reported that %d times", emptied.Load())
	}
}

func TestHandle_Idle_Closes(t *testing.T) {
	dir := build(t, "f = content")
	gone := make(chan struct{})
	handles := fsops.NewHandles(fsops.HandleLimits{Idle: time.Millisecond}, func() { close(gone) })
	openHandle(t, handles, "f", dir+"/f", fsops.ReadMode)
	<-gone
	_, err := handles.ReadBlock("f", 1, 0, nil)
	wantHandleError(t, "reading", err, fsops.HandleNotFound)
}
