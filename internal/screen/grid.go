package screen

import "slices"

// grid has the cells of both screens, and the cursors. It is what the terminal writes to, and what is
// painted.
type grid struct {
	columns, rows int
	main          []row
	alternate     []row // nil: it has not been shown since the main one was
	lines         []row // main or alternate: what is shown
	pens          palette
	clusters      []string // of cells with more than one code point, by cell.char

	cursor cursor
	saved  [2]cursor // of DECSC, on the main and on the alternate screen
}

// cursor is what DECSC saves.
type cursor struct {
	x, y    int
	wrap    bool // the next character wraps first
	origin  bool // positions are relative to the scrolling region
	pen     uint16
	charset charsets
}

// charsets are the character sets. The zero value is ASCII in all.
type charsets struct {
	sets   [4]byte // the final byte of the designation; 0: ASCII
	locked uint8   // which of sets is in use
	single uint8   // which of sets the next character uses; 0: locked
}

// row is a line of the screen.
type row []cell

// cell is a place for a character.
type cell struct {
	// char is a code point; 0: blank, also if a space was written; wideTail: it belongs to the cell
	// before; from firstCluster on an index in clusters.
	char rune
	pen  uint16 // index in palette
}

const (
	wideTail     rune = -1
	firstCluster rune = 0x110000
)

func newLines(columns, rows int) []row {
	cells := make([]cell, columns*rows)
	lines := make([]row, rows)
	for y := range lines {
		lines[y] = cells[y*columns : (y+1)*columns : (y+1)*columns]
	}
	return lines
}

// resize changes the size of both screens.
func (g *grid) resize(columns, rows int) {
	mainCursor := &g.cursor
	if g.isAlternate() {
		mainCursor = &g.saved[0]
	}
	g.main = resized(g.main, columns, rows, mainCursor, &g.saved[0])
	g.lines = g.main
	if g.alternate != nil {
		g.alternate = resized(g.alternate, columns, rows, &g.cursor, &g.saved[1])
		g.lines = g.alternate
	}
	g.columns, g.rows = columns, rows
}

// resized returns lines with another size, and moves the cursor at into them, and saved if it is another.
func resized(old []row, columns, rows int, at, saved *cursor) []row {
	lines := newLines(columns, rows)
	skip := max(0, at.y-rows+1)
	for y := range min(len(old)-skip, rows) {
		n := copy(lines[y], old[skip+y])
		if n < len(old[skip+y]) && old[skip+y][n].char == wideTail {
			lines[y][n-1].char = 0
		}
	}
	at.y -= skip
	if saved != at {
		saved.y = max(0, saved.y-skip)
	}
	for _, c := range []*cursor{at, saved} {
		c.y, c.wrap = min(c.y, rows-1), c.wrap && columns == len(old[0])
		c.x = min(c.x, columns-1)
	}
	return lines
}

func (g *grid) isAlternate() bool { return g.alternate != nil }

// which is the index of what each of the two screens has of its own.
func (g *grid) which() int {
	if g.isAlternate() {
		return 1
	}
	return 0
}

func (g *grid) save() {
	g.cursor.charset.single = 0
	g.saved[g.which()] = g.cursor
}

// moveTo moves the cursor, clipped to the screen.
func (g *grid) moveTo(x, y int) {
	g.cursor.x = min(max(x, 0), g.columns-1)
	g.cursor.y = min(max(y, 0), g.rows-1)
	g.cursor.wrap = false
}

// advance moves the cursor behind what was printed.
func (g *grid) advance(n int) {
	c := &g.cursor
	if c.x += n; c.x >= g.columns {
		c.x, c.wrap = g.columns-1, true
	}
}

// printCombining adds a code point to the character before the cursor.
func (g *grid) printCombining(r rune) {
	x := g.cursor.x - 1
	if g.cursor.wrap {
		x++
	}
	if x < 0 || r < 0xa0 {
		return
	}
	line := g.lines[g.cursor.y]
	if line[x].char == wideTail {
		x--
	}
	g.combine(&line[x], r)
}

func (g *grid) eraseDisplay(what int) {
	c := &g.cursor
	switch what {
	case 0:
		g.eraseLine(0)
		g.eraseLines(c.y+1, g.rows)
	case 1:
		g.eraseLine(1)
		g.eraseLines(0, c.y)
	case 2:
		c.wrap = false
		g.eraseLines(0, g.rows)
	}
}

func (g *grid) eraseLine(what int) {
	c := &g.cursor
	c.wrap = false
	switch what {
	case 0:
		g.erase(c.y, c.x, g.columns)
	case 1:
		g.erase(c.y, 0, c.x+1)
	case 2:
		g.erase(c.y, 0, g.columns)
	}
}

// insert moves the rest of the line to the right.
func (g *grid) insert(n int) {
	c := &g.cursor
	c.wrap = false
	n = min(n, g.columns-c.x)
	line := g.lines[c.y]
	split(line, c.x)
	split(line, g.columns-n)
	copy(line[c.x+n:], line[c.x:])
	fill(line[c.x:c.x+n], g.blank())
}

// delete moves the rest of the line to the left.
func (g *grid) delete(n int) {
	c := &g.cursor
	c.wrap = false
	n = min(n, g.columns-c.x)
	line := g.lines[c.y]
	split(line, c.x)
	split(line, c.x+n)
	copy(line[c.x:], line[c.x+n:])
	fill(line[g.columns-n:], g.blank())
}

// scroll moves the lines from top to bottom, inclusive, up by n, or down if n is negative.
func (g *grid) scroll(top, bottom, n int) {
	lines := g.lines[top : bottom+1]
	switch {
	case n >= len(lines) || -n >= len(lines):
		g.eraseLines(top, bottom+1)
	case n == 1: // by far the most frequent
		first := lines[0]
		copy(lines, lines[1:])
		lines[len(lines)-1] = first
		fill(first, g.blank())
	case n > 0:
		rotate(lines, n)
		g.eraseLines(bottom+1-n, bottom+1)
	case n < 0:
		rotate(lines, len(lines)+n)
		g.eraseLines(top, top-n)
	}
}

// rotate moves the first n lines behind the others.
func rotate(lines []row, n int) {
	slices.Reverse(lines[:n])
	slices.Reverse(lines[n:])
	slices.Reverse(lines)
}

// blank is an empty cell with the background of the pen.
func (g *grid) blank() cell {
	if g.cursor.pen == 0 {
		return cell{}
	}
	return cell{pen: g.penFor(Style{Background: g.pens.style(g.cursor.pen).Background})}
}

// erase blanks the cells from x to end of a line, and the other half of a wide character that is cut.
func (g *grid) erase(y, x, end int) {
	if x >= end {
		return
	}
	split(g.lines[y], x)
	split(g.lines[y], end)
	fill(g.lines[y][x:end], g.blank())
}

func fill(cells []cell, with cell) {
	if with == (cell{}) {
		clear(cells)
		return
	}
	for i := range cells {
		cells[i] = with
	}
}

// split blanks a wide character of which x would be the second half.
func split(line row, x int) {
	if x > 0 && x < len(line) && line[x].char == wideTail {
		line[x-1].char, line[x].char = 0, 0
	}
}

// eraseLines blanks the lines from y to end.
func (g *grid) eraseLines(y, end int) {
	blank := g.blank()
	for ; y < end; y++ {
		fill(g.lines[y], blank)
	}
}
