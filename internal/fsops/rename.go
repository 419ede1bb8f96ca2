package fsops

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Rename renames a file, atomically. A link is not followed. It replaces the destination, unless
// noReplace is set; a directory replaces only an empty directory. If both are names of one file it
// does nothing.
func Rename(source, destination string, noReplace bool) error {
	source, err := cleanPath("rename", source)
	if err != nil {
		return err
	}
	if destination, err = cleanPath("rename to", destination); err != nil {
		return err
	}
	from, name, err := openParent(source)
	if err != nil {
		return failed("rename", source, err)
	}
	defer from.release()
	to, toName, err := openParent(destination)
	if err != nil {
		return failed("rename to", destination, err)
	}
	defer to.release()
	flags := uint(0)
	if noReplace {
		flags = unix.RENAME_NOREPLACE
	}
	switch err := unix.Renameat2(int(from), name, int(to), toName, flags); err {
	case nil:
		return nil
	case unix.EXDEV:
		return &Error{Kind: CrossDevice, Path: destination, Errno: unix.EXDEV, verb: "rename to",
			Err: errors.New("it is on another file system than " + source + ": copy it there and remove it here")}
	case unix.EEXIST, unix.ENOTEMPTY, unix.EISDIR, unix.ENOTDIR, unix.ENOSPC, unix.EDQUOT:
		return failed("rename to", destination, err)
	case unix.EBUSY:
		if err := failedAt("rename to", place{to, toName, destination}, err); KindOf(err) == MountPoint {
			return err
		}
		return failedAt("rename", place{from, name, source}, err)
	default:
		return failed("rename", source, err)
	}
}

// CreateSymlink creates a symbolic link, and does not interpret its target. It replaces nothing.
func CreateSymlink(path, target string) error {
	path, err := cleanPath("make link", path)
	if err != nil {
		return err
	}
	dir, name, err := openParent(path)
	if err != nil {
		return failed("make link", path, err)
	}
	defer dir.release()
	if err := unix.Symlinkat(target, int(dir), name); err != nil {
		return failed("make link", path, err)
	}
	return nil
}
