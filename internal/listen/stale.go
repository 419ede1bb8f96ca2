package listen

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// clearPath makes u's path available: it removes a socket on which no server
// accepts, and nothing else. The caller holds the path's lock; private is its
// private directory on the same file system.
func clearPath(ctx context.Context, u URL, private string) error {
	info, err := os.Lstat(u.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return systemError(u, "the path cannot be examined", err)
	case info.Mode().Type() != fs.ModeSocket:
		return pathOccupied(u, "a "+fileKind(info.Mode()))
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
			Kind: KindPathOccupied, URL: u.String(), Problem: fmt.Sprintf("cannot determine whether the socket %s is in use", u.Path),
			Fix: "remove it if it is not, or choose another path", Err: err,
		}
	}
}

// probeTimeout bounds the connection attempt. On a unix socket it succeeds or
// fails at once unless the backlog is full.
const probeTimeout = 2 * time.Second

func dial(ctx context.Context, path string) error {
	d := net.Dialer{Timeout: probeTimeout}
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	return conn.Close()
}

// removeStale moves the socket away and then checks that it is the one that was
// found dead; a newer file is moved back.
func removeStale(u URL, dead inode, private string) error {
	aside := filepath.Join(private, "stale")
	if err := os.Rename(u.Path, aside); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return systemError(u, "the dead socket cannot be removed", err)
	}
	if got, err := inodeOf(aside); err != nil || got != dead {
		return errors.Join(pathOccupied(u, "a file that has just appeared there"), renameNoReplace(aside, u.Path))
	}
	return os.Remove(aside)
}

func pathOccupied(u URL, what string) *Error {
	return &Error{
		Kind: KindPathOccupied, URL: u.String(), Problem: fmt.Sprintf("%s exists: %s", u.Path, what),
		Fix: "it is not a socket left behind, so it stays: move it or choose another path",
	}
}

func fileKind(mode fs.FileMode) string {
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

// lockRetry is the interval for retrying a lock, which a server holds as long as
// a connection attempt takes.
const lockRetry = 5 * time.Millisecond

// lockTimeout bounds waiting for the lock. Any process of the same user can hold
// it.
const lockTimeout = 10 * time.Second

var errLockHeld = fmt.Errorf("another process has held its lock for %v", lockTimeout)

// lockMode lets no process open a lock file for reading: flock needs an open
// file, and programs with read access must not be able to keep servers from
// starting.
const lockMode = 0o200

// lockName returns the lock file for a path. It is removed before the lock is
// released.
func lockName(path string) string {
	sum := sha256.Sum256([]byte(filepath.Base(path))) // the name itself may have the maximum length
	return filepath.Join(filepath.Dir(path), ".execwire-lock-"+hex.EncodeToString(sum[:8]))
}

// lockPath serializes servers of this user that want the same path. It waits
// until ctx ends, at most lockTimeout. The lock is advisory, and the kernel
// releases it with its process. If the file belongs to another user there is no
// locking, because that user could hold the lock forever.
func lockPath(ctx context.Context, path string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockTimeout, errLockHeld)
	defer cancel()
	name := lockName(path)
	tick := time.NewTicker(lockRetry)
	defer tick.Stop()
	for {
		unlock, err := tryLock(name)
		if err == nil {
			return unlock, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ESTALE) {
			return nil, fmt.Errorf("failed to lock %s: %w", name, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("failed to lock %s: %w", name, context.Cause(ctx))
		}
	}
}

// tryLock fails with EWOULDBLOCK if another process has the lock, and with ESTALE
// if the previous holder has removed the file.
func tryLock(name string) (unlock func(), err error) {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, lockMode)
	switch {
	case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT):
		return nil, err
	case err != nil:
		return func() {}, nil // another user's, or not a file; a directory problem shows in the next step
	}
	var stat unix.Stat_t
	err = unix.Fstat(fd, &stat)
	if err == nil && (stat.Uid != uint32(os.Geteuid()) || stat.Mode&unix.S_IFMT != unix.S_IFREG) {
		return func() {}, unix.Close(fd)
	}
	if err == nil {
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		if there, gone := inodeOf(name); gone != nil || there != (inode{dev: stat.Dev, ino: stat.Ino}) {
			err = unix.ESTALE
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return func() { _, _ = unix.Unlink(name), unix.Close(fd) }, nil
}
