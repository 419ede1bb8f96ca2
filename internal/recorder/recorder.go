// Package recorder records terminals of processes in files of the server, for audit. Each recording has a
// goroutine that reads the event log of its process as an observer: it never delays output. The files
// have the format of package asciicast.
package recorder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/asciicast"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/process"
)

// Values of [Options.Failure]; the setting is called recording_failure.
const (
	FailureRefuse = "refuse"
	FailureDrop   = "drop"
)

// Options are the options of a recorder. The names of settings are in brackets.
type Options struct {
	// Directory is where the files are [recording_directory]; empty: every recording fails.
	Directory string
	// FileBytes is the size after which a recording goes on in another file
	// [recording_file_bytes]. It is exceeded by one batch of output. Required.
	FileBytes int64
	// TotalBytes is how many bytes the recordings in the directory may have
	// [recording_bytes_total]; then they cannot be written. Required.
	TotalBytes int64
	// Failure is what happens to a process whose recording cannot be written: it is not started,
	// or terminated ([FailureRefuse]), or goes on without ([FailureDrop]).
	Failure string
	// Logger reports failures. Nil discards.
	Logger *slog.Logger
}

// Recorder records terminals. All methods may be called concurrently.
type Recorder struct {
	opts Options

	recording sync.WaitGroup // a goroutine for each

	mu      sync.Mutex
	used    int64                   // bytes of recordings in the directory
	counted time.Time               // when they were counted
	active  map[*Recording]struct{} // those with a goroutine
	held    []*Recording            // stopped by Hold
	stats   Stats
}

// Stats are numbers of recordings since the start.
type Stats struct {
	Begun  uint64 // recordings
	Failed uint64 // those that could not be begun or went on without
	Bytes  uint64 // written
}

// Error is the error of a start of a process that cannot be recorded, if it is to be refused.
type Error struct {
	Err error // the cause; never nil
}

