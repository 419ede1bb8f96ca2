package screen

import "slices"

const (
	tabWidth   = 8
	maxParams  = 32
	maxNumber  = 1<<16 - 1
	maxFlagSet = 8 // flags of the keyboard that can be pushed
)

// parameter is one of a control sequence.
type parameter struct {
	value int  // -1: absent
	sub   bool // it follows a colon
}

// parameters are those of a control sequence.
type parameters []parameter

// number returns a parameter, or the default if it is absent.
func (p parameters) number(i, otherwise int) int {
	if i >= len(p) || p[i].value < 0 {
		return otherwise
	}
	return p[i].value
}

// count returns the first parameter, where 0 means 1.
func (p parameters) count() int { return max(1, p.number(0, 1)) }

// parseParameters splits a control sequence.
func parseParameters(sequence []byte, into *[maxParams]parameter) (private, intermediate byte, list parameters) {
	if c := sequence[0]; c >= '<' && c <= '?' {
		private, sequence = c, sequence[1:]
	}
	into[0] = parameter{value: -1}
	n := 0
	for _, c := range sequence[:len(sequence)-1] {
		switch {
		case c >= '0' && c <= '9' && n < maxParams:
			into[n].value = min(max(into[n].value, 0)*10+int(c-'0'), maxNumber)
		case c == ';' || c == ':':
			if n++; n < maxParams {
				into[n] = parameter{value: -1, sub: c == ':'}
			}
		case c < '0':
			intermediate = c
		}
	}
	return private, intermediate, into[:min(n+1, maxParams)]
}

// controlSequence executes what follows CSI.
func (s *Screen) controlSequence(sequence []byte) {
	var storage [maxParams]parameter
	private, intermediate, p := parseParameters(sequence, &storage)
	final := sequence[len(sequence)-1]
	last := s.last
	s.last = 0
	switch {
	case intermediate != 0:
		s.controlWithIntermediate(private, intermediate, final, p)
	case private == 0:
		if final == 'b' {
			s.last = last
			s.repeat(p.count())
			return
		}
		s.plainControlSequence(final, p)
	case private == '?' && (final == 'h' || final == 'l'):
		for _, one := range p {
			s.setPrivateMode(one.value, final == 'h')
		}
	case private == '?' && final == 'J':
		s.eraseDisplay(p.number(0, 0))
	case private == '?' && final == 'K':
		s.eraseLine(p.number(0, 0))
	case private == '>' && final == 'm' && p.number(0, 0) == 4:
		s.modes.ModifyOtherKeys = uint8(min(p.number(1, 0), 3))
	case final == 'u':
		s.keyboard(private, p)
	}
}

func (s *Screen) controlWithIntermediate(private, intermediate, final byte, p parameters) {
	switch {
	case private == 0 && intermediate == '!' && final == 'p':
		s.softReset()
	case private == 0 && intermediate == ' ' && final == 'q':
		s.modes.CursorShape = uint8(min(p.number(0, 0), 6))
	}
}

func (s *Screen) plainControlSequence(final byte, p parameters) {
	c := &s.cursor
	switch final {
	case 'A', 'F', 'k':
		s.moveUp(p.count())
	case 'B', 'E', 'e':
		s.moveDown(p.count())
	case 'C', 'a':
		s.moveTo(c.x+p.count(), c.y)
	case 'D', 'j':
		s.moveTo(c.x-p.count(), c.y)
	case 'G', '`':
		s.moveTo(p.count()-1, c.y)
	case 'H', 'f':
		s.moveInRegion(max(1, p.number(1, 1))-1, p.count()-1)
	case 'd':
		s.moveInRegion(c.x, p.count()-1)
	case 'I':
		s.tab(p.count())
	case 'Z':
		s.tab(-p.count())
	case 'J':
		s.eraseDisplay(p.number(0, 0))
	case 'K':
		s.eraseLine(p.number(0, 0))
	case 'L', 'M':
		s.shiftLines(p.count(), final == 'L')
	case '@':
		s.insert(p.count())
	case 'P':
		s.delete(p.count())
	case 'X':
		c.wrap = false
		s.erase(c.y, c.x, min(c.x+p.count(), s.columns))
	case 'S':
		s.scroll(s.top, s.bottom, p.count())
	case 'T':
		if len(p) == 1 { // with more it is a request of mouse tracking
			s.scroll(s.top, s.bottom, -p.count())
		}
	case 'g':
		s.clearTabs(p.number(0, 0))
	case 'h', 'l':
		for _, one := range p {
			switch one.value {
			case 4:
				s.modes.Insert = final == 'h'
			case 20:
				s.modes.NewLine = final == 'h'
			}
		}
	case 'm':
		s.selectStyle(p)
	case 'r':
		s.setRegion(max(1, p.number(0, 1))-1, min(max(p.number(1, 0)-1, -1), s.rows-1))
	case 's':
		s.save()
	case 'u':
		s.restore()
	case 't':
		s.titleStack(p)
	}
	if final == 'E' || final == 'F' {
		c.x = 0
	}
}

