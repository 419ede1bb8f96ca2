package sandbox

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLook_SeesOnlyWhatIsGranted(t *testing.T) {
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
		reach Reach
		err   error
	}{
		dir + "/work/file":                 {Inside, nil},
		dir + "/way/file":                  {Inside, nil},
		dir + "/work/./../work//file":      {Inside, nil},
		dir + "/work/in":                   {Inside, nil},
		dir + "/work/missing":              {Inside, unix.ENOENT},
		dir + "/work/file/":                {Inside, unix.ENOTDIR},
		dir + "/work/file/x":               {Inside, unix.ENOTDIR},
		dir + "/work/loop":                 {Inside, unix.ELOOP},
		dir + "/around/deeper":             {Inside, nil},
		dir + "/around/deeper/other":       {Outside, nil},
		dir + "/work/out":                  {Outside, nil},
		dir + "/work/back":                 {Outside, nil},
		dir + "/work/closed":               {Outside, nil},
		dir + "/work/closed/x":             {Outside, nil},
		dir + "/outside/file":              {Outside, nil},
		dir + "/outside/missing":           {Outside, nil},
		dir + "/outside/../work/file":      {Outside, nil},
		dir + "/outside/missing/../../way": {Outside, nil},
		"/usr/bin/true":                    {Inside, nil},
		"/etc/passwd":                      {Outside, nil},
		"/":                                {Inside, nil},
		"/proc/self/exe":                   {Own, nil},
		"/dev/null":                        {Own, nil},
	} {
		fd, reach, err := confinement.Look(path)
		if reach != want.reach || !errors.Is(err, want.err) || (fd >= 0) != (reach == Inside && err == nil) {
			t.Errorf("%s: %d, %d, %v, want %v", path, fd, reach, err, want)
		}
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	// /bin is a link to what is granted on most machines, and otherwise a directory that is not.
	fd, reach, err := confinement.Look("/bin/true")
	info, lost := os.Lstat("/bin")
	if lost != nil || err != nil || (info.Mode().Type() == os.ModeSymlink) != (reach == Inside) {
		t.Errorf("/bin/true: %d, %v, %v", reach, err, lost)
	}
	_ = unix.Close(fd)
}
