package fsops_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/testproc"
)

func init() {
	testproc.Register("fsops-mounted-replace", func(args []string) int { return inMountNamespace(args[0], replaceOnMounts) })
	testproc.Register("fsops-mounted-tree", func(args []string) int { return inMountNamespace(args[0], removeMounts) })
}

// inMountNamespace calls do in a mount namespace of its own, and prints its
// notes.
func inMountNamespace(dir string, do func(dir string, note func(string, error)) error) int {
	runtime.LockOSThread() // the mounts are of this thread
	notes := map[string]string{}
	note := func(name string, err error) {
		notes[name] = fmt.Sprint(err)
		if typed, ok := err.(*fsops.Error); ok {
			notes[name] = strings.TrimSpace(typed.Kind.String() + " " + typed.ErrnoName())
		}
	}
	err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	if err == nil {
		err = do(dir, note)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(notes)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// wantNotes runs a program of inMountNamespace and compares its notes.
func wantNotes(t *testing.T, program string, want map[string]string) {
	t.Helper()
	argv := testproc.Argv(program, t.TempDir())
	command := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("the helper failed; mounts need root: %v", err)
	}
	var notes map[string]string
	if err := json.Unmarshal(output, &notes); err != nil {
		t.Fatal(err)
	}
	for name := range notes {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: unexpected note %s", name, notes[name])
		}
	}
	for name, wanted := range want {
		if notes[name] != wanted {
			t.Errorf("%s: %s, want %s", name, notes[name], wanted)
		}
	}
}

// replaceOnMounts replaces files on a small file system that is full in several
// ways, and then read-only.
func replaceOnMounts(dir string, note func(string, error)) error {
	if err := errors.Join(unix.Mount("none", dir, "tmpfs", 0, "size=256k,nr_inodes=16"), os.WriteFile(dir+"/f", []byte("old"), 0o600)); err != nil {
		return err
	}
	ctx := context.Background()
	for name, uploads := range map[string]*fsops.Uploads{"unnamed": fsops.NewUploads(time.Minute, 4, 4), "named": fsops.NewUploads(time.Minute, 4, 4).WithNames()} {
		defer uploads.Close()
		large := strings.Repeat("x", 1<<20)
		_, err := replace(ctx, uploads, fsops.Replacement{Path: dir + "/f"}, large)
		note(name+", no space for the content", err)
		_, err = replace(ctx, uploads, fsops.Replacement{Path: dir + "/f", ID: "u"}, large)
		note(name+", no space for what would be kept", err)
		_, err = uploads.Find("", "u")
		note(name+", the upload that had no space", err)
		note(name+", what is left", onlyOld(dir))
		u, err := uploads.Begin(ctx, fsops.Replacement{Path: dir + "/f"})
		if err == nil {
			err = u.Write(ctx, []byte("new"))
		}
		if err != nil {
			return err
		}
		fill(dir)
		_, err = u.Commit(ctx, nil)
		u.Leave()
		note(name+", no space when there was some before", err)
		fill(dir)
		_, err = uploads.Begin(ctx, fsops.Replacement{Path: dir + "/g"})
		note(name+", no space for a file", err)
		if err := empty(dir); err != nil {
			return err
		}
		note(name+", what is left in the end", onlyFile(dir))
		if err := os.WriteFile(dir+"/f", []byte("old"), 0o600); err != nil {
			return err
		}
	}
	if err := unix.Mount("none", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return err
	}
	uploads := fsops.NewUploads(time.Minute, 4, 4)
	_, err := uploads.Begin(ctx, fsops.Replacement{Path: dir + "/f"})
	note("read-only", err)
	_, err = uploads.WithNames().Begin(ctx, fsops.Replacement{Path: dir + "/f"})
	note("read-only, named", err)
	note("rename on read-only", fsops.Rename(dir+"/f", dir+"/g", false))
	note("link on read-only", fsops.CreateSymlink(dir+"/l", "f"))
	return nil
}

// fill makes empty files until the file system is full.
func fill(dir string) {
	for i := 0; os.WriteFile(fmt.Sprintf("%s/filler-%d", dir, i), nil, 0o600) == nil; i++ {
	}
}

// empty removes the files of fill.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "filler-") {
			err = errors.Join(err, os.Remove(dir+"/"+e.Name()))
		}
	}
	return err
}

// onlyFile fails if a directory has other entries than f.
func onlyFile(dir string) error {
	entries, err := os.ReadDir(dir)
	if err == nil && (len(entries) != 1 || entries[0].Name() != "f") {
		err = fmt.Errorf("there are %v", entries)
	}
	return err
}

// onlyOld fails unless the directory has only f, unchanged.
func onlyOld(dir string) error {
	content, err := os.ReadFile(dir + "/f")
	if err == nil && string(content) != "old" {
		err = fmt.Errorf("the file has %d bytes", len(content))
	}
	return errors.Join(err, onlyFile(dir))
}

