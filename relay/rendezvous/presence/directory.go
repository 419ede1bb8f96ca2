package presence

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockName is the lock file of a directory. Its mode lets no process open it for
// reading: flock needs an open file, and programs with read access must not be
// able to keep a hub from starting.
const (
	lockName = "execwire-hub.lock"
	lockMode = 0o200
)

// lockDirectory creates the directory, or a temporary one if none is named, and
// locks it against other servers.
func (n *NATS) lockDirectory(directory string) (string, error) {
	var err error
	if directory == "" { // the server needs one even for records in memory
		if directory, err = os.MkdirTemp("", "execwire-hub-"); err != nil {
			return "", err
		}
		n.tempDir = directory
	}
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return "", err
	}
	if n.lock, err = os.OpenFile(filepath.Join(directory, lockName), os.O_WRONLY|os.O_CREATE, lockMode); err != nil {
		return "", err
	}
	switch err := unix.Flock(int(n.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return "", fmt.Errorf("another hub uses the directory %s: stop it, or use another directory", directory)
	case err != nil:
		return "", fmt.Errorf("failed to lock %s: %w", directory, err)
	}
	return directory, nil
}
