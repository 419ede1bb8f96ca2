package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"sync"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Local is the local end of a transfer. It accesses nothing outside of the
// directory of its base.
type Local struct {
	root *os.Root
	base string

	mu    sync.Mutex
	modes []directoryMode // guarded by mu; of created directories
}

type directoryMode struct {
	path string
	mode os.FileMode
}

// OpenLocal opens the parent directory of a path.
func OpenLocal(local string) (*Local, error) {
	local, err := filepath.Abs(local)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(filepath.Dir(local))
	if err != nil {
		return nil, err
	}
	side := &Local{root: root, base: filepath.Base(local)}
	if filepath.Dir(local) == local { // "/", or "C:\"
		side.base = "."
	}
	return side, nil
}

// Follow implements Side.
func (s *Local) Follow(context.Context) error {
	real, err := filepath.EvalSymlinks(filepath.Join(s.root.Name(), s.base))
	if err != nil {
		return err
	}
	followed, err := OpenLocal(real)
	if err != nil {
		return err
	}
	s.Close()
	s.root, s.base = followed.root, followed.base
	return nil
}

// Close releases the directory.
func (s *Local) Close() { _ = s.root.Close() }

func (s *Local) path(name string) string { return path.Join(s.base, name) }

// Lstat implements Side.
func (s *Local) Lstat(_ context.Context, name string) (Attributes, error) {
	info, err := s.root.Lstat(s.path(name))
	if err != nil {
		return Attributes{}, err
	}
	facts := Attributes{Kind: localType(info.Mode()), Size: info.Size(), Mode: ModeBits(info.Mode()), ModifyTime: info.ModTime()}
	if facts.Kind == Symlink {
		facts.Target, err = s.root.Readlink(s.path(name))
		facts.Target = filepath.ToSlash(facts.Target)
	}
	return facts, err
}

func localType(mode os.FileMode) execwirev1.FileType {
	switch {
	case mode.IsRegular():
		return RegularFile
	case mode.IsDir():
		return Directory
	case mode&os.ModeSymlink != 0:
		return Symlink
	case mode&os.ModeNamedPipe != 0:
		return execwirev1.FileType_FILE_TYPE_FIFO
	case mode&os.ModeSocket != 0:
		return execwirev1.FileType_FILE_TYPE_SOCKET
	case mode&os.ModeCharDevice != 0:
		return execwirev1.FileType_FILE_TYPE_CHARACTER_DEVICE
	default:
		return execwirev1.FileType_FILE_TYPE_BLOCK_DEVICE
	}
}

// ReadDir implements Side.
func (s *Local) ReadDir(_ context.Context, name string) (map[string]execwirev1.FileType, error) {
	file, err := s.root.OpenFile(s.path(name), os.O_RDONLY|directoryOnly, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	entries, err := file.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	kinds := make(map[string]execwirev1.FileType, len(entries))
	for _, entry := range entries {
		kinds[entry.Name()] = localType(entry.Type())
	}
	return kinds, nil
}

// Open opens a regular file, and does not block if it was replaced by something else.
func (s *Local) Open(name string) (*os.File, os.FileInfo, error) {
	file, err := s.root.OpenFile(s.path(name), os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "copy", Path: s.path(name), Err: errors.New("not a regular file")}
	}
	if err != nil {
		_ = file.Close() // it was only examined
		return nil, nil, err
	}
	return file, info, nil
}

// Digest implements Side.
func (s *Local) Digest(_ context.Context, name string) ([]byte, error) {
	file, _, err := s.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	digest := sha256.New()
	_, err = io.Copy(digest, file)
	return digest.Sum(nil), err
}

// Mkdir creates a directory with write permission; SetModes sets its mode.
func (s *Local) Mkdir(_ context.Context, name string, mode uint32) (made bool, err error) {
	if err := s.checkName(name); err != nil {
		return false, err
	}
	err = s.root.Mkdir(s.path(name), 0o700)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.modes = append(s.modes, directoryMode{s.path(name), FileMode(mode)})
		return true, nil
	}
	if info, statErr := s.root.Lstat(s.path(name)); errors.Is(err, fs.ErrExist) && statErr == nil && info.IsDir() {
		return false, nil
	}
	return false, err
}

// Mark implements Destination.
func (s *Local) Mark(_ context.Context, name string) error {
	return s.root.Mkdir(s.path(name), 0o700)
}

// LastName implements Destination.
func (s *Local) LastName() string { return s.base }

// SetModes sets the modes of the created directories, innermost first.
func (s *Local) SetModes() error {
	var failures []error
	for i := len(s.modes) - 1; i >= 0; i-- {
		failures = append(failures, s.root.Chmod(s.modes[i].path, s.modes[i].mode))
	}
	return errors.Join(failures...)
}

// Symlink implements Destination.
func (s *Local) Symlink(_ context.Context, name, target string) error {
	if err := s.checkName(name); err != nil {
		return err
	}
	return s.root.Symlink(filepath.FromSlash(target), s.path(name))
}

// RemoveAll implements Destination.
func (s *Local) RemoveAll(_ context.Context, name string) error {
	return s.root.RemoveAll(s.path(name))
}

// checkName rejects a name that this system cannot have, or gives another meaning.
func (s *Local) checkName(name string) error {
	if err := checkName(runtime.GOOS, path.Base(s.path(name))); err != nil {
		return &fs.PathError{Op: "create", Path: s.path(name), Err: err}
	}
	return nil
}

// UploadID returns the upload ID of a file, with which a later upload of the same file
// to the same path resumes.
func UploadID(file *os.File, info os.FileInfo, remote string) string {
	digest := sha256.Sum256(fmt.Appendf(nil, "%q %q %d %d%s", file.Name(), remote, info.Size(), info.ModTime().UnixNano(), identity(file, info)))
	return "execwire-" + hex.EncodeToString(digest[:])
}
