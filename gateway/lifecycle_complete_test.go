package gateway

import (
	"fmt"
	"strings"
)

// complete checks an ended process of which the client knows all events.
func (l *modelProcess) complete() error {
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
			return fmt.Errorf("%s exited with event %d and closed with %d, and a response was %s", l.id, l.exited, l.closed, r.raw)
		}
	}
	return l.checkText()
}

// checkText checks the output.
func (l *modelProcess) checkText() error {
	if l.tty || l.isAmbiguous {
		return nil // the echo of a terminal is not modelled
	}
	wasKilled := l.wasKilled()
	var parts []part
	for _, text := range l.stdout {
		parts = append(parts, part{text, wasKilled})
	}
	for _, in := range l.inputs {
		if l.echoes && (in.accepted || in.lost) {
			parts = append(parts, part{in.text, in.lost || in.uncertain})
		}
	}
	if output := l.text("stdout"); !isMadeOf(output, parts, wasKilled) {
		return fmt.Errorf("%s, which runs %s, wrote %q, want %+v", l.id, l.name, output, parts)
	}
	if output := l.text("stderr"); output != l.stderr && (!wasKilled || output != "") {
		return fmt.Errorf("%s, which runs %s, wrote %q", l.id, l.name, output)
	}
	return nil
}

// part is a part of the output, which may be optional.
type part struct {
	text      string
	uncertain bool
}

// isMadeOf reports whether text consists of the parts in their order, or of a
// prefix of that if mayEnd.
func isMadeOf(text string, parts []part, mayEnd bool) bool {
	if len(parts) == 0 || mayEnd && text == "" {
		return text == ""
	}
	first, rest := parts[0], parts[1:]
	if first.uncertain && isMadeOf(text, rest, mayEnd) {
		return true
	}
	if after, ok := strings.CutPrefix(text, first.text); ok {
		return isMadeOf(after, rest, mayEnd)
	}
	return mayEnd && strings.HasPrefix(first.text, text)
}
