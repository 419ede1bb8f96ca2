package fsops_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/fsops"
)

func TestWriteFile(t *testing.T) {
	dir := build(t, "f mode=640 = long old content", "d/", "lf -> f", "dangling -> made", "fifo |", "hard = h")
	if err := os.Link(dir+"/hard", dir+"/hard2"); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close(); _ = os.Remove(dir + "/socket") }()
	before, err := os.Stat(dir + "/f")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		path, data string
		kind       fsops.Kind
		errno      syscall.Errno
	}{
		{dir + "/new", "hello", 0, 0},
		{dir + "/empty", "", 0, 0},
		{dir + "/f", "short", 0, 0},
		{dir + "/lf", "by a link", 0, 0},
		{dir + "/dangling", "by a link to nothing", 0, 0},
		{dir + "/hard", "hh", 0, 0},
		{"/dev/null", "x", 0, 0},
		{dir + "/d", "x", fsops.IsADirectory, unix.EISDIR},
		{dir + "/f/x", "x", fsops.NotADirectory, unix.ENOTDIR},
		{dir + "/no/such", "x", fsops.NotFound, unix.ENOENT},
		{dir + "/fifo", "x", fsops.NotRegular, 0},
		{dir + "/socket", "x", fsops.NotRegular, 0},
		{"/dev/full", "x", fsops.NoSpace, unix.ENOSPC},
		{"/proc/version", "x", fsops.Failed, unix.EIO},
		{"relative", "x", fsops.InvalidPath, 0},
	}
	for _, tt := range tests {
		wantError(t, tt.path, fsops.WriteFile(t.Context(), tt.path, []byte(tt.data)), tt.kind, tt.errno)
	}
	after, err := os.Stat(dir + "/f")
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the file was replaced: %v", err)
	}
	_ = os.Remove(dir + "/socket")
	wantTree(t, dir, "f mode=640 = by a link", "lf -> f", "d/ mode=755", "dangling -> made", "made mode=644 = by a link to nothing",
		"new mode=644 = hello", "empty mode=644 = ", "hard mode=644 = hh", "hard2 mode=644 = hh", "fifo |")
}

// A reader of the FIFO would let the open succeed.
func TestFIFO_WithReader_IsNotWritten(t *testing.T) {
	dir := build(t, "fifo |")
	reader, err := unix.Open(dir+"/fifo", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(reader) }()
	wantError(t, "write", fsops.WriteFile(t.Context(), dir+"/fifo", []byte("x")), fsops.NotRegular, 0)
	if err := buildOne(dir, "f = x"); err != nil {
		t.Fatal(err)
	}
	_, err = fsops.Copy(t.Context(), dir+"/f", dir+"/fifo", false)
	wantError(t, "copy", err, fsops.NotRegular, 0)
	if n, err := unix.Read(reader, make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("the reader got %d bytes: %v", n, err)
	}
}

func TestWriteFile_Large(t *testing.T) {
	dir := build(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	if err := fsops.WriteFile(t.Context(), dir+"/f", data); err != nil {
		t.Fatal(err)
	}
	if got, _, err := fsops.ReadFile(t.Context(), dir+"/f", len(data)); err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %d bytes of %d: %v", len(got), len(data), err)
	}
}

