package fsops_test

import (
	"bytes"
	"os"
	"syscall"
	"testing"

	"github.com/execwire/execwire/internal/fsops"
)

// A copy uses no more blocks than its source. A sparse file of a TiB must not
// fill the disk when it is copied.
func TestCopy_SparseFile_KeepsHoles(t *testing.T) {
	const (
		size = 1 << 40
		far  = 300 << 30
	)
	dir := build(t, "d/", "d/sparse = begin", "other = longer than what replaces it", "empty = ")
	source := dir + "/d/sparse"
	f, err := os.OpenFile(source, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("far"), far); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, destination := range []string{dir + "/copy", dir + "/other"} {
		if _, err := fsops.Copy(t.Context(), source, destination, false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := fsops.Copy(t.Context(), dir+"/d", dir+"/tree", true); err != nil {
		t.Fatal(err)
	}
	room := blocksOf(t, source)
	for _, name := range []string{"/copy", "/other", "/tree/sparse"} {
		if blocks := blocksOf(t, dir+name); blocks > room {
			t.Errorf("%s uses %d blocks, its source %d", name, blocks, room)
		}
		info, err := os.Stat(dir + name)
		if err != nil || info.Size() != size {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		wantAt(t, dir+name, 0, "begin\x00")
		wantAt(t, dir+name, far-1, "\x00far\x00")
		wantAt(t, dir+name, size-2, "\x00\x00")
	}
}

// The holes are at the start, at the end, or the whole file.
func TestCopy_AnyHoles_ContentIsEqual(t *testing.T) {
	const block = 64 << 10
	for _, filled := range [][]int64{nil, {0}, {3}, {0, 3}, {1, 2}, {0, 2, 3}} {
		dir := build(t, "f = ")
		want := make([]byte, 4*block)
		f, err := os.OpenFile(dir+"/f", os.O_WRONLY, 0)
		if err == nil {
			err = f.Truncate(int64(len(want)))
		}
		for _, at := range filled {
			piece := bytes.Repeat([]byte{byte(at) + 1}, block)
			copy(want[at*block:], piece)
			if err == nil {
				_, err = f.WriteAt(piece, at*block)
			}
		}
		if err == nil {
			err = f.Close()
		}
		if err == nil {
			_, err = fsops.Copy(t.Context(), dir+"/f", dir+"/copy", false)
		}
		if got, readErr := os.ReadFile(dir + "/copy"); err != nil || readErr != nil || !bytes.Equal(got, want) {
			t.Errorf("blocks %v: the copy of %d bytes differs: %v, %v", filled, len(got), err, readErr)
		}
	}
}

func blocksOf(t *testing.T, path string) int64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks
}

func wantAt(t *testing.T, path string, offset int64, want string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	got := make([]byte, len(want))
	if _, err := f.ReadAt(got, offset); err != nil || string(got) != want {
		t.Errorf("%s has %q at %d, want %q: %v", path, got, offset, want, err)
	}
}
