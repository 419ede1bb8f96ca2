package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/notify"
	"github.com/execwire/execwire/internal/screen"
)

// terminal is the terminal of a process, by its master, with its screen.
type terminal struct {
	master *os.File

	// mu is held over a commit of output, so that the screen shows exactly the output in the log.
	mu      sync.Mutex
	screen  *screen.Screen // nil: nothing was shown, or its size does not fit
	size    WindowSize
	resizes []Resize      // the last maxResizes
	changed chan struct{} // closed at the next change of the screen; nil: nobody waits
}

// maxResizes is how many resizes of a terminal are remembered.
const maxResizes = 256

// Resize is a size that a terminal was given.
type Resize struct {
	Seq  uint64 // of the last event before it
	Size WindowSize
	At   time.Time
}

// noteSize is called with mu held, after an event, which is 0 before the first one.
func (t *terminal) noteSize(seq uint64) {
	if n := len(t.resizes); n > 0 && t.resizes[n-1].Seq == seq {
		t.resizes = t.resizes[:n-1] // nothing was written in the size
	}
	if len(t.resizes) == maxResizes {
		t.resizes = slices.Delete(t.resizes, 0, 1)
	}
	t.resizes = append(t.resizes, Resize{Seq: seq, Size: t.size, At: time.Now()})
}

// Sizes are the sizes of a terminal in the order of events, each once. It is for one goroutine.
type Sizes struct {
	of    resized
	after uint64
	last  Resize
}

// resized is a [Process].
type resized interface{ Resizes(seq uint64) []Resize }

// NewSizes returns the sizes of the terminal of a process, from the one after the event seq on.
func NewSizes(of resized, seq uint64) *Sizes { return &Sizes{of: of, after: seq} }

// Until returns the sizes before the event seq that were not returned yet.
func (s *Sizes) Until(seq uint64) (sizes []Resize) {
	for _, r := range s.of.Resizes(s.after) {
		if r.Seq < seq && r != s.last {
			sizes = append(sizes, r)
		}
	}
	if len(sizes) > 0 {
		s.last = sizes[len(sizes)-1]
	}
	s.after = max(s.after, seq)
	return sizes
}

// Resizes returns the sizes that the terminal was given after the event seq, in order, and first the one
// that it had there. Of sizes with no output between them it has the last one, and of all the last 256.
// It returns nil without a terminal. It never blocks.
func (o *Output) Resizes(seq uint64) []Resize {
	t := o.terminal
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	first := 0
	for i, r := range t.resizes {
		if r.Seq <= seq {
			first = i
		}
	}
	return slices.Clone(t.resizes[first:])
}

// show makes output part of the screen while it is committed to the log.
func (t *terminal) show(output []byte, commit func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.screen == nil && t.fits() {
		t.screen = screen.New(int(t.size.Cols), int(t.size.Rows))
	}
	if t.screen != nil {
		t.screen.Write(output)
	}
	commit()
	t.noteChange()
}

// noteClosed is called when the process has closed.
func (t *terminal) noteClosed() {
	if t != nil {
		t.mu.Lock()
		t.noteChange()
		t.mu.Unlock()
	}
}

func (t *terminal) fits() bool { return screen.Fits(int(t.size.Cols), int(t.size.Rows)) }

// noteChange is called with mu held.
func (t *terminal) noteChange() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// control calls f with the master, or fails if that is closed.
func (t *terminal) control(f func(fd int) error) error {
	conn, err := t.master.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := conn.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// resize sets the size; the kernel sends SIGWINCH to the foreground process group.
func (t *terminal) resize(size WindowSize, log *eventlog.Log) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	}); err != nil {
		return err
	}
	t.size = size
	t.noteSize(log.Stats().LastSeq)
	switch {
	case !t.fits():
		t.screen = nil
	case t.screen != nil:
		t.screen.Resize(int(size.Cols), int(size.Rows))
	}
	t.noteChange()
	return nil
}

// foreground returns the foreground process group. It fails for a nil terminal.
func (t *terminal) foreground() (group int, err error) {
	if t == nil {
		return 0, newError(NotATerminal, "signal process", "the process was started without a terminal and has no foreground")
	}
	err = t.control(func(fd int) (err error) {
		group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		return err
	})
	if err != nil || group <= 0 {
		return 0, errAlreadyExited()
	}
	return group, nil
}

// signalJob signals a foreground group that a shell created. For the signals of keys the kernel
// does it (TIOCSIG). For others there is only the ID: it was that of the foreground a moment ago,
// and PIDs are not reused before they wrap around.
func (t *terminal) signalJob(group int, sig syscall.Signal) error {
	err := t.control(func(fd int) error { return unix.IoctlSetInt(fd, unix.TIOCSIG, int(sig)) })
	var errno syscall.Errno
	switch {
	case errors.Is(err, unix.EINVAL):
		return signalError(unix.Kill(-group, sig))
	case err != nil && !errors.As(err, &errno):
		return errAlreadyExited()
	}
	return signalError(err)
}