// moveTo moves the cursor, clipped to the screen.
func (s *Screen) moveTo(x, y int) {
	s.cursor.x = min(max(x, 0), s.columns-1)
	s.cursor.y = min(max(y, 0), s.rows-1)
	s.cursor.wrap = false
}

// moveInRegion moves the cursor to a position that the mode of the origin applies to.
func (s *Screen) moveInRegion(x, y int) {
	if s.cursor.origin {
		y = min(y+s.top, s.bottom)
	}
	s.moveTo(x, y)
}

func (s *Screen) moveUp(n int) {
	limit := 0
	if s.cursor.y >= s.top {
		limit = s.top
	}
	s.moveTo(s.cursor.x, max(s.cursor.y-n, limit))
}

func (s *Screen) moveDown(n int) {
	limit := s.rows - 1
	if s.cursor.y <= s.bottom {
		limit = s.bottom
	}
	s.moveTo(s.cursor.x, min(s.cursor.y+n, limit))
}

func (s *Screen) setRegion(top, bottom int) {
	if bottom < 0 {
		bottom = s.rows - 1
	}
	if top >= bottom {
		return
	}
	s.top, s.bottom = top, bottom
	s.moveInRegion(0, 0)
}

func (s *Screen) eraseDisplay(what int) {
	c := &s.cursor
	switch what {
	case 0:
		s.eraseLine(0)
		s.eraseLines(c.y+1, s.rows)
	case 1:
		s.eraseLine(1)
		s.eraseLines(0, c.y)
	case 2:
		c.wrap = false
		s.eraseLines(0, s.rows)
	}
}

func (s *Screen) eraseLine(what int) {
	c := &s.cursor
	c.wrap = false
	switch what {
	case 0:
		s.erase(c.y, c.x, s.columns)
	case 1:
		s.erase(c.y, 0, c.x+1)
	case 2:
		s.erase(c.y, 0, s.columns)
	}
}

// shiftLines inserts or deletes lines at the cursor.
func (s *Screen) shiftLines(n int, insert bool) {
	c := &s.cursor
	if c.y < s.top || c.y > s.bottom {
		return
	}
	n = min(n, s.rows)
	if insert {
		n = -n
	}
	s.scroll(c.y, s.bottom, n)
	c.x, c.wrap = 0, false
}

// insert moves the rest of the line to the right.
func (s *Screen) insert(n int) {
	c := &s.cursor
	c.wrap = false
	n = min(n, s.columns-c.x)
	line := s.lines[c.y]
	s.split(line, c.x)
	s.split(line, s.columns-n)
	copy(line[c.x+n:], line[c.x:])
	fill(line[c.x:c.x+n], s.blank())
}

// delete moves the rest of the line to the left.
func (s *Screen) delete(n int) {
	c := &s.cursor
	c.wrap = false
	n = min(n, s.columns-c.x)
	line := s.lines[c.y]
	s.split(line, c.x)
	s.split(line, c.x+n)
	copy(line[c.x:], line[c.x+n:])
	fill(line[s.columns-n:], s.blank())
}

// tab moves by n tab stops.
func (s *Screen) tab(n int) {
	x := s.cursor.x
	for ; n > 0 && x < s.columns-1; n-- {
		for x++; x < s.columns-1 && !s.isTab(x); {
			x++
		}
	}
	for ; n < 0 && x > 0; n++ {
		for x--; x > 0 && !s.isTab(x); {
			x--
		}
	}
	s.moveTo(x, s.cursor.y)
}

func (s *Screen) isTab(x int) bool {
	if s.tabs == nil {
		return x%tabWidth == 0
	}
	return s.tabs[x]
}

// ownTabs makes the tab stops changeable.
func (s *Screen) ownTabs() {
	if s.tabs == nil {
		s.tabs = make([]bool, s.columns)
		for x := 0; x < s.columns; x += tabWidth {
			s.tabs[x] = true
		}
	}
}

func (s *Screen) setTab() {
	s.ownTabs()
	s.tabs[s.cursor.x] = true
}

