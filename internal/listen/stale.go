package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// clearPlace makes u's path free: it removes a socket that nobody answers and
// nothing else. The caller holds the directory's lock; private is a directory
// of its own on the same file system.
func clearPlace(ctx context.Context, u URL, private string) error {
	info, err := os.Lstat(u.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return systemError(u, "the path cannot be examined", err)
	case info.Mode().Type() != fs.ModeSocket:
		return inTheWay(u, "a "+kindOf(info.Mode()))
	}
	switch err := dial(ctx, u.Path); {
	case errors.Is(err, unix.ECONNREFUSED):
		return removeStale(u, inodeFrom(info), private)
	case errors.Is(err, fs.ErrNotExist):
		return nil // its server has just removed it
	case err == nil, errors.Is(err, unix.EAGAIN):
		return &Error{
			Kind: KindInUse, URL: u.String(), Problem: fmt.Sprintf("socket %s is already in use", u.Path),
			Fix: "stop the other server or choose another path", Err: unix.EADDRINUSE,
		}
	default:
		return &Error{
			Kind: KindInTheWay, URL: u.String(), Problem: fmt.Sprintf("there is a socket at %s, and no telling whether it is in use", u.Path),
			Fix: "remove it if it is not, or choose another path", Err: err,
		}
	}
}

// probePatience bounds the question whether anybody answers. A connection to a
// unix socket succeeds or fails at once unless its backlog is full.
const probePatience = 2 * time.Second

func dial(ctx context.Context, path string) error {
	d := net.Dialer{Timeout: probePatience}
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	return conn.Close()
}

// removeStale takes the socket out of its place and only then looks whether it
// is the one that was found dead: what came there meanwhile is put back.
func removeStale(u URL, dead inode, private string) error {
	aside := filepath.Join(private, "stale")
	if err := os.Rename(u.Path, aside); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return systemError(u, "the dead socket cannot be removed", err)
	}
	if got, err := inodeOf(aside); err != nil || got != dead {
		return errors.Join(inTheWay(u, "a file that has just appeared there"), moveInto(aside, u.Path))
	}
	return os.Remove(aside)
}

func inTheWay(u URL, what string) *Error {
	return &Error{
		Kind: KindInTheWay, URL: u.String(), Problem: fmt.Sprintf("%s is in the way: %s", u.Path, what),
		Fix: "it is not a socket left behind, so it stays: move it or choose another path",
	}
}

func kindOf(mode fs.FileMode) string {
	switch mode.Type() {
	case fs.ModeDir:
		return "directory"
	case fs.ModeSymlink:
		return "symbolic link"
	case 0:
		return "regular file"
	default:
		return "special file"
	}
}

// lockInterval is how long to leave a lock alone that somebody else holds; they
// hold it for as long as a connection attempt takes.
const lockInterval = 5 * time.Millisecond

// lockPatience is how long to wait for it. Whoever may open the directory can
// hold its lock, and need not be a server.
const lockPatience = 10 * time.Second

var errLockHeld = fmt.Errorf("another process has held its lock for %v", lockPatience)

// lockDirectory takes the exclusive lock on dir, waiting until ctx ends, at
// most for lockPatience. It is advisory, and the kernel drops it with its
// holder.
func lockDirectory(ctx context.Context, dir string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockPatience, errLockHeld)
	defer cancel()
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(lockInterval)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("failed to lock %s: %w", dir, err), f.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("failed to lock %s: %w", dir, context.Cause(ctx))
		}
	}
}
