package transports

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

const (
	regularFile = execwirev1.FileType_FILE_TYPE_REGULAR
	directory   = execwirev1.FileType_FILE_TYPE_DIRECTORY
	symlink     = execwirev1.FileType_FILE_TYPE_SYMLINK
)

// fileScenarios are about paths.
var fileScenarios = []scenario{
	{name: "small files", do: smallFiles, except: notWithJSON("write it in place")},
	{name: "metadata", do: fileMetadata, except: otherwiseWithJSON("metadata, as the reference tells it")},
	{name: "listing", do: listedDirectory, except: otherwiseWithJSON("listing, as the reference tells it")},
	{name: "directories made and removed", do: madeDirectories},
	{name: "changed metadata", do: changedMetadata, except: notWithJSON("SetMetadata")},
	{name: "links", do: links, except: notWithJSON("CreateSymlink")},
	{name: "copies", do: copies, except: otherwiseWithJSON("copies, as the reference tells of them")},
	{name: "renames", do: renames, except: notWithJSON("RenamePath")},
	{name: "names that are no text", do: rawNames, except: notWithJSON("write it in place")},
	{name: "walk", do: walk, except: notWithJSON("ignore")},
	{name: "a walk that is ended", do: endedWalk},
	{name: "watch", do: watch, except: notWithJSON("WatchDirectory")},
	{name: "errors about files", do: fileErrors},
	{name: "sandboxed file calls", do: sandboxedFiles},
}

func (v *scenarioRun) path(name ...string) string {
	return filepath.Join(append([]string{v.dir}, name...)...)
}

// write creates a file on the machine of the server, which is this one.
func (v *scenarioRun) write(name, text string) string {
	v.Helper()
	if err := os.WriteFile(v.path(name), []byte(text), 0o640); err != nil {
		v.Fatal(err)
	}
	return v.path(name)
}

func (v *scenarioRun) expectFile(path, want string) {
	v.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		v.Error(err)
	}
	v.expectText(path, string(got), want)
}

func smallFiles(v *scenarioRun) error {
	for name, text := range map[string]string{"empty": "", "text": "é\n", "binary": "\x00\xff\r\n", "space #%?": "odd"} {
		if err := v.client.WriteFile(v.ctx, v.path(name), []byte(text)); err != nil {
			return err
		}
		v.expectFile(v.path(name), text)
		got, err := v.client.ReadFile(v.ctx, v.path(name))
		if err != nil {
			return err
		}
		v.expectText(name, string(got), text)
	}
	return nil
}

func fileMetadata(v *scenarioRun) error {
	path := v.write("file", "four")
	modified := time.Date(2001, 2, 3, 4, 5, 6, 7_000_000, time.UTC)
	if err := os.Chtimes(path, time.Time{}, modified); err != nil {
		v.Fatal(err)
	}
	if err := os.Symlink("file", v.path("link")); err != nil {
		v.Fatal(err)
	}
	for _, tt := range []struct {
		what   string
		stat   func() (client.FileInfo, error)
		kind   execwirev1.FileType
		link   bool
		target string
	}{
		{"a file", func() (client.FileInfo, error) { return v.client.Stat(v.ctx, path) }, regularFile, false, ""},
		{"a link's target", func() (client.FileInfo, error) { return v.client.Stat(v.ctx, v.path("link")) }, regularFile, true, ""},
		{"a link", func() (client.FileInfo, error) { return v.client.Lstat(v.ctx, v.path("link")) }, symlink, true, "file"},
		{"a directory", func() (client.FileInfo, error) { return v.client.Stat(v.ctx, v.dir) }, directory, false, ""},
	} {
		info, err := tt.stat()
		if err != nil {
			return err
		}
		m := info.Metadata
		if m.GetType() != tt.kind || m.GetIsSymlink() != tt.link || info.LinkTarget != tt.target {
			v.Errorf("%s is %v to %q", tt.what, m, info.LinkTarget)
		}
		if tt.kind == regularFile && (m.GetSize() != 4 || !m.GetModifyTime().AsTime().Equal(modified) || m.GetMode()&0o777 != 0o640) {
			v.Errorf("%s is %v", tt.what, m)
		}
	}
	digest := sha256.Sum256([]byte("four"))
	info, err := v.client.StatSHA256(v.ctx, path)
	if err == nil && !slices.Equal(info.SHA256, digest[:]) {
		v.Errorf("the digest is %x, want %x", info.SHA256, digest)
	}
	return err
}

