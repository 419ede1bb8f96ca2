package fsops_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/fsops"
)

func TestReadFile(t *testing.T) {
	dir := build(t, "f = content", "empty = ", "d/", "lf -> f", "ld -> d", "dangling -> nowhere", "a -> b", "b -> a", "fifo |")
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	tests := []struct {
		path    string
		content string
		kind    fsops.Kind
		errno   syscall.Errno
	}{
		{dir + "/f", "content", 0, 0},
		{dir + "/x/..//./f/", "content", 0, 0},
		{dir + "/empty", "", 0, 0},
		{dir + "/lf", "content", 0, 0},
		{dir + "/d", "", fsops.IsADirectory, 0},
		{dir + "/ld", "", fsops.IsADirectory, 0},
		{"/", "", fsops.IsADirectory, 0},
		{dir + "/dangling", "", fsops.NotFound, unix.ENOENT},
		{dir + "/missing", "", fsops.NotFound, unix.ENOENT},
		{dir + "/f/x", "", fsops.NotADirectory, unix.ENOTDIR},
		{dir + "/a", "", fsops.SymlinkLoop, unix.ELOOP},
		{dir + "/fifo", "", fsops.NotRegular, 0},
		{dir + "/socket", "", fsops.NotRegular, 0},
		{"/dev/null", "", fsops.NotRegular, 0},
		{"/dev/zero", "", fsops.NotRegular, 0},
		{"/" + strings.Repeat("x", 300), "", fsops.Failed, unix.ENAMETOOLONG},
		{"f", "", fsops.InvalidPath, 0},
		{"", "", fsops.InvalidPath, 0},
		{"/nul\x00byte", "", fsops.InvalidPath, 0},
	}
	for _, tt := range tests {
		data, m, err := fsops.ReadFile(t.Context(), tt.path, 1<<20)
		wantError(t, tt.path, err, tt.kind, tt.errno)
		if string(data) != tt.content || err == nil && (m.Type != fsops.Regular || m.Size != int64(len(tt.content))) {
			t.Errorf("%s: %q, %+v", tt.path, data, m)
		}
	}
}

// Files of /proc report size 0.
func TestReadFile_NoSize(t *testing.T) {
	want, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	data, m, err := fsops.ReadFile(t.Context(), "/proc/self/maps", 1<<20)
	if err != nil || m.Size != 0 || len(data) < len(want)/2 || !bytes.HasSuffix(data, []byte("\n")) {
		t.Errorf("%d of %d bytes of a file of %d: %v", len(data), len(want), m.Size, err)
	}
	_, _, err = fsops.ReadFile(t.Context(), "/proc/self/maps", 100)
	wantError(t, "more than the limit", err, fsops.TooLarge, 0)
}

func TestReadFile_Limit(t *testing.T) {
	dir := build(t, "f = 0123456789")
	if data, _, err := fsops.ReadFile(t.Context(), dir+"/f", 10); err != nil || len(data) != 10 {
		t.Errorf("at the limit: %q, %v", data, err)
	}
	_, _, err := fsops.ReadFile(t.Context(), dir+"/f", 9)
	wantError(t, "one more", err, fsops.TooLarge, 0)
	var typed *fsops.Error
	if !errors.As(err, &typed) || typed.Limit != 9 || typed.Path != dir+"/f" {
		t.Errorf("the error is %+v", typed)
	}
}

