package gateway

import (
	"fmt"
	"strings"
)

// complete checks a life that is over, all of which the client has.
func (l *life) complete() error {
	for i, seq := range sortedKeys(l.seen) {
		if seq != uint64(i+1) {
			return fmt.Errorf("event %d of %s is missing", i+1, l.id)
		}
	}
	if l.closed == 0 || l.exited == 0 || l.last() != l.closed {
		return fmt.Errorf("%s exited with event %d, closed with %d, and the last is %d", l.id, l.exited, l.closed, l.last())
	}
	for _, r := range l.reads {
		exited, closed := l.exited < r.next, l.closed < r.next
		if r.exited != exited && (exited || !r.isCut) || r.closed != closed && (closed || !r.isCut) {
			return fmt.Errorf("%s exited with event %d and closed with %d, and an answer was %s", l.id, l.exited, l.closed, r.raw)
		}
	}
	return l.checkText()
}

// checkText checks what was said on the streams.
func (l *life) checkText() error {
	if l.tty || l.isVague {
		return nil // what a terminal echoes, and when, is its own affair
	}
	wasKilled := l.wasKilled()
	var parts []part
	for _, text := range l.stdout {
		parts = append(parts, part{text, wasKilled})
	}
	for _, in := range l.inputs {
		if l.echoes && (in.taken || in.lost) {
			parts = append(parts, part{in.text, in.lost || in.perhaps})
		}
	}
	if said := l.text("stdout"); !isMadeOf(said, parts, wasKilled) {
		return fmt.Errorf("%s, which runs %s, said %q, and should have %+v", l.id, l.name, said, parts)
	}
	if said := l.text("stderr"); said != l.stderr && (!wasKilled || said != "") {
		return fmt.Errorf("%s, which runs %s, said %q", l.id, l.name, said)
	}
	return nil
}

// part is something that is said, perhaps.
type part struct {
	text    string
	perhaps bool
}

// isMadeOf reports whether text is made of the parts in their order, or of their
// beginning if it may end early.
func isMadeOf(text string, parts []part, mayEnd bool) bool {
	if len(parts) == 0 || mayEnd && text == "" {
		return text == ""
	}
	first, rest := parts[0], parts[1:]
	if first.perhaps && isMadeOf(text, rest, mayEnd) {
		return true
	}
	if after, ok := strings.CutPrefix(text, first.text); ok {
		return isMadeOf(after, rest, mayEnd)
	}
	return mayEnd && strings.HasPrefix(first.text, text)
}
