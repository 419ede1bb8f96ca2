package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// walkRequest is a request of a walk.
type walkRequest struct {
	id         string // as JSON
	method     string
	process    string
	at         time.Time
	isAnswered bool

	refusal *wireError // the required error, if the request is out of order

	candidates   []*modelProcess // processes of its id at that time
	mayOvertake  bool            // it may reach the server before the start of one of them
	laterStarts  []*modelProcess // processes that were started while it was in flight
	modelProcess *modelProcess   // started by this request
	write        *written
	text         string                // of a write
	known        map[string]knownState // of a list

	untilClosed bool   // of a wait
	after, max  uint64 // of a read; max 0 is none
	// What the client knew then of the process.
	knownLast     uint64
	knownExit     bool
	knownClosed   bool
	resumeSession string
}

// model is what the client knows, and therefore which messages are valid.
type model struct {
	processes       map[string][]*modelProcess // by id; that may exist, or whose start is pending
	past            []*modelProcess            // that no longer exist
	removes         bool                       // the server soon removes closed processes
	pending         []*walkRequest             // in the order of sending
	errorsWithoutID int                        // expected errors without an id
	phase           phase                      // of the handshake
	session         string                     // as initialize returned
	since           time.Time                  // when the connection was made
}

// phase is the progress of the handshake.
type phase int

const (
	fresh phase = iota
	initialized
	live
)

// mayBeRemoved reports whether the server may have removed a process. It does so
// after the client has acknowledged everything, or counts as having done so.
func (m *model) mayBeRemoved(l *modelProcess) bool {
	return m.removes && (l.isAmbiguous || l.hasClosed() || l.mayBeAcknowledged || time.Since(m.since) >= backlogTimeout)
}

// target returns the process that a request was about. sure means that the
// process existed then, or, if it is nil, that none did.
func (m *model) target(a *walkRequest) (l *modelProcess, sure bool) {
	l, sure = m.current(a.candidates)
	if isThere := func(l *modelProcess) bool { return l.startState != startRefused }; sure && l != nil || !slices.ContainsFunc(a.laterStarts, isThere) {
		return l, sure && (l == nil || !a.mayOvertake)
	}
	return nil, false
}

// current is target for a request that no other one overtakes.
func (m *model) current(candidates []*modelProcess) (l *modelProcess, sure bool) {
	candidates = slices.DeleteFunc(slices.Clone(candidates), func(l *modelProcess) bool { return l.startState == startRefused })
	switch {
	case len(candidates) == 0:
		return nil, true
	case candidates[0].startState != startUnknown && !m.mayBeRemoved(candidates[0]):
		return candidates[0], true
	case len(candidates) == 1:
		return candidates[0], false
	}
	return nil, false
}

// receive checks a message against the model, in the order of arrival.
func (m *model) receive(f *frame, at time.Time) error {
	if f.Method != "" {
		return m.notified(f, at)
	}
	if string(f.ID) == "-1" {
		if m.errorsWithoutID--; m.errorsWithoutID < 0 || f.Error == nil || f.Error.Code != -32600 {
			return fmt.Errorf("unexpected response: %s", f.raw)
		}
		return nil
	}
	problems := fmt.Errorf("no other pending request matches this response: %s", f.raw)
	for i, a := range m.pending {
		if a.id != string(f.ID) || a.refusal == nil && isAnswerOfEnd(f) != a.isEnd() {
			continue
		}
		problem := m.checkResponse(a, f)
		if problem == nil {
			a.isAnswered = true
			m.pending = slices.Delete(m.pending, i, i+1)
			return nil
		}
		problems = errors.Join(problem, problems)
	}
	return problems
}

// isEnd reports whether a request is a termination. Only terminations reuse ids
// in flight.
func (a *walkRequest) isEnd() bool { return strings.HasSuffix(a.method, "/terminate") }

// isAnswerOfEnd reports whether a response is that of a termination. No other
// response has its form.
func isAnswerOfEnd(f *frame) bool {
	var members map[string]json.RawMessage
	err := json.Unmarshal(f.Result, &members)
	return err == nil && len(members) == 1 && members["running"] != nil
}

func (m *model) notified(f *frame, at time.Time) error {
	if m.phase != live {
		return fmt.Errorf("a notification precedes initialized: %s", f.raw)
	}
	var latest *modelProcess // no notification follows closed
	for _, l := range m.processes[f.Params.ProcessID] {
		if l.startState != startRefused && (latest == nil || latest.exitNotified || latest.closed > 0 && latest.pushed == latest.closed) {
			latest = l
		}
	}
	if latest == nil || f.Params.Gap != nil {
		return fmt.Errorf("no process can have sent this: %s", f.raw)
	}
	if isOlder := strings.HasPrefix(f.Method, "command/"); isOlder != latest.isOlder && !latest.isAmbiguous {
		return fmt.Errorf("the dialect is wrong: %s", f.raw)
	} else if isOlder {
		return latest.notifiedOlder(f, at)
	}
	s, err := eventOf(f)
	if err != nil {
		return err
	}
	return latest.push(f.Params.Seq, s, at)
}

