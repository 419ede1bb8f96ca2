package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/gitignore"
)

// Attributes are the attributes of a file that a transfer needs.
type Attributes struct {
	Kind       execwirev1.FileType // its type
	Size       int64               // in bytes
	Mode       uint32              // permission and special bits
	ModifyTime time.Time           // zero if unknown
	Target     string              // of a link
}

// Side is one end of a transfer. Names are relative to its base, which is ".".
type Side interface {
	// Follow replaces the base by its target if it is a link.
	Follow(ctx context.Context) error
	Lstat(ctx context.Context, name string) (Attributes, error)
	ReadDir(ctx context.Context, name string) (map[string]execwirev1.FileType, error)
	Digest(ctx context.Context, name string) ([]byte, error)
}

// Destination is the end to write to.
type Destination interface {
	Side
	// Mkdir creates a directory with the mode bits unless it exists, and reports
	// whether it did.
	Mkdir(ctx context.Context, name string, mode uint32) (made bool, err error)
	Symlink(ctx context.Context, name, target string) error
	// Mark creates an empty directory for a moment.
	Mark(ctx context.Context, name string) error
	// LastName returns the last path element of the base.
	LastName() string
	RemoveAll(ctx context.Context, name string) error
}

// Types of the files that are copied.
const (
	RegularFile = execwirev1.FileType_FILE_TYPE_REGULAR
	Directory   = execwirev1.FileType_FILE_TYPE_DIRECTORY
	Symlink     = execwirev1.FileType_FILE_TYPE_SYMLINK
)

// Transfer copies one file or directory.
type Transfer struct {
	source      Side
	destination Destination
	// Options are read only.
	Options Options
	// WantsDirectory is whether the source must be a directory.
	WantsDirectory bool
	// Copy copies a regular file and returns its size, and whether it changed
	// meanwhile. Finish is called at the end.
	Copy   func(ctx context.Context, name string) (size int64, changed bool, err error)
	Finish func() error
	// IsFatal reports whether copying other files after err is useless.
	IsFatal func(ctx context.Context, err error) bool

	ignore gitignore.Patterns // set by Run

	mu      sync.Mutex
	ready   *sync.Cond       // signalled when tasks or pending change
	tasks   []fileTask       // guarded by mu; a stack
	pending int              // guarded by mu; unfinished tasks
	extra   []string         // guarded by mu; for Delete
	fatal   error            // guarded by mu; ends the transfer
	failed  Error            // guarded by mu
	done    Transferred      // guarded by mu
	moving  map[string]int64 // guarded by mu; copied bytes of unfinished files
	// created are the directories created in existing ones.
	created map[string]bool // guarded by mu
}

// fileTask is one name to copy.
type fileTask struct {
	name string
	kind execwirev1.FileType
	// destType is the type of the destination's entry; unspecified if it does not exist.
	destType execwirev1.FileType
	// inCreated is whether its destination directory was created by the transfer.
	inCreated bool
}

// New returns a transfer from source to destination.
func New(source Side, destination Destination, options Options) *Transfer {
	t := &Transfer{source: source, destination: destination, Options: options, moving: map[string]int64{}, created: map[string]bool{}}
	t.ready = sync.NewCond(&t.mu)
	return t
}

// parallel is the number of files that are copied concurrently.
const parallel = 16

// Run copies everything. Copy, Finish and IsFatal must be set.
func (t *Transfer) Run(ctx context.Context) (Transferred, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errors.New("the transfer is over"))
	var err error
	if t.ignore, err = gitignore.ParseAll(t.Options.Ignore); err != nil {
		return t.done, fmt.Errorf("TransferOptions.Ignore: %w", err)
	}
	first, err := t.rootTask(ctx)
	if err != nil {
		return t.done, err
	}
	t.add(first)
	var workers sync.WaitGroup
	for range parallel {
		workers.Go(func() {
			for task, ok := t.next(); ok; task, ok = t.next() {
				t.taskDone(ctx, task, t.do(ctx, task), cancel)
			}
		})
	}
	workers.Wait()
	if t.fatal == nil && t.done.Failed == 0 {
		t.deleteExtra(ctx)
	}
	if err := t.Finish(); err != nil {
		t.noteFailure(".", err)
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

// rootTask returns the task for the source itself.
func (t *Transfer) rootTask(ctx context.Context) (fileTask, error) {
	facts, err := t.source.Lstat(ctx, ".")
	if err != nil {
		return fileTask{}, err
	}
	task := fileTask{name: ".", kind: facts.Kind}
	switch facts.Kind {
	case RegularFile, Symlink:
		if t.WantsDirectory {
			return task, &fs.PathError{Op: "copy", Path: task.name, Err: errNotDirectory}
		}
	case Directory:
		if !t.Options.Recursive {
			return task, &fs.PathError{Op: "copy", Path: task.name, Err: errIsDirectory}
		}
	default:
		return task, &fs.PathError{Op: "copy", Path: task.name, Err: errSpecial}
	}
	there, err := t.destination.Lstat(ctx, ".")
	if err == nil && there.Kind == Symlink && facts.Kind != Symlink {
		if err := t.destination.Follow(ctx); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return task, err
		}
		there, err = t.destination.Lstat(ctx, ".")
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return task, err
	}
	task.destType = there.Kind
	return task, nil
}

// add adds tasks.
func (t *Transfer) add(tasks ...fileTask) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tasks = append(t.tasks, tasks...)
	t.pending += len(tasks)
	t.ready.Broadcast()
}

// next waits for a task; it returns false when all are finished or the transfer failed.
func (t *Transfer) next() (fileTask, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.tasks) == 0 && t.pending > 0 && t.fatal == nil {
		t.ready.Wait()
	}
	if len(t.tasks) == 0 || t.fatal != nil {
		return fileTask{}, false
	}
	task := t.tasks[len(t.tasks)-1]
	t.tasks = t.tasks[:len(t.tasks)-1]
	return task, true
}

// taskDone records the result of a task.
func (t *Transfer) taskDone(ctx context.Context, task fileTask, err error, cancel context.CancelCauseFunc) {
	if err != nil && !t.IsFatal(ctx, err) {
		t.noteFailure(task.name, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending--
	delete(t.moving, task.name)
	if err != nil && t.fatal == nil && t.IsFatal(ctx, err) {
		t.fatal = err
		cancel(err)
	}
	t.ready.Broadcast()
}

// noteFailure records a failure for a name.
func (t *Transfer) noteFailure(name string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done.Failed == 0 {
		t.failed.Path, t.failed.Err = name, err
	}
	t.done.Failed++
	if t.Options.OnFailed != nil {
		t.Options.OnFailed(name, err)
	}
}

// count updates the counters.
func (t *Transfer) count(change func(*Transferred)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.done)
}

// Progress records and reports the progress of a file.
func (t *Transfer) Progress(name string, size, done int64) {
	if t.Options.OnProgress == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.moving[name] = done
	report := Progress{Transferred: t.done, Path: name, Size: size, Done: done}
	for _, n := range t.moving {
		report.MovingBytes += n
	}
	t.Options.OnProgress(report)
}
