package fsops_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/testproc"
)

func TestMain(m *testing.M) {
	syscall.Umask(0o022)
	testproc.Main()
	leakcheck.Main(m)
}

// build makes a tree of lines like "d/", "f mode=640 = content", "l -> target",
// "p |" (a FIFO), and returns its directory.
func build(t *testing.T, lines ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, line := range lines {
		if err := buildOne(dir, line); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	return dir
}

func buildOne(dir, line string) error {
	name, rest, _ := strings.Cut(line, " ")
	at := filepath.Join(dir, name)
	switch {
	case strings.HasPrefix(rest, "-> "):
		return os.Symlink(strings.TrimPrefix(rest, "-> "), at)
	case rest == "|":
		return syscall.Mkfifo(at, 0o644)
	}
	mode, content, _ := strings.Cut(rest, "= ")
	var bits fs.FileMode
	if _, err := fmt.Sscanf(mode, "mode=%o ", &bits); err != nil {
		bits = 0o644
		if strings.HasSuffix(name, "/") {
			bits = 0o755
		}
	}
	if strings.HasSuffix(name, "/") {
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
	} else if err := os.WriteFile(at, []byte(content), 0o600); err != nil {
		return err
	}
	return os.Chmod(at, bits)
}

// tree lists what is below a directory, in the notation of build.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := fmt.Sprintf("mode=%o", info.Mode().Perm())
		switch {
		case d.IsDir():
			lines = append(lines, name+"/ "+mode)
		case d.Type() == fs.ModeSymlink:
			target, _ := os.Readlink(path)
			lines = append(lines, name+" -> "+target)
		case d.Type() == fs.ModeNamedPipe:
			lines = append(lines, name+" |")
		default:
			content, _ := os.ReadFile(path)
			lines = append(lines, name+" "+mode+" = "+string(content))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return lines
}

func wantTree(t *testing.T, dir string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := tree(t, dir); !slices.Equal(got, want) {
		t.Errorf("the tree is\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// wantError checks the kind and errno of an error. Errno 0 means none, kind 0
// means success.
func wantError(t *testing.T, what string, err error, kind fsops.Kind, errno syscall.Errno) {
	t.Helper()
	got := fsops.KindOf(err)
	var gotErrno syscall.Errno
	if typed, ok := err.(*fsops.Error); ok {
		gotErrno = typed.Errno
	}
	if got != kind || gotErrno != errno || (err == nil) != (kind == 0) {
		t.Errorf("%s: %v (%v, %v), want %v, %v", what, err, got, gotErrno, kind, errno)
	}
}

// cancellable returns a context that ends with a cause.
func cancellable(t *testing.T) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	return ctx, cancel
}
