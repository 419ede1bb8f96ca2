package fsops

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Rename gives what is at a path another path, in one step. A link is renamed
// itself. What is at the destination is replaced, unless noReplace; a directory
// replaces an empty directory only. Two names of one file stay as they are.
func Rename(source, destination string, noReplace bool) error {
	source, err := cleaned("rename", source)
	if err != nil {
		return err
	}
	if destination, err = cleaned("rename to", destination); err != nil {
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

// CreateSymlink makes a symbolic link with a target as it is. What is at the path
// stays.
func CreateSymlink(path, target string) error {
	path, err := cleaned("make link", path)
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
