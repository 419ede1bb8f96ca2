package transfer

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

// Source and destination can be in the same file system without a path that shows it:
// the server may run on this machine and see it under other paths. Copying a directory
// into itself would recurse without end. The recursion reaches either the destination
// directory, or a directory that the transfer created below it, at a path that ends
// with the name of the latter in the destination. So it is sufficient to compare two
// directories: the transfer creates a directory with a unique name in that of the
// destination, and if it appears in that of the source, both are the same.

// noteCreated records that a directory is about to be created in an existing one.
func (t *Transfer) noteCreated(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.created[name] = true
}

// rejectRecursion rejects a source directory that is the destination, or was created in it
// by the transfer.
func (t *Transfer) rejectRecursion(ctx context.Context, name string) error {
	if name == "." {
		return nil
	}
	var candidates []string
	if path.Base(name) == t.destination.LastName() {
		candidates = append(candidates, ".")
	}
	t.mu.Lock()
	// If the whole name had been created, the source would not be the destination.
	for _, end, more := strings.Cut(name, "/"); more; _, end, more = strings.Cut(end, "/") {
		if t.created[end] {
			candidates = append(candidates, end)
		}
	}
	t.mu.Unlock()
	for _, candidate := range candidates {
		is, err := t.isSameDirectory(ctx, name, candidate)
		if err != nil {
			return err
		}
		if is {
			return &fs.PathError{Op: "copy", Path: name, Err: errIntoItself}
		}
	}
	return nil
}

// unmarkTimeout limits how long a cancelled copy waits to remove its mark.
const unmarkTimeout = 5 * time.Second

// isSameDirectory reports whether a directory of the source and one of the destination
// are the same.
func (t *Transfer) isSameDirectory(ctx context.Context, name, there string) (bool, error) {
	mark := ".execwire-" + rand.Text()
	err := t.destination.Mark(ctx, path.Join(there, mark))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil // not created yet, and the other exists
	case err != nil && ctx.Err() != nil:
		return false, errors.Join(err, t.unmark(ctx, path.Join(there, mark))) // it may have been created without an answer
	case err != nil && t.differInTime(ctx, name, there):
		return false, nil
	case err != nil:
		return false, err
	}
	_, err = t.source.Lstat(ctx, path.Join(name, mark))
	removed := t.unmark(ctx, path.Join(there, mark))
	switch {
	case err == nil:
		return true, removed
	case errors.Is(err, fs.ErrNotExist):
		return false, removed
	}
	return false, errors.Join(err, removed)
}

// unmark removes a mark, even if the copy was cancelled.
func (t *Transfer) unmark(ctx context.Context, mark string) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), unmarkTimeout,
		fmt.Errorf("failed to remove %s: gave up after %v", mark, unmarkTimeout))
	defer cancel()
	return t.destination.RemoveAll(ctx, mark)
}

// differInTime reports whether the modification times of a source and a destination
// directory differ, so that they cannot be the same. It is for directories without
// write permission: others below may still have to be copied.
func (t *Transfer) differInTime(ctx context.Context, name, there string) bool {
	here, err := t.source.Lstat(ctx, name)
	other, otherErr := t.destination.Lstat(ctx, there)
	if err != nil || otherErr != nil || here.ModifyTime.Unix() <= 0 || other.ModifyTime.Unix() <= 0 {
		return false
	}
	return !SameTime(here.ModifyTime.Truncate(time.Millisecond), other.ModifyTime.Truncate(time.Millisecond)) // the precision of some servers
}