func TestWriter_WritesInPlace(t *testing.T) {
	dir := build(t, "f = old content")
	w, err := fsops.Create(dir + "/f")
	if err != nil {
		t.Fatal(err)
	}
	for _, piece := range []string{"new", " ", "text"} {
		if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Errorf("Write = %d, %v", n, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	wantTree(t, dir, "f mode=644 = new text")
}

func TestCreateDirectory(t *testing.T) {
	for _, recursive := range []bool{false, true} {
		dir := build(t, "f = ", "d/", "ld -> d", "dangling -> nowhere")
		exists, parent, file := unix.EEXIST, unix.ENOENT, unix.EEXIST
		kindExists, kindParent := fsops.AlreadyExists, fsops.NotFound
		if recursive {
			exists, parent, kindExists, kindParent = 0, 0, 0, 0
		}
		tests := []struct {
			path  string
			kind  fsops.Kind
			errno syscall.Errno
		}{
			{dir + "/new", 0, 0},
			{dir + "/d", kindExists, exists},
			{dir + "/ld", kindExists, exists},
			{"/", kindExists, exists},
			{dir + "/p/q/r", kindParent, parent},
			{dir + "/f", fsops.AlreadyExists, file},
			{dir + "/f/x", fsops.NotADirectory, unix.ENOTDIR},
			{dir + "/dangling", fsops.AlreadyExists, unix.EEXIST},
			{"relative", fsops.InvalidPath, 0},
		}
		for _, tt := range tests {
			wantError(t, tt.path, fsops.CreateDirectory(tt.path, recursive, nil), tt.kind, tt.errno)
		}
		want := []string{"f mode=644 = ", "d/ mode=755", "ld -> d", "dangling -> nowhere", "new/ mode=755"}
		if recursive {
			want = append(want, "p/ mode=755", "p/q/ mode=755", "p/q/r/ mode=755")
		}
		wantTree(t, dir, want...)
	}
}

func entriesOf(t *testing.T, dir string) []fsops.Entry {
	t.Helper()
	var all []fsops.Entry
	err := fsops.ReadDirectory(t.Context(), dir, func(some []fsops.Entry) error {
		if len(some) == 0 || len(some) > fsops.MaxEntries {
			t.Errorf("%d entries at once", len(some))
		}
		all = append(all, some...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestReadDirectory(t *testing.T) {
	dir := build(t, "f = ", ".hidden = ", "d/", "d/inner = ", "lf -> f", "ld -> d", "dangling -> nowhere", "a -> a", "fifo |", "bad\xff = ", "new\nline = ")
	list := entriesOf(t, dir)
	slices.SortFunc(list, func(a, b fsops.Entry) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	want := []fsops.Entry{
		{Name: ".hidden", Type: fsops.Regular, Target: fsops.Regular},
		{Name: "a", Type: fsops.Symlink},
		{Name: "bad\xff", Type: fsops.Regular, Target: fsops.Regular},
		{Name: "d", Type: fsops.Directory, Target: fsops.Directory},
		{Name: "dangling", Type: fsops.Symlink},
		{Name: "f", Type: fsops.Regular, Target: fsops.Regular},
		{Name: "fifo", Type: fsops.FIFO, Target: fsops.FIFO},
		{Name: "ld", Type: fsops.Symlink, Target: fsops.Directory},
		{Name: "lf", Type: fsops.Symlink, Target: fsops.Regular},
		{Name: "new\nline", Type: fsops.Regular, Target: fsops.Regular},
	}
	if !slices.Equal(list, want) {
		t.Errorf("the entries are %+v, want %+v", list, want)
	}
	if list := entriesOf(t, dir+"/ld"); len(list) != 1 || list[0].Name != "inner" {
		t.Errorf("by a link: %+v", list)
	}
	for path, want := range map[string]fsops.Kind{"/f": fsops.NotADirectory, "/none": fsops.NotFound, "/a": fsops.SymlinkLoop} {
		if err := fsops.ReadDirectory(t.Context(), dir+path, nil); fsops.KindOf(err) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	full := errors.New("enough")
	if err := fsops.ReadDirectory(t.Context(), dir, func([]fsops.Entry) error { return full }); err != full {
		t.Errorf("the error of the callback is lost: %v", err)
	}
}

func TestReadDirectory_ManyEntries(t *testing.T) {
	dir := build(t)
	missing := map[string]bool{}
	for i := range 2*fsops.MaxEntries + 5 {
		name := fmt.Sprintf("a rather long name of a file, number %d", i)
		missing[name] = true
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range entriesOf(t, dir) {
		if !missing[e.Name] {
			t.Errorf("%q is returned twice, or does not exist", e.Name)
		}
		delete(missing, e.Name)
	}
	if len(missing) > 0 {
		t.Errorf("%d entries are missing", len(missing))
	}
}
