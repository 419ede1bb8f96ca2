package gateway

import (
	"fmt"
	"time"
)

// older is a program as command/exec starts it: without a terminal its input is
// at its end.
func (p program) older() program {
	if !p.tty {
		p.stays = p.stays && !p.pipe
		p.pipe, p.lines, p.echoes = false, false, false
	}
	return p
}

// startOlder starts a process as clients of the older dialect do.
func (w *walker) startOlder(id string, p program) {
	w.t.Helper()
	a := w.ask("", "command/exec", id, map[string]any{"processId": id, "argv": p.argv, "cwd": "/",
		"env": map[string]string{"PATH": "/usr/bin:/bin"}, "tty": p.tty, "arg0": nil})
	a.life = newLife(p.older(), id)
	a.life.isOlder = true
	w.begin(a)
}

// notifiedOlder takes a notification of a life in the older dialect.
func (l *life) notifiedOlder(f *frame, at time.Time) error {
	switch {
	case l.certainty == awaited, l.certainty == refused:
		return fmt.Errorf("%s is told of and was not started, or before that is answered", l.id)
	case l.isTold && (f.Method == "command/exec/exited" || at.Sub(l.begun.at) < closeTimeout):
		return fmt.Errorf("%s had exited before %s", l.id, f.raw)
	}
	l.certainty = granted
	if f.Method == "command/exec/exited" {
		return l.exitOlder(f, at)
	}
	seq, kind := f.Params.Seq, f.Params.Stream
	if kind == "pty" {
		return fmt.Errorf("the older dialect has no such stream: %s", f.raw)
	}
	if l.tty {
		kind = "pty"
	}
	// The number of the exit, which is not told, may be left out.
	if l.resumed && seq <= l.pushed || !l.resumed && seq != l.pushed+1 && (seq != l.pushed+2 || l.skipped) {
		return fmt.Errorf("event %d of %s comes after %d (resumed: %v)", seq, l.id, l.pushed, l.resumed)
	}
	l.skipped = l.skipped || seq == l.pushed+2
	l.pushed, l.resumed = seq, false
	return l.note(seq, said{kind: kind, data: string(f.Params.Chunk)})
}

func (l *life) exitOlder(f *frame, at time.Time) error {
	if f.Params.ExitCode == nil || f.Params.Seq != 0 {
		return fmt.Errorf("the exit is wrong: %s", f.raw)
	}
	l.isTold, l.isExited, l.isClosed, l.resumed = true, true, true, false
	if !l.mayEnd() && !isAnsweredBy(l.killers, at, gateEndLimit) {
		return fmt.Errorf("%s exited before an answer to what ended it", l.id)
	}
	return l.checkCode(*f.Params.ExitCode)
}

// judgeStartedOlder checks the answer to a start that succeeded.
func judgeStartedOlder(a *asked, f *frame) error {
	want := toJSON(commandResult{ProcessID: processID(a.process), Running: true})
	if f.Error != nil || string(f.Result) != want {
		return fmt.Errorf("the result should be %s", want)
	}
	return nil
}
