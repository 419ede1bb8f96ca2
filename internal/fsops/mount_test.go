package fsops_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/testproc"
)

func init() { testproc.Register("fsops-mounts", mounts) }

// mounts DIR mounts a small file system in a mount namespace of its own, fills
// it, makes it read-only, and prints the error of each step.
func mounts(args []string) int {
	runtime.LockOSThread() // the mounts are of this thread
	dir, ctx := args[0], context.Background()
	for _, err := range []error{
		unix.Unshare(unix.CLONE_NEWNS),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("none", dir, "tmpfs", 0, "size=64k,nr_inodes=16"),
		os.WriteFile(dir+"/source", make([]byte, 40<<10), 0o600),
	} {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	notes := map[string]string{}
	note := func(name string, err error) {
		notes[name] = fmt.Sprint(err)
		if typed, ok := err.(*fsops.Error); ok {
			notes[name] = typed.Kind.String() + " " + typed.ErrnoName()
		}
	}
	note("write to a full disk", fsops.WriteFile(ctx, dir+"/f", make([]byte, 100<<10)))
	_, err := fsops.Copy(ctx, dir+"/source", dir+"/g", false)
	note("copy to a full disk", err)
	note("remove from a full disk", fsops.Remove(ctx, dir+"/f", fsops.Removal{}))
	if err := unix.Mount("none", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	note("read", read(ctx, dir+"/source"))
	note("write", fsops.WriteFile(ctx, dir+"/source", nil))
	note("make", fsops.CreateDirectory(dir+"/d", true, nil))
	note("make what exists", fsops.CreateDirectory(dir, true, nil))
	note("remove", fsops.Remove(ctx, dir+"/source", fsops.Removal{IgnoreMissing: true}))
	note("remove what is missing", fsops.Remove(ctx, dir+"/none", fsops.Removal{}))
	note("remove what may be missing", fsops.Remove(ctx, dir+"/none", fsops.Removal{IgnoreMissing: true}))
	if json.NewEncoder(os.Stdout).Encode(notes) != nil {
		return 1
	}
	return 0
}

func read(ctx context.Context, path string) error {
	_, _, err := fsops.ReadFile(ctx, path, 1<<20)
	return err
}

func TestFullOrReadOnlyFileSystem(t *testing.T) {
	argv := testproc.Argv("fsops-mounts", t.TempDir())
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
	for name, want := range map[string]string{
		"write to a full disk":       "no space ENOSPC",
		"copy to a full disk":        "no space ENOSPC",
		"remove from a full disk":    "<nil>",
		"read":                       "<nil>",
		"write":                      "read-only EROFS",
		"make":                       "read-only EROFS",
		"make what exists":           "<nil>",
		"remove":                     "read-only EROFS",
		"remove what is missing":     "not found ENOENT",
		"remove what may be missing": "<nil>",
	} {
		if notes[name] != want {
			t.Errorf("%s: %s, want %s", name, notes[name], want)
		}
	}
}
