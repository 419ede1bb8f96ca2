package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// fileFacts are what a transfer knows of a file.
type fileFacts struct {
	kind       execwirev1.FileType
	size       int64
	mode       uint32
	modifyTime time.Time
	target     string // of a link
}

// transferSide is one end of a transfer. Names are relative to its base, which is
// "." itself.
type transferSide interface {
	lstat(ctx context.Context, name string) (fileFacts, error)
	readDir(ctx context.Context, name string) (map[string]execwirev1.FileType, error)
	digest(ctx context.Context, name string) ([]byte, error)
}

// transferDestination is the end that is written to.
type transferDestination interface {
	transferSide
	// mkdir makes a directory, with the mode bits if it makes one, and reports
	// whether it did.
	mkdir(ctx context.Context, name string, mode uint32) (made bool, err error)
	symlink(ctx context.Context, name, target string) error
	removeAll(ctx context.Context, name string) error
}

const (
	regularFile = execwirev1.FileType_FILE_TYPE_REGULAR
	directory   = execwirev1.FileType_FILE_TYPE_DIRECTORY
	symlink     = execwirev1.FileType_FILE_TYPE_SYMLINK
)

// transfer is one Push or Pull.
type transfer struct {
	source      transferSide
	destination transferDestination
	options     TransferOptions
	// copy copies a regular file; it returns its size, and whether it was changed
	// meanwhile. finish, if any, is called at the end.
	copy   func(ctx context.Context, name string) (size int64, changed bool, err error)
	finish func() error

	mu      sync.Mutex
	ready   *sync.Cond       // signalled when tasks or pending change
	tasks   []transferTask   // guarded by mu; the last one is done first
	pending int              // guarded by mu; tasks that are not done
	extra   []string         // guarded by mu; what Delete removes
	fatal   error            // guarded by mu; ends everything
	failed  TransferError    // guarded by mu
	done    Transferred      // guarded by mu
	moving  map[string]int64 // guarded by mu; bytes of the files that are being copied
}

// transferTask is one name to copy.
type transferTask struct {
	name string
	kind execwirev1.FileType
	// there is what the destination has by this name; unspecified for nothing.
	there execwirev1.FileType
}

func newTransfer(source transferSide, destination transferDestination, options TransferOptions) *transfer {
	t := &transfer{source: source, destination: destination, options: options, moving: map[string]int64{}}
	t.ready = sync.NewCond(&t.mu)
	return t
}

const defaultParallel = 16

func (t *transfer) run(ctx context.Context) (Transferred, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errors.New("the transfer is over"))
	first, err := t.first(ctx)
	if err != nil {
		return t.done, err
	}
	t.add(first)
	parallel := t.options.Parallel
	if parallel <= 0 {
		parallel = defaultParallel
	}
	var workers sync.WaitGroup
	for range parallel {
		workers.Go(func() {
			for task, ok := t.next(); ok; task, ok = t.next() {
				t.finished(ctx, task, t.do(ctx, task), cancel)
			}
		})
	}
	workers.Wait()
	if t.fatal == nil && t.done.Failed == 0 {
		t.deleteExtra(ctx)
	}
	if t.finish != nil {
		if err := t.finish(); err != nil {
			t.note(".", err)
		}
	}
	switch {
	case t.fatal != nil:
		return t.done, t.fatal
	case t.done.Failed > 0:
		t.failed.Failed = t.done.Failed
		return t.done, &t.failed
	}
	return t.done, nil
}

// first is the task that is the source itself.
func (t *transfer) first(ctx context.Context) (transferTask, error) {
	facts, err := t.source.lstat(ctx, ".")
	if err != nil {
		return transferTask{}, err
	}
	task := transferTask{name: ".", kind: facts.kind}
	if facts.kind == directory && !t.options.Recursive {
		return task, &fs.PathError{Op: "copy", Path: task.name, Err: errIsDirectory}
	}
	there, err := t.destination.lstat(ctx, ".")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return task, err
	}
	task.there = there.kind
	return task, nil
}

// add adds tasks.
func (t *transfer) add(tasks ...transferTask) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tasks = append(t.tasks, tasks...)
	t.pending += len(tasks)
	t.ready.Broadcast()
}

// next waits for a task; there is none when all are done, or one was fatal.
func (t *transfer) next() (transferTask, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.tasks) == 0 && t.pending > 0 && t.fatal == nil {
		t.ready.Wait()
	}
	if len(t.tasks) == 0 || t.fatal != nil {
		return transferTask{}, false
	}
	task := t.tasks[len(t.tasks)-1]
	t.tasks = t.tasks[:len(t.tasks)-1]
	return task, true
}

// finished notes what came of a task.
func (t *transfer) finished(ctx context.Context, task transferTask, err error, cancel context.CancelCauseFunc) {
	if err != nil && !isFatal(ctx, err) {
		t.note(task.name, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending--
	delete(t.moving, task.name)
	if err != nil && t.fatal == nil && isFatal(ctx, err) {
		t.fatal = err
		cancel(err)
	}
	t.ready.Broadcast()
}

// isFatal is whether there is no use in copying other files after err.
func isFatal(ctx context.Context, err error) bool {
	var e *Error
	if ctx.Err() != nil {
		return true
	}
	return errors.As(err, &e) && (!e.fromServer || e.Code == codes.Unavailable || e.Code == codes.Unauthenticated ||
		e.Reason == execwirev1.ErrorReason_ERROR_REASON_CALL_NOT_ALLOWED)
}

// note notes a failure about one name.
func (t *transfer) note(name string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done.Failed == 0 {
		t.failed.Path, t.failed.Err = name, err
	}
	t.done.Failed++
	if t.options.OnFailed != nil {
		t.options.OnFailed(name, err)
	}
}

// count changes what is done.
func (t *transfer) count(change func(*Transferred)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.done)
}

// progress says how much of a file was copied.
func (t *transfer) progress(name string, size, done int64) {
	if t.options.OnProgress == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.moving[name] = done
	report := TransferProgress{Transferred: t.done, Path: name, Size: size, Done: done}
	for _, n := range t.moving {
		report.MovingBytes += n
	}
	t.options.OnProgress(report)
}

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
	// What is there may be a link to a directory, which is as good as one.
	if task.there != 0 && task.there != task.kind && t.options.Delete {
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
	entries, err := t.source.readDir(ctx, task.name)
	if err != nil {
		return err
	}
	facts, err := t.source.lstat(ctx, task.name)
	if err != nil {
		return err
	}
	made := false
	if task.there != directory {
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
		tasks = append(tasks, transferTask{name: path.Join(task.name, name), kind: kind, there: there[name]})
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
		case err == nil && (t.options.NoReplace || there.kind == symlink && there.target == facts.target):
			t.count(func(done *Transferred) { done.Skipped++ })
			return nil
		case err == nil && there.kind == directory:
			return &fs.PathError{Op: "copy link", Path: task.name, Err: errInTheWay}
		case err == nil:
			if err := t.destination.removeAll(ctx, task.name); err != nil {
				return err
			}
		}
	}
	if err := t.destination.symlink(ctx, task.name, facts.target); err != nil {
		return err
	}
	t.count(func(done *Transferred) { done.Links++ })
	return nil
}

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
