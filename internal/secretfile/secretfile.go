// Package secretfile reads the files that decide who is let in: keys and tokens
// that nobody else may read, tables and certificates that nobody else may
// write. [Watched] reads them again when they change.
package secretfile

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// maxBytes is the most that such a file may hold.
const maxBytes = 4 << 20

// Error says that a file cannot be trusted or read. It holds nothing of what is
// in the file.
type Error struct {
	// File is its path.
	File string
	// Problem is what is wrong, to be read after the path.
	Problem string
	// Fix is what to do about it; may be empty.
	Fix string
	// Err is the system's reason; may be nil.
	Err error
}

func (e *Error) Error() string {
	text := e.File + " " + e.Problem
	if e.Err != nil {
		text += ": " + reason(e.Err)
	}
	if e.Fix != "" {
		text += ": " + e.Fix
	}
	return text
}

// Unwrap returns the system's reason.
func (e *Error) Unwrap() error { return e.Err }

// reason is an error without the path that the caller names already.
func reason(err error) string {
	if path, ok := err.(*fs.PathError); ok {
		return path.Err.Error()
	}
	return err.Error()
}

// Secret returns what is in the file at path, which holds a key or a token. The
// file is refused if others could read it, or its group while it belongs to
// this program's user: one that belongs to somebody else, as root, is how a
// secret is handed to a group. The error is an *[Error].
func Secret(path string) ([]byte, error) {
	return read(path, func(mode fs.FileMode, owner uint32) *Error {
		if mode&0o004 != 0 || mode&0o040 != 0 && int(owner) == os.Geteuid() {
			return &Error{File: path, Problem: fmt.Sprintf("can be read by others than its owner (mode %04o)", mode), Fix: "chmod 600 " + path}
		}
		return writable(path, mode)
	})
}

// Token is [Secret] without the white space around it, and refuses a token that
// is shorter than least bytes.
func Token(path string, least int) ([]byte, error) {
	text, err := Secret(path)
	if err != nil {
		return nil, err
	}
	text = bytes.TrimSpace(text)
	if len(text) < least {
		return nil, &Error{File: path, Problem: fmt.Sprintf("holds %d bytes, and a secret needs %d", len(text), least),
			Fix: "write a random one, for example with: openssl rand -hex 32"}
	}
	return text, nil
}

// Public returns what is in the file at path, which holds no secret but is
// relied upon: it is refused if its group or others could write it. The error is
// an *[Error].
func Public(path string) ([]byte, error) {
	return read(path, func(mode fs.FileMode, _ uint32) *Error { return writable(path, mode) })
}

func writable(path string, mode fs.FileMode) *Error {
	if mode&0o022 == 0 {
		return nil
	}
	return &Error{File: path, Problem: fmt.Sprintf("can be written by others than its owner (mode %04o)", mode), Fix: "chmod go-w " + path}
}

func read(path string, refuse func(mode fs.FileMode, owner uint32) *Error) ([]byte, error) {
	// A pipe without a writer must not hold the caller up.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, &Error{File: path, Problem: "cannot be opened", Err: err}
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, &Error{File: path, Problem: "cannot be examined", Err: err}
	}
	if !info.Mode().IsRegular() {
		return nil, &Error{File: path, Problem: "is not a regular file"}
	}
	if err := refuse(info.Mode().Perm(), info.Sys().(*syscall.Stat_t).Uid); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, &Error{File: path, Problem: "cannot be read", Err: err}
	}
	if len(text) > maxBytes {
		return nil, &Error{File: path, Problem: fmt.Sprintf("is larger than %d bytes", maxBytes)}
	}
	return text, nil
}
