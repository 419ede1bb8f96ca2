package screen

import (
	"strings"
	"unicode/utf8"
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

// parser splits output into what the terminal executes.
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
		s.parser.process(&s.terminal, output)
		return
	}
	s.pending = append(s.pending, output...)
}

// flush processes the output that waits.
func (s *Screen) flush() {
	s.parser.process(&s.terminal, s.pending)
	s.pending = s.pending[:0]
}

// process gives the terminal the text, the controls and the sequences of the output.
func (p *parser) process(t *terminal, output []byte) {
	skipAt := len(output) // try to skip when no more is left
	for len(output) > 0 {
		if p.state == ground && len(p.partial) > 0 {
			output = output[p.completeText(t, output):]
			continue
		}
		if p.state == ground {
			if len(output) <= skipAt {
				skipped, tried := t.skip(output)
				// Again after the next sequence.
				skipAt = len(output) - max(tried, 1)
				output = output[skipped:]
			}
			if output = output[p.printText(t, output):]; len(output) == 0 {
				return
			}
			if output[0] != '\x1b' {
				t.control(output[0])
				output = output[1:]
				continue
			}
		}
		output = output[p.sequence(t, output):]
	}
}

// sequence processes the output until a sequence is complete, and returns how much that was.
func (p *parser) sequence(t *terminal, output []byte) int {
	if p.state == ground { // most sequences are short, and whole
		if n := wholeControlSequence(output); n > 0 {
			t.controlSequence(output[2:n])
			return n
		}
	}
	for i, c := range output {
		p.step(t, c)
		if p.state == ground {
			p.partial = p.partial[:0]
			return i + 1
		}
	}
	return len(output)
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
func (p *parser) step(t *terminal, c byte) {
	inString := p.state == osc || p.state == otherString
	switch {
	case c == '\x18', c == '\x1a': // CAN, SUB
		p.state = ground
		return
	case c == '\x1b':
		if p.state == osc {
			t.operatingSystemCommand(p.partial[2:])
		}
		p.state, p.partial = escape, append(p.partial[:0], c)
		return
	case inString && c == '\a':
		if p.state == osc {
			t.operatingSystemCommand(p.partial[2:])
		}
		p.state = ground
		return
	case c < ' ':
		if !inString {
			t.control(c)
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
		p.stepEscape(t, c)
	case csi, csiIgnore:
		switch {
		case c >= 0x80:
			p.state = ground
		case c >= '@':
			isWhole := p.state == csi && len(p.partial) < maxPartial
			p.state = ground
			if isWhole {
				t.controlSequence(p.partial[2:])
			}
		case len(p.partial) == maxPartial:
			p.state = csiIgnore
		}
	}
}

func (p *parser) stepEscape(t *terminal, c byte) {
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
	t.escapeSequence(p.partial[1:])
}

// printText prints the part of text before the first control, and returns its length. An incomplete
// code point at the end of the text is kept for the next call.
func (p *parser) printText(t *terminal, text []byte) int {
	n := 0
	for n < len(text) {
		start := n
		for n < len(text) && text[n] >= ' ' && text[n] < 0x7f {
			n++
		}
		if n > start {
			t.printASCII(text[start:n])
			continue
		}
		if text[n] < utf8.RuneSelf {
			return n
		}
		if !utf8.FullRune(text[n:]) {
			p.partial = append(p.partial[:0], text[n:]...)
			return len(text)
		}
		r, size := utf8.DecodeRune(text[n:])
		t.printRune(r)
		n += size
	}
	return n
}

// completeText prints the incomplete code point of the call before with the text that follows, and
// returns how much of that it took.
func (p *parser) completeText(t *terminal, text []byte) int {
	kept := len(p.partial)
	joined := append(p.partial, text[:min(len(text), utf8.UTFMax)]...)
	p.partial = joined[:0]
	for at := 0; ; {
		if at >= kept {
			return at - kept
		}
		if !utf8.FullRune(joined[at:]) {
			p.partial = append(p.partial, joined[at:]...)
			return len(text)
		}
		r, size := utf8.DecodeRune(joined[at:])
		t.printRune(r)
		at += size
	}
}
