package screen

import "slices"

// MaxCells is how many cells a screen has at most. It takes 8 bytes for each, and once more while the
// alternate screen is shown.
const MaxCells = 1 << 17

// Fits reports whether a Screen can have a size: at least 1 by 1, and at most MaxCells.
func Fits(columns, rows int) bool {
	return columns > 0 && rows > 0 && columns <= MaxCells && rows <= MaxCells/columns
}

// Screen is the state of a terminal. Its methods are called one at a time.
type Screen struct {
	columns, rows int
	main          []row
	alternate     []row // nil: it has not been shown since the main one was
	lines         []row // main or alternate: what is shown
	pens          palette
	clusters      []string // of cells with more than one code point, by cell.char

	cursor      cursor
	saved       [2]cursor // of DECSC, on the main and on the alternate screen
	top, bottom int       // the scrolling region, inclusive
	tabs        []bool    // by column; nil: every 8
	modes       Modes
	keyboards   [2][]uint8 // flags of kitty's keyboard protocol, a stack for each screen
	title       string
	titles      []string // pushed

	parser  parser
	pending []byte // output that is not yet processed
	last    rune   // that REP repeats; 0: none
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

// New returns an empty screen. It panics unless the size Fits.
func New(columns, rows int) *Screen {
	if !Fits(columns, rows) {
		panic("screen: the size does not fit")
	}
	s := &Screen{columns: columns, rows: rows, main: newLines(columns, rows), bottom: rows - 1}
	s.lines = s.main
	return s
}

func newLines(columns, rows int) []row {
	cells := make([]cell, columns*rows)
	lines := make([]row, rows)
	for y := range lines {
		lines[y] = cells[y*columns : (y+1)*columns : (y+1)*columns]
	}
	return lines
}

// Size returns the size.
func (s *Screen) Size() (columns, rows int) { return s.columns, s.rows }

// Bytes returns about how much memory the screen takes.
func (s *Screen) Bytes() int {
	const overhead = 1 << 10
	n := 8*s.columns*s.rows + 24*s.rows
	if s.alternate != nil {
		n *= 2
	}
	return overhead + n + 64*len(s.pens.list) + 64*len(s.clusters) + len(s.tabs) + cap(s.parser.partial) + cap(s.pending)
}

// Resize changes the size as xterm does without scrollback: lines are cut or filled at the right and at
// the bottom; at the top, as far as the cursor would be cut otherwise. It panics unless the size Fits.
func (s *Screen) Resize(columns, rows int) {
	if !Fits(columns, rows) {
		panic("screen: the size does not fit")
	}
	if columns == s.columns && rows == s.rows {
		return
	}
	s.flush()
	shown := s.isAlternate()
	mainCursor := &s.cursor
	if shown {
		mainCursor = &s.saved[0]
	}
	s.main = s.resized(s.main, columns, rows, mainCursor, &s.saved[0])
	s.lines = s.main
	if s.alternate != nil {
		s.alternate = s.resized(s.alternate, columns, rows, &s.cursor, &s.saved[1])
		s.lines = s.alternate
	}
	if s.tabs != nil {
		for x := len(s.tabs); x < columns; x++ {
			s.tabs = append(s.tabs, x%tabWidth == 0)
		}
		s.tabs = slices.Clip(s.tabs[:columns])
	}
	s.columns, s.rows = columns, rows
	s.top, s.bottom = 0, rows-1
}

// resized returns lines with another size, and moves the cursor at into them, and saved if it is another.
func (s *Screen) resized(old []row, columns, rows int, at, saved *cursor) []row {
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
		c.y, c.wrap = min(c.y, rows-1), c.wrap && columns == s.columns
		c.x = min(c.x, columns-1)
	}
	return lines
}

func (s *Screen) isAlternate() bool { return s.alternate != nil }

// which is the index of what each of the two screens has of its own.
func (s *Screen) which() int {
	if s.isAlternate() {
		return 1
	}
	return 0
}

// blank is an empty cell with the background of the pen.
func (s *Screen) blank() cell {
	if s.cursor.pen == 0 {
		return cell{}
	}
	return cell{pen: s.penFor(Style{Background: s.pens.style(s.cursor.pen).Background})}
}

// erase blanks the cells from x to end of a line, and the other half of a wide character that is cut.
func (s *Screen) erase(y, x, end int) {
	if x >= end {
		return
	}
	s.split(s.lines[y], x)
	s.split(s.lines[y], end)
	fill(s.lines[y][x:end], s.blank())
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
func (s *Screen) split(line row, x int) {
	if x > 0 && x < len(line) && line[x].char == wideTail {
		line[x-1].char, line[x].char = 0, 0
	}
}

// eraseLines blanks the lines from y to end.
func (s *Screen) eraseLines(y, end int) {
	blank := s.blank()
	for ; y < end; y++ {
		fill(s.lines[y], blank)
	}
}

// scroll moves the lines from top to bottom, inclusive, up by n, or down if n is negative.
func (s *Screen) scroll(top, bottom, n int) {
	lines := s.lines[top : bottom+1]
	switch {
	case n >= len(lines) || -n >= len(lines):
		s.eraseLines(top, bottom+1)
	case n == 1: // by far the most frequent
		first := lines[0]
		copy(lines, lines[1:])
		lines[len(lines)-1] = first
		fill(first, s.blank())
	case n > 0:
		rotate(lines, n)
		s.eraseLines(bottom+1-n, bottom+1)
	case n < 0:
		rotate(lines, len(lines)+n)
		s.eraseLines(top, top-n)
	}
}

// rotate moves the first n lines behind the others.
func rotate(lines []row, n int) {
	slices.Reverse(lines[:n])
	slices.Reverse(lines[n:])
	slices.Reverse(lines)
}

// showAlternate shows the alternate screen, which is blank, or the main one.
func (s *Screen) showAlternate(alternate bool) {
	switch {
	case alternate == s.isAlternate():
	case alternate:
		s.alternate = newLines(s.columns, s.rows)
		s.lines = s.alternate
		s.eraseLines(0, s.rows)
	default:
		s.alternate, s.lines = nil, s.main
		s.saved[1], s.keyboards[1] = cursor{}, nil
	}
}

func (s *Screen) save() {
	s.cursor.charset.single = 0
	s.saved[s.which()] = s.cursor
}

func (s *Screen) restore() {
	s.cursor = s.saved[s.which()]
	c := &s.cursor
	c.x, c.y = min(c.x, s.columns-1), min(c.y, s.rows-1) // it may have been saved with another size
	c.wrap = c.wrap && c.x == s.columns-1
	if c.origin {
		c.y = min(max(c.y, s.top), s.bottom)
	}
}

// reset is RIS.
func (s *Screen) reset() {
	fresh := New(s.columns, s.rows)
	fresh.parser, fresh.pending = s.parser, s.pending
	*s = *fresh
}

// softReset is DECSTR.
func (s *Screen) softReset() {
	s.modes.Insert, s.modes.ApplicationCursor, s.modes.ApplicationKeypad = false, false, false
	s.modes.NoWrap, s.modes.CursorHidden = false, false
	s.top, s.bottom = 0, s.rows-1
	s.cursor.origin, s.cursor.pen, s.cursor.charset = false, 0, charsets{}
	s.saved[s.which()] = cursor{}
}
