package client

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

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
	// follow makes what the base leads to the base, if it is a link.
	follow(ctx context.Context) error
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
	// mark makes an empty directory that is removed again.
	mark(ctx context.Context, name string) error
	// lastName is the last part of the path of the base.
	lastName() string
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
	// wantsDirectory is whether the source has to be a directory.
	wantsDirectory bool
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
	// made are the directories that were made in others that were there before.
	made        map[string]bool // guarded by mu
	interrupted []leftUpload    // guarded by mu
}

// transferTask is one name to copy.
type transferTask struct {
	name string
	kind execwirev1.FileType
	// there is what the destination has by this name; unspecified for nothing.
	there execwirev1.FileType
	// inMade is whether the directory that it is copied into was made.
	inMade bool
}

func newTransfer(source transferSide, destination transferDestination, options TransferOptions) *transfer {
	t := &transfer{source: source, destination: destination, options: options, moving: map[string]int64{}, made: map[string]bool{}}
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
	switch facts.kind {
	case regularFile, symlink:
		if t.wantsDirectory {
			return task, &fs.PathError{Op: "copy", Path: task.name, Err: errNotDirectory}
		}
	case directory:
		if !t.options.Recursive {
			return task, &fs.PathError{Op: "copy", Path: task.name, Err: errIsDirectory}
		}
	default:
		return task, &fs.PathError{Op: "copy", Path: task.name, Err: errSpecial}
	}
	there, err := t.destination.lstat(ctx, ".")
	if err == nil && there.kind == symlink && facts.kind != symlink {
		if err := t.destination.follow(ctx); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return task, err
		}
		there, err = t.destination.lstat(ctx, ".")
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return task, err
	}
	task.there = there.kind
	return task, nil
}
