package terminal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/screen"
	"github.com/execwire/execwire/internal/tty"
)

// errLeft ends a View by a key.
var errLeft = errors.New("left by a key")

// View shows screens on the terminal out, at the top left and cut to its size. It calls screens with a
// function that shows one, until that returns, or q, Ctrl-C or Ctrl-Q is typed on in. It always restores
// the terminal.
func View(ctx context.Context, in, out *os.File, screens func(ctx context.Context, show func(*execwirev1.Screen) error) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if tty.Is(in) {
		keys := tty.NewKeyboard(in, out)
		keys.Raw()
		defer keys.Restore()
		go func() { // it ends with this program
			for buf := make([]byte, 64); ; {
				n, err := in.Read(buf)
				if err != nil || slices.ContainsFunc(buf[:n], func(c byte) bool { return c == 'q' || c == 3 || c == 17 }) {
					cancel(errLeft)
					return
				}
			}
		}()
	}
	if _, err := out.WriteString("\x1b[?1049h"); err != nil {
		return err
	}
	err := screens(ctx, func(shown *execwirev1.Screen) error {
		_, err := out.WriteString(viewOf(shown, Size(out)))
		return err
	})
	_, writeErr := out.Write(screen.Reset())
	if context.Cause(ctx) == errLeft {
		return nil
	}
	return errors.Join(err, writeErr)
}

// viewOf returns output that shows a screen on a terminal of a size, or of an unknown one.
func viewOf(shown *execwirev1.Screen, size *execwirev1.TerminalSize) string {
	lines, cursor := shown.GetLines(), shown.GetCursor()
	if size != nil && len(lines) > int(size.GetRows()) {
		lines = lines[:size.GetRows()]
	}
	var text strings.Builder
	text.WriteString("\x1b[?25l\x1b[?7l\x1b[H") // lines that are too long do not wrap
	for row, line := range lines {
		if row > 0 {
			text.WriteString("\r\n")
		}
		text.WriteString(Styled(line) + "\x1b[K")
	}
	text.WriteString("\x1b[J")
	fmt.Fprintf(&text, "\x1b[%d;%dH", cursor.GetRow()+1, cursor.GetColumn()+1)
	if cursor.GetVisible() && int(cursor.GetRow()) < len(lines) {
		text.WriteString("\x1b[?25h")
	}
	return text.String()
}

// Styled returns a line with the escape sequences of its styles, if they are known.
func Styled(line *execwirev1.ScreenLine) string {
	if len(line.GetRuns()) == 0 {
		return line.GetText()
	}
	var text strings.Builder
	for _, run := range line.GetRuns() {
		text.WriteString(run.GetSgr() + run.GetText())
		if run.GetSgr() != "" {
			text.WriteString("\x1b[m")
		}
	}
	return text.String()
}
