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

// nobody is a user that owns nothing.
const nobody = 65534

// operations are what an ordinary user is refused, and two that it is not, by name.
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

// unprivileged DIR tries the operations as an ordinary user, and prints for each
// what the kernel said.
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
	said := map[string]string{}
	for name, operate := range operations(args[0]) {
		err := operate()
		said[name] = fmt.Sprint(err)
		if typed, ok := err.(*fsops.Error); ok {
			said[name] = typed.Kind.String() + " " + typed.ErrnoName()
		}
	}
	if json.NewEncoder(os.Stdout).Encode(said) != nil {
		return 1
	}
	return 0
}

// letPass lets everybody reach a directory for tests.
func letPass(t *testing.T, dir string) {
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

func TestAnOrdinaryUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("run the tests as root: they have to be another user too")
	}
	dir := build(t, "secret mode=600 = x", "public mode=644 = x", "shared mode=666 = kept", "locked/ mode=700", "locked/x = ", "tree/ mode=755", "tree/f = ", "own/")
	letPass(t, dir)
	if err := os.Chown(dir+"/own", nobody, nobody); err != nil {
		t.Fatal(err)
	}
	argv := testproc.Argv("fsops-unprivileged", dir)
	output, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).Output()
	if err != nil {
		t.Fatalf("the helper failed: %v", err)
	}
	var said map[string]string
	if err := json.Unmarshal(output, &said); err != nil {
		t.Fatal(err)
	}
	for name := range operations(dir) {
		want := "permission denied " + unix.ErrnoName(unix.EACCES)
		switch name {
		case "copy mode": // another's file may be written, but not given a mode
			want = "permission denied " + unix.ErrnoName(unix.EPERM)
		case "read what is public", "write what is its own":
			want = "<nil>"
		}
		if said[name] != want {
			t.Errorf("%s: %s, want %s", name, said[name], want)
		}
	}
	if content, err := os.ReadFile(dir + "/shared"); err != nil || string(content) != "kept" {
		t.Errorf("a refused copy left %q: %v", content, err)
	}
}
