package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"
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

// unmarkTimeout bounds how long a copy that was given up waits for its mark to be gone.
const unmarkTimeout = 5 * time.Second

// isOne is whether a directory of the source is one of the destination.
func (t *transfer) isOne(ctx context.Context, name, there string) (bool, error) {
	mark := ".execwire-" + rand.Text()
	err := t.destination.mark(ctx, path.Join(there, mark))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil // not made yet, and the other is there
	case err != nil && ctx.Err() != nil:
		return false, errors.Join(err, t.unmark(ctx, path.Join(there, mark))) // it may have been made and not answered
	case err != nil && t.areOfTwoTimes(ctx, name, there):
		return false, nil
	case err != nil:
		return false, err
	}
	_, err = t.source.lstat(ctx, path.Join(name, mark))
	removed := t.unmark(ctx, path.Join(there, mark))
	switch {
	case err == nil:
		return true, removed
	case errors.Is(err, fs.ErrNotExist):
		return false, removed
	}
	return false, errors.Join(err, removed)
}

// unmark removes a mark, of a copy that was given up, too.
func (t *transfer) unmark(ctx context.Context, mark string) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), unmarkTimeout,
		fmt.Errorf("failed to remove %s: gave up after %v", mark, unmarkTimeout))
	defer cancel()
	return t.destination.removeAll(ctx, mark)
}

// areOfTwoTimes is whether a directory of the source was changed at another time than
// one of the destination, so that they cannot be one. That is for a directory in which
// nothing can be made: others below it may have to be copied to all the same.
func (t *transfer) areOfTwoTimes(ctx context.Context, name, there string) bool {
	here, err := t.source.lstat(ctx, name)
	other, otherErr := t.destination.lstat(ctx, there)
	if err != nil || otherErr != nil || here.modifyTime.Unix() <= 0 || other.modifyTime.Unix() <= 0 {
		return false
	}
	return !sameTime(here.modifyTime.Truncate(time.Millisecond), other.modifyTime.Truncate(time.Millisecond)) // all that some servers tell
}
