package screen

import "strings"

// Snapshot is what a Screen shows.
type Snapshot struct {
	// Columns and Rows are the size.
	Columns, Rows int
	// Lines has one line for each row.
	Lines []Line
	// Cursor is the cursor.
	Cursor Cursor
	// Title is the title of the window; "" before it is set.
	Title string
	// Alternate is whether the alternate screen is shown, as by full-screen programs.
	Alternate bool
	// Modes are the modes.
	Modes Modes
}

// Cursor is where the cursor is, from 0.
type Cursor struct {
	// Column and Row are the cell.
	Column, Row int
	// Visible is whether it is shown.
	Visible bool
}

// Line is a line of the screen.
type Line struct {
	// Text is the text without blanks at its end.
	Text string
	// Runs are the parts of the line by their style, with blanks at the end that have a style.
	Runs []Run
}

// Run is a text of the same style.
type Run struct {
	// Text is not empty.
	Text string
	// Style is its style.
	Style Style
}

// Snapshot returns what the screen shows.
func (s *Screen) Snapshot() Snapshot {
	s.flush()
	lines := make([]Line, s.rows)
	for y := range lines {
		lines[y] = Line{Text: s.text(s.lines[y]), Runs: s.runs(s.lines[y])}
	}
	return Snapshot{
		Columns: s.columns, Rows: s.rows, Lines: lines, Title: s.title, Alternate: s.isAlternate(), Modes: s.modes,
		Cursor: s.Cursor(),
	}
}

// Cursor returns where the cursor is.
func (s *Screen) Cursor() Cursor {
	s.flush()
	return Cursor{Column: s.cursor.x, Row: s.cursor.y, Visible: !s.modes.CursorHidden}
}

// Text returns the lines, without blanks at their ends, each with a line feed.
func (s *Screen) Text() string {
	s.flush()
	var text strings.Builder
	for _, line := range s.lines {
		text.WriteString(s.text(line))
		text.WriteByte('\n')
	}
	return text.String()
}

func (g *grid) text(line row) string {
	end := len(line)
	for end > 0 && line[end-1].char == 0 {
		end--
	}
	var text strings.Builder
	for _, c := range line[:end] {
		g.writeChar(&text, c.char)
	}
	return text.String()
}

// charWriter is a strings.Builder or a bytes.Buffer.
type charWriter interface {
	WriteByte(byte) error
	WriteRune(rune) (int, error)
	WriteString(string) (int, error)
}

// writeChar writes the text of a cell.
func (g *grid) writeChar(to charWriter, char rune) {
	switch {
	case char == 0:
		_ = to.WriteByte(' ')
	case char >= firstCluster:
		_, _ = to.WriteString(g.clusters[char-firstCluster])
	case char != wideTail:
		_, _ = to.WriteRune(char)
	}
}

func (g *grid) runs(line row) (runs []Run) {
	for len(line) > 0 && line[len(line)-1] == (cell{}) {
		line = line[:len(line)-1]
	}
	for x := 0; x < len(line); {
		var text strings.Builder
		end := x
		for ; end < len(line) && line[end].pen == line[x].pen; end++ {
			g.writeChar(&text, line[end].char)
		}
		runs = append(runs, Run{Text: text.String(), Style: g.pens.style(line[x].pen)})
		x = end
	}
	return runs
}
