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

func (m *model) checkRead(a *walkRequest, f *frame) error {
	l, sure := m.target(a)
	if isError(f, -32600, "unknown process id "+a.process) {
		if l != nil && sure {
			return fmt.Errorf("the process exists")
		}
		if l != nil && l.startState == startConfirmed {
			l.isRemoved = true
		}
		return nil
	}
	var r readResult
	if err := result(f, &r); err != nil {
		return err
	}
	if l == nil && sure {
		return fmt.Errorf("the process does not exist")
	}
	if err := r.checkConsistency(a); err != nil {
		return err
	}
	if l == nil {
		for _, l := range slices.Concat(a.candidates, a.laterStarts) {
			l.mayBeAcknowledged = l.mayBeAcknowledged || r.Closed
		}
		return nil
	}
	if l.startState == startUnknown {
		l.startState = startConfirmed
	}
	return r.checkAgainst(l, a, strings.TrimSpace(string(f.raw)))
}

// checkConsistency checks that a result of process/read does not contradict
// itself.
func (r *readResult) checkConsistency(a *walkRequest) error {
	last, bytes := a.after, uint64(0)
	for _, c := range r.Chunks {
		if c.Seq <= last || c.Seq >= r.NextSeq {
			return fmt.Errorf("seq %d follows %d", c.Seq, last)
		}
		last = c.Seq
		bytes += uint64(len(c.Chunk))
	}
	switch {
	case r.Failure != nil, r.SandboxDenied, r.Gap != nil, r.NextSeq == 0:
		return fmt.Errorf("the result contradicts itself")
	case r.Closed && !r.Exited, r.Exited != (r.ExitCode != nil):
		return fmt.Errorf("the end is wrong")
	case a.max > 0 && len(r.Chunks) > 1 && bytes > a.max:
		return fmt.Errorf("%d bytes are too many", bytes)
	}
	return nil
}

// checkAgainst compares a result with what the client knows, and records what is
// new.
func (r *readResult) checkAgainst(l *modelProcess, a *walkRequest, raw string) error {
	isCut := a.max > 0
	if !isCut && r.NextSeq <= a.knownLast {
		return fmt.Errorf("the client knew %d already", a.knownLast)
	}
	if a.knownClosed && !isCut && !r.Closed {
		return fmt.Errorf("the client knew that it had closed")
	}
	has := map[uint64]bool{}
	for _, c := range r.Chunks {
		has[c.Seq] = true
		if err := l.note(c.Seq, seenEvent{kind: c.Stream, data: string(c.Chunk)}); err != nil {
			return err
		}
	}
	for seq, s := range l.seen {
		if !has[seq] && s.kind != "exited" && s.kind != "closed" && a.after < seq && seq < r.NextSeq {
			return fmt.Errorf("event %d is missing", seq)
		}
	}
	if err := r.inferEnd(l, a, has); err != nil {
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

// inferEnd infers the seqs of the events without a chunk: closed is the last
// event, and the other one is exited.
func (r *readResult) inferEnd(l *modelProcess, a *walkRequest, has map[uint64]bool) error {
	if !r.Closed || a.max > 0 {
		return nil
	}
	closed := r.NextSeq - 1
	for seq := uint64(1); a.after == 0 && seq < closed; seq++ {
		if !has[seq] {
			if err := l.note(seq, seenEvent{kind: "exited", code: *r.ExitCode}); err != nil {
				return err
			}
		}
	}
	return l.note(closed, seenEvent{kind: "closed"})
}
