package recording

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/asciicast"
)

// Tee records a run on its way through this program. Its methods may be called concurrently.
type Tee struct {
	file  *os.File
	began time.Time

	mu     sync.Mutex
	size   [2]int // columns and rows
	cast   *asciicast.Writer
	err    error // of the file; nothing is recorded after it
	closed bool
}

// NewTee creates the file of a recording.
func NewTee(path string, version int, process *execwirev1.StartProcessRequest) (*Tee, error) {
	t := &Tee{began: time.Now()}
	h := asciicast.Header{Version: version, Columns: 80, Rows: 24, Began: t.began}
	if size := process.GetIo().GetTerminal().GetSize(); size.GetRows() > 0 && size.GetColumns() > 0 {
		h.Columns, h.Rows = int(size.GetColumns()), int(size.GetRows())
	}
	if argv := process.GetCommand().GetDirect().GetArgv(); len(argv) > 0 {
		h.Command = argv[0] // the others can have secrets
	}
	if process.GetIo().GetTerminal() != nil {
		h.Term = os.Getenv("TERM")
	}
	var err error
	if t.file, err = Create(path); err != nil {
		return nil, err
	}
	t.size = [2]int{h.Columns, h.Rows}
	if t.cast, err = asciicast.NewWriter(t.file, h); err != nil {
		return nil, errors.Join(err, t.file.Close())
	}
	return t, nil
}

// Wrap returns options with which a run is recorded, with its input if asked for.
func (t *Tee) Wrap(options client.RunOptions, terminal, input bool) client.RunOptions {
	stdout := asciicast.Stdout
	if terminal {
		stdout = asciicast.Terminal
	}
	options.Stdout = &teeWriter{t, options.Stdout, stdout}
	options.Stderr = &teeWriter{t, options.Stderr, asciicast.Stderr}
	if input && options.Stdin != nil {
		options.Stdin = &teeReader{t, options.Stdin}
	}
	return options
}

// Resized records a size of the terminal, if it is another one.
func (t *Tee) Resized(size *execwirev1.TerminalSize) {
	now := [2]int{int(size.GetColumns()), int(size.GetRows())}
	t.record(func(at time.Duration) error {
		if now == t.size {
			return nil
		}
		t.size = now
		return t.cast.Resize(at, now[0], now[1])
	})
}

// End ends the recording of a run with its result. It returns the first error of the file.
func (t *Tee) End(exit client.Exit, err error) error {
	t.record(func(at time.Duration) error {
		if err == nil {
			return t.cast.Exit(at, exit.ShellCode(), exit.HasStatus())
		}
		return errors.Join(t.cast.End(at), t.cast.Marker(at, "execwire run ended: "+err.Error()))
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return errors.Join(t.err, t.file.Close())
}

func (t *Tee) record(do func(at time.Duration) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil && !t.closed {
		t.err = do(time.Since(t.began))
	}
}

type teeWriter struct {
	tee    *Tee
	to     io.Writer
	stream asciicast.Stream
}

// Write implements io.Writer.
func (w *teeWriter) Write(p []byte) (int, error) {
	w.tee.record(func(at time.Duration) error { return w.tee.cast.Output(at, w.stream, p) })
	return w.to.Write(p)
}

type teeReader struct {
	tee  *Tee
	from io.Reader
}

// Read implements io.Reader.
func (r *teeReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.tee.record(func(at time.Duration) error { return r.tee.cast.Input(at, p[:n]) })
	return n, err
}
