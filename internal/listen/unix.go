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

// unixListener owns the socket at its path for as long as that is the inode it
// made.
type unixListener struct {
	*net.UnixListener
	url     URL
	made    inode
	close   func() error
	retried net.Listener // the same, with accepts that are retried
	limiter *limiter
}

func (l *unixListener) URL() URL { return l.url }

// Addr returns the path that clients use, not the private one it was bound to.
func (l *unixListener) Addr() net.Addr { return &net.UnixAddr{Name: l.url.Path, Net: "unix"} }

// Accept waits for the next connection that has a place.
func (l *unixListener) Accept() (net.Conn, error) {
	conn, err := l.limiter.accept(l.retried.Accept)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// Close removes the socket, if the path still has the one made here, and stops
// listening. Closing again returns the same result.
func (l *unixListener) Close() error { return l.close() }

// shut removes the socket while it is still answered: as long as it is, no
// other server takes it for dead and puts its own in the place that is about to
// be removed.
func (l *unixListener) shut() error {
	var removal error
	if now, err := inodeOf(l.url.Path); err == nil && now == l.made {
		removal = os.Remove(l.url.Path)
	}
	err := l.retried.Close()
	l.limiter.close()
	return errors.Join(removal, err)
}

// inode identifies a file while something holds it: it is not given to another
// as long as it is bound or open.
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

// listenUnix makes the socket in a private directory beside its place and moves
// it there when it is complete, so that nobody ever sees it with another mode
// or without somebody answering. Servers of the same user that want the same place
// take turns on a lock file beside it. What proves that a server has the place is
// that it can be connected to.
func listenUnix(ctx context.Context, u URL, locks Locks) (Listener, error) {
	u, err := parseUnix(u.String(), u.Path) // Parse need not have made it
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
	if err := clearPlace(ctx, u, private); err != nil {
		return nil, err
	}
	l, err := bindIn(private, u)
	if err != nil {
		return nil, &Error{Kind: KindSystem, URL: u.String(), Problem: "the system refused", Err: err}
	}
	if err := moveInto(filepath.Join(private, socketName), u.Path); err != nil {
		_ = l.UnixListener.Close()
		if errors.Is(err, fs.ErrExist) {
			return nil, inTheWay(u, "a file that has just appeared there")
		}
		return nil, systemError(u, "the socket cannot be moved into its place", err)
	}
	l.retried = retryAccepts(l.UnixListener, locks.acceptFailed(u))
	l.limiter = newLimiter(u, locks)
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

// bindIn listens on a socket in the directory private. It names the directory
// by descriptor, because its own path may be longer than an address holds.
func bindIn(private string, u URL) (*unixListener, error) {
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
		l.close = sync.OnceValue(l.shut)
		if l.made, err = inodeOf(path); err == nil {
			return l, nil
		}
	}
	_ = lis.Close()
	return nil, err
}

// moveInto renames from to to, where nothing may be.
func moveInto(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// A file system that cannot exclude what appears in this instant: the
		// path is locked against other servers of this user, and that has to do.
		return os.Rename(from, to)
	}
	return err
}
