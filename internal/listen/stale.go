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

// clearPlace makes u's path free: it removes a socket that nobody answers and
// nothing else. The caller holds the lock for it; private is a directory
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

// lockInterval is how long to leave a lock alone that another server holds; it
// holds it for as long as a connection attempt takes.
const lockInterval = 5 * time.Millisecond

// lockPatience is how long to wait for it. Another process of the same user can
// hold the lock, and need not be a server.
const lockPatience = 10 * time.Second

var errLockHeld = fmt.Errorf("another process has held its lock for %v", lockPatience)

// lockMode lets no process open a lock file for reading: a lock needs it open,
// and programs that may only read must not keep servers from starting.
const lockMode = 0o200

// lockName is the lock file for a path. It is removed before the lock is given up.
func lockName(path string) string {
	sum := sha256.Sum256([]byte(filepath.Base(path))) // whose own name may be as long as a name can be
	return filepath.Join(filepath.Dir(path), ".execwire-lock-"+hex.EncodeToString(sum[:8]))
}

// lockPath has servers of this user that want the same path take turns, waiting
// until ctx ends, at most for lockPatience. The lock is advisory, and the kernel
// drops it with its holder. It is a courtesy: if the file belongs to another user
// there is none, because that one could keep it for ever.
func lockPath(ctx context.Context, path string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockPatience, errLockHeld)
	defer cancel()
	name := lockName(path)
	tick := time.NewTicker(lockInterval)
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
// if the file was removed by the one that had it.
func tryLock(name string) (unlock func(), err error) {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, lockMode)
	switch {
	case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT):
		return nil, err
	case err != nil:
		return func() {}, nil // it is another user's, or no file; if the directory is to blame the next step fails
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
