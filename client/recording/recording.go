// Package recording writes recordings of processes in the format of asciinema, which execwire play,
// asciinema and its player for web pages show.
package recording

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/asciicast"
)

// Options are options of [Write]. The zero value records all retained and later output.
type Options struct {
	// Version is the version of the format, 2 or 3; 0 is 2, which every player reads.
	Version int
	// Live begins with what the terminal shows now, if there is a screen, and records what
	// follows. Without it the recording begins with the retained output after
	// ProcessRef.AfterSeq, and its times with the first of that.
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
// Lost connections are resumed as by [client.Client.Follow], whose errors it returns, or an error of the
// writer, or the cause of ctx. What was written by then is a recording that ends there.
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
	last := described.GetLastSeq()
	if options.Live {
		if process.AfterSeq, err = w.beginLive(ctx, c, process, described); err != nil {
			return client.Exit{}, err
		}
	}
	if options.Retained && last <= process.AfterSeq {
		return client.Exit{}, w.end()
	}
	exit, err := c.Follow(ctx, process, client.FollowOptions{Resizes: true, OnEvent: func(e *execwirev1.ProcessEvent) error {
		if err := w.event(e); err != nil {
			return err
		}
		if options.Retained && e.GetSeq() >= last {
			return errRetained
		}
		return nil
	}})
	if errors.Is(err, errRetained) {
		err = nil
	}
	return exit, errors.Join(err, w.end())
}

// errRetained ends a recording of what is retained.
var errRetained = errors.New("all retained output was recorded")

// writer writes events of a process.
type writer struct {
	to     io.Writer
	header asciicast.Header
	cast   *asciicast.Writer // nil: nothing was written yet
	began  time.Time         // by the clock of the server; zero: not known yet
	local  time.Time         // when the recording began, for one that is live
	last   time.Duration

	missing string // of the output before the next event
	exit    *execwirev1.ExitRecord
}

func (w *writer) setSize(columns, rows uint32) {
	if columns > 0 && rows > 0 {
		w.header.Columns, w.header.Rows = int(columns), int(rows)
	}
}

// beginLive begins with what the terminal shows, and returns the seq after which to go on.
func (w *writer) beginLive(ctx context.Context, c *client.Client, process client.ProcessRef, described *execwirev1.Process) (uint64, error) {
	w.local = time.Now()
	if !described.GetHasTerminal() {
		return described.GetLastSeq(), nil
	}
	shown, err := c.GetScreen(ctx, process, client.ScreenOptions{Repaint: true})
	if client.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_SCREEN_UNAVAILABLE {
		return described.GetLastSeq(), nil
	}
	if err != nil {
		return 0, fmt.Errorf("failed to read what its terminal shows: %w", err)
	}
	w.setSize(shown.GetScreen().GetSize().GetColumns(), shown.GetScreen().GetSize().GetRows())
	if err := w.begin(w.local); err != nil {
		return 0, err
	}
	return shown.GetScreen().GetSeq(), w.cast.Output(0, asciicast.Terminal, shown.GetRepaint())
}

// begin writes the header, once.
func (w *writer) begin(at time.Time) (err error) {
	if w.cast == nil {
		w.header.Began = at
		w.cast, err = asciicast.NewWriter(w.to, w.header)
	}
	return err
}

// end ends what was begun, and makes a recording without events a valid one.
func (w *writer) end() error {
	if err := w.begin(time.Now()); err != nil {
		return err
	}
	return w.cast.End(w.last)
}

// since returns the time of the recording at a time of the server; zero is that of the last event.
func (w *writer) since(at time.Time) time.Duration {
	switch {
	case at.IsZero() && !w.local.IsZero():
		return max(w.last, time.Since(w.local))
	case at.IsZero():
		return w.last
	case w.began.IsZero() && !w.local.IsZero():
		w.began = at.Add(-time.Since(w.local)) // the clocks may differ
	case w.began.IsZero():
		w.began = at
	}
	w.last = max(w.last, at.Sub(w.began))
	return w.last
}

func (w *writer) event(e *execwirev1.ProcessEvent) error {
	switch kind := e.GetEvent().(type) {
	case *execwirev1.ProcessEvent_Resized:
		return w.resized(kind.Resized)
	case *execwirev1.ProcessEvent_Output:
		var read time.Time // servers of older versions have none
		if kind.Output.GetReadTime() != nil {
			read = kind.Output.GetReadTime().AsTime()
		}
		at := w.since(read)
		if err := errors.Join(w.begin(read), w.writeMissing()); err != nil {
			return err
		}
		return w.cast.Output(at, streams[kind.Output.GetStream()], kind.Output.GetData())
	case *execwirev1.ProcessEvent_Gap:
		w.missing = missing(kind.Gap)
	case *execwirev1.ProcessEvent_Exited:
		w.exit = kind.Exited.GetExit() // output of descendants may follow
	case *execwirev1.ProcessEvent_Closed:
		at := w.exit.GetExitTime().AsTime()
		if err := errors.Join(w.begin(at), w.writeMissing()); err != nil {
			return err
		}
		return w.cast.Exit(w.since(at), exitStatus(w.exit))
	}
	return nil
}

// streams translates streams.
var streams = map[execwirev1.OutputStream]asciicast.Stream{
	execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL: asciicast.Terminal,
	execwirev1.OutputStream_OUTPUT_STREAM_STDOUT:   asciicast.Stdout,
	execwirev1.OutputStream_OUTPUT_STREAM_STDERR:   asciicast.Stderr,
}

// resized records a size that is not the current one.
func (w *writer) resized(size *execwirev1.TerminalResized) error {
	before := w.header
	w.setSize(size.GetColumns(), size.GetRows())
	if w.cast == nil || w.header == before {
		return nil
	}
	return w.cast.Resize(w.since(size.GetTime().AsTime()), w.header.Columns, w.header.Rows)
}

// writeMissing writes a marker where output is missing.
func (w *writer) writeMissing() error {
	if w.missing == "" {
		return nil
	}
	label := w.missing
	w.missing = ""
	return w.cast.Marker(w.last, label)
}

func missing(gap *execwirev1.OutputGap) string {
	if gap.GetUpperBound() {
		return fmt.Sprintf("up to %d bytes of output are missing", gap.GetDroppedBytes())
	}
	return fmt.Sprintf("%d bytes of output are missing", gap.GetDroppedBytes())
}

// exitStatus returns the exit status of a shell.
func exitStatus(exit *execwirev1.ExitRecord) int {
	if exit.GetSignal() != 0 {
		return 128 + int(exit.GetSignal())
	}
	return int(exit.GetExitCode())
}