// Resize changes the size of the terminal; the kernel sends SIGWINCH to its foreground process
// group. Zero fields have the default. Kinds: NotATerminal, AlreadyExited.
func (p *Process) Resize(size WindowSize) error {
	if p.terminal == nil {
		return newError(NotATerminal, "resize terminal", "the process was started without a terminal")
	}
	size = size.WithDefaults()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.terminal.resize(size, p.log); err != nil || p.state >= StateExited {
		return newError(AlreadyExited, "resize terminal", "the process has exited")
	}
	p.windowSize = size
	return nil
}

// WindowSize returns the size of the terminal as it was last set, and zero without a terminal.
func (p *Process) WindowSize() WindowSize {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.windowSize
}

// Screen calls do with the screen of the terminal, which must not be used later, and the seq of the last
// event whose output it has: it has all output up to that one, and no other. Output is delayed until do
// returns. The screen stays after the exit. Kinds: NotATerminal, ScreenUnavailable.
func (o *Output) Screen(do func(s *screen.Screen, seq uint64)) error {
	t := o.terminal
	if t == nil && o.onTerminal {
		return newError(ScreenUnavailable, "read screen", "the server was restarted since, and does not know what the terminal showed")
	}
	if t == nil {
		return newError(NotATerminal, "read screen", "the process was started without a terminal")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.fits() {
		return newError(ScreenUnavailable, "read screen", fmt.Sprintf("the terminal has %d columns and %d rows, more than %d cells",
			t.size.Cols, t.size.Rows, screen.MaxCells))
	}
	shown := t.screen
	if shown == nil {
		shown = screen.New(int(t.size.Cols), int(t.size.Rows))
	}
	do(shown, o.log.Stats().LastSeq)
	return nil
}

// WatchScreen is like Screen. It returns a channel that is closed when the screen changes, by output, also
// if that shows the same, or by a resize, and when the process closes.
func (o *Output) WatchScreen(do func(s *screen.Screen, seq uint64)) (changed <-chan struct{}, err error) {
	err = o.Screen(func(s *screen.Screen, seq uint64) {
		do(s, seq)
		if o.terminal.changed == nil {
			o.terminal.changed = make(chan struct{})
		}
		changed = o.terminal.changed
	})
	return changed, err
}

// screenPoll is the least time between two checks of the screen.
const screenPoll = 50 * time.Millisecond

// WaitScreen waits until the text of the screen, see screen.Screen.Text, matches the pattern, and its text
// and cursor have not changed for rest, counted from the last output at the time of the call. It reports
// whether that was so within wait; if the text does not match when the process closes it returns. A wait
// of 0 checks once. If ctx ends it returns its cause. It calls do as Screen does, last with the screen that
// it has checked last. Kinds: those of Screen.
func (o *Output) WaitScreen(
	ctx context.Context, pattern *Pattern, rest, wait time.Duration, do func(s *screen.Screen, seq uint64),
) (bool, error) {
	waitCtx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var text string
	var at screen.Cursor
	var since time.Time // when it changed
	for {
		var closed bool
		changed, err := o.WatchScreen(func(s *screen.Screen, seq uint64) {
			closed = notify.IsClosed(o.Closed())
			shown, cursor := s.Text(), s.Cursor()
			if since.IsZero() {
				since = o.LastOutput()
			} else if shown != text || cursor != at {
				since = time.Now()
			}
			text, at = shown, cursor
			do(s, seq)
		})
		if err != nil {
			return false, err
		}
		_, _, matches := pattern.find([]byte(text), false)
		pause := rest - time.Since(since)
		switch {
		case matches && pause <= 0:
			return true, nil
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case waitCtx.Err() != nil, closed && !matches:
			return false, nil
		case !matches:
			pause = wait
		}
		if sleep(waitCtx, pause, changed); notify.IsClosed(changed) {
			sleep(waitCtx, min(screenPoll, pause), nil)
		}
	}
}

// ScreenBytes returns about how much memory the screen takes.
func (o *Output) ScreenBytes() int {
	t := o.terminal
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.screen == nil {
		return 0
	}
	return t.screen.Bytes()
}

// screenState returns what restoreScreen needs.
func (t *terminal) screenState() []byte {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.screen == nil {
		return nil
	}
	return t.screen.Repaint()
}

// restoreScreen restores the screen of a process that has none yet. A program without screens has left
// no state: what is retained of the output is shown then.
func (o *Output) restoreScreen(state []byte) error {
	t := o.terminal
	if t == nil || o.log.Stats().LastSeq == 0 {
		return nil
	}
	if len(state) > 0 {
		t.show(state, func() {})
		return nil
	}
	reader, err := o.log.NewReader(0)
	if err != nil {
		return fmt.Errorf("failed to read its output for the screen: %w", err)
	}
	defer reader.Close()
	for {
		batch, more, err := reader.TryNext(eventlog.MaxChunkBytes)
		if err != nil || !more {
			return nil // the log has ended
		}
		for _, e := range batch.Events {
			t.show(e.Data, func() {})
		}
	}
}
