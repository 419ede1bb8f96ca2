package recorder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/execwire/execwire/internal/asciicast"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/process"
)

// Recording is the recording of one process. The methods of a nil one do nothing.
type Recording struct {
	recorder *Recorder
	subject  Subject
	began    time.Time
	process  Process

	// Of each begin.
	ctx  context.Context
	hold context.CancelCauseFunc // ends ctx
	over chan struct{}           // closed when run has returned
	// reader is that of the log, or readErr why there is none.
	reader  *eventlog.Reader
	readErr error

	// Of the goroutine, and of others before and after it.
	file    *os.File  // nil: it has ended
	written int64     // bytes in the file
	part    int       // from 0
	base    time.Time // when it began
	lines   bytes.Buffer
	cast    *asciicast.Writer // to lines
	size    process.WindowSize
	seq     uint64 // of the last event in it
}

// State is what another program needs to go on with a recording.
type State struct {
	Subject Subject // with the size that it has
	Began   time.Time
	File    string        // its path
	Bytes   int64         // in the file
	Part    int           // from 0
	Base    time.Time     // when the part began
	Last    time.Duration // the time of its last event
	Rest    []byte        // output that waits for the rest of its rune
	Seq     uint64        // of the last event in it
}

// state returns the state, and whether the recording goes on. The goroutine has ended.
func (rec *Recording) state() (State, bool) {
	if rec.file == nil {
		return State{}, false
	}
	subject := rec.subject
	subject.Size = rec.size
	return State{Subject: subject, Began: rec.began, File: rec.file.Name(), Bytes: rec.written, Part: rec.part, Base: rec.base,
		Last: rec.cast.Last(), Rest: rec.cast.Rest(), Seq: rec.seq}, true
}

// create creates the file of the part.
func (rec *Recording) create() error {
	path := filepath.Join(rec.recorder.opts.Directory, fileName(rec.began, rec.subject.Process, rec.part))
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	before := rec.file
	rec.file, rec.written = file, 0
	if before == nil {
		rec.cast = asciicast.Continue(&rec.lines, version, 0, nil)
	} else {
		_ = before.Close()
	}
	if err := errors.Join(rec.cast.Next(rec.header()), rec.flush()); err != nil {
		rec.remove()
		return err
	}
	return nil
}

// reopen opens the file of the program before.
func (rec *Recording) reopen(s State) error {
	file, err := os.OpenFile(s.File, os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() != s.Bytes) {
		err = fmt.Errorf("%s is not as this server has left it", s.File)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	rec.file, rec.written = file, s.Bytes
	rec.cast = asciicast.Continue(&rec.lines, version, s.Last, s.Rest)
	return errors.Join(rec.cast.Marker(s.Last, "the server was upgraded"), rec.flush())
}

// remove removes what was created for nothing.
func (rec *Recording) remove() {
	_ = os.Remove(rec.file.Name())
	_ = rec.file.Close()
	rec.file = nil
	rec.recorder.release(rec.written)
}

// release gives bytes back.
func (r *Recorder) release(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= n
}

// Cancel removes a recording whose process was not started.
func (rec *Recording) Cancel() {
	if rec != nil {
		rec.remove()
	}
}

// Begin records the process until it has closed. It has its reader of the event log when it
// returns: called before others can find the process, no readers of theirs are in its place.
func (rec *Recording) Begin(p Process) {
	if rec == nil {
		return
	}
	rec.process = p
	r := rec.recorder
	r.mu.Lock()
	r.stats.Begun++
	r.mu.Unlock()
	r.begin(rec)
}

// errHeld is the cause of the context of a recording that is held.
var errHeld = errors.New("the recording is held")

// run records until the process has closed, writing fails, or the recording is held.
func (rec *Recording) run() {
	defer rec.hold(nil)
	switch err := rec.record(); {
	case err == nil:
		_ = rec.file.Close()
		rec.file = nil
	case !errors.Is(err, errHeld):
		rec.fail(rec.ctx, err)
	}
	rec.recorder.forget(rec)
	close(rec.over)
}

func (r *Recorder) forget(rec *Recording) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.active, rec)
}

