// Package recording writes recordings of processes in the format of asciinema, which execwire play,
// asciinema and its player for web pages show.
package recording

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/asciicast"
)

// Options are options of [Write]. The zero value records all retained and later output.
type Options struct {
	// Version is the version of the format, 2 or 3; 0 is 2, which every player reads.
	Version int
	// Live begins now, with what the terminal shows if there is a screen, and records what
	// follows. Without it the recording begins with the retained output after
	// ProcessRef.AfterSeq, and its times with the first of that; now if there is none.
	Live bool
	// Retained ends with the last output that the process has written by now.
	Retained bool
	// Title is the title; empty: none.
	Title string
}

// The size of the terminal in a recording of a process without one.
const (
	defaultColumns = 80
	defaultRows    = 24
)

// Write records a process: it writes its output, the sizes of its terminal and its end to a writer, one
// line at a time, and blocks until it has closed. It neither owns the process nor blocks it: where output
// is missing, a marker says how much. A server of an older version sends only the last size.
//
// Lost connections are resumed as by [client.Client.Follow], whose errors it returns, or else the cause of
// ctx. An error of the writer comes before these, and nothing is written after it. What was written by then
// is a recording that ends there. The Exit is valid only if the process has closed.
func Write(ctx context.Context, c *client.Client, process client.ProcessRef, to io.Writer, options Options) (client.Exit, error) {
	described, err := c.GetProcess(ctx, process)
	if err != nil {
		return client.Exit{}, err
	}
	w := &writer{to: to, header: asciicast.Header{Version: options.Version, Title: options.Title, Columns: defaultColumns, Rows: defaultRows}}
	w.setSize(described.GetTerminalSize().GetColumns(), described.GetTerminalSize().GetRows())
	if argv := described.GetArgv(); len(argv) > 0 {
		w.header.Command = argv[0] // the others can have secrets
	}
	exit, err := w.record(ctx, c, process, described, options)
	w.end(exit, err == nil)
	if w.err != nil || errors.Is(err, errRetained) {
		err = w.err
	}
	return exit, err
}

// errRetained ends a recording of what is retained.
var errRetained = errors.New("all retained output was recorded")

// writer writes events of a process. The SDKs for Python and TypeScript have the same rules: a change of
// them is one of three places.
type writer struct {
	to     io.Writer
	err    error // of to; nothing is written after it
	header asciicast.Header
	cast   *asciicast.Writer // to this writer, whose errors are in err; nil: nothing was written yet
	began  time.Time         // by the clock of the server; zero: not known yet
	local  time.Time         // when the recording began, if that was no event of the process
	last   time.Duration

	missing []string // of the output before the next event
}

// Write implements io.Writer.
func (w *writer) Write(line []byte) (n int, err error) {
	if w.err == nil {
		n, w.err = w.to.Write(line)
	}
	return n, w.err
}

// record writes events until the process has closed, or to the end of what is retained: errRetained.
func (w *writer) record(ctx context.Context, c *client.Client, process client.ProcessRef, described *execwirev1.Process, options Options) (client.Exit, error) {
	last := described.GetLastSeq()
	switch {
	case options.Live:
		var err error
		if process.AfterSeq, err = w.beginLive(ctx, c, process, described); err != nil {
			return client.Exit{}, err
		}
	case last <= process.AfterSeq:
		w.beginNow()
	}
	if w.err != nil {
		return client.Exit{}, w.err
	}
	if options.Retained && last <= process.AfterSeq && described.GetState() != execwirev1.ProcessState_PROCESS_STATE_CLOSED {
		return client.Exit{}, errRetained
	}
	return c.Follow(ctx, process, client.FollowOptions{Resizes: true, OnEvent: func(e *execwirev1.ProcessEvent) error {
		w.event(e)
		isLast := e.GetSeq() >= last && e.GetClosed() == nil || e.GetGap().GetFirstAvailableSeq() > last
		if w.err == nil && options.Retained && isLast {
			return errRetained
		}
		return w.err
	}})
}

func (w *writer) setSize(columns, rows uint32) {
	if columns > 0 && rows > 0 {
		w.header.Columns, w.header.Rows = int(columns), int(rows)
	}
}

