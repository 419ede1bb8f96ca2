package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// unixListener owns the socket at its path as long as the path has the inode that
// it created.
type unixListener struct {
	*net.UnixListener
	url      URL
	inode    inode
	close    func() error
	retrying net.Listener // the same, with retried accepts
	limiter  *limiter
}

func (l *unixListener) URL() URL { return l.url }

// Addr returns the path for clients, not the private one that the socket was
// bound to.
func (l *unixListener) Addr() net.Addr { return &net.UnixAddr{Name: l.url.Path, Net: "unix"} }

// Accept waits for the next connection.
func (l *unixListener) Accept() (net.Conn, error) {
	conn, err := l.limiter.accept(l.retrying.Accept)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// Close removes the socket, if the path still has it, and stops listening.
// Further calls return the same result.
func (l *unixListener) Close() error { return l.close() }

// shutDown removes the socket before it stops accepting: otherwise another server
// could consider it dead and replace it, and the new one would be removed.
func (l *unixListener) shutDown() error {
	var removal error
	if now, err := inodeOf(l.url.Path); err == nil && now == l.inode {
		removal = os.Remove(l.url.Path)
	}
	err := l.retrying.Close()
	l.limiter.close()
	return errors.Join(removal, err)
}

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
// lock file. That a server owns the path is shown by connecting to it.
func listenUnix(ctx context.Context, u URL, opts Options) (Listener, error) {
	u, err := parseUnix(u.String(), u.Path) // u may not be from Parse
	if err != nil {
		return nil, err
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
	l, err := bindPrivate(private, u)
	if err != nil {
		return nil, &Error{Kind: KindSystem, URL: u.String(), Problem: "the system refused", Err: err}
	}
	if err := renameNoReplace(filepath.Join(private, socketName), u.Path); err != nil {
		_ = l.UnixListener.Close()
		if errors.Is(err, fs.ErrExist) {
			return nil, pathOccupied(u, "a file that has just appeared there")
		}
		return nil, systemError(u, "the socket cannot be moved into its place", err)
	}
	l.retrying = retryAccepts(l.UnixListener, opts.acceptFailed(u))
	l.limiter = newLimiter(u, opts)
	return l, nil
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
func bindPrivate(private string, u URL) (*unixListener, error) {
	dir, err := os.Open(private)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketName)
	lis, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, err
	}
	lis.SetUnlinkOnClose(false) // it would remove whatever has the name by then
	path := filepath.Join(private, socketName)
	if err = os.Chmod(path, 0o600); err == nil {
		l := &unixListener{UnixListener: lis, url: u}
		l.close = sync.OnceValue(l.shutDown)
		if l.inode, err = inodeOf(path); err == nil {
			return l, nil
		}
	}
	_ = lis.Close()
	return nil, err
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
