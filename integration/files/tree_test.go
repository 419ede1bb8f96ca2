package files

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// realTree copies the sources of a large module from the cache to a directory of
// the test, where they can be changed. Its files are of all sizes; short tests use a third
// less.
func realTree(t testing.TB) (dir string) {
	t.Helper()
	const module = "golang.org/x/text"
	list := exec.CommandContext(harness.Context(t), "go", "list", "-m", "-f", "{{.Dir}}", module)
	list.Dir = harness.Repository(t)
	said, err := list.Output()
	if err != nil {
		t.Fatalf("failed to find %s: %v", module, err)
	}
	dir = filepath.Join(harness.ShortDir(t), "source")
	if err := os.CopyFS(dir, os.DirFS(strings.TrimSpace(string(said)))); err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		for _, large := range []string{"date/tables.go", "language/display/tables.go"} {
			if err := os.Remove(filepath.Join(dir, large)); err != nil {
				t.Fatal(err)
			}
		}
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644) // files of the cache may not be changed
		if d.IsDir() || strings.HasSuffix(path, "0.go") {
			mode = 0o755
		}
		return os.Chmod(path, mode)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// treeSnapshot is the content of a tree by path: mode and digest of files, mode of directories,
// and the targets of links.
type treeSnapshot map[string]string

// snapshotTree creates the snapshot of a tree; without modes it can be compared with a tree
// transferred by a protocol that has none.
func snapshotTree(t testing.TB, dir string, modes bool) treeSnapshot {
	t.Helper()
	p := treeSnapshot{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		what := d.Type().String()
		if modes {
			what = info.Mode().String()
		}
		switch {
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			what += target
		case d.Type().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what += fmt.Sprintf(" %x", sha256.Sum256(content))
		}
		p[name] = what
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// differences returns the paths at which two snapshots differ.
func (p treeSnapshot) differences(other treeSnapshot) []string {
	var paths []string
	for path, what := range p {
		if other[path] != what {
			paths = append(paths, path)
		}
	}
	for path := range other {
		if _, both := p[path]; !both {
			paths = append(paths, path)
		}
	}
	return slices.Sorted(slices.Values(paths))
}

// expect checks that a tree equals the snapshot.
func (p treeSnapshot) expect(t testing.TB, what, dir string, modes bool) {
	t.Helper()
	if len(p) < 400 {
		t.Errorf("%s: the snapshot has %d paths", what, len(p))
	}
	if wrong := p.differences(snapshotTree(t, dir, modes)); len(wrong) > 0 {
		t.Errorf("%s: %d paths differ: %.500q", what, len(wrong), wrong)
	}
}

// filesOf are the paths of a snapshot that are files, or those that are not.
func (p treeSnapshot) filesOf(files bool) []string {
	var paths []string
	for _, path := range slices.Sorted(maps.Keys(p)) {
		if strings.Contains(p[path], " ") == files {
			paths = append(paths, path)
		}
	}
	return paths
}

// changeTree changes a tree like a developer: it edits files in the middle, at the end and
// without changing the length, empties one, adds and removes files and directories, replaces a
// file by a directory and the reverse, and changes modes.
func changeTree(t testing.TB, dir string, random *rand.Rand) {
	t.Helper()
	again := fmt.Sprint(random.Uint32(), "-")
	p := snapshotTree(t, dir, true)
	// What is made below is made again in the next round, and stays a file.
	files := slices.DeleteFunc(p.filesOf(true), func(name string) bool { return strings.HasPrefix(name, "new/") || name == "encoding/japanese" })
	random.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	at := func(name string) string { return filepath.Join(dir, name) }
	next := func() string {
		name := files[0]
		files = files[1:]
		return at(name)
	}
	edit := func(change func([]byte) []byte) error {
		path := next()
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, change(content), 0o644)
	}
	var steps []error
	for range 10 {
		steps = append(steps,
			edit(func(c []byte) []byte { return append(c, "// the end\n"...) }),
			edit(func(c []byte) []byte {
				return append(c[:len(c)/2:len(c)/2], append([]byte("middle"), c[len(c)/2:]...)...)
			}),
			edit(func(c []byte) []byte { return bytes.ToUpper(c) }),
			os.Remove(next()), os.Chmod(next(), 0o700), os.Chmod(next(), 0o444))
	}
	turned := next()
	steps = append(steps, os.Truncate(next(), 0), os.Remove(turned), os.Mkdir(turned, 0o755), os.WriteFile(turned+"/in", []byte("in"), 0o600),
		os.MkdirAll(at("new/er/directory"), 0o755), os.Mkdir(at(again+"empty"), 0o755), os.RemoveAll(at("encoding/japanese")), os.WriteFile(at("encoding/japanese"), []byte("a file now"), 0o644),
		os.RemoveAll(at("unicode/norm")), os.WriteFile(at("new/a b"), []byte("blank"), 0o644), os.WriteFile(at("new/er/large"), bytes.Repeat([]byte("large "), 1<<19), 0o644))
	for i, err := range steps {
		if err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
	}
}