func (s *Screen) clearTabs(what int) {
	switch what {
	case 0:
		s.ownTabs()
		s.tabs[s.cursor.x] = false
	case 3:
		s.tabs = make([]bool, s.columns)
	}
}

// titleStack pushes and pops the title. Other operations on windows have no effect.
func (s *Screen) titleStack(p parameters) {
	if p.number(1, 0) == 1 { // only the icon
		return
	}
	switch p.number(0, 0) {
	case 22:
		if len(s.titles) == maxTitles {
			s.titles = slices.Delete(s.titles, 0, 1)
		}
		s.titles = append(s.titles, s.title)
	case 23:
		if last := len(s.titles) - 1; last >= 0 {
			s.title, s.titles = s.titles[last], s.titles[:last]
		}
	}
}

// keyboard executes the sequences of kitty's keyboard protocol.
func (s *Screen) keyboard(private byte, p parameters) {
	stack := &s.keyboards[s.which()]
	flags := uint8(p.number(0, 0) & 31)
	switch private {
	case '>':
		if len(*stack) == maxFlagSet {
			*stack = slices.Delete(*stack, 0, 1)
		}
		*stack = append(*stack, flags)
	case '<':
		*stack = (*stack)[:max(0, len(*stack)-p.count())]
	case '=':
		if len(*stack) == 0 {
			*stack = append(*stack, 0)
		}
		top := &(*stack)[len(*stack)-1]
		switch p.number(1, 1) {
		case 1:
			*top = flags
		case 2:
			*top |= flags
		case 3:
			*top &^= flags
		}
	}
}

// selectStyle is SGR.
func (s *Screen) selectStyle(p parameters) {
	style := s.pens.style(s.cursor.pen)
	for i := 0; i < len(p); {
		end := i + 1
		for end < len(p) && p[end].sub {
			end++
		}
		i += s.applyStyle(&style, p[i:], p[i:end])
	}
	s.cursor.pen = s.penFor(style)
}

var attributes = [10]Attributes{1: Bold, 2: Faint, 3: Italic, 5: Blink, 6: Blink, 7: Inverse, 8: Invisible, 9: Strikethrough}

// applyStyle applies the first parameter of rest, which with its sub-parameters is own, and returns how
// many of them it took.
func (s *Screen) applyStyle(style *Style, rest, own parameters) int {
	switch n := own.number(0, 0); {
	case n == 0:
		*style = Style{}
	case n == 4:
		style.Underline = uint8(min(own.number(1, 1), 5))
	case n == 21:
		style.Underline = 2
	case n == 24:
		style.Underline = 0
	case n == 22:
		style.Attributes &^= Bold | Faint
	case n == 25:
		style.Attributes &^= Blink
	case n < 10:
		style.Attributes |= attributes[n]
	case n >= 23 && n <= 29:
		style.Attributes &^= attributes[n-20]
	case n >= 30 && n <= 37:
		style.Foreground = indexed | Color(n-30)
	case n >= 40 && n <= 47:
		style.Background = indexed | Color(n-40)
	case n >= 90 && n <= 97:
		style.Foreground = indexed | Color(n-90+8)
	case n >= 100 && n <= 107:
		style.Background = indexed | Color(n-100+8)
	case n == 38:
		return extendedColor(&style.Foreground, rest, own)
	case n == 48:
		return extendedColor(&style.Background, rest, own)
	case n == 58:
		return extendedColor(&style.UnderlineColor, rest, own)
	case n == 39:
		style.Foreground = 0
	case n == 49:
		style.Background = 0
	case n == 59:
		style.UnderlineColor = 0
	case n == 53:
		style.Attributes |= Overline
	case n == 55:
		style.Attributes &^= Overline
	}
	return len(own)
}

// extendedColor is 38, 48 or 58 with what follows, after semicolons or colons.
func extendedColor(color *Color, rest, own parameters) int {
	p, taken := own, len(own)
	if len(own) == 1 {
		p = rest
		switch p.number(1, 0) {
		case 5:
			taken = min(3, len(p))
		case 2:
			taken = min(5, len(p))
		default:
			return min(2, len(p))
		}
	}
	switch {
	case p.number(1, 0) == 5 && len(p) > 2:
		*color = indexed | Color(p.number(2, 0)&0xff)
	case p.number(1, 0) == 2 && len(p) > 4:
		at := 2
		if len(own) > 5 { // with the identifier of a colour space
			at = 3
		}
		*color = direct
		for i := range 3 {
			*color |= Color(min(p.number(at+i, 0), 0xff)) << (16 - 8*i)
		}
	}
	return taken
}
