package screen

import (
	"bytes"
	"fmt"
)

// Repaint returns output that makes a terminal of this size like xterm show the screen: the lines of
// both screens, the saved cursors, the scrolling region, the modes and the title. A Screen of this size
// that is fed it continues in the same way with all later output. It ends with the sequence, if any,
// that the output so far has not completed.
func (s *Screen) Repaint() []byte {
	s.flush()
	r := repainter{screen: s}
	r.reset()
	for _, title := range s.titles {
		r.printf("\x1b]2;%s\x1b\\\x1b[22;2t", title)
	}
	if s.title != "" || len(s.titles) > 0 {
		r.printf("\x1b]2;%s\x1b\\", s.title)
	}
	if s.tabs != nil {
		r.printf("\x1b[3g")
		for x, set := range s.tabs {
			if set {
				r.printf("\x1b[%dG\x1bH", x+1)
			}
		}
	}
	r.lines(s.main)
	r.keyboard(s.keyboards[0])
	if s.isAlternate() {
		r.cursor(s.saved[0], s.main, 0)
		r.printf("\x1b[?1049h") // saves the cursor
		r.prepare()
		r.printf("\x1b[2J")
		r.lines(s.alternate)
		r.keyboard(s.keyboards[1])
	}
	r.current()
	return r.Bytes()
}

// RepaintAlternate returns output that repairs the alternate screen of a terminal of this size that has
// shown the output so far, and then something else. It is nil while the main screen is shown.
func (s *Screen) RepaintAlternate() []byte {
	s.flush()
	if !s.isAlternate() {
		return nil
	}
	r := repainter{screen: s}
	r.printf("\x18")
	r.resetModes()
	r.printf("\x1b[H\x1b[2J")
	r.lines(s.alternate)
	r.keyboard(s.keyboards[1])
	r.current()
	return r.Bytes()
}

// Reset returns output that puts a terminal that was painted, and was then used by the program, into
// the state of a shell: the main screen and none of the modes. It does not clear the screen.
func Reset() []byte {
	var r repainter
	// On the main screen 1049 would move the cursor to one that was saved before.
	r.printf("\x1b7\x1b[?1049l\x1b7")
	r.resetModes()
	r.printf("\x1b8\x1b[m" + asciiSets)
	return r.Bytes()
}

// repainter collects the output of Repaint.
type repainter struct {
	bytes.Buffer
	screen *Screen
	// What the terminal has:
	pen     Style
	charset charsets
}

// asciiSets resets the character sets.
const asciiSets = "\x1b(B\x1b)B\x1b*B\x1b+B\x0f"

func (r *repainter) printf(format string, arguments ...any) {
	fmt.Fprintf(&r.Buffer, format, arguments...)
}

// resetModes resets what later steps set, and the state in which they print.
func (r *repainter) resetModes() {
	r.printf("\x1b[4l\x1b[20l\x1b[?1;5;6;9;1000;1002;1003;1004;1005;1006;1015;1016;2004l\x1b[?7;25h\x1b>")
	r.printf("\x1b[>4m\x1b[<9u\x1b[r\x1b[m\x1b[0 q" + asciiSets)
}

func (r *repainter) reset() {
	r.printf("\x18\x1b[?1047l") // ends an incomplete sequence
	r.resetModes()
	r.printf("\x1b[H\x1b[2J")
}

// lines paints lines on a blank screen.
func (r *repainter) lines(lines []row) {
	for y, line := range lines {
		end := len(line)
		for end > 0 && line[end-1] == (cell{}) {
			end--
		}
		if end == 0 {
			continue
		}
		r.printf("\x1b[%d;1H", y+1)
		uncertain := false // terminals differ in the width of what was printed
		for x := 0; x < end; x++ {
			c := line[x]
			if c == (cell{}) {
				uncertain = true
				continue
			}
			if uncertain {
				r.printf("\x1b[%dG", x+1)
			}
			r.cell(c)
			if uncertain = c.char >= 0x80; uncertain && x+1 < end && line[x+1].char == wideTail {
				x++
			}
		}
	}
}

func (r *repainter) cell(c cell) {
	r.style(r.screen.pens.style(c.pen))
	r.screen.writeChar(r, c.char)
}

// prepare has the terminal print as it was told.
func (r *repainter) prepare() {
	r.style(Style{})
	if r.charset != (charsets{}) {
		r.printf(asciiSets)
		r.charset = charsets{}
	}
}

// cursor moves the cursor to where c is, and sets what DECSC saves with it. The scrolling region begins
// at top.
func (r *repainter) cursor(c cursor, lines []row, top int) {
	r.prepare()
	x, y := c.x, c.y
	if c.origin {
		r.printf("\x1b[?6h")
		y -= top
	} else {
		r.printf("\x1b[?6l")
	}
	if c.wrap { // only printing sets it
		if x > 0 && lines[c.y][x].char == wideTail {
			x--
		}
		r.printf("\x1b[%d;%dH", y+1, x+1)
		r.cell(lines[c.y][x])
	} else {
		r.printf("\x1b[%d;%dH", y+1, x+1)
	}
	r.style(r.screen.pens.style(c.pen))
	r.charset = c.charset
	for i, set := range c.charset.sets {
		if set != 0 {
			r.printf("\x1b%c%c", '('+i, set)
		}
	}
	switch c.charset.locked {
	case 1:
		r.printf("\x0e")
	case 2, 3:
		r.printf("\x1b%c", 'n'+c.charset.locked-2)
	}
	if c.charset.single != 0 {
		r.printf("\x1b%c", 'N'+c.charset.single-2)
	}
}

// current ends the painting of the screen that is shown with what is not on it.
func (r *repainter) current() {
	s := r.screen
	r.cursor(s.saved[s.which()], s.lines, 0)
	r.printf("\x1b7")
	if s.top != 0 || s.bottom != s.rows-1 {
		r.printf("\x1b[%d;%dr", s.top+1, s.bottom+1)
	}
	r.cursor(s.cursor, s.lines, s.top)
	r.modes()
	r.Write(s.parser.partial)
}

func (r *repainter) keyboard(stack []uint8) {
	for _, flags := range stack {
		r.printf("\x1b[>%du", flags)
	}
}

// modes sets the modes, with the cursor in its place.
func (r *repainter) modes() {
	m := &r.screen.modes
	for _, number := range []int{1, 5, 7, 12, 25, 1004, 1007, 2004} {
		mode, value := m.flag(number)
		switch {
		case *mode && value:
			r.printf("\x1b[?%dh", number)
		case *mode:
			r.printf("\x1b[?%dl", number)
		}
	}
	for _, number := range []uint16{m.Mouse, m.MouseEncoding} {
		if number != 0 {
			r.printf("\x1b[?%dh", number)
		}
	}
	if m.ApplicationKeypad {
		r.printf("\x1b=")
	}
	if m.Insert {
		r.printf("\x1b[4h")
	}
	if m.NewLine {
		r.printf("\x1b[20h")
	}
	if m.ModifyOtherKeys != 0 {
		r.printf("\x1b[>4;%dm", m.ModifyOtherKeys)
	}
	if m.CursorShape != 0 {
		r.printf("\x1b[%d q", m.CursorShape)
	}
}

// style selects a style.
func (r *repainter) style(style Style) {
	if style == r.pen {
		return
	}
	r.pen = style
	r.WriteString(style.SGR())
}
