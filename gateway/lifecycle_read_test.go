package gateway

import (
	"fmt"
	"slices"
	"strings"
)

// readResult is the result of process/read with all its members.
type readResult struct {
	readAnswer
	Failure       *string
	SandboxDenied bool
}

func (m *model) judgeRead(a *asked, f *frame) error {
	l, sure := m.target(a)
	if isError(f, -32600, "unknown process id "+a.process) {
		if l != nil && sure {
			return fmt.Errorf("there is one")
		}
		if l != nil && l.certainty == granted {
			l.isGone = true
		}
		return nil
	}
	var r readResult
	if err := result(f, &r); err != nil {
		return err
	}
	if l == nil && sure {
		return fmt.Errorf("there is none")
	}
	if err := r.checkAlone(a); err != nil {
		return err
	}
	if l == nil {
		for _, l := range slices.Concat(a.about, a.later) {
			l.mayBeTaken = l.mayBeTaken || r.Closed
		}
		return nil
	}
	if l.certainty == doubted {
		l.certainty = granted
	}
	return r.checkAbout(l, a, strings.TrimSpace(string(f.raw)))
}

// checkAlone checks an answer of process/read by itself.
func (r *readResult) checkAlone(a *asked) error {
	last, bytes := a.after, uint64(0)
	for _, c := range r.Chunks {
		if c.Seq <= last || c.Seq >= r.NextSeq {
			return fmt.Errorf("seq %d comes after %d", c.Seq, last)
		}
		last = c.Seq
		bytes += uint64(len(c.Chunk))
	}
	switch {
	case r.Failure != nil, r.SandboxDenied, r.Gap != nil, r.NextSeq == 0:
		return fmt.Errorf("something is wrong with it")
	case r.Closed && !r.Exited, r.Exited != (r.ExitCode != nil):
		return fmt.Errorf("the end is wrong")
	case a.max > 0 && len(r.Chunks) > 1 && bytes > a.max:
		return fmt.Errorf("%d bytes are too many", bytes)
	}
	return nil
}

// checkAbout checks it against what the client knows, and learns from it.
func (r *readResult) checkAbout(l *life, a *asked, raw string) error {
	isCut := a.max > 0
	if !isCut && r.NextSeq <= a.knownLast {
		return fmt.Errorf("it knew %d already", a.knownLast)
	}
	if a.knownClosed && !isCut && !r.Closed {
		return fmt.Errorf("it knew that it had closed")
	}
	has := map[uint64]bool{}
	for _, c := range r.Chunks {
		has[c.Seq] = true
		if err := l.note(c.Seq, said{kind: c.Stream, data: string(c.Chunk)}); err != nil {
			return err
		}
	}
	for seq, s := range l.seen {
		if !has[seq] && s.kind != "exited" && s.kind != "closed" && a.after < seq && seq < r.NextSeq {
			return fmt.Errorf("event %d is not in it", seq)
		}
	}
	if err := r.learnEnd(l, a, has); err != nil {
		return err
	}
	if r.Exited {
		l.isExited = true
		if err := l.checkCode(*r.ExitCode); err != nil {
			return err
		}
	}
	l.isClosed = l.isClosed || r.Closed
	l.reads = append(l.reads, &reported{next: r.NextSeq, exited: r.Exited, closed: r.Closed, isCut: isCut, raw: raw})
	return nil
}

// learnEnd finds where in the order the events are that an answer has no chunk
// for: closed is the last of all, and the one that is left exited.
func (r *readResult) learnEnd(l *life, a *asked, has map[uint64]bool) error {
	if !r.Closed || a.max > 0 {
		return nil
	}
	closed := r.NextSeq - 1
	for seq := uint64(1); a.after == 0 && seq < closed; seq++ {
		if !has[seq] {
			if err := l.note(seq, said{kind: "exited", code: *r.ExitCode}); err != nil {
				return err
			}
		}
	}
	return l.note(closed, said{kind: "closed"})
}
