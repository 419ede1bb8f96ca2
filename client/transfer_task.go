package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// do does one task.
func (t *transfer) do(ctx context.Context, task transferTask) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch task.kind {
	case regularFile, symlink, directory:
	default:
		t.count(func(done *Transferred) { done.Omitted++ })
		return nil
	}
	if task.there != 0 && task.there != task.kind && t.options.Delete && task.kind != symlink {
		if err := t.destination.removeAll(ctx, task.name); err != nil {
			return err
		}
		t.count(func(done *Transferred) { done.Deleted++ })
		task.there = 0
	}
	switch task.kind {
	case directory:
		return t.doDirectory(ctx, task)
	case symlink:
		return t.doLink(ctx, task)
	}
	return t.doFile(ctx, task)
}

func (t *transfer) doDirectory(ctx context.Context, task transferTask) error {
	if err := t.refuseMade(ctx, task.name); err != nil {
		return err
	}
	entries, err := t.source.readDir(ctx, task.name)
	if err != nil {
		return err
	}
	facts, err := t.source.lstat(ctx, task.name)
	if err != nil {
		return err
	}
	if task.there == directory && t.options.InPlace && task.name != "." {
		// Servers of the exec-server protocol list a link as what it leads to.
		there, err := t.destination.lstat(ctx, task.name)
		if err != nil {
			return err
		}
		task.there = there.kind
	}
	made := false
	if task.there != directory {
		// Not even a link to a directory is as good as one: it may lead elsewhere.
		if task.there != 0 {
			return &fs.PathError{Op: "make directory", Path: task.name, Err: errInTheWay}
		}
		if !task.inMade {
			t.makes(task.name)
		}
		if made, err = t.destination.mkdir(ctx, task.name, facts.mode&t.modeMask()); err != nil {
			return err
		}
	}
	there := map[string]execwirev1.FileType{}
	if made {
		t.count(func(done *Transferred) { done.Directories++ })
	} else if there, err = t.destination.readDir(ctx, task.name); err != nil {
		return err
	}
	tasks := make([]transferTask, 0, len(entries))
	for name, kind := range entries {
		tasks = append(tasks, transferTask{name: path.Join(task.name, name), kind: kind, there: there[name], inMade: task.inMade || made})
	}
	if t.options.Delete {
		t.mu.Lock()
		for name := range there {
			if _, ok := entries[name]; !ok {
				t.extra = append(t.extra, path.Join(task.name, name))
			}
		}
		t.mu.Unlock()
	}
	t.add(tasks...)
	return nil
}

func (t *transfer) doLink(ctx context.Context, task transferTask) error {
	facts, err := t.source.lstat(ctx, task.name)
	if err != nil {
		return err
	}
	if task.there != 0 {
		there, err := t.destination.lstat(ctx, task.name)
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		case err == nil && (t.options.NoReplace && !t.mayRemove(there) || there.kind == symlink && there.target == facts.target):
			t.count(func(done *Transferred) { done.Skipped++ })
			return nil
		case err == nil && there.kind == directory && !t.mayRemove(there):
			return &fs.PathError{Op: "copy link", Path: task.name, Err: errInTheWay}
		case err == nil:
			// A server that makes no links says so before anything is removed.
			if err := t.destination.symlink(ctx, task.name, facts.target); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			if err := t.destination.removeAll(ctx, task.name); err != nil {
				return err
			}
			if t.mayRemove(there) {
				t.count(func(done *Transferred) { done.Deleted++ })
			}
		}
	}
	if err := t.destination.symlink(ctx, task.name, facts.target); err != nil {
		return err
	}
	t.count(func(done *Transferred) { done.Links++ })
	return nil
}

// mayRemove is whether what is in the place of a link is removed as what the source
// does not have.
func (t *transfer) mayRemove(there fileFacts) bool { return t.options.Delete && there.kind != symlink }

func (t *transfer) doFile(ctx context.Context, task transferTask) error {
	if task.there != 0 {
		skip, err := t.isSame(ctx, task)
		if err != nil {
			return err
		}
		if skip {
			t.count(func(done *Transferred) { done.Skipped++ })
			return nil
		}
	}
	size, changed, err := t.copy(ctx, task.name)
	if t.options.NoReplace && errors.Is(err, fs.ErrExist) {
		t.count(func(done *Transferred) { done.Skipped++ })
		return nil
	}
	if err != nil {
		return err
	}
	t.count(func(done *Transferred) {
		done.Files++
		done.Bytes += size
		if changed {
			done.Changed++
		}
	})
	return nil
}

// isSame is whether what is there is left as it is.
func (t *transfer) isSame(ctx context.Context, task transferTask) (bool, error) {
	if t.options.NoReplace {
		return true, nil
	}
	if !t.options.Update && !t.options.Checksum {
		return false, nil
	}
	here, err := t.source.lstat(ctx, task.name)
	if err != nil {
		return false, err
	}
	there, err := t.destination.lstat(ctx, task.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case there.kind != regularFile, there.size != here.size, (there.mode^here.mode)&t.modeMask() != 0:
		return false, nil
	case !t.options.Checksum:
		return sameTime(here.modifyTime, there.modifyTime), nil
	}
	mine, err := t.source.digest(ctx, task.name)
	if err != nil {
		return false, err
	}
	theirs, err := t.destination.digest(ctx, task.name)
	return err == nil && bytes.Equal(mine, theirs), err
}

// sameTime is whether two times are the same, as far as both file systems keep
// them.
func sameTime(a, b time.Time) bool {
	if a.Nanosecond() == 0 || b.Nanosecond() == 0 {
		return a.Unix() == b.Unix()
	}
	return a.Equal(b)
}

// deleteExtra removes what is not in the source.
func (t *transfer) deleteExtra(ctx context.Context) {
	for _, name := range t.extra {
		if ctx.Err() != nil {
			t.fatal = fmt.Errorf("failed to delete to the end: %w", context.Cause(ctx))
			return
		}
		if err := t.destination.removeAll(ctx, name); err != nil {
			if isFatal(ctx, err) {
				t.fatal = err
				return
			}
			t.note(name, err)
			continue
		}
		t.done.Deleted++
	}
}
