package fsops_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/testproc"
)

func init() { testproc.Register("fsops-unprivileged", unprivileged) }

// nobody is a user without files.
const nobody = 65534

// operations are calls that fail for an unprivileged user, and two that succeed.
func operations(dir string) map[string]func() error {
	ctx := context.Background()
	return map[string]func() error{
		"read": func() error { _, _, err := fsops.ReadFile(ctx, dir+"/secret", 1<<20); return err },
		"look": func() error { _, err := fsops.Stat(dir + "/locked/x"); return err },
		"list": func() error { return fsops.ReadDirectory(ctx, dir+"/locked", func([]fsops.Entry) error { return nil }) },
		"walk": func() error {
			f := &found{}
			if _, err := fsops.Walk(ctx, dir, everything, f); err != nil || len(f.errs) != 1 {
				return fmt.Errorf("%v, errors %v", err, f.errs)
			}
			return f.errs["locked"]
		},
		"write": func() error {
			return fsops.WriteFile(ctx, dir+"/public", []byte("x"))
		},
		"create":                func() error { return fsops.WriteFile(ctx, dir+"/new", []byte("x")) },
		"make":                  func() error { return fsops.CreateDirectory(dir+"/new/er", true, nil) },
		"remove":                func() error { return fsops.Remove(ctx, dir+"/public", fsops.Removal{}) },
		"remove tree":           func() error { return fsops.Remove(ctx, dir+"/tree", fsops.Removal{Recursive: true}) },
		"copy":                  func() error { _, err := fsops.Copy(ctx, dir+"/secret", dir+"/own/s", false); return err },
		"copy to":               func() error { _, err := fsops.Copy(ctx, dir+"/public", dir+"/new", false); return err },
		"copy mode":             func() error { _, err := fsops.Copy(ctx, dir+"/public", dir+"/shared", false); return err },
		"read what is public":   func() error { _, _, err := fsops.ReadFile(ctx, dir+"/public", 1<<20); return err },
		"write what is its own": func() error { return fsops.WriteFile(ctx, dir+"/own/f", nil) },
		"canonicalize":          func() error { _, err := fsops.Canonicalize(dir + "/locked/x"); return err },
	}
}

// unprivileged DIR calls the operations as an unprivileged user, and prints the
// error of each.
func unprivileged(args []string) int {
	if os.Geteuid() == 0 {
		if err := syscall.Setgroups(nil); err != nil {
			return 1
		}
		if err := syscall.Setgid(nobody); err != nil {
			return 1
		}
		if err := syscall.Setuid(nobody); err != nil {
			return 1
		}
	}
	notes := map[string]string{}
	for name, operate := range operations(args[0]) {
		err := operate()
		notes[name] = fmt.Sprint(err)
		if typed, ok := err.(*fsops.Error); ok {
			notes[name] = typed.Kind.String() + " " + typed.ErrnoName()
		}
	}
	if json.NewEncoder(os.Stdout).Encode(notes) != nil {
		return 1
	}
	return 0
}

// makeAccessible makes a directory of a test accessible to all users.
func makeAccessible(t *testing.T, dir string) {
	t.Helper()
	for ; strings.HasPrefix(dir, os.TempDir()); dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err == nil && info.Mode()&0o001 == 0 {
			err = os.Chmod(dir, info.Mode()|0o011)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnprivilegedUser_PermissionDenied(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("run the tests as root: they have to be another user too")
	}
	dir := build(t, "secret mode=600 = x", "public mode=644 = x", "shared mode=666 = kept", "locked/ mode=700", "locked/x = ", "tree/ mode=755", "tree/f = ", "own/")
	makeAccessible(t, dir)
	if err := os.Chown(dir+"/own", nobody, nobody); err != nil {
		t.Fatal(err)
	}
	argv := testproc.Argv("fsops-unprivileged", dir)
	output, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).Output()
	if err != nil {
		t.Fatalf("the helper failed: %v", err)
	}
	var notes map[string]string
	if err := json.Unmarshal(output, &notes); err != nil {
		t.Fatal(err)
	}
	for name := range operations(dir) {
		want := "permission denied " + unix.ErrnoName(unix.EACCES)
		switch name {
		case "copy mode": // the file of another user can be written, but its mode cannot be changed
			want = "permission denied " + unix.ErrnoName(unix.EPERM)
		case "read what is public", "write what is its own":
			want = "<nil>"
		}
		if notes[name] != want {
			t.Errorf("%s: %s, want %s", name, notes[name], want)
		}
	}
	if content, err := os.ReadFile(dir + "/shared"); err != nil || string(content) != "kept" {
		t.Errorf("a refused copy left %q: %v", content, err)
	}
}
