package screen

import (
	"slices"
	"strings"
)

const (
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
func (t *terminal) controlSequence(sequence []byte) {
	var storage [maxParams]parameter
	private, intermediate, p := parseParameters(sequence, &storage)
	final := sequence[len(sequence)-1]
	last := t.last
	t.last = 0
	switch {
	case intermediate != 0:
		t.controlWithIntermediate(private, intermediate, final, p)
	case private == 0:
		if final == 'b' {
			t.last = last
			t.repeat(p.count())
			return
		}
		t.plainControlSequence(final, p)
	case private == '?' && (final == 'h' || final == 'l'):
		for _, one := range p {
			t.setPrivateMode(one.value, final == 'h')
		}
	case private == '?' && final == 'J':
		t.eraseDisplay(p.number(0, 0))
	case private == '?' && final == 'K':
		t.eraseLine(p.number(0, 0))
	case private == '>' && final == 'm' && p.number(0, 0) == 4:
		t.modes.ModifyOtherKeys = uint8(min(p.number(1, 0), 3))
	case final == 'u':
		t.keyboards[t.which()].control(private, p)
	}
}

func (t *terminal) controlWithIntermediate(private, intermediate, final byte, p parameters) {
	switch {
	case private == 0 && intermediate == '!' && final == 'p':
		t.softReset()
	case private == 0 && intermediate == ' ' && final == 'q':
		t.modes.CursorShape = uint8(min(p.number(0, 0), 6))
	}
}

func (t *terminal) plainControlSequence(final byte, p parameters) {
	c := &t.cursor
	switch final {
	case 'A', 'F', 'k':
		t.moveUp(p.count())
	case 'B', 'E', 'e':
		t.moveDown(p.count())
	case 'C', 'a':
		t.moveTo(c.x+p.count(), c.y)
	case 'D', 'j':
		t.moveTo(c.x-p.count(), c.y)
	case 'G', '`':
		t.moveTo(p.count()-1, c.y)
	case 'H', 'f':
		t.moveInRegion(max(1, p.number(1, 1))-1, p.count()-1)
	case 'd':
		t.moveInRegion(c.x, p.count()-1)
	case 'I':
		t.tab(p.count())
	case 'Z':
		t.tab(-p.count())
	case 'J':
		t.eraseDisplay(p.number(0, 0))
	case 'K':
		t.eraseLine(p.number(0, 0))
	case 'L', 'M':
		t.shiftLines(p.count(), final == 'L')
	case '@':
		t.insert(p.count())
	case 'P':
		t.delete(p.count())
	case 'X':
		c.wrap = false
		t.erase(c.y, c.x, min(c.x+p.count(), t.columns))
	case 'S':
		t.scroll(t.top, t.bottom, p.count())
	case 'T':
		if len(p) == 1 { // with more it is a request of mouse tracking
			t.scroll(t.top, t.bottom, -p.count())
		}
	case 'g':
		switch p.number(0, 0) {
		case 0:
			t.tabs.set(c.x, t.columns, false)
		case 3:
			t.tabs = make(tabStops, t.columns)
		}
	case 'h', 'l':
		for _, one := range p {
			switch one.value {
			case 4:
				t.modes.Insert = final == 'h'
			case 20:
				t.modes.NewLine = final == 'h'
			}
		}
	case 'm':
		t.selectStyle(p)
	case 'r':
		t.setRegion(max(1, p.number(0, 1))-1, min(max(p.number(1, 0)-1, -1), t.rows-1))
	case 's':
		t.save()
	case 'u':
		t.restore()
	case 't':
		t.titleStack(p)
	}
	if final == 'E' || final == 'F' {
		c.x = 0
	}
}

const (
	maxTitles     = 8 // that can be pushed
	maxTitleBytes = maxPartial / 2
)

// windowTitle is the title, and what was pushed.
type windowTitle struct {
	title  string
	titles []string
}

func (w *windowTitle) setTitle(title string) {
	w.title = strings.ToValidUTF8(title, "�")
	if len(w.title) > maxTitleBytes {
		w.title = strings.ToValidUTF8(w.title[:maxTitleBytes], "")
	}
}

// titleStack pushes and pops the title. Other operations on windows have no effect.
func (w *windowTitle) titleStack(p parameters) {
	if p.number(1, 0) == 1 { // only the icon
		return
	}
	switch p.number(0, 0) {
	case 22:
		if len(w.titles) == maxTitles {
			w.titles = slices.Delete(w.titles, 0, 1)
		}
		w.titles = append(w.titles, w.title)
	case 23:
		if last := len(w.titles) - 1; last >= 0 {
			w.title, w.titles = w.titles[last], w.titles[:last]
		}
	}
}

// keyboard is the flags of kitty's keyboard protocol, a stack.
type keyboard []uint8

// control executes the sequences of kitty's keyboard protocol.
func (k *keyboard) control(private byte, p parameters) {
	flags := uint8(p.number(0, 0) & 31)
	switch private {
	case '>':
		if len(*k) == maxFlagSet {
			*k = slices.Delete(*k, 0, 1)
		}
		*k = append(*k, flags)
	case '<':
		*k = (*k)[:max(0, len(*k)-p.count())]
	case '=':
		if len(*k) == 0 {
			*k = append(*k, 0)
		}
		top := &(*k)[len(*k)-1]
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
func (t *terminal) selectStyle(p parameters) {
	style := t.pens.style(t.cursor.pen)
	for i := 0; i < len(p); {
		end := i + 1
		for end < len(p) && p[end].sub {
			end++
		}
		i += applyStyle(&style, p[i:], p[i:end])
	}
	t.cursor.pen = t.penFor(style)
}

var attributes = [10]Attributes{1: Bold, 2: Faint, 3: Italic, 5: Blink, 6: Blink, 7: Inverse, 8: Invisible, 9: Strikethrough}

// applyStyle applies the first parameter of rest, which with its sub-parameters is own, and returns how
// many of them it took.
func applyStyle(style *Style, rest, own parameters) int {
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
