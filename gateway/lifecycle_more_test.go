package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
)

// The model of further methods.

// closeInput closes the stdin of a process.
func (w *walker) closeInput(id string) {
	w.t.Helper()
	candidates := w.candidates(id)
	a := w.ask("", "process/closeStdin", id, map[string]any{"processId": id})
	for _, l := range candidates {
		l.noteRequest(a, false)
	}
}

func (m *model) checkCloseStdin(a *walkRequest, f *frame) error {
	l, sure := m.target(a)
	if f.Error != nil && f.Error.Data["reason"] == "STDIN_IS_TERMINAL" && (l == nil && !sure || l != nil && (l.tty || l.isAmbiguous)) {
		return nil
	}
	var answer writeResult
	if err := result(f, &answer); err != nil {
		return err
	}
	want := writeAccepted
	switch {
	case l == nil && !sure, l != nil && l.isAmbiguous:
		return nil
	case l == nil || answer == writeUnknownProcess && !sure:
		want = writeUnknownProcess
	case !l.pipe:
		want = writeStdinClosed
	}
	if answer != want {
		return fmt.Errorf("the status should be %s", want.Status)
	}
	return nil
}

// wait waits until a process has exited or closed.
func (w *walker) wait(id string, closed bool, milliseconds int) {
	w.t.Helper()
	condition := map[string]any{"exit": true}
	if closed {
		condition = map[string]any{"closed": true}
	}
	a := w.ask("", "process/wait", id, map[string]any{"processId": id, "until": condition, "timeoutMs": milliseconds})
	a.untilClosed = closed
}

func (m *model) checkWait(a *walkRequest, f *frame) error {
	l, sure := m.target(a)
	if isError(f, -32600, "unknown process id "+a.process) {
		if l != nil && sure {
			return fmt.Errorf("the process exists")
		}
		return nil
	}
	var r struct {
		Met                      *string
		TimedOut, Exited, Closed bool
		ExitCode                 *int
	}
	if err := result(f, &r); err != nil {
		return err
	}
	met := map[bool]string{false: "exit", true: "closed"}[a.untilClosed]
	holds := map[bool]bool{false: r.Exited, true: r.Closed}[a.untilClosed]
	switch {
	case l == nil && sure:
		return fmt.Errorf("the process does not exist")
	case r.Closed && !r.Exited, r.Exited != (r.ExitCode != nil), r.TimedOut != (r.Met == nil):
		return fmt.Errorf("the result contradicts itself")
	case r.Met != nil && (*r.Met != met || !holds):
		return fmt.Errorf("the condition is wrong")
	case a.knownExit && !r.Exited, a.knownClosed && !r.Closed:
		return fmt.Errorf("the client knew more")
	case l == nil || !r.Exited:
		return nil
	case !l.mayHaveExited(nil):
		return fmt.Errorf("no request has ended it")
	}
	l.isExited, l.isClosed = true, l.isClosed || r.Closed
	if l.startState == startUnknown {
		l.startState = startConfirmed
	}
	return l.checkCode(*r.ExitCode)
}

// knownState is what the client knew of a process when it sent process/list.
type knownState struct {
	modelProcess *modelProcess
	last         uint64
	exited       bool
}

// list sends process/list.
func (w *walker) list() {
	w.t.Helper()
	known := map[string]knownState{}
	for _, id := range processNames {
		if l, sure := w.model.current(w.candidates(id)); sure && l != nil && l.startState == startConfirmed {
			known[id] = knownState{modelProcess: l, last: l.last(), exited: l.hasExited()}
		}
	}
	w.ask("", "process/list", "", map[string]any{}).known = known
}

func (m *model) checkList(a *walkRequest, f *frame) error {
	var r struct {
		Processes []struct {
			ProcessID string
			NextSeq   uint64
			Running   bool
			Closed    bool
			ExitCode  *int
		}
		NextPageToken *string
	}
	if f.Error != nil {
		return fmt.Errorf("the error is %+v", *f.Error)
	}
	if err := json.Unmarshal(f.Result, &r); err != nil {
		return err
	}
	found := map[string]bool{}
	for _, p := range r.Processes {
		known, ok := a.known[p.ProcessID]
		switch {
		case found[p.ProcessID], !slices.Contains(processNames, p.ProcessID):
			return fmt.Errorf("%s should not be listed", p.ProcessID)
		case p.Running == (p.ExitCode != nil), p.Closed && p.Running:
			return fmt.Errorf("%s contradicts itself", p.ProcessID)
		case ok && !m.removes && (p.NextSeq <= known.last || p.Running && known.exited):
			return fmt.Errorf("the client knew more of %s", p.ProcessID)
		}
		found[p.ProcessID] = true
	}
	for id, known := range a.known {
		if !found[id] && !m.mayBeRemoved(known.modelProcess) {
			return fmt.Errorf("%s is not listed", id)
		}
	}
	return nil
}

// writeOlder writes in the older dialect.
func (w *walker) writeOlder(id string) {
	w.t.Helper()
	w.writeBy("command/exec/write", id, true, "")
}

func (m *model) checkWriteOlder(a *walkRequest, f *frame) error {
	l, sure := m.target(a)
	ambiguous := l == nil && !sure || l != nil && l.isAmbiguous
	var answer commandWriteResult
	switch {
	case isError(f, -32600, "unknown process id "+a.process):
		if l != nil && sure && !ambiguous {
			return fmt.Errorf("the process exists")
		}
	case isError(f, -32600, "stdin of process "+a.process+" is closed"):
		if l == nil && sure || !ambiguous && (l.tty || l.pipe) && !l.mayHaveExited(a) {
			return fmt.Errorf("stdin is open")
		}
	case result(f, &answer) != nil, !answer.Accepted:
		return fmt.Errorf("the result is wrong")
	default:
		if l == nil && sure || !ambiguous && (!l.pipe && !l.tty || a.knownExit) {
			return fmt.Errorf("its stdin is not open")
		}
		a.write.accepted = true
	}
	return nil
}