// expectEntries reads a directory and compares its sorted entries.
func (v *scenarioRun) expectEntries(path string, want ...client.DirEntry) error {
	v.Helper()
	got, err := v.client.ReadDir(v.ctx, path)
	if err != nil {
		return err
	}
	slices.SortFunc(got, func(a, b client.DirEntry) int { return cmp.Compare(a.Name, b.Name) })
	if !slices.Equal(got, want) {
		v.Errorf("the entries are %v, want %v", got, want)
	}
	return nil
}

func listedDirectory(v *scenarioRun) error {
	v.write("file", "")
	v.write(".hidden", "")
	for link, target := range map[string]string{"link": "sub", "nowhere": "none"} {
		if err := os.Symlink(target, v.path(link)); err != nil {
			v.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(v.path("sub"), 0o700), unix.Mkfifo(v.path("pipe"), 0o600)); err != nil {
		v.Fatal(err)
	}
	const fifo = execwirev1.FileType_FILE_TYPE_FIFO
	return v.expectEntries(v.dir,
		client.DirEntry{Name: ".hidden", Type: regularFile, TargetType: regularFile},
		client.DirEntry{Name: "file", Type: regularFile, TargetType: regularFile},
		client.DirEntry{Name: "link", Type: symlink, TargetType: directory},
		client.DirEntry{Name: "nowhere", Type: symlink},
		client.DirEntry{Name: "pipe", Type: fifo, TargetType: fifo},
		client.DirEntry{Name: "sub", Type: directory, TargetType: directory})
}

func madeDirectories(v *scenarioRun) error {
	if err := v.client.MkdirAll(v.ctx, v.path("a", "b", "c"), nil); err != nil {
		return err
	}
	if err := v.client.Mkdir(v.ctx, v.path("a", "d"), nil); err != nil {
		return err
	}
	v.expectReason("a directory that is there", v.client.Mkdir(v.ctx, v.path("a", "d"), nil), "PATH_ALREADY_EXISTS")
	v.expectReason("a directory without a parent", v.client.Mkdir(v.ctx, v.path("x", "y"), nil), "PATH_NOT_FOUND")
	v.expectReason("a directory that is not empty", v.client.Remove(v.ctx, v.path("a")), "DIRECTORY_NOT_EMPTY")
	if err := v.client.Remove(v.ctx, v.path("a", "d")); err != nil {
		return err
	}
	v.expectReason("what is not there", v.client.Remove(v.ctx, v.path("a", "d")), "PATH_NOT_FOUND")
	for range 2 {
		if err := v.client.RemoveAll(v.ctx, v.path("a")); err != nil {
			return err
		}
	}
	return v.expectEntries(v.dir)
}

func changedMetadata(v *scenarioRun) error {
	path := v.write("file", "text")
	at := time.Unix(1_000_000_000, 5000)
	if err := v.client.SetMetadata(v.ctx, path, client.MetadataChanges{Permissions: new(uint32(0o4711)), ModifyTime: at}); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o711|os.ModeSetuid || !info.ModTime().Equal(at) {
		v.Errorf("it has %v, %v", info, err)
	}
	if err := v.client.SetMetadata(v.ctx, path, client.MetadataChanges{Touch: true}); err != nil {
		return err
	}
	if info, err := os.Stat(path); err != nil || !info.ModTime().After(at) {
		v.Errorf("touched, it has %v, %v", info, err)
	}
	return nil
}

func links(v *scenarioRun) error {
	v.write("file", "text")
	if err := v.client.Symlink(v.ctx, "file", v.path("link")); err != nil {
		return err
	}
	v.expectReason("a link where something is", v.client.Symlink(v.ctx, "file", v.path("file")), "PATH_ALREADY_EXISTS")
	if target, err := os.Readlink(v.path("link")); err != nil || target != "file" {
		v.Errorf("the link leads to %q, %v", target, err)
	}
	got, err := v.client.RealPath(v.ctx, v.path("link"))
	v.expectText("the real path", got, v.path("file"))
	return err
}

func copies(v *scenarioRun) error {
	v.write("file", "text")
	if err := errors.Join(os.Mkdir(v.path("tree"), 0o700), os.Symlink("../file", v.path("tree", "link")), unix.Mkfifo(v.path("tree", "pipe"), 0o600)); err != nil {
		v.Fatal(err)
	}
	if _, err := v.client.Copy(v.ctx, v.path("file"), v.path("copy"), false); err != nil {
		return err
	}
	v.expectFile(v.path("copy"), "text")
	omitted, err := v.client.Copy(v.ctx, v.path("tree"), v.path("again"), true)
	if err != nil {
		return err
	}
	if omitted != 1 {
		v.Errorf("%d files were omitted, want the FIFO", omitted)
	}
	_, err = v.client.Copy(v.ctx, v.path("tree"), v.path("tree", "inside"), true)
	v.expectReason("a copy into itself", err, "COPY_INTO_ITSELF")
	return v.expectEntries(v.path("again"), client.DirEntry{Name: "link", Type: symlink, TargetType: regularFile})
}

func renames(v *scenarioRun) error {
	v.write("a", "a")
	v.write("b", "b")
	v.write("c", "c")
	if err := v.client.Rename(v.ctx, v.path("a"), v.path("b")); err != nil {
		return err
	}
	v.expectFile(v.path("b"), "a")
	v.expectReason("a new name that is taken", v.client.RenameNew(v.ctx, v.path("b"), v.path("c")), "PATH_ALREADY_EXISTS")
	v.expectFile(v.path("c"), "c")
	v.expectReason("what is not there any more", v.client.Rename(v.ctx, v.path("a"), v.path("c")), "PATH_NOT_FOUND")
	if err := v.client.RenameNew(v.ctx, v.path("b"), v.path("d")); err != nil {
		return err
	}
	return v.expectEntries(v.dir, client.DirEntry{Name: "c", Type: regularFile, TargetType: regularFile},
		client.DirEntry{Name: "d", Type: regularFile, TargetType: regularFile})
}

func rawNames(v *scenarioRun) error {
	const name = "no text \xff\xfe"
	if err := v.client.WriteFile(v.ctx, v.path(name), []byte("in it")); err != nil {
		return err
	}
	v.expectFile(v.path(name), "in it")
	if err := v.client.Rename(v.ctx, v.path(name), v.path(name+"2")); err != nil {
		return err
	}
	got, err := v.client.ReadFile(v.ctx, v.path(name+"2"))
	if err != nil {
		return err
	}
	v.expectText("the content", string(got), "in it")
	return v.expectEntries(v.dir, client.DirEntry{Name: name + "2", Type: regularFile, TargetType: regularFile})
}

// grow creates a small tree.
func (v *scenarioRun) grow() {
	v.Helper()
	for _, dir := range []string{"a", "a/b", "node_modules"} {
		if err := os.Mkdir(v.path(dir), 0o700); err != nil {
			v.Fatal(err)
		}
	}
	for _, file := range []string{"one", "a/two", "a/b/three", "a/b/x.log", "node_modules/x"} {
		v.write(file, file)
	}
	if err := os.Symlink("..", v.path("a", "up")); err != nil {
		v.Fatal(err)
	}
}

func walk(v *scenarioRun) error {
	v.grow()
	var got []string
	err := v.client.Walk(v.ctx, v.dir, client.WalkOptions{Ignore: []string{"node_modules/", "*.log"}, Metadata: true}, func(e client.WalkEntry) error {
		got = append(got, e.Path)
		if e.Type == regularFile && e.Metadata.GetSize() != uint64(len(e.Path)) || e.Path == "a/up" && (e.Type != symlink || e.LinkTarget != "..") {
			v.Errorf("%s is %v to %q", e.Path, e.Metadata, e.LinkTarget)
		}
		return nil
	})
	slices.Sort(got)
	if want := []string{"a", "a/b", "a/b/three", "a/two", "a/up", "one"}; err == nil && !slices.Equal(got, want) {
		v.Errorf("the walk reported %q, want %q", got, want)
	}
	return err
}

func endedWalk(v *scenarioRun) error {
	v.grow()
	if err := v.client.Walk(v.ctx, v.dir, client.WalkOptions{}, func(client.WalkEntry) error { return errEnough }); !errors.Is(err, errEnough) {
		return err
	}
	none := uint32(0)
	told := 0
	err := v.client.Walk(v.ctx, v.dir, client.WalkOptions{MaxDepth: &none}, func(client.WalkEntry) error { told++; return nil })
	if err == nil && told != 3 {
		v.Errorf("a walk of the directory alone reported %d", told)
	}
	v.expectReason("a walk of nothing", v.client.Walk(v.ctx, v.path("none"), client.WalkOptions{}, func(client.WalkEntry) error { return nil }), "PATH_NOT_FOUND")
	return err
}

func watch(v *scenarioRun) error {
	at := time.Duration(0)
	seen := map[string]execwirev1.WatchChangeKind{}
	err := v.client.Watch(v.ctx, v.dir, client.WatchOptions{Recursive: true, Ignore: []string{"*.log"}, Settle: &at}, func(e client.WatchEvent) error {
		if e.Started {
			v.write("unseen.log", "")
			v.write("made", "")
			return os.Remove(v.path("made"))
		}
		for _, change := range e.Changes {
			seen[change.Path] = change.Kind
			if change.Path == "made" && change.Kind == execwirev1.WatchChangeKind_WATCH_CHANGE_KIND_REMOVED {
				return errEnough
			}
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		return err
	}
	if _, told := seen["unseen.log"]; told || len(seen) != 1 {
		v.Errorf("the watch reported %v", seen)
	}
	v.expectReason("a watch of nothing", v.client.Watch(v.ctx, v.path("none"), client.WatchOptions{}, func(client.WatchEvent) error { return nil }), "PATH_NOT_FOUND")
	return nil
}

func fileErrors(v *scenarioRun) error {
	file := v.write("file", "text")
	if err := os.Symlink("loop", v.path("loop")); err != nil {
		v.Fatal(err)
	}
	read := func(path string) error { _, err := v.client.ReadFile(v.ctx, path); return err }
	for _, tt := range []struct {
		what   string
		err    error
		reason string
		is     error
	}{
		{"a file that is not there", read(v.path("none")), "PATH_NOT_FOUND", fs.ErrNotExist},
		{"a directory as a file", read(v.dir), "IS_A_DIRECTORY", nil},
		{"a file as a directory", read(file + "/x"), "NOT_A_DIRECTORY", nil},
		{"a loop", read(v.path("loop")), "SYMLINK_LOOP", nil},
		{"a relative path", read("relative"), "INVALID_FIELD", nil},
		{"the entries of a file", v.expectEntries(file), "NOT_A_DIRECTORY", nil},
		{"a directory over a file", v.client.MkdirAll(v.ctx, file, nil), "PATH_ALREADY_EXISTS", fs.ErrExist},
	} {
		v.expectReason(tt.what, tt.err, tt.reason)
		if tt.is != nil && !errors.Is(tt.err, tt.is) {
			v.Errorf("%s: %v is not %v", tt.what, tt.err, tt.is)
		}
	}
	return nil
}

func sandboxedFiles(v *scenarioRun) error {
	file := v.write("file", "text")
	confined := v.client.WithSandbox(client.Sandbox{}.Policy())
	got, err := confined.ReadFile(v.ctx, file)
	if err != nil {
		return err
	}
	v.expectText("what may be read", string(got), "text")
	// In place, as every server can.
	_, refused := confined.Upload(v.ctx, file, strings.NewReader("changed"), client.UploadOptions{InPlace: true})
	if reason := harness.ReasonOf(refused); reason != "READ_ONLY_FILE_SYSTEM" && reason != "PERMISSION_DENIED" {
		v.Errorf("a write in a sandbox: the reason is %s: %v", reason, refused)
	}
	v.expectFile(file, "text")
	writable := v.client.WithSandbox(client.Sandbox{Writable: []string{v.dir}}.Policy())
	if _, err := writable.Upload(v.ctx, file, strings.NewReader("changed"), client.UploadOptions{InPlace: true}); err != nil {
		return err
	}
	v.expectFile(file, "changed")
	return nil
}
