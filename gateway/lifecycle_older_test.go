package gateway

import (
	"fmt"
	"time"
)

// older is a program as command/exec starts it: without a terminal its stdin is
// empty.
func (p program) older() program {
	if !p.tty {
		p.stays = p.stays && !p.pipe
		p.pipe, p.lines, p.echoes = false, false, false
	}
	return p
}

// startOlder starts a process in the older dialect.
func (w *walker) startOlder(id string, p program) {
	w.t.Helper()
	a := w.ask("", "command/exec", id, map[string]any{"processId": id, "argv": p.argv, "cwd": "/",
		"env": map[string]string{"PATH": "/usr/bin:/bin"}, "tty": p.tty, "arg0": nil})
	a.modelProcess = newModelProcess(p.older(), id)
	a.modelProcess.isOlder = true
	w.addProcess(a)
}

// notifiedOlder checks a notification of the older dialect.
func (l *modelProcess) notifiedOlder(f *frame, at time.Time) error {
	switch {
	case l.startState == startPending, l.startState == startRefused:
		return fmt.Errorf("a notification of %s, which was not started, or whose start is not answered", l.id)
	case l.exitNotified && (f.Method == "command/exec/exited" || at.Sub(l.begun.at) < closeTimeout):
		return fmt.Errorf("%s had exited before %s", l.id, f.raw)
	}
	l.startState = startConfirmed
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
	// The seq of the exit, which is not sent, may be skipped.
	if l.resumed && seq <= l.pushed || !l.resumed && seq != l.pushed+1 && (seq != l.pushed+2 || l.skipped) {
		return fmt.Errorf("event %d of %s follows %d (resumed: %v)", seq, l.id, l.pushed, l.resumed)
	}
	l.skipped = l.skipped || seq == l.pushed+2
	l.pushed, l.resumed = seq, false
	return l.note(seq, seenEvent{kind: kind, data: string(f.Params.Chunk)})
}

func (l *modelProcess) exitOlder(f *frame, at time.Time) error {
	if f.Params.ExitCode == nil || f.Params.Seq != 0 {
		return fmt.Errorf("the exit is wrong: %s", f.raw)
	}
	l.exitNotified, l.isExited, l.isClosed, l.resumed = true, true, true, false
	if !l.mayEnd() && !isAnsweredBy(l.killRequests, at, gateEndLimit) {
		return fmt.Errorf("the exit of %s precedes the response to the request that caused it", l.id)
	}
	return l.checkCode(*f.Params.ExitCode)
}

// checkStartedOlder checks the response to a successful start in the older
// dialect.
func checkStartedOlder(a *walkRequest, f *frame) error {
	want := toJSON(commandResult{ProcessID: processID(a.process), Running: true})
	if f.Error != nil || string(f.Result) != want {
		return fmt.Errorf("the result should be %s", want)
	}
	return nil
}
