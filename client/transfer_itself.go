package client

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"path"
	"strings"
)

// What is copied from and what is copied to can be the same file system, and no path
// says so: the server may be on this machine, and may see it under other paths. A copy
// into what is copied would meet what it makes, and never end. It meets the directory
// that it copies to by its name, and a new one below that at a path that ends with
// that of the new one in the destination. So there nothing has to be known but whether
// two directories are one: that of the destination gets a directory with a name that
// nobody else has, and if the other has it too, they are.

// makes notes that a directory is about to be made in one that was there before.
func (t *transfer) makes(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.made[name] = true
}

// refuseMade refuses a directory of the source that is the destination, or that the
// transfer has made in it.
func (t *transfer) refuseMade(ctx context.Context, name string) error {
	if name == "." {
		return nil
	}
	var candidates []string
	if path.Base(name) == t.destination.lastName() {
		candidates = append(candidates, ".")
	}
	t.mu.Lock()
	// Had the whole name been made, the source would not be the destination.
	for _, end, more := strings.Cut(name, "/"); more; _, end, more = strings.Cut(end, "/") {
		if t.made[end] {
			candidates = append(candidates, end)
		}
	}
	t.mu.Unlock()
	for _, candidate := range candidates {
		is, err := t.isOne(ctx, name, candidate)
		if err != nil {
			return err
		}
		if is {
			return &fs.PathError{Op: "copy", Path: name, Err: errIntoItself}
		}
	}
	return nil
}

// isOne is whether a directory of the source is one of the destination.
func (t *transfer) isOne(ctx context.Context, name, there string) (bool, error) {
	mark := ".execwire-" + rand.Text()
	err := t.destination.mark(ctx, path.Join(there, mark))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // not made yet, and the other is there
	}
	if err != nil {
		return false, err
	}
	_, err = t.source.lstat(ctx, path.Join(name, mark))
	removed := t.destination.removeAll(ctx, path.Join(there, mark))
	switch {
	case err == nil:
		return true, removed
	case errors.Is(err, fs.ErrNotExist):
		return false, removed
	}
	return false, err
}
