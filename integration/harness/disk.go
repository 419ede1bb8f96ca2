package harness

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/testproc"
)

func init() { testproc.Register("with-small-disk", withSmallDisk) }

// SmallDisk is the size in bytes of the file system of [OnSmallDisk].
const SmallDisk = 8 << 20

// OnSmallDisk returns a command line that runs a command for which a directory is a small
// file system, which other processes do not see there.
func OnSmallDisk(directory string, command ...string) []string {
	return testproc.Argv("with-small-disk", append([]string{directory}, command...)...)
}

// withSmallDisk DIRECTORY COMMAND... is the program of OnSmallDisk.
func withSmallDisk(args []string) int {
	runtime.LockOSThread() // the mounts are of the thread that executes
	for _, step := range []func() error{
		func() error { return unix.Unshare(unix.CLONE_NEWNS) },
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return unix.Mount("none", args[0], "tmpfs", 0, fmt.Sprintf("size=%d", SmallDisk)) },
		func() error { return unix.Exec(args[1], args[1:], os.Environ()) },
	} {
		if err := step(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

// PathOf returns a path of the command as this process sees it.
func (c *Command) PathOf(path string) string {
	return filepath.Join("/proc", strconv.Itoa(c.Process.Pid), "root", path)
}

// FillDisk creates a file that fills its file system.
func FillDisk(t testing.TB, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := bytes.Repeat([]byte("x"), 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}
