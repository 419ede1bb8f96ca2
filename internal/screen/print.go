package screen

import (
	"bytes"
	"slices"
	"unicode/utf8"
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
func (s *Screen) printASCII(text []byte) {
	if s.cursor.charset != (charsets{}) || s.modes.Insert {
		for _, c := range text {
			s.printRune(rune(c))
		}
		return
	}
	s.last = rune(text[len(text)-1])
	c := &s.cursor
	for len(text) > 0 {
		if c.wrap {
			s.wrap()
		}
		if !s.modes.NoWrap || c.x < s.columns-1 {
			n := min(len(text), s.columns-c.x)
			line := s.lines[c.y]
			s.split(line, c.x)
			s.split(line, c.x+n)
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
			s.advance(n)
			continue
		}
		text = text[len(text)-1:] // the others are overwritten
		s.put(rune(text[0]), 1)
		return
	}
}

// advance moves the cursor behind what was printed.
func (s *Screen) advance(n int) {
	c := &s.cursor
	if c.x += n; c.x >= s.columns {
		c.x, c.wrap = s.columns-1, true
	}
}

// wrap begins the next line, if the mode has it.
func (s *Screen) wrap() {
	s.cursor.wrap = false
	if !s.modes.NoWrap {
		s.cursor.x = 0
		s.lineFeed()
	}
}

// printRune prints a code point that is no control.
func (s *Screen) printRune(r rune) {
	r = s.cursor.charset.translate(r)
	w := width(r)
	if w == 0 {
		s.printCombining(r)
		return
	}
	s.last = r
	s.put(r, w)
}

// put prints a code point of a width of 1 or 2.
func (s *Screen) put(r rune, w int) {
	c := &s.cursor
	if w > s.columns {
		return
	}
	if c.wrap || c.x+w > s.columns {
		s.wrap()
	}
	if c.x+w > s.columns { // without wrapping
		c.x = s.columns - w
	}
	if s.modes.Insert {
		s.insert(w)
	}
	line := s.lines[c.y]
	s.split(line, c.x)
	s.split(line, c.x+w)
	if r == ' ' {
		r = 0
	}
	line[c.x] = cell{char: r, pen: c.pen}
	if w == 2 {
		line[c.x+1] = cell{char: wideTail, pen: c.pen}
	}
	s.advance(w)
}

// printCombining adds a code point to the character before the cursor.
func (s *Screen) printCombining(r rune) {
	x := s.cursor.x - 1
	if s.cursor.wrap {
		x++
	}
	if x < 0 || r < 0xa0 {
		return
	}
	line := s.lines[s.cursor.y]
	if line[x].char == wideTail {
		x--
	}
	s.combine(&line[x], r)
}

// repeat is REP.
func (s *Screen) repeat(n int) {
	if s.last == 0 {
		return
	}
	w := width(s.last)
	// More only scrolls the same out again.
	for range min(n, s.columns*(s.rows+1)) {
		s.put(s.last, w)
	}
}

// lineFeed moves down, and scrolls at the bottom of the region.
func (s *Screen) lineFeed() {
	s.cursor.wrap = false
	switch {
	case s.cursor.y == s.bottom:
		s.scroll(s.top, s.bottom, 1)
	case s.cursor.y < s.rows-1:
		s.cursor.y++
	}
}

// reverseLineFeed moves up, and scrolls at the top of the region.
func (s *Screen) reverseLineFeed() {
	s.cursor.wrap = false
	switch {
	case s.cursor.y == s.top:
		s.scroll(s.top, s.bottom, -1)
	case s.cursor.y > 0:
		s.cursor.y--
	}
}

// skip returns how much of the text, which begins in the ground state, scrolls out again without a
// trace, and moves the cursor as that would. It is what makes a flood cheap. It has no use before the
// text from tried on.
func (s *Screen) skip(text []byte) (skipped, tried int) {
	if s.top != 0 || s.bottom != s.rows-1 || s.cursor.y != s.bottom || len(text) < 2*s.rows {
		return 0, 0
	}
	// What remains changes the style and the column, which is known after a carriage return, and
	// scrolls.
	text = text[:plainLength(text)]
	end := len(text)
	for range s.rows + 1 {
		if end = bytes.LastIndexByte(text[:end], '\n'); end < 1 {
			return 0, len(text)
		}
	}
	if text[end-1] != '\r' {
		return 0, len(text)
	}
	s.cursor.x, s.cursor.wrap, s.last, s.cursor.charset.single = 0, false, 0, 0
	s.selectLastStyle(text[:end])
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
func (s *Screen) selectLastStyle(text []byte) {
	reset, first := 0, bytes.IndexByte(text, '\x1b')
	for at := first; at >= 0; at = nextEscape(text, at) {
		if rest := text[at:]; rest[2] == 'm' || rest[2] == '0' && rest[3] == 'm' {
			reset = at
		}
	}
	for at := max(first, reset); first >= 0 && at >= 0; at = nextEscape(text, at) {
		s.controlSequence(text[at+2 : at+wholeControlSequence(text[at:])])
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

// printText prints the part of text before the first control, and returns its length. An incomplete
// code point at the end of the text is kept for the next call.
func (s *Screen) printText(text []byte) int {
	n := 0
	for n < len(text) {
		start := n
		for n < len(text) && text[n] >= ' ' && text[n] < 0x7f {
			n++
		}
		if n > start {
			s.printASCII(text[start:n])
			continue
		}
		if text[n] < utf8.RuneSelf {
			return n
		}
		if !utf8.FullRune(text[n:]) {
			s.parser.partial = append(s.parser.partial[:0], text[n:]...)
			return len(text)
		}
		r, size := utf8.DecodeRune(text[n:])
		s.printRune(r)
		n += size
	}
	return n
}

// completeText prints the incomplete code point of the call before with the text that follows, and
// returns how much of that it took.
func (s *Screen) completeText(text []byte) int {
	kept := len(s.parser.partial)
	joined := append(s.parser.partial, text[:min(len(text), utf8.UTFMax)]...)
	s.parser.partial = joined[:0]
	for at := 0; ; {
		if at >= kept {
			return at - kept
		}
		if !utf8.FullRune(joined[at:]) {
			s.parser.partial = append(s.parser.partial, joined[at:]...)
			return len(text)
		}
		r, size := utf8.DecodeRune(joined[at:])
		s.printRune(r)
		at += size
	}
}
