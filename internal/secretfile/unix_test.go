//go:build unix

package secretfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/execwire/execwire/internal/secretfile"
)

func TestSecret_Modes(t *testing.T) {
	for _, tc := range []struct {
		mode           fs.FileMode
		secret, public bool
	}{
		{0o600, true, true}, {0o400, true, true}, {0o700, true, true},
		{0o640, false, true}, {0o604, false, true}, {0o644, false, true},
		{0o620, false, false}, {0o602, false, false}, {0o666, false, false},
	} {
		path := file(t, tc.mode, "text")
		for name, read := range map[string]struct {
			read func(string) ([]byte, error)
			ok   bool
		}{"Secret": {secretfile.Secret, tc.secret}, "Public": {secretfile.Public, tc.public}} {
			text, err := read.read(path)
			var typed *secretfile.Error
			switch {
			case read.ok && (err != nil || string(text) != "text"):
				t.Errorf("%s of mode %04o = %q, %v", name, tc.mode, text, err)
			case !read.ok && (!errors.As(err, &typed) || typed.File != path || !strings.Contains(err.Error(), "chmod") || text != nil):
				t.Errorf("%s of mode %04o = %q, %v, want an Error that says chmod", name, tc.mode, text, err)
			}
		}
	}
}

// A secret of another user, such as root, may be readable by its group.
func TestSecret_OtherUsersFile_MayBeGroupReadable(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("run the tests as root: only root can give files away")
	}
	path := file(t, 0o640, "text")
	if err := os.Chown(path, 65534, 0); err != nil {
		t.Fatal(err)
	}
	if text, err := secretfile.Secret(path); err != nil || string(text) != "text" {
		t.Errorf("Secret = %q, %v", text, err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := secretfile.Secret(path); err == nil {
		t.Error("a secret that everybody may read is accepted")
	}
}

func TestSecret_NotAFile_Fails(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir: "not a regular file", pipe: "not a regular file", filepath.Join(dir, "none"): "no such file",
		file(t, 0o600, strings.Repeat("x", 4<<20+1)): "larger than",
	} {
		if _, err := secretfile.Secret(path); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), path) {
			t.Errorf("Secret(%s) = %v, want %q", path, err, want)
		}
	}
	if _, err := secretfile.Secret(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file is %v", err)
	}
}
