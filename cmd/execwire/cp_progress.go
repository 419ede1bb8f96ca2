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

// progressBar is the line at the bottom of a terminal that says how far a copy is.
// A nil one shows nothing. Its methods are called one at a time.
type progressBar struct {
	out     *os.File
	started time.Time
	drawn   time.Time // zero while there is no line
}

// newProgressBar returns the bar of a command; nil when stderr is no terminal, or
// none is wanted.
func newProgressBar(std streams, quiet bool) *progressBar {
	if quiet || !term.IsTerminal(int(std.err.Fd())) {
		return nil
	}
	return &progressBar{out: std.err, started: time.Now()}
}

// redrawAfter is how long a line stays.
const redrawAfter = 100 * time.Millisecond

// show shows how far the copy of a source is, after what was copied before.
func (b *progressBar) show(source string, before client.Transferred, p client.TransferProgress) {
	now := time.Now()
	if now.Sub(b.drawn) < redrawAfter {
		return
	}
	b.drawn = now
	width, _, err := term.GetSize(int(b.out.Fd()))
	if err != nil || width <= 0 {
		width = 80
	}
	fmt.Fprintf(b.out, "\r%s\x1b[K", progressLine(source, before, p, now.Sub(b.started), width-1))
}

// clear takes the line away.
func (b *progressBar) clear() {
	if b == nil || b.drawn.IsZero() {
		return
	}
	b.drawn = time.Time{}
	fmt.Fprint(b.out, "\r\x1b[K")
}

// summarize says what was copied, in the place of the line.
func (b *progressBar) summarize(total client.Transferred) {
	if b == nil || total.Files+total.Links+total.Skipped+total.Deleted == 0 {
		return
	}
	b.clear()
	text := fmt.Sprintf("copied %s, %s in %v", counted(total.Files+total.Links, "file"), byteCount(total.Bytes),
		time.Since(b.started).Round(10*time.Millisecond))
	if total.Skipped > 0 {
		text += fmt.Sprintf(", left out %d", total.Skipped)
	}
	if total.Deleted > 0 {
		text += fmt.Sprintf(", deleted %d", total.Deleted)
	}
	fmt.Fprintln(b.out, text)
}

// progressLine is one line, at most width characters long: of a file with a bar,
// of several with their number.
func progressLine(source string, before client.Transferred, p client.TransferProgress, since time.Duration, width int) string {
	bytes := before.Bytes + p.Bytes + p.MovingBytes
	speed := float64(bytes) / max(since.Seconds(), 0.001)
	rate := byteCount(int64(speed)) + "/s"
	if p.Path != "." {
		line := fmt.Sprintf("%s  %s  %s  ", counted(before.Files+p.Files, "file"), byteCount(bytes), rate)
		return cut(line+shown(p.Path), width)
	}
	line := shown(filepath.Base(source))
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
	return cut(line, width)
}

func cut(line string, width int) string {
	if characters := []rune(line); len(characters) > width {
		return string(characters[:max(0, width-1)]) + "…"
	}
	return line
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// byteCount is a number of bytes for people, in units of 1024.
func byteCount(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	value := float64(n)
	unit := 0
	for units := "KMGTPE"; value >= 1024 && unit < len(units); unit++ {
		value /= 1024
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTPE"[unit-1])
}
