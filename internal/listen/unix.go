package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// inode identifies a file as long as it exists or is open: until then its number
// is not reused.
type inode struct{ dev, ino uint64 }

func inodeOf(path string) (inode, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return inode{}, err
	}
	return inodeFrom(info), nil
}

func inodeFrom(info fs.FileInfo) inode {
	st := info.Sys().(*syscall.Stat_t)
	return inode{dev: st.Dev, ino: st.Ino}
}

// listenUnix creates the socket in a private directory and renames it to its path
// when it is complete, so that it never exists with another mode or without
// accepting. Servers of the same user that want the same path are serialized by a
// lock file. That a server owns the path is shown by connecting to it. The listener
// owns the socket as long as the path has the inode that it created.
func listenUnix(ctx context.Context, u URL, opts Options) (Listener, error) {
	u, err := parseUnix(u.String(), u.Path) // u may not be from Parse
	if err != nil {
		return nil, err
	}
	if socket := opts.Taken.take(u); socket != nil {
		return newListener(socket.Listener, u, u, opts, inode{dev: socket.Device, ino: socket.Inode}), nil
	}
	if socket := opts.inherited(u); socket != nil {
		return newListener(socket, u, u, opts, inode{}), nil
	}
	unlock, err := lockPath(ctx, u.Path)
	if err != nil {
		return nil, systemError(u, "the path cannot be locked", err)
	}
	defer unlock()
	private, err := os.MkdirTemp(filepath.Dir(u.Path), ".execwire-")
	if err != nil {
		return nil, systemError(u, "the directory cannot be written to", err)
	}
	defer func() { _ = os.RemoveAll(private) }()
	if err := clearPath(ctx, u, private); err != nil {
		return nil, err
	}
	lis, created, err := bindPrivate(private)
	if err != nil {
		return nil, &Error{Kind: KindSystem, URL: u.String(), Problem: "the system refused", Err: err}
	}
	if err := renameNoReplace(filepath.Join(private, socketName), u.Path); err != nil {
		_ = lis.Close()
		if errors.Is(err, fs.ErrExist) {
			return nil, pathOccupied(u, "a file that has just appeared there")
		}
		return nil, systemError(u, "the socket cannot be moved into its place", err)
	}
	return newListener(lis, u, u, opts, created), nil
}

// unlink removes the file of the socket, if the path still has it. A zero file is none.
func unlink(u URL, file inode) error {
	if file == (inode{}) {
		return nil
	}
	if now, err := inodeOf(u.Path); err != nil || now != file {
		return nil
	}
	return os.Remove(u.Path)
}

func systemError(u URL, problem string, err error) *Error {
	fix := ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fix = fmt.Sprintf("create the directory %s first", filepath.Dir(u.Path))
	case errors.Is(err, errLockHeld):
		fix = "find the holder in /proc/locks and end it, or choose another path"
	case errors.Is(err, fs.ErrPermission):
		fix = fmt.Sprintf("choose a directory that belongs to uid %d", os.Getuid())
	}
	return &Error{Kind: KindSystem, URL: u.String(), Problem: problem, Fix: fix, Err: err}
}

const socketName = "s"

// bindPrivate listens on a socket in the directory private. It uses the
// directory's descriptor, because the path may be too long for a socket address.
func bindPrivate(private string) (lis *net.UnixListener, created inode, err error) {
	dir, err := os.Open(private)
	if err != nil {
		return nil, inode{}, err
	}
	defer func() { _ = dir.Close() }()
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketName)
	lis, err = net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, inode{}, err
	}
	lis.SetUnlinkOnClose(false) // it would remove whatever has the name by then
	path := filepath.Join(private, socketName)
	if err = os.Chmod(path, 0o600); err == nil {
		created, err = inodeOf(path)
	}
	if err != nil {
		_ = lis.Close()
		return nil, inode{}, err
	}
	return lis, created, nil
}

// renameNoReplace renames from to to, which must not exist.
func renameNoReplace(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// The file system does not support RENAME_NOREPLACE. The lock still
		// excludes other servers of this user.
		return os.Rename(from, to)
	}
	return err
}
