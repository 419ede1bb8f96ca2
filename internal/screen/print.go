package screen

import (
	"bytes"
	"slices"
)

// width returns how many cells a code point takes: 0, 1 or 2.
func width(r rune) int {
	switch {
	case r < 0x300 && r >= 0xa0, r < 0x80:
		return 1
	case isIn(zeroWidth, r):
		return 0
	case r >= 0x1100 && isIn(doubleWidth, r):
		return 2
	}
	return 1
}

func isIn(table []runeRange, r rune) bool {
	_, found := slices.BinarySearchFunc(table, r, func(one runeRange, r rune) int {
		switch {
		case one.last < r:
			return -1
		case one.first > r:
			return 1
		}
		return 0
	})
	return found
}

// printASCII prints printable ASCII, not empty.
func (t *terminal) printASCII(text []byte) {
	if t.cursor.charset != (charsets{}) || t.modes.Insert {
		for _, c := range text {
			t.printRune(rune(c))
		}
		return
	}
	t.last = rune(text[len(text)-1])
	c := &t.cursor
	for len(text) > 0 {
		if c.wrap {
			t.wrap()
		}
		if !t.modes.NoWrap || c.x < t.columns-1 {
			n := min(len(text), t.columns-c.x)
			line := t.lines[c.y]
			split(line, c.x)
			split(line, c.x+n)
			pen := c.pen
			cells := line[c.x : c.x+n]
			for i := range cells {
				char := rune(text[i])
				if char == ' ' {
					char = 0
				}
				cells[i] = cell{char: char, pen: pen}
			}
			text = text[n:]
			t.advance(n)
			continue
		}
		text = text[len(text)-1:] // the others are overwritten
		t.put(rune(text[0]), 1)
		return
	}
}

// wrap begins the next line, if the mode has it.
func (t *terminal) wrap() {
	t.cursor.wrap = false
	if !t.modes.NoWrap {
		t.cursor.x = 0
		t.lineFeed()
	}
}

// printRune prints a code point that is no control.
func (t *terminal) printRune(r rune) {
	r = t.cursor.charset.translate(r)
	w := width(r)
	if w == 0 {
		t.printCombining(r)
		return
	}
	t.last = r
	t.put(r, w)
}

// put prints a code point of a width of 1 or 2.
func (t *terminal) put(r rune, w int) {
	c := &t.cursor
	if w > t.columns {
		return
	}
	if c.wrap || c.x+w > t.columns {
		t.wrap()
	}
	if c.x+w > t.columns { // without wrapping
		c.x = t.columns - w
	}
	if t.modes.Insert {
		t.insert(w)
	}
	line := t.lines[c.y]
	split(line, c.x)
	split(line, c.x+w)
	if r == ' ' {
		r = 0
	}
	line[c.x] = cell{char: r, pen: c.pen}
	if w == 2 {
		line[c.x+1] = cell{char: wideTail, pen: c.pen}
	}
	t.advance(w)
}

// repeat is REP.
func (t *terminal) repeat(n int) {
	if t.last == 0 {
		return
	}
	w := width(t.last)
	// More only scrolls the same out again.
	for range min(n, t.columns*(t.rows+1)) {
		t.put(t.last, w)
	}
}

// skip returns how much of the text, which begins in the ground state, scrolls out again without a
// trace, and moves the cursor as that would. It is what makes a flood cheap. It has no use before the
// text from tried on.
func (t *terminal) skip(text []byte) (skipped, tried int) {
	if t.top != 0 || t.bottom != t.rows-1 || t.cursor.y != t.bottom || len(text) < 2*t.rows {
		return 0, 0
	}
	// What remains changes the style and the column, which is known after a carriage return, and
	// scrolls.
	text = text[:plainLength(text)]
	end := len(text)
	for range t.rows + 1 {
		if end = bytes.LastIndexByte(text[:end], '\n'); end < 1 {
			return 0, len(text)
		}
	}
	if text[end-1] != '\r' {
		return 0, len(text)
	}
	t.cursor.x, t.cursor.wrap, t.last, t.cursor.charset.single = 0, false, 0, 0
	t.selectLastStyle(text[:end])
	return end + 1, len(text)
}

// plainLength returns the length of the text before the first sequence that is no SGR, and before the
// first shift of the character set.
func plainLength(text []byte) int {
	for _, shift := range []byte{'\x0e', '\x0f'} {
		if at := bytes.IndexByte(text, shift); at >= 0 {
			text = text[:at]
		}
	}
	for at := 0; ; {
		next := bytes.IndexByte(text[at:], '\x1b')
		if next < 0 {
			return len(text)
		}
		at += next
		n := wholeControlSequence(text[at:])
		if n == 0 || text[at+n-1] != 'm' || n > 3 && text[at+2] > ';' {
			return at
		}
		at += n
	}
}

// selectLastStyle selects the style after the SGRs of a text, without those before the last reset.
func (t *terminal) selectLastStyle(text []byte) {
	reset, first := 0, bytes.IndexByte(text, '\x1b')
	for at := first; at >= 0; at = nextEscape(text, at) {
		if rest := text[at:]; rest[2] == 'm' || rest[2] == '0' && rest[3] == 'm' {
			reset = at
		}
	}
	for at := max(first, reset); first >= 0 && at >= 0; at = nextEscape(text, at) {
		t.controlSequence(text[at+2 : at+wholeControlSequence(text[at:])])
	}
}

// nextEscape returns where the next ESC after one is, or -1.
func nextEscape(text []byte, at int) int {
	next := bytes.IndexByte(text[at+1:], '\x1b')
	if next < 0 {
		return -1
	}
	return at + 1 + next
}

// translate returns the code point that a character means, and ends a single shift.
func (c *charsets) translate(r rune) rune {
	set := c.sets[c.locked]
	if c.single != 0 {
		set, c.single = c.sets[c.single], 0
	}
	switch {
	case set == '0' && r >= 0x60 && r <= 0x7e:
		return specialGraphics[r-0x60]
	case set == 'A' && r == '#':
		return '£'
	}
	return r
}

var specialGraphics = []rune("◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")
