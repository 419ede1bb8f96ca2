// Package secretfile reads security-relevant files: keys and tokens, which only
// their owner may read, and tables and certificates, which only their owner may
// write. [Watched] rereads them when they change.
package secretfile

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// maxBytes bounds the size of a file.
const maxBytes = 4 << 20

// Error means that a file is not secure or cannot be read. It does not contain
// the file's content.
type Error struct {
	// File is the path.
	File string
	// Problem is what is wrong; it follows the path.
	Problem string
	// Fix is what to do; may be empty.
	Fix string
	// Err is the error of the system; may be nil.
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

// Unwrap returns the error of the system.
func (e *Error) Unwrap() error { return e.Err }

// reason returns the text of an error without its path.
func reason(err error) string {
	if path, ok := err.(*fs.PathError); ok {
		return path.Err.Error()
	}
	return err.Error()
}

// Secret returns the content of a file with a key or a token. The file is
// rejected if others can read it, or if its group can and it belongs to this
// process's user: a file of another user, such as root, is how a secret is
// provided to a group. On Windows it is rejected if its access list lets others read
// or write it than its owner, the user of this program, administrators and the
// system; that of a file below the user's profile does not. The error is an *[Error].
func Secret(path string) ([]byte, error) { return read(path, checkSecret) }

// Token is [Secret] without surrounding white space. It rejects a token of less
// than minBytes bytes.
func Token(path string, minBytes int) ([]byte, error) {
	text, err := Secret(path)
	if err != nil {
		return nil, err
	}
	text = bytes.TrimSpace(text)
	if len(text) < minBytes {
		return nil, &Error{File: path, Problem: fmt.Sprintf("has %d bytes; a secret needs at least %d", len(text), minBytes),
			Fix: "write a random one, for example with: openssl rand -hex 32"}
	}
	return text, nil
}

// Public returns the content of a security-relevant file without secrets. It is
// rejected if its group or others can write it; Windows as for [Secret]. The error
// is an *[Error].
func Public(path string) ([]byte, error) { return read(path, checkPublic) }

func read(path string, check func(f *os.File, info fs.FileInfo) *Error) ([]byte, error) {
	// O_NONBLOCK, since opening a pipe without a writer would block.
	f, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0)
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
	if err := check(f, info); err != nil {
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
