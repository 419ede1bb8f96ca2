package recording

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/execwire/execwire/internal/asciicast"
	"github.com/execwire/execwire/internal/screen"
	"github.com/execwire/execwire/internal/tty"
)

// player plays recordings on a terminal, or prints their output.
type player struct {
	in, out *os.File
	speed   float64
	idle    *time.Duration // nil: that of the recording

	keys <-chan byte // nil: there are none
}

// errQuit ends a player by a key.
var errQuit = errors.New("ended by a key")

// run calls do between taking the terminal and restoring it.
func (p *player) run(ctx context.Context, do func(context.Context) error) error {
	if !tty.Is(p.out) {
		return do(ctx)
	}
	if tty.Is(p.in) {
		keyboard := tty.NewKeyboard(p.in, p.out)
		keyboard.Raw()
		defer keyboard.Restore()
		keys := make(chan byte)
		go func() { // it ends with this program
			for one := make([]byte, 1); ; {
				if _, err := p.in.Read(one); err != nil {
					return
				}
				keys <- one[0]
			}
		}()
		p.keys = keys
	}
	err := do(ctx)
	_, writeErr := p.out.Write(screen.Reset())
	if errors.Is(err, errQuit) {
		err = nil
	}
	return errors.Join(err, writeErr)
}

// play plays one recording.
func (p *player) play(ctx context.Context, from io.Reader) error {
	r, err := asciicast.NewReader(from)
	if err != nil {
		return err
	}
	if !tty.Is(p.out) {
		return printOutput(ctx, r, p.out)
	}
	h := r.Header()
	if rows, columns := tty.Size(p.out); int(rows) < h.Rows || int(columns) < h.Columns {
		if _, err := fmt.Fprintf(p.out, "execwire: the recording has %d columns and %d rows, more than this terminal\r\n", h.Columns, h.Rows); err != nil {
			return err
		}
	}
	idle := h.IdleLimit
	if p.idle != nil {
		idle = *p.idle
	}
	clock := clock{at: time.Now(), keys: p.keys}
	var last time.Duration
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		pause := e.At - last
		last = e.At
		if idle > 0 {
			pause = min(pause, idle)
		}
		if err := clock.wait(ctx, time.Duration(min(float64(pause)/p.speed, 1<<62))); err != nil {
			return err
		}
		if e.Code == asciicast.CodeOutput {
			if _, err := p.out.WriteString(e.Data); err != nil {
				return err
			}
		}
	}
}

// printOutput prints all output of a recording.
func printOutput(ctx context.Context, r *asciicast.Reader, out io.Writer) error {
	buffered := bufio.NewWriterSize(out, 64<<10)
	for {
		e, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return buffered.Flush()
		case err != nil:
			return errors.Join(buffered.Flush(), err)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		if e.Code == asciicast.CodeOutput {
			if _, err := buffered.WriteString(e.Data); err != nil {
				return err
			}
		}
	}
}

// clock is the time of a player, which stops during a pause.
type clock struct {
	at     time.Time // when the last event was due
	keys   <-chan byte
	paused bool
}

// wait waits until a time after the last event, and handles keys.
func (c *clock) wait(ctx context.Context, pause time.Duration) error {
	c.at = c.at.Add(pause)
	rest := time.Until(c.at)
	for {
		timer := time.NewTimer(max(rest, 0))
		due := timer.C
		if c.paused {
			due = nil
		}
		select {
		case <-due:
			return nil
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case key := <-c.keys:
			timer.Stop()
			switch {
			case key == 'q' || key == 3 || key == 17: // Ctrl-C, Ctrl-Q
				return errQuit
			case key == '.' && c.paused:
				c.at = time.Now()
				return nil
			case key == ' ' && !c.paused:
				c.paused, rest = true, time.Until(c.at)
			case key == ' ':
				c.paused, c.at = false, time.Now().Add(max(rest, 0))
			}
			if !c.paused {
				rest = time.Until(c.at)
			}
		}
	}
}
