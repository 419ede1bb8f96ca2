package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/execwire/execwire/client"
)

// progressBar is the line at the bottom of a terminal with the progress of a copy. A
// nil one shows nothing. Its methods are called one at a time.
type progressBar struct {
	out     *os.File
	started time.Time
	drawn   time.Time // zero while there is no line
}

// newProgressBar returns the progress bar of a command; nil if stderr is not a
// terminal, or with --quiet.
func newProgressBar(std streams, quiet bool) *progressBar {
	if quiet || !term.IsTerminal(int(std.err.Fd())) {
		return nil
	}
	return &progressBar{out: std.err, started: time.Now()}
}

// redrawInterval is the minimum time between updates.
const redrawInterval = 100 * time.Millisecond

// show updates the line. before counts the earlier sources.
func (b *progressBar) show(source string, before client.Transferred, p client.TransferProgress) {
	now := time.Now()
	if now.Sub(b.drawn) < redrawInterval {
		return
	}
	b.drawn = now
	width, _, err := term.GetSize(int(b.out.Fd()))
	if err != nil || width <= 0 {
		width = 80
	}
	fmt.Fprintf(b.out, "\r%s\x1b[K", progressLine(source, before, p, now.Sub(b.started), width-1))
}

// clear erases the line.
func (b *progressBar) clear() {
	if b == nil || b.drawn.IsZero() {
		return
	}
	b.drawn = time.Time{}
	fmt.Fprint(b.out, "\r\x1b[K")
}

// summarize replaces the line with the result.
func (b *progressBar) summarize(total client.Transferred) {
	if b == nil || total.Files+total.Links+total.Skipped+total.Deleted == 0 {
		return
	}
	b.clear()
	text := fmt.Sprintf("copied %s, %s in %v", pluralize(total.Files+total.Links, "file"), byteCount(total.Bytes),
		time.Since(b.started).Round(10*time.Millisecond))
	if total.Skipped > 0 {
		text += fmt.Sprintf(", skipped %d", total.Skipped)
	}
	if total.Deleted > 0 {
		text += fmt.Sprintf(", deleted %d", total.Deleted)
	}
	fmt.Fprintln(b.out, text)
}

// progressLine returns a line of at most width characters: for one file with a bar, for
// several with their number.
func progressLine(source string, before client.Transferred, p client.TransferProgress, since time.Duration, width int) string {
	bytes := before.Bytes + p.Bytes + p.MovingBytes
	speed := float64(bytes) / max(since.Seconds(), 0.001)
	rate := byteCount(int64(speed)) + "/s"
	if p.Path != "." {
		line := fmt.Sprintf("%s  %s  %s  ", pluralize(before.Files+p.Files, "file"), byteCount(bytes), rate)
		return truncate(line+printable(p.Path), width)
	}
	line := printable(filepath.Base(source))
	if p.Size > 0 {
		done := min(1, float64(p.Done)/float64(p.Size))
		const cells = 20
		full := int(done * cells)
		line += fmt.Sprintf("  [%s%s] %3.0f%%", strings.Repeat("#", full), strings.Repeat(".", cells-full), 100*done)
	}
	line += fmt.Sprintf("  %s  %s", byteCount(p.Done), rate)
	if left := p.Size - p.Done; left > 0 && speed > 0 {
		line += "  " + (time.Duration(float64(left) / speed * float64(time.Second))).Round(time.Second).String()
	}
	return truncate(line, width)
}
