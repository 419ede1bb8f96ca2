package client

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
	"sync"
	"syscall"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// localSide is this machine's end of a transfer. It goes nowhere but to what is
// below the directory of its base.
type localSide struct {
	root *os.Root
	base string

	mu    sync.Mutex
	modes []directoryMode // guarded by mu; of the directories that were made
}

type directoryMode struct {
	path string
	mode os.FileMode
}

// openLocal opens the directory that a path is in.
func openLocal(local string) (*localSide, error) {
	local, err := filepath.Abs(local)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(filepath.Dir(local))
	if err != nil {
		return nil, err
	}
	side := &localSide{root: root, base: filepath.Base(local)}
	if local == "/" {
		side.base = "."
	}
	return side, nil
}

func (s *localSide) follow(context.Context) error {
	real, err := filepath.EvalSymlinks(filepath.Join(s.root.Name(), s.base))
	if err != nil {
		return err
	}
	followed, err := openLocal(real)
	if err != nil {
		return err
	}
	s.close()
	s.root, s.base = followed.root, followed.base
	return nil
}

func (s *localSide) close() { _ = s.root.Close() }

func (s *localSide) path(name string) string { return path.Join(s.base, name) }

func (s *localSide) lstat(_ context.Context, name string) (fileFacts, error) {
	info, err := s.root.Lstat(s.path(name))
	if err != nil {
		return fileFacts{}, err
	}
	facts := fileFacts{kind: localType(info.Mode()), size: info.Size(), mode: modeBits(info.Mode()), modifyTime: info.ModTime()}
	if facts.kind == symlink {
		facts.target, err = s.root.Readlink(s.path(name))
	}
	return facts, err
}

func localType(mode os.FileMode) execwirev1.FileType {
	switch {
	case mode.IsRegular():
		return regularFile
	case mode.IsDir():
		return directory
	case mode&os.ModeSymlink != 0:
		return symlink
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

func (s *localSide) readDir(_ context.Context, name string) (map[string]execwirev1.FileType, error) {
	file, err := s.root.OpenFile(s.path(name), os.O_RDONLY|syscall.O_DIRECTORY, 0)
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

// open opens a regular file, and does not wait for one that is no file by now.
func (s *localSide) open(name string) (*os.File, os.FileInfo, error) {
	file, err := s.root.OpenFile(s.path(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "copy", Path: s.path(name), Err: errors.New("it is no regular file")}
	}
	if err != nil {
		_ = file.Close() // it was only looked at
		return nil, nil, err
	}
	return file, info, nil
}

func (s *localSide) digest(_ context.Context, name string) ([]byte, error) {
	file, _, err := s.open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	digest := sha256.New()
	_, err = io.Copy(digest, file)
	return digest.Sum(nil), err
}

// mkdir makes a directory that can be filled; setModes gives it its mode.
func (s *localSide) mkdir(_ context.Context, name string, mode uint32) (made bool, err error) {
	err = s.root.Mkdir(s.path(name), 0o700)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.modes = append(s.modes, directoryMode{s.path(name), fileMode(mode)})
		return true, nil
	}
	if info, statErr := s.root.Lstat(s.path(name)); errors.Is(err, fs.ErrExist) && statErr == nil && info.IsDir() {
		return false, nil
	}
	return false, err
}

func (s *localSide) mark(_ context.Context, name string) error {
	return s.root.Mkdir(s.path(name), 0o700)
}

func (s *localSide) lastName() string { return s.base }

// setModes gives the directories that were made their modes, the innermost first.
func (s *localSide) setModes() error {
	var failures []error
	for i := len(s.modes) - 1; i >= 0; i-- {
		failures = append(failures, s.root.Chmod(s.modes[i].path, s.modes[i].mode))
	}
	return errors.Join(failures...)
}

func (s *localSide) symlink(_ context.Context, name, target string) error {
	return s.root.Symlink(target, s.path(name))
}

func (s *localSide) removeAll(_ context.Context, name string) error {
	return s.root.RemoveAll(s.path(name))
}

// uploadID names the upload of a file, so that a later one of the same file to the
// same path goes on with it.
func uploadID(local string, info os.FileInfo, remote string) string {
	identity := fmt.Sprintf("%q %q %d %d", local, remote, info.Size(), info.ModTime().UnixNano())
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		identity += fmt.Sprintf(" %d %d", stat.Dev, stat.Ino)
	}
	digest := sha256.Sum256([]byte(identity))
	return "execwire-" + hex.EncodeToString(digest[:])
}
