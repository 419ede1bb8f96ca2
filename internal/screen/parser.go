package screen

import (
	"bytes"
	"strings"
)

// maxPartial is how much of a sequence is kept. Longer strings are cut, and other longer sequences have no
// effect.
const maxPartial = 1 << 10

type parserState uint8

const (
	ground parserState = iota
	escape
	csi
	csiIgnore
	osc
	otherString // DCS, SOS, PM and APC, without effect
)

type parser struct {
	state parserState
	// partial is the incomplete sequence, or in the state ground the incomplete code point.
	partial []byte
}

// pendingBytes is how much output waits: of much at once, most may scroll out again.
const pendingBytes = 6 << 10

// Write adds output. Incomplete sequences at its end are completed by the next call.
func (s *Screen) Write(output []byte) {
	if len(s.pending)+len(output) > pendingBytes {
		s.flush()
	}
	if len(output) > pendingBytes {
		s.flush()
		s.process(output)
		return
	}
	s.pending = append(s.pending, output...)
}

// flush processes the output that waits.
func (s *Screen) flush() {
	s.process(s.pending)
	s.pending = s.pending[:0]
}

func (s *Screen) process(p []byte) {
	skipAt := len(p) // try to skip when no more is left
	for len(p) > 0 {
		if s.parser.state == ground && len(s.parser.partial) > 0 {
			p = p[s.completeText(p):]
			continue
		}
		if s.parser.state == ground {
			if len(p) <= skipAt {
				skipped, tried := s.skip(p)
				// Again after the next sequence.
				skipAt = len(p) - max(tried, 1)
				p = p[skipped:]
			}
			if p = p[s.printText(p):]; len(p) == 0 {
				return
			}
			if p[0] != '\x1b' {
				s.control(p[0])
				p = p[1:]
				continue
			}
		}
		p = p[s.sequence(p):]
	}
}

// sequence processes the output until a sequence is complete, and returns how much that was.
func (s *Screen) sequence(p []byte) int {
	if s.parser.state == ground { // most sequences are short, and whole
		if n := wholeControlSequence(p); n > 0 {
			s.controlSequence(p[2:n])
			return n
		}
	}
	for i, c := range p {
		s.step(c)
		if s.parser.state == ground {
			s.parser.partial = s.parser.partial[:0]
			return i + 1
		}
	}
	return len(p)
}

// wholeControlSequence returns the length of the control sequence at the start of p, or 0 if that is
// something else, incomplete, long or contains controls.
func wholeControlSequence(p []byte) int {
	if len(p) < 3 || p[1] != '[' {
		return 0
	}
	for i, c := range p[2:min(len(p), 64)] {
		switch {
		case c >= '@' && c <= '~':
			return i + 3
		case c < ' ' || c > '~':
			return 0
		}
	}
	return 0
}

// step processes a byte of a sequence.
func (s *Screen) step(c byte) {
	p := &s.parser
	inString := p.state == osc || p.state == otherString
	switch {
	case c == '\x18', c == '\x1a': // CAN, SUB
		p.state = ground
		return
	case c == '\x1b':
		if p.state == osc {
			s.operatingSystemCommand(p.partial[2:])
		}
		p.state, p.partial = escape, append(p.partial[:0], c)
		return
	case inString && c == '\a':
		if p.state == osc {
			s.operatingSystemCommand(p.partial[2:])
		}
		p.state = ground
		return
	case c < ' ':
		if !inString {
			s.control(c)
		}
		return
	case c == '\x7f':
		return
	}
	if len(p.partial) < maxPartial {
		p.partial = append(p.partial, c)
	}
	switch p.state {
	case escape:
		s.stepEscape(c)
	case csi, csiIgnore:
		switch {
		case c >= 0x80:
			p.state = ground
		case c >= '@':
			isWhole := p.state == csi && len(p.partial) < maxPartial
			p.state = ground
			if isWhole {
				s.controlSequence(p.partial[2:])
			}
		case len(p.partial) == maxPartial:
			p.state = csiIgnore
		}
	}
}

func (s *Screen) stepEscape(c byte) {
	p := &s.parser
	switch {
	case c < '0': // an intermediate byte
		if len(p.partial) > 4 {
			p.partial = p.partial[:4] // no sequence has as many
		}
		return
	case len(p.partial) == 2 && c == '[':
		p.state = csi
		return
	case len(p.partial) == 2 && c == ']':
		p.state = osc
		return
	case len(p.partial) == 2 && strings.IndexByte("PX^_", c) >= 0:
		p.state = otherString
		return
	}
	p.state = ground
	s.escapeSequence(p.partial[1:])
}

// control executes a control of C0. NUL, BEL and others have no effect.
func (s *Screen) control(c byte) {
	s.last = 0
	switch c {
	case '\b':
		s.moveTo(s.cursor.x-1, s.cursor.y)
	case '\t':
		s.tab(1)
	case '\n', '\v', '\f':
		s.lineFeed()
		if s.modes.NewLine {
			s.cursor.x = 0
		}
	case '\r':
		s.cursor.x, s.cursor.wrap = 0, false
	case '\x0e': // SO
		s.cursor.charset.locked = 1
	case '\x0f': // SI
		s.cursor.charset.locked = 0
	}
}

// escapeSequence executes what follows ESC.
func (s *Screen) escapeSequence(sequence []byte) {
	s.last = 0
	final := sequence[len(sequence)-1]
	if len(sequence) == 2 {
		switch sequence[0] {
		case '(', ')', '*', '+':
			s.designate(sequence[0]-'(', final)
		case '-', '.', '/': // of 96 characters: none of them is supported
			s.designate(sequence[0]-'-'+1, 'B')
		case '#':
			if final == '8' {
				s.alignmentTest()
			}
		}
		return
	}
	if len(sequence) != 1 {
		return
	}
	switch final {
	case '7':
		s.save()
	case '8':
		s.restore()
	case 'D':
		s.lineFeed()
	case 'E':
		s.lineFeed()
		s.cursor.x = 0
	case 'H':
		s.setTab()
	case 'M':
		s.reverseLineFeed()
	case 'N', 'O': // SS2, SS3
		s.cursor.charset.single = final - 'N' + 2
	case 'n', 'o': // LS2, LS3
		s.cursor.charset.locked = final - 'n' + 2
	case '=':
		s.modes.ApplicationKeypad = true
	case '>':
		s.modes.ApplicationKeypad = false
	case 'c':
		s.reset()
	}
}

func (s *Screen) designate(set, final byte) {
	if final != '0' && final != 'A' {
		final = 0
	}
	s.cursor.charset.sets[set] = final
}

// alignmentTest is DECALN.
func (s *Screen) alignmentTest() {
	s.top, s.bottom = 0, s.rows-1
	for _, line := range s.lines {
		fill(line, cell{char: 'E'})
	}
	s.cursor.x, s.cursor.y, s.cursor.wrap = 0, 0, false
}

const (
	maxTitles     = 8 // that can be pushed
	maxTitleBytes = maxPartial / 2
)

// operatingSystemCommand executes an OSC.
func (s *Screen) operatingSystemCommand(command []byte) {
	s.last = 0
	number, text, found := bytes.Cut(command, []byte(";"))
	if !found || string(number) != "0" && string(number) != "2" {
		return
	}
	s.title = strings.ToValidUTF8(string(text), "�")
	if len(s.title) > maxTitleBytes {
		s.title = strings.ToValidUTF8(s.title[:maxTitleBytes], "")
	}
}