func TestFile_ReadFromOffset(t *testing.T) {
	dir := build(t, "f = 0123456789")
	f, err := fsops.Open(dir + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for offset, want := range map[int64]string{0: "0123456789", 7: "789", 10: "", 1 << 62: "", math.MaxInt64: ""} {
		f.Skip(offset)
		if got, err := io.ReadAll(f); err != nil || string(got) != want {
			t.Errorf("from %d: %q, %v", offset, got, err)
		}
	}
}

func TestStat(t *testing.T) {
	dir := build(t, "f mode=640 = 12345", "d/", "lf -> f", "ld -> d", "dangling -> nowhere", "a -> b", "b -> a", "fifo |")
	when := time.Unix(1_000_000_000, 123_456_789)
	if err := os.Chtimes(dir+"/f", when, when); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		path    string
		is      fsops.Type
		symlink bool
		kind    fsops.Kind
		errno   syscall.Errno
	}{
		{dir + "/f", fsops.Regular, false, 0, 0},
		{dir + "/lf", fsops.Regular, true, 0, 0},
		{dir + "/d", fsops.Directory, false, 0, 0},
		{dir + "/ld", fsops.Directory, true, 0, 0},
		{dir + "/fifo", fsops.FIFO, false, 0, 0},
		{"/dev/null", fsops.CharacterDevice, false, 0, 0},
		{"/", fsops.Directory, false, 0, 0},
		{dir + "/dangling", 0, false, fsops.NotFound, unix.ENOENT},
		{dir + "/a", 0, false, fsops.SymlinkLoop, unix.ELOOP},
		{dir + "/f/x", 0, false, fsops.NotADirectory, unix.ENOTDIR},
		{dir + "/none/x", 0, false, fsops.NotFound, unix.ENOENT},
	}
	for _, tt := range tests {
		m, err := fsops.Stat(tt.path)
		wantError(t, tt.path, err, tt.kind, tt.errno)
		if m.Type != tt.is || m.IsSymlink != tt.symlink {
			t.Errorf("%s is %+v", tt.path, m)
		}
	}
	m, err := fsops.Stat(dir + "/lf")
	if err != nil || m.Size != 5 || m.Mode != 0o640 || !m.ModifyTime.Equal(when) || m.Links != 1 || int(m.UID) != os.Geteuid() {
		t.Errorf("the file is %+v: %v", m, err)
	}
	m, target, err := fsops.Lstat(dir + "/lf")
	if err != nil || m.Type != fsops.Symlink || !m.IsSymlink || target != "f" {
		t.Errorf("the link is %+v to %q: %v", m, target, err)
	}
	_, _, err = fsops.Lstat(dir + "/missing")
	wantError(t, "Lstat", err, fsops.NotFound, unix.ENOENT)
}

func TestCanonicalize(t *testing.T) {
	dir := build(t, "f = ", "d/sub/", "d/lf -> ../f", "d/ld -> sub", "d/sub/b = ", "dangling -> none", "a -> b", "b -> a")
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/f": "/f", "/d/lf": "/f", "/d/ld/b": "/d/sub/b", "/d/../f": "/f", "/d/": "/d"} {
		if got, err := fsops.Canonicalize(dir + path); err != nil || got != dir+want {
			t.Errorf("%s is %s: %v", path, got, err)
		}
	}
	for path, want := range map[string]syscall.Errno{"/none": unix.ENOENT, "/dangling": unix.ENOENT, "/a": unix.ELOOP, "/f/x": unix.ENOTDIR} {
		_, err := fsops.Canonicalize(dir + path)
		if typed, ok := err.(*fsops.Error); !ok || typed.Errno != want {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}

// The error is the cause of the context.
func TestCalls_ContextEnds_Fail(t *testing.T) {
	dir := build(t, "f = content", "d/", "d/x = ")
	ctx, cancel := cancellable(t)
	cause := errors.New("the caller went away")
	cancel(cause)
	_, _, read := fsops.ReadFile(ctx, dir+"/f", 1<<20)
	_, copied := fsops.Copy(ctx, dir+"/f", dir+"/g", false)
	_, copiedTree := fsops.Copy(ctx, dir+"/d", dir+"/e", true)
	for what, err := range map[string]error{
		"read": read, "copy": copied, "copy of a tree": copiedTree,
		"write":  fsops.WriteFile(ctx, dir+"/w", []byte("x")),
		"list":   fsops.ReadDirectory(ctx, dir, func([]fsops.Entry) error { return nil }),
		"remove": fsops.Remove(ctx, dir+"/d", fsops.Removal{Recursive: true}),
	} {
		if err != cause {
			t.Errorf("%s: %v", what, err)
		}
	}
	if context.Cause(ctx) != cause {
		t.Error("the context was not ended")
	}
}
