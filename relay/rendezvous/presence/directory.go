package presence

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// DirectoryInUseError is a directory in which another server keeps its files.
type DirectoryInUseError struct {
	Directory string // as it was given
}

func (e *DirectoryInUseError) Error() string {
	return fmt.Sprintf("another hub keeps its files in %s: stop it, or use another directory", e.Directory)
}

// lockName is the file in a directory whose lock its server holds. lockMode lets no process
// open it for reading: a lock needs it open, and programs that may only read must not
// keep a hub from starting.
const (
	lockName = "execwire-hub.lock"
	lockMode = 0o200
)

// claim makes the directory if it is not there, or one that is removed in the end
// if none is named, and locks it: two servers would write over each other's files.
func (n *NATS) claim(directory string) (string, error) {
	var err error
	if directory == "" { // which the server needs also when it keeps all in memory
		if directory, err = os.MkdirTemp("", "execwire-hub-"); err != nil {
			return "", err
		}
		n.scratch = directory
	}
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return "", err
	}
	if n.lock, err = os.OpenFile(filepath.Join(directory, lockName), os.O_WRONLY|os.O_CREATE, lockMode); err != nil {
		return "", err
	}
	switch err := unix.Flock(int(n.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return "", &DirectoryInUseError{Directory: directory}
	case err != nil:
		return "", fmt.Errorf("failed to lock %s: %w", directory, err)
	}
	return directory, nil
}