// checkResponse checks the response to a request, and records what it reports.
func (m *model) checkResponse(a *walkRequest, f *frame) error {
	wrong := fmt.Errorf("%s of %s: got %s", a.method, a.process, f.raw)
	if a.refusal != nil {
		if f.Error == nil || f.Error.Code != a.refusal.Code || f.Error.Message != a.refusal.Message {
			return fmt.Errorf("%w, want %+v", wrong, *a.refusal)
		}
		return nil
	}
	answers := map[string]func(*walkRequest, *frame) error{
		"initialize": m.checkInitialize, "process/start": m.checkStart, "command/exec": m.checkStart, "process/read": m.checkRead,
		"process/write": m.checkWrite, "process/signal": m.checkSignal, "process/terminate": m.checkTerminate,
		"environment/status": m.checkStatus, "process/closeStdin": m.checkCloseStdin, "process/wait": m.checkWait,
		"process/list": m.checkList, "command/exec/write": m.checkWriteOlder, "command/exec/terminate": m.checkTerminate,
	}
	if err := answers[a.method](a, f); err != nil {
		return fmt.Errorf("%w: %w", wrong, err)
	}
	return nil
}

// result decodes a result that has exactly these members.
func result(f *frame, into any) error {
	if f.Error != nil {
		return fmt.Errorf("the error is %+v", *f.Error)
	}
	decoder := json.NewDecoder(bytes.NewReader(f.Result))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func isError(f *frame, code int, message string) bool {
	return f.Error != nil && f.Error.Code == code && f.Error.Message == message
}

func (m *model) checkInitialize(a *walkRequest, f *frame) error {
	var answer struct {
		SessionID       string
		ProtocolVersion string
		EnvironmentInfo json.RawMessage
		InstanceID      string
	}
	if err := result(f, &answer); err != nil {
		return err
	}
	if answer.SessionID == "" || a.resumeSession != "" && answer.SessionID != a.resumeSession {
		return fmt.Errorf("the session should be %q", a.resumeSession)
	}
	if answer.InstanceID == "" {
		return errors.New("the instance of the server is missing")
	}
	m.session = answer.SessionID
	return nil
}

func (m *model) checkStatus(_ *walkRequest, f *frame) error {
	if string(f.Result) != `{"status":"ready"}` {
		return fmt.Errorf("the status is %s", f.Result)
	}
	return nil
}

func (m *model) checkSignal(_ *walkRequest, f *frame) error {
	if string(f.Result) != `{}` {
		return fmt.Errorf("the result is %s", f.Result)
	}
	return nil
}

func (m *model) checkStart(a *walkRequest, f *frame) error {
	before, sure := m.target(a)
	switch exists := before != nil && sure; {
	case isError(f, -32600, "process "+a.process+" already exists"):
		if before == nil && sure {
			return fmt.Errorf("no process has this id")
		}
		if before != nil && before.startState == startUnknown {
			before.startState = startConfirmed
		}
		a.modelProcess.startState = startRefused
		return nil
	case exists:
		return fmt.Errorf("the id is in use")
	case a.modelProcess.fails:
		if !isError(f, -32603, "No such file or directory (os error 2)") {
			return fmt.Errorf("the program does not exist")
		}
		a.modelProcess.startState = startRefused
		return nil
	}
	checkResponse := checkStarted
	if a.modelProcess.isOlder {
		checkResponse = checkStartedOlder
	}
	if err := checkResponse(a, f); err != nil {
		return err
	}
	if before != nil && before.startState == startUnknown {
		before.startState = startRefused
	}
	a.modelProcess.startState = startConfirmed
	processes := m.processes[a.process]
	now := slices.Index(processes, a.modelProcess)
	m.past = append(m.past, processes[:now]...)
	m.processes[a.process] = processes[now:]
	return nil
}

func checkStarted(a *walkRequest, f *frame) error {
	var answer startResult
	if err := result(f, &answer); err != nil || answer != (startResult{ProcessID: processID(a.process), SandboxType: "none"}) {
		return fmt.Errorf("the result is %s: %v", f.Result, err)
	}
	return nil
}

func (m *model) checkTerminate(a *walkRequest, f *frame) error {
	var answer terminateResult
	if err := result(f, &answer); err != nil {
		return err
	}
	l, sure := m.target(a)
	switch {
	case answer.Running && l == nil && sure:
		return fmt.Errorf("the process does not exist")
	case answer.Running && a.knownExit:
		return fmt.Errorf("the process had exited before")
	case !answer.Running && l != nil && sure && !l.mayHaveExited(a):
		return fmt.Errorf("no other request has ended it")
	}
	return nil
}

func (m *model) checkWrite(a *walkRequest, f *frame) error {
	l, sure := m.target(a)
	if l != nil && l.isAmbiguous {
		l, sure = nil, false
	}
	if isError(f, -32603, "failed to write to process stdin") {
		if l != nil && (!l.pipe || !l.mayHaveExited(a)) || l == nil && sure {
			return fmt.Errorf("the process has not exited")
		}
		return nil
	}
	var answer writeResult
	if err := result(f, &answer); err != nil {
		return err
	}
	wrong := fmt.Errorf("the status is wrong")
	switch {
	case l == nil && !sure:
	case answer == writeUnknownProcess:
		if l != nil && sure {
			return wrong
		}
		return nil
	case l == nil:
		return wrong
	case l.tty:
		if answer != writeAccepted {
			return wrong
		}
	case !l.pipe:
		if answer != writeStdinClosed {
			return wrong
		}
	case answer == writeStdinClosed:
		if !l.mayHaveExited(a) {
			return wrong
		}
	case answer != writeAccepted, a.knownExit && a.write.key == "":
		return wrong
	}
	a.write.accepted = answer == writeAccepted
	return nil
}
