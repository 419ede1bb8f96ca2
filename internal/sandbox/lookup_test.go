package sandbox

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLookup_RevealsOnlyGrantedPaths(t *testing.T) {
	dir := build(t, "work/file = x", "work/closed/", "outside/file = x", "around/deeper/granted/",
		"work/out -> ../outside/file", "work/back -> ../outside/../work/file", "work/loop -> loop", "work/in -> file", "way -> work")
	sandboxes := probed(t, Bubblewrap)
	confinement, err := sandboxes.Confine(resolve(t, Policy{Entries: []Entry{
		{Path: "/usr", Access: AccessRead}, {Path: dir + "/way", Access: AccessWrite}, {Path: dir + "/work/closed", Access: AccessNone},
		{Path: dir + "/around/deeper/granted", Access: AccessRead}}}))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		visibility Visibility
		err        error
	}{
		dir + "/work/file":                 {Visible, nil},
		dir + "/way/file":                  {Visible, nil},
		dir + "/work/./../work//file":      {Visible, nil},
		dir + "/work/in":                   {Visible, nil},
		dir + "/work/missing":              {Visible, unix.ENOENT},
		dir + "/work/file/":                {Visible, unix.ENOTDIR},
		dir + "/work/file/x":               {Visible, unix.ENOTDIR},
		dir + "/work/file/.":               {Visible, unix.ENOTDIR},
		dir + "/work/file/..":              {Visible, unix.ENOTDIR},
		dir + "/work/loop":                 {Visible, unix.ELOOP},
		dir + "/around/deeper":             {Visible, nil},
		dir + "/around/deeper/other":       {Hidden, nil},
		dir + "/work/out":                  {Hidden, nil},
		dir + "/work/back":                 {Hidden, nil},
		dir + "/work/closed":               {Hidden, nil},
		dir + "/work/closed/x":             {Hidden, nil},
		dir + "/outside/file":              {Hidden, nil},
		dir + "/outside/missing":           {Hidden, nil},
		dir + "/outside/../work/file":      {Hidden, nil},
		dir + "/outside/missing/../../way": {Hidden, nil},
		"/usr/bin/true":                    {Visible, nil},
		"/etc/passwd":                      {Hidden, nil},
		"/":                                {Visible, nil},
		"/proc/self/exe":                   {Virtual, nil},
		"/dev/null":                        {Virtual, nil},
	} {
		fd, visibility, err := confinement.Lookup(path)
		if visibility != want.visibility || !errors.Is(err, want.err) || (fd >= 0) != (visibility == Visible && err == nil) {
			t.Errorf("%s: %d, %d, %v, want %v", path, fd, visibility, err, want)
		}
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	// On most machines /bin is a link to a granted directory, on others a directory
	// that is not granted.
	fd, visibility, err := confinement.Lookup("/bin/true")
	info, lost := os.Lstat("/bin")
	if lost != nil || err != nil || (info.Mode().Type() == os.ModeSymlink) != (visibility == Visible) {
		t.Errorf("/bin/true: %d, %v, %v", visibility, err, lost)
	}
	_ = unix.Close(fd)
}