// record writes events. It returns nil when the process has closed.
func (rec *Recording) record() error {
	if rec.readErr != nil {
		return rec.readErr
	}
	defer rec.reader.Close()
	sizes := process.NewSizes(rec.process, rec.seq)
	for {
		if rec.ctx.Err() != nil {
			return context.Cause(rec.ctx)
		}
		batch, err := rec.reader.Next(rec.ctx, 0)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if rec.written >= rec.recorder.opts.FileBytes {
			if err := rec.nextPart(); err != nil {
				return err
			}
		}
		if err := errors.Join(rec.add(batch, sizes), rec.flush()); err != nil {
			return err
		}
	}
}

// nextPart goes on in another file.
func (rec *Recording) nextPart() error {
	next := fileName(rec.began, rec.subject.Process, rec.part+1)
	at := rec.cast.Last()
	if err := errors.Join(rec.cast.Marker(at, "goes on in "+next), rec.flush()); err != nil {
		return err
	}
	rec.part, rec.base = rec.part+1, rec.base.Add(at)
	return rec.create()
}

// add adds the lines of a batch.
func (rec *Recording) add(batch eventlog.Batch, sizes *process.Sizes) error {
	if gap := batch.Gap; gap != nil {
		most := ""
		if gap.Inexact {
			most = "up to "
		}
		if err := rec.cast.Marker(rec.cast.Last(), fmt.Sprintf("%s%d bytes of output are missing", most, gap.DroppedBytes)); err != nil {
			return err
		}
	}
	resized := sizes.Until(batch.Events[len(batch.Events)-1].Seq)
	for _, e := range batch.Events {
		for ; len(resized) > 0 && resized[0].Seq < e.Seq; resized = resized[1:] {
			if err := rec.resize(resized[0]); err != nil {
				return err
			}
		}
		if err := rec.event(e); err != nil {
			return err
		}
		rec.seq = e.Seq
	}
	return nil
}

func (rec *Recording) resize(r process.Resize) error {
	if r.Size == rec.size {
		return nil
	}
	rec.size = r.Size
	return rec.cast.Resize(r.At.Sub(rec.base), int(r.Size.Cols), int(r.Size.Rows))
}

func (rec *Recording) event(e eventlog.Event) error {
	switch e.Kind {
	case eventlog.Output:
		return rec.cast.Output(time.Unix(0, e.UnixNano).Sub(rec.base), asciicast.Terminal, e.Data)
	case eventlog.Closed:
		exit, _ := rec.process.Exit()
		return rec.cast.Exit(max(rec.cast.Last(), exit.ExitedAt.Sub(rec.base)), statusOf(exit), exit.Cause.HasStatus())
	}
	return nil
}

// flush writes the lines. What was written of them when that fails is removed, so that the file remains
// a recording.
func (rec *Recording) flush() error {
	defer rec.lines.Reset()
	n := int64(rec.lines.Len())
	if err := rec.recorder.reserve(n, 0); err != nil {
		return err
	}
	if _, err := rec.file.Write(rec.lines.Bytes()); err != nil {
		rec.recorder.release(n)
		return errors.Join(err, rec.file.Truncate(rec.written))
	}
	rec.written += n
	return nil
}

// fail ends a recording that cannot be written.
func (rec *Recording) fail(ctx context.Context, err error) {
	rec.recorder.noteFailure(rec.subject, err)
	if rec.file != nil {
		rec.lines.Reset()
		if rec.cast.Marker(rec.cast.Last(), "the recording ends here: it cannot be written") == nil {
			_, _ = rec.file.Write(rec.lines.Bytes()) // beyond the limit, if that is the reason
		}
		_ = rec.file.Close()
		rec.file = nil
	}
	if rec.recorder.opts.Failure == FailureRefuse {
		_, _ = rec.process.Terminate(ctx, process.Termination{Graceful: true, Timeout: process.DefaultGrace, Cause: process.CauseTerminated})
	}
}
