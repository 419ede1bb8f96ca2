package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// do executes one task.
func (t *Transfer) do(ctx context.Context, task fileTask) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch task.kind {
	case RegularFile, Symlink, Directory:
	default:
		t.count(func(done *Transferred) { done.Omitted++ })
		return nil
	}
	if task.destType != 0 && task.destType != task.kind && t.Options.Delete && task.kind != Symlink {
		if err := t.destination.RemoveAll(ctx, task.name); err != nil {
			return err
		}
		t.count(func(done *Transferred) { done.Deleted++ })
		task.destType = 0
	}
	switch task.kind {
	case Directory:
		return t.doDirectory(ctx, task)
	case Symlink:
		return t.doLink(ctx, task)
	}
	return t.doFile(ctx, task)
}

func (t *Transfer) doDirectory(ctx context.Context, task fileTask) error {
	if err := t.rejectRecursion(ctx, task.name); err != nil {
		return err
	}
	entries, err := t.source.ReadDir(ctx, task.name)
	if err != nil {
		return err
	}
	facts, err := t.source.Lstat(ctx, task.name)
	if err != nil {
		return err
	}
	if task.destType == Directory && t.Options.InPlace && task.name != "." {
		// Servers of the exec-server protocol list links with the type of their target.
		there, err := t.destination.Lstat(ctx, task.name)
		if err != nil {
			return err
		}
		task.destType = there.Kind
	}
	made := false
	if task.destType != Directory {
		// A link to a directory is not accepted: it may lead outside of the
		// destination.
		if task.destType != 0 {
			return &fs.PathError{Op: "make directory", Path: task.name, Err: errInTheWay}
		}
		if !task.inCreated {
			t.noteCreated(task.name)
		}
		if made, err = t.destination.Mkdir(ctx, task.name, facts.Mode&t.Options.ModeMask()); err != nil {
			return err
		}
	}
	there := map[string]execwirev1.FileType{}
	if made {
		t.count(func(done *Transferred) { done.Directories++ })
	} else if there, err = t.destination.ReadDir(ctx, task.name); err != nil {
		return err
	}
	tasks := make([]fileTask, 0, len(entries))
	for name, kind := range entries {
		if below := path.Join(task.name, name); !t.ignore.Match(below, kind == Directory) {
			tasks = append(tasks, fileTask{name: below, kind: kind, destType: there[name], inCreated: task.inCreated || made})
		}
	}
	if t.Options.Delete {
		t.mu.Lock()
		for name, kind := range there {
			below := path.Join(task.name, name)
			if _, ok := entries[name]; !ok && !t.ignore.Match(below, kind == Directory) {
				t.extra = append(t.extra, below)
			}
		}
		t.mu.Unlock()
	}
	t.add(tasks...)
	return nil
}

func (t *Transfer) doLink(ctx context.Context, task fileTask) error {
	facts, err := t.source.Lstat(ctx, task.name)
	if err != nil {
		return err
	}
	if task.destType != 0 {
		there, err := t.destination.Lstat(ctx, task.name)
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		case err == nil && (t.Options.NoReplace && !t.mayRemove(there) || there.Kind == Symlink && there.Target == facts.Target):
			t.count(func(done *Transferred) { done.Skipped++ })
			return nil
		case err == nil && there.Kind == Directory && !t.mayRemove(there):
			return &fs.PathError{Op: "copy link", Path: task.name, Err: errInTheWay}
		case err == nil:
			// If the server cannot create links, fail before anything is removed.
			if err := t.destination.Symlink(ctx, task.name, facts.Target); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			if err := t.destination.RemoveAll(ctx, task.name); err != nil {
				return err
			}
			if t.mayRemove(there) {
				t.count(func(done *Transferred) { done.Deleted++ })
			}
		}
	}
	if err := t.destination.Symlink(ctx, task.name, facts.Target); err != nil {
		return err
	}
	t.count(func(done *Transferred) { done.Links++ })
	return nil
}

// mayRemove reports whether Delete may remove the entry in the place of a link.
func (t *Transfer) mayRemove(there Attributes) bool {
	return t.Options.Delete && there.Kind != Symlink
}

func (t *Transfer) doFile(ctx context.Context, task fileTask) error {
	if task.destType != 0 {
		skip, err := t.isSame(ctx, task)
		if err != nil {
			return err
		}
		if skip {
			t.count(func(done *Transferred) { done.Skipped++ })
			return nil
		}
	}
	size, changed, err := t.Copy(ctx, task.name)
	if t.Options.NoReplace && errors.Is(err, fs.ErrExist) {
		t.count(func(done *Transferred) { done.Skipped++ })
		return nil
	}
	if err != nil {
		return err
	}
	t.count(func(done *Transferred) {
		delete(t.moving, task.name) // at once, so that the progress does not count it twice
		done.Files++
		done.Bytes += size
		if changed {
			done.Changed++
		}
	})
	return nil
}

// isSame reports whether the existing file is left unchanged.
func (t *Transfer) isSame(ctx context.Context, task fileTask) (bool, error) {
	if t.Options.NoReplace {
		return true, nil
	}
	if !t.Options.Update && !t.Options.Checksum {
		return false, nil
	}
	here, err := t.source.Lstat(ctx, task.name)
	if err != nil {
		return false, err
	}
	there, err := t.destination.Lstat(ctx, task.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case there.Kind != RegularFile, there.Size != here.Size, !sameMode(runtime.GOOS, there.Mode, here.Mode, t.Options.ModeMask()):
		return false, nil
	case !t.Options.Checksum:
		return SameTime(here.ModifyTime, there.ModifyTime), nil
	}
	mine, err := t.source.Digest(ctx, task.name)
	if err != nil {
		return false, err
	}
	theirs, err := t.destination.Digest(ctx, task.name)
	return err == nil && bytes.Equal(mine, theirs), err
}

// SameTime compares times in the precision of both file systems.
func SameTime(a, b time.Time) bool {
	if a.Nanosecond() == 0 || b.Nanosecond() == 0 {
		return a.Unix() == b.Unix()
	}
	return a.Equal(b)
}

// deleteExtra removes what the source does not have.
func (t *Transfer) deleteExtra(ctx context.Context) {
	for _, name := range t.extra {
		if ctx.Err() != nil {
			t.fatal = fmt.Errorf("failed to delete to the end: %w", context.Cause(ctx))
			return
		}
		if err := t.destination.RemoveAll(ctx, name); err != nil {
			if t.IsFatal(ctx, err) {
				t.fatal = err
				return
			}
			t.noteFailure(name, err)
			continue
		}
		t.done.Deleted++
	}
}
