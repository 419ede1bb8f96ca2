package fsops_test

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/fsops"
)

func TestVersion_ChangesWithFile(t *testing.T) {
	dir := build(t, "f = content", "g = content", "l -> f")
	version := func(name string) string {
		t.Helper()
		m, err := fsops.Stat(dir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return m.Version()
	}
	was := version("f")
	if was == "" || version("f") != was || version("l") != was || version("g") == was {
		t.Errorf("the versions are %q, %q and of another file %q", was, version("l"), version("g"))
	}
	for _, change := range []func() error{
		func() error { return os.Chtimes(dir+"/f", time.Unix(1, 1), time.Unix(1, 1)) },
		func() error { return os.WriteFile(dir+"/f", []byte("longer content"), 0o600) },
		func() error { return os.Rename(dir+"/g", dir+"/f") },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		is := version("f")
		if is == was {
			t.Errorf("the version is still %q", is)
		}
		was = is
	}
}

func TestDigest(t *testing.T) {
	dir := build(t, "f = content", "empty =", "l -> f", "d/", "fifo |")
	for name, want := range map[string][]byte{"f": sum("content"), "empty": sum(""), "l": sum("content")} {
		digest, m, err := fsops.Digest(t.Context(), dir+"/"+name, true)
		if err != nil || !bytes.Equal(digest, want) || m.Type != fsops.Regular {
			t.Errorf("%s: %x of %+v, %v", name, digest, m, err)
		}
	}
	_, _, err := fsops.Digest(t.Context(), dir+"/l", false)
	wantError(t, "a link with NoSymlinks", err, fsops.SymlinkLoop, unix.ELOOP)
	_, _, err = fsops.Digest(t.Context(), dir+"/d", true)
	wantError(t, "a directory", err, fsops.IsADirectory, 0)
	_, _, err = fsops.Digest(t.Context(), dir+"/fifo", true)
	wantError(t, "a FIFO", err, fsops.NotRegular, 0)
}

func TestFile_ChangedVersion_Fails(t *testing.T) {
	dir := build(t, "f = content")
	f, err := fsops.Open(dir + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Want(f.Metadata().Version()); err != nil {
		t.Error(err)
	}
	wantError(t, "another version", f.Want("1"), fsops.Changed, 0)
	if changed, err := f.Changed(); err != nil || changed {
		t.Errorf("changed: %v, %v", changed, err)
	}
	if _, err := io.Copy(io.Discard, f); err != nil {
		t.Error(err)
	}
	if changed, err := f.Changed(); err != nil || changed {
		t.Errorf("changed by reading: %v, %v", changed, err)
	}
	if err := os.Truncate(dir+"/f", 1); err != nil {
		t.Fatal(err)
	}
	if changed, err := f.Changed(); err != nil || !changed {
		t.Errorf("changed: %v, %v", changed, err)
	}
}
