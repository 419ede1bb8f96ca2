package screen

import "bytes"

// terminal executes what the parser finds in the output.
type terminal struct {
	grid
	windowTitle
	top, bottom int // the scrolling region, inclusive
	tabs        tabStops
	modes       Modes
	keyboards   [2]keyboard // for each screen
	last        rune        // that REP repeats; 0: none
}

func newTerminal(columns, rows int) terminal {
	lines := newLines(columns, rows)
	return terminal{grid: grid{columns: columns, rows: rows, main: lines, lines: lines}, bottom: rows - 1}
}

// showAlternate shows the alternate screen, which is blank, or the main one.
func (t *terminal) showAlternate(alternate bool) {
	switch {
	case alternate == t.isAlternate():
	case alternate:
		t.alternate = newLines(t.columns, t.rows)
		t.lines = t.alternate
		t.eraseLines(0, t.rows)
	default:
		t.alternate, t.lines = nil, t.main
		t.saved[1], t.keyboards[1] = cursor{}, nil
	}
}

func (t *terminal) restore() {
	t.cursor = t.saved[t.which()]
	c := &t.cursor
	c.x, c.y = min(c.x, t.columns-1), min(c.y, t.rows-1) // it may have been saved with another size
	c.wrap = c.wrap && c.x == t.columns-1
	if c.origin {
		c.y = min(max(c.y, t.top), t.bottom)
	}
}

// reset is RIS.
func (t *terminal) reset() { *t = newTerminal(t.columns, t.rows) }

// softReset is DECSTR.
func (t *terminal) softReset() {
	t.modes.Insert, t.modes.ApplicationCursor, t.modes.ApplicationKeypad = false, false, false
	t.modes.NoWrap, t.modes.CursorHidden = false, false
	t.top, t.bottom = 0, t.rows-1
	t.cursor.origin, t.cursor.pen, t.cursor.charset = false, 0, charsets{}
	t.saved[t.which()] = cursor{}
}

// moveInRegion moves the cursor to a position that the mode of the origin applies to.
func (t *terminal) moveInRegion(x, y int) {
	if t.cursor.origin {
		y = min(y+t.top, t.bottom)
	}
	t.moveTo(x, y)
}

func (t *terminal) moveUp(n int) {
	limit := 0
	if t.cursor.y >= t.top {
		limit = t.top
	}
	t.moveTo(t.cursor.x, max(t.cursor.y-n, limit))
}

func (t *terminal) moveDown(n int) {
	limit := t.rows - 1
	if t.cursor.y <= t.bottom {
		limit = t.bottom
	}
	t.moveTo(t.cursor.x, min(t.cursor.y+n, limit))
}

func (t *terminal) setRegion(top, bottom int) {
	if bottom < 0 {
		bottom = t.rows - 1
	}
	if top >= bottom {
		return
	}
	t.top, t.bottom = top, bottom
	t.moveInRegion(0, 0)
}

// shiftLines inserts or deletes lines at the cursor.
func (t *terminal) shiftLines(n int, insert bool) {
	c := &t.cursor
	if c.y < t.top || c.y > t.bottom {
		return
	}
	n = min(n, t.rows)
	if insert {
		n = -n
	}
	t.scroll(c.y, t.bottom, n)
	c.x, c.wrap = 0, false
}

// tab moves by n tab stops.
func (t *terminal) tab(n int) {
	x := t.cursor.x
	for ; n > 0 && x < t.columns-1; n-- {
		for x++; x < t.columns-1 && !t.tabs.isSet(x); {
			x++
		}
	}
	for ; n < 0 && x > 0; n++ {
		for x--; x > 0 && !t.tabs.isSet(x); {
			x--
		}
	}
	t.moveTo(x, t.cursor.y)
}

// lineFeed moves down, and scrolls at the bottom of the region.
func (t *terminal) lineFeed() {
	t.cursor.wrap = false
	switch {
	case t.cursor.y == t.bottom:
		t.scroll(t.top, t.bottom, 1)
	case t.cursor.y < t.rows-1:
		t.cursor.y++
	}
}

// reverseLineFeed moves up, and scrolls at the top of the region.
func (t *terminal) reverseLineFeed() {
	t.cursor.wrap = false
	switch {
	case t.cursor.y == t.top:
		t.scroll(t.top, t.bottom, -1)
	case t.cursor.y > 0:
		t.cursor.y--
	}
}

// control executes a control of C0. NUL, BEL and others have no effect.
func (t *terminal) control(c byte) {
	t.last = 0
	switch c {
	case '\b':
		t.moveTo(t.cursor.x-1, t.cursor.y)
	case '\t':
		t.tab(1)
	case '\n', '\v', '\f':
		t.lineFeed()
		if t.modes.NewLine {
			t.cursor.x = 0
		}
	case '\r':
		t.cursor.x, t.cursor.wrap = 0, false
	case '\x0e': // SO
		t.cursor.charset.locked = 1
	case '\x0f': // SI
		t.cursor.charset.locked = 0
	}
}

// escapeSequence executes what follows ESC.
func (t *terminal) escapeSequence(sequence []byte) {
	t.last = 0
	final := sequence[len(sequence)-1]
	if len(sequence) == 2 {
		switch sequence[0] {
		case '(', ')', '*', '+':
			t.cursor.charset.designate(sequence[0]-'(', final)
		case '-', '.', '/': // of 96 characters: none of them is supported
			t.cursor.charset.designate(sequence[0]-'-'+1, 'B')
		case '#':
			if final == '8' {
				t.alignmentTest()
			}
		}
		return
	}
	if len(sequence) != 1 {
		return
	}
	switch final {
	case '7':
		t.save()
	case '8':
		t.restore()
	case 'D':
		t.lineFeed()
	case 'E':
		t.lineFeed()
		t.cursor.x = 0
	case 'H':
		t.tabs.set(t.cursor.x, t.columns, true)
	case 'M':
		t.reverseLineFeed()
	case 'N', 'O': // SS2, SS3
		t.cursor.charset.single = final - 'N' + 2
	case 'n', 'o': // LS2, LS3
		t.cursor.charset.locked = final - 'n' + 2
	case '=':
		t.modes.ApplicationKeypad = true
	case '>':
		t.modes.ApplicationKeypad = false
	case 'c':
		t.reset()
	}
}

func (c *charsets) designate(set, final byte) {
	if final != '0' && final != 'A' {
		final = 0
	}
	c.sets[set] = final
}

// alignmentTest is DECALN.
func (t *terminal) alignmentTest() {
	t.top, t.bottom = 0, t.rows-1
	for _, line := range t.lines {
		fill(line, cell{char: 'E'})
	}
	t.cursor.x, t.cursor.y, t.cursor.wrap = 0, 0, false
}

// operatingSystemCommand executes an OSC.
func (t *terminal) operatingSystemCommand(command []byte) {
	t.last = 0
	number, text, found := bytes.Cut(command, []byte(";"))
	if !found || string(number) != "0" && string(number) != "2" {
		return
	}
	t.setTitle(string(text))
}