// Error implements error.
func (e *Error) Error() string {
	return "its terminal is to be recorded, which failed, and recording_failure is refuse: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Subject is what is recorded.
type Subject struct {
	// Principal, Session and Process identify the process.
	Principal, Session, Process string
	// Program is what it runs.
	Program string
	// Size is the size of its terminal.
	Size process.WindowSize
}

// Process is what a recorder needs of a process.
type Process interface {
	// Log returns its event log.
	Log() *eventlog.Log
	// Resizes returns the sizes of its terminal; see [process.Process.Resizes].
	Resizes(seq uint64) []process.Resize
	// Exit returns its exit, which is known once the log has ended.
	Exit() (process.ExitRecord, bool)
	// Terminate ends it, and waits for that or the end of ctx.
	Terminate(ctx context.Context, t process.Termination) (process.TerminateResult, error)
}

// Open returns a recorder, and creates its directory with mode 0700 if there is none.
func Open(opts Options) (*Recorder, error) {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	r := &Recorder{opts: opts, active: make(map[*Recording]struct{})}
	if opts.Directory == "" {
		return r, nil
	}
	if err := os.Mkdir(opts.Directory, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	info, err := os.Stat(opts.Directory)
	switch {
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, fmt.Errorf("%s is not a directory: name another one", opts.Directory)
	case info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("%s can be written by others than its owner (mode %04o): chmod 700 %[1]s", opts.Directory, info.Mode().Perm())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r, r.count()
}

// Stats returns the numbers.
func (r *Recorder) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// Close waits for recordings, whose processes must have closed, or be closing.
func (r *Recorder) Close() { r.recording.Wait() }

// recountInterval is the least time between two counts of the bytes in the directory.
const recountInterval = 10 * time.Second

// count counts the bytes of the recordings in the directory. mu is held.
func (r *Recorder) count() error {
	entries, err := os.ReadDir(r.opts.Directory)
	if err != nil {
		return err
	}
	r.used, r.counted = 0, time.Now()
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && filepath.Ext(entry.Name()) == extension {
			r.used += info.Size()
		}
	}
	return nil
}

// errTotal is the error of a write beyond Options.TotalBytes.
type errTotal struct {
	directory string
	limit     int64
}

func (e *errTotal) Error() string {
	return fmt.Sprintf("the recordings in %s have reached recording_bytes_total, %d bytes: move some away, or raise it", e.directory, e.limit)
}

// startBytes is what must be free for a recording to begin: more than one batch of output takes. Otherwise
// the process would be started and terminated with its first output.
const startBytes = 512 << 10

// reserve counts bytes that are to be written, if so many more are free. It counts the files again before
// it fails, because some may have been moved away.
func (r *Recorder) reserve(n, more int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used+n+more > r.opts.TotalBytes && time.Since(r.counted) > recountInterval {
		if err := r.count(); err != nil {
			return err
		}
	}
	if r.used+n+more > r.opts.TotalBytes {
		return &errTotal{r.opts.Directory, r.opts.TotalBytes}
	}
	r.used += n
	r.stats.Bytes += uint64(n)
	return nil
}

// Create creates the file of a recording before its process is started. The error is an [*Error]; with
// [FailureDrop] there is none, and a nil recording if it failed.
func (r *Recorder) Create(s Subject) (*Recording, error) {
	rec := &Recording{recorder: r, subject: s, began: time.Now(), size: s.Size}
	rec.base = rec.began
	err := errors.New("recording_directory is not set")
	if r.opts.Directory != "" {
		if err = r.reserve(0, startBytes); err == nil {
			err = rec.create()
		}
	}
	if err == nil {
		return rec, nil
	}
	r.noteFailure(s, err)
	if r.opts.Failure == FailureDrop {
		return nil, nil
	}
	return nil, &Error{Err: err}
}

func (r *Recorder) noteFailure(s Subject, err error) {
	r.mu.Lock()
	r.stats.Failed++
	r.mu.Unlock()
	r.opts.Logger.Error("a terminal cannot be recorded", "principal", s.Principal, "session", s.Session, "process", s.Process,
		"recording_failure", r.opts.Failure, "error", err)
}

// begin opens the reader of a recording and starts its goroutine.
func (r *Recorder) begin(rec *Recording) {
	rec.reader, rec.readErr = rec.process.Log().NewReader(rec.seq)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active[rec] = struct{}{}
	rec.ctx, rec.hold = context.WithCancelCause(context.Background())
	rec.over = make(chan struct{})
	r.recording.Go(rec.run)
}

// Hold stops all recordings where they are, so that another program goes on with them, or Resume. It
// waits for writes that are under way.
func (r *Recorder) Hold() []State {
	r.mu.Lock()
	held := make([]*Recording, 0, len(r.active))
	for rec := range r.active {
		held = append(held, rec)
		rec.hold(errHeld)
	}
	r.mu.Unlock()
	var states []State
	for _, rec := range held {
		<-rec.over
		if state, goesOn := rec.state(); goesOn {
			states = append(states, state)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = held
	return states
}

// Resume goes on after Hold.
func (r *Recorder) Resume() {
	r.mu.Lock()
	held := r.held
	r.held = nil
	r.mu.Unlock()
	for _, rec := range held {
		if _, goesOn := rec.state(); goesOn {
			r.begin(rec)
		}
	}
}

// Restore goes on with recordings of the program before. find returns the process of one. A recording
// that cannot go on fails as one that cannot be written.
func (r *Recorder) Restore(states []State, find func(Subject) (Process, error)) {
	for _, s := range states {
		rec := &Recording{recorder: r, subject: s.Subject, began: s.Began, base: s.Base, size: s.Subject.Size, seq: s.Seq, part: s.Part}
		p, err := find(s.Subject)
		if err != nil {
			r.noteFailure(s.Subject, err)
			continue
		}
		rec.process = p
		if err := rec.reopen(s); err != nil {
			r.recording.Go(func() { rec.fail(context.Background(), err) })
			continue
		}
		r.begin(rec)
	}
}

// extension is that of the files.
const extension = ".cast"

// fileName returns the name of a part of a recording, by time and the id of the process.
func fileName(began time.Time, id string, part int) string {
	name := began.UTC().Format("20060102T150405.000000Z") + "-" + asciicast.SafeName(id)
	if part > 0 {
		name += fmt.Sprintf(".part%d", part+1)
	}
	return name + extension
}

// statusOf returns the exit status of a shell.
func statusOf(exit process.ExitRecord) int {
	if exit.Signal != 0 {
		return 128 + int(exit.Signal)
	}
	return exit.Code
}

// header returns the header of a part.
func (rec *Recording) header() asciicast.Header {
	title := fmt.Sprintf("process %s of %s", rec.subject.Process, rec.subject.Principal)
	if rec.part > 0 {
		title += fmt.Sprintf(", part %d", rec.part+1)
	}
	return asciicast.Header{Version: version, Columns: int(rec.size.Cols), Rows: int(rec.size.Rows), Began: rec.base, Command: rec.subject.Program, Title: title}
}

// version is that of the files.
const version = asciicast.V2