// beginLive begins with what the terminal shows, and returns the seq after which to go on.
func (w *writer) beginLive(ctx context.Context, c *client.Client, process client.ProcessRef, described *execwirev1.Process) (uint64, error) {
	if !described.GetHasTerminal() {
		w.beginNow()
		return described.GetLastSeq(), nil
	}
	shown, err := c.GetScreen(ctx, process, client.ScreenOptions{Repaint: true})
	if client.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_SCREEN_UNAVAILABLE {
		w.beginNow()
		return described.GetLastSeq(), nil
	}
	if err != nil {
		return 0, fmt.Errorf("failed to read what its terminal shows: %w", err)
	}
	w.setSize(shown.GetScreen().GetSize().GetColumns(), shown.GetScreen().GetSize().GetRows())
	w.beginNow()
	_ = w.cast.Output(0, asciicast.Terminal, shown.GetRepaint())
	return shown.GetScreen().GetSeq(), nil
}

// begin writes the header, once.
func (w *writer) begin(at time.Time) {
	if w.cast == nil {
		w.header.Began, w.began = at, at
		w.cast, _ = asciicast.NewWriter(w, w.header)
	}
}

// beginNow begins without an event of the process: what time it is by the clock of the server is known
// with the first output.
func (w *writer) beginNow() {
	w.local = time.Now()
	w.begin(w.local)
	w.began = time.Time{}
}

// end ends the recording, with the exit of a process that has closed, and makes one without events valid.
func (w *writer) end(exit client.Exit, closed bool) {
	w.begin(time.Now())
	w.writeMissing()
	if closed {
		_ = w.cast.Exit(w.last, exit.ShellCode(), exit.HasStatus())
	} else {
		_ = w.cast.End(w.last)
	}
}

// timeOf returns a time of the server; zero if it has sent none, as servers of older versions do.
func timeOf(at *timestamppb.Timestamp) time.Time {
	if at == nil {
		return time.Time{}
	}
	return at.AsTime()
}

// since returns the time of the recording at a time of the server. If either is not known, that is now,
// or the time of the last event in a recording of what is retained.
func (w *writer) since(at time.Time) time.Duration {
	switch {
	case !at.IsZero() && !w.began.IsZero():
		w.last = max(w.last, at.Sub(w.began))
	case !w.local.IsZero():
		w.last = max(w.last, time.Since(w.local))
	}
	return w.last
}

func (w *writer) event(e *execwirev1.ProcessEvent) {
	switch kind := e.GetEvent().(type) {
	case *execwirev1.ProcessEvent_Resized:
		w.resized(kind.Resized)
	case *execwirev1.ProcessEvent_Output:
		read := timeOf(kind.Output.GetReadTime())
		w.begin(read)
		if w.began.IsZero() && !read.IsZero() { // it was read just now; sizes and exits can be older
			w.began = read.Add(-w.since(time.Time{})) // the clocks may differ
		}
		at := w.since(read)
		w.writeMissing()
		_ = w.cast.Output(at, streams[kind.Output.GetStream()], kind.Output.GetData())
	case *execwirev1.ProcessEvent_Gap:
		w.missing = append(w.missing, missing(kind.Gap))
	case *execwirev1.ProcessEvent_Exited: // output of descendants may follow
		at := timeOf(kind.Exited.GetExit().GetExitTime())
		w.begin(at)
		w.since(at)
	}
}

// streams translates streams.
var streams = map[execwirev1.OutputStream]asciicast.Stream{
	execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL: asciicast.Terminal,
	execwirev1.OutputStream_OUTPUT_STREAM_STDOUT:   asciicast.Stdout,
	execwirev1.OutputStream_OUTPUT_STREAM_STDERR:   asciicast.Stderr,
}

// resized records a size that is not the current one.
func (w *writer) resized(size *execwirev1.TerminalResized) {
	before := w.header
	w.setSize(size.GetColumns(), size.GetRows())
	if w.cast != nil && w.header != before {
		_ = w.cast.Resize(w.since(timeOf(size.GetTime())), w.header.Columns, w.header.Rows)
	}
}

// writeMissing writes a marker where output is missing.
func (w *writer) writeMissing() {
	for _, label := range w.missing {
		_ = w.cast.Marker(w.last, label)
	}
	w.missing = nil
}

func missing(gap *execwirev1.OutputGap) string {
	if gap.GetUpperBound() {
		return fmt.Sprintf("up to %d bytes of output are missing", gap.GetDroppedBytes())
	}
	return fmt.Sprintf("%d bytes of output are missing", gap.GetDroppedBytes())
}