func TestUpload_FullOrReadOnlyFileSystem(t *testing.T) {
	want := map[string]string{
		"read-only":           "read-only EROFS",
		"read-only, named":    "read-only EROFS",
		"rename on read-only": "read-only EROFS",
		"link on read-only":   "read-only EROFS",
	}
	for _, name := range []string{"unnamed", "named"} {
		want[name+", no space for the content"] = "no space ENOSPC"
		want[name+", no space for what would be kept"] = "no space ENOSPC"
		want[name+", the upload that had no space"] = "upload not found"
		want[name+", what is left"] = "<nil>"
		want[name+", no space when there was some before"] = "<nil>"
		want[name+", no space for a file"] = "no space ENOSPC"
		want[name+", what is left in the end"] = "<nil>"
	}
	wantNotes(t, "fsops-mounted-replace", want)
}

// removeMounts removes and renames trees with mount points in them.
func removeMounts(dir string, note func(string, error)) error {
	err := errors.Join(os.MkdirAll(dir+"/tree/deep/mounted", 0o755), os.MkdirAll(dir+"/tree/bound", 0o755),
		os.Mkdir(dir+"/tree/free", 0o755), os.Mkdir(dir+"/kept", 0o755),
		os.WriteFile(dir+"/kept/f", nil, 0o644), os.WriteFile(dir+"/tree/file", nil, 0o644),
		unix.Mount("none", dir+"/tree/deep/mounted", "tmpfs", 0, "size=64k"), os.WriteFile(dir+"/tree/deep/mounted/f", nil, 0o644),
		unix.Mount(dir+"/kept", dir+"/tree/bound", "", unix.MS_BIND, ""), unix.Mount(dir+"/kept/f", dir+"/tree/file", "", unix.MS_BIND, ""))
	if err != nil {
		return err
	}
	ctx := context.Background()
	recursive := fsops.Removal{Recursive: true, IgnoreMissing: true}
	for _, name := range []string{"/tree/deep/mounted", "/tree/deep", "/tree/bound"} {
		note("remove "+name, fsops.Remove(ctx, dir+name, recursive))
	}
	note("remove the file", fsops.Remove(ctx, dir+"/tree/file", recursive))
	note("remove without what is in it", fsops.Remove(ctx, dir+"/tree/bound", fsops.Removal{}))
	note("rename a mount", fsops.Rename(dir+"/tree/bound", dir+"/tree/b", false))
	note("rename over a mount", fsops.Rename(dir+"/tree/free", dir+"/tree/bound", false))
	note("rename to a mount", fsops.Rename(dir+"/kept/f", dir+"/tree/deep/mounted/g", false))
	note("rename within one file system, across mounts", fsops.Rename(dir+"/kept/f", dir+"/tree/bound/g", false))
	uploads := fsops.NewUploads(time.Minute, 4, 4)
	_, err = replace(ctx, uploads, fsops.Replacement{Path: dir + "/tree/file"}, "x")
	note("replace a mount", err)
	note("remove the tree", fsops.Remove(ctx, dir+"/tree", recursive))
	for _, name := range []string{"/tree/deep/mounted/f", "/kept/f"} {
		_, err := os.Stat(dir + name)
		note(name, err)
	}
	if err := errors.Join(unix.Unmount(dir+"/tree/deep/mounted", 0), unix.Unmount(dir+"/tree/bound", 0), unmountIfThere(dir+"/tree/file")); err != nil {
		return err
	}
	note("remove when nothing is mounted", fsops.Remove(ctx, dir+"/tree", recursive))
	return nil
}

func unmountIfThere(path string) error {
	if err := unix.Unmount(path, 0); err != unix.EINVAL && err != unix.ENOENT {
		return err
	}
	return nil
}

func TestRemove_MountPoint_Fails(t *testing.T) {
	wantNotes(t, "fsops-mounted-tree", map[string]string{
		"remove /tree/deep/mounted":                    "mount point EBUSY",
		"remove /tree/deep":                            "mount point EBUSY",
		"remove /tree/bound":                           "mount point EBUSY",
		"remove the file":                              "mount point EBUSY",
		"remove without what is in it":                 "mount point EBUSY",
		"rename a mount":                               "mount point EBUSY",
		"rename over a mount":                          "mount point EBUSY",
		"rename to a mount":                            "cross device EXDEV",
		"replace a mount":                              "mount point EBUSY",
		"remove when nothing is mounted":               "<nil>",
		"/tree/deep/mounted/f":                         "<nil>",
		"/kept/f":                                      "<nil>",
		"rename within one file system, across mounts": "cross device EXDEV",
		"remove the tree":                              "mount point EBUSY",
	})
}
