package fsops

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Rename renames a file, atomically. A link is not followed. It replaces the destination, unless
// noReplace is set; a directory replaces only an empty directory. If both are names of one file it
// does nothing.
func Rename(source, destination string, noReplace bool) error {
	from, err := locateIn("rename", source, nil)
	if err != nil {
		return err
	}
	defer from.dir.release()
	to, err := locateIn("rename to", destination, nil)
	if err != nil {
		return err
	}
	defer to.dir.release()
	flags := uint(0)
	if noReplace {
		flags = unix.RENAME_NOREPLACE
	}
	switch err := unix.Renameat2(int(from.dir), from.name, int(to.dir), to.name, flags); err {
	case nil:
		return nil
	case unix.EXDEV:
		return &Error{Kind: CrossDevice, Path: to.path, Errno: unix.EXDEV, verb: "rename to",
			Err: errors.New("it is on another file system than " + from.path + ": copy it there and remove it here")}
	case unix.EEXIST, unix.ENOTEMPTY, unix.EISDIR, unix.ENOTDIR, unix.ENOSPC, unix.EDQUOT:
		return failed("rename to", to.path, err)
	case unix.EBUSY:
		if err := failedAt("rename to", to.place, err); KindOf(err) == MountPoint {
			return err
		}
		return failedAt("rename", from.place, err)
	default:
		return failed("rename", from.path, err)
	}
}

// CreateSymlink creates a symbolic link, and does not interpret its target. It replaces nothing.
func CreateSymlink(path, target string) error {
	t, err := locateIn("make link", path, nil)
	if err != nil {
		return err
	}
	defer t.dir.release()
	if err := unix.Symlinkat(target, int(t.dir), t.name); err != nil {
		return failed("make link", t.path, err)
	}
	return nil
}
