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

// asked is a request of a walk.
type asked struct {
	id         string // as JSON
	method     string
	process    string
	at         time.Time
	isAnswered bool

	refusal *wireError // what it must be answered with, if it comes out of order

	about   []*life // of the process's name, at that time
	inDoubt bool    // then: it may reach the core before the start of one of them
	later   []*life // and those that were started while it was in flight
	life    *life   // of a start
	write   *written
	text    string               // of a write
	known   map[string]knownThen // of a list

	untilClosed bool   // of a wait
	after, max  uint64 // of a read; max 0 is none
	// What the client knew then of the process that a request is about.
	knownLast     uint64
	knownExit     bool
	knownClosed   bool
	resumeSession string
}

// model is what one client may be told.
type model struct {
	lives   map[string][]*life // that may be there, and those whose start is awaited
	past    []*life            // that are not there any more
	removes bool               // closed processes are soon forgotten
	pending []*asked           // in the order in which they were sent
	noIDs   int                // errors without an id that are to come
	phase   phase              // of the handshake
	session string             // as initialize said
	since   time.Time          // when the connection was made
}

// phase is how far the handshake is.
type phase int

const (
	fresh phase = iota
	initialized
	live
)

// mayBeGone reports whether the core may have forgotten a process: that comes
// when the client has had all of it, or counts as if.
func (m *model) mayBeGone(l *life) bool {
	return m.removes && (l.isVague || l.hasClosed() || l.mayBeTaken || time.Since(m.since) >= backlogTimeout)
}

// target finds the life that a request was about. sure says that it existed then,
// or, if there is none, that no process did.
func (m *model) target(a *asked) (l *life, sure bool) {
	l, sure = m.current(a.about)
	if isThere := func(l *life) bool { return l.certainty != refused }; sure && l != nil || !slices.ContainsFunc(a.later, isThere) {
		return l, sure && (l == nil || !a.inDoubt)
	}
	return nil, false
}

// current is target for a request that no other one overtakes.
func (m *model) current(about []*life) (l *life, sure bool) {
	about = slices.DeleteFunc(slices.Clone(about), func(l *life) bool { return l.certainty == refused })
	switch {
	case len(about) == 0:
		return nil, true
	case about[0].certainty != doubted && !m.mayBeGone(about[0]):
		return about[0], true
	case len(about) == 1:
		return about[0], false
	}
	return nil, false
}

// told takes a message in its order.
func (m *model) told(f *frame, at time.Time) error {
	if f.Method != "" {
		return m.notified(f, at)
	}
	if string(f.ID) == "-1" {
		if m.noIDs--; m.noIDs < 0 || f.Error == nil || f.Error.Code != -32600 {
			return fmt.Errorf("nobody asked for this answer: %s", f.raw)
		}
		return nil
	}
	problems := fmt.Errorf("no other request awaits this answer: %s", f.raw)
	for i, a := range m.pending {
		if a.id != string(f.ID) || a.refusal == nil && isAnswerOfEnd(f) != a.isEnd() {
			continue
		}
		problem := m.judge(a, f)
		if problem == nil {
			a.isAnswered = true
			m.pending = slices.Delete(m.pending, i, i+1)
			return nil
		}
		problems = errors.Join(problem, problems)
	}
	return problems
}

// isEnd reports whether a request is a termination: what walks send under an id
// that is in use.
func (a *asked) isEnd() bool { return strings.HasSuffix(a.method, "/terminate") }

// isAnswerOfEnd reports whether an answer is one to a termination, which no other
// request has.
func isAnswerOfEnd(f *frame) bool {
	var members map[string]json.RawMessage
	err := json.Unmarshal(f.Result, &members)
	return err == nil && len(members) == 1 && members["running"] != nil
}

func (m *model) notified(f *frame, at time.Time) error {
	if m.phase != live {
		return fmt.Errorf("this came before initialized: %s", f.raw)
	}
	var latest *life // what was told to have closed says nothing more
	for _, l := range m.lives[f.Params.ProcessID] {
		if l.certainty != refused && (latest == nil || latest.isTold || latest.closed > 0 && latest.pushed == latest.closed) {
			latest = l
		}
	}
	if latest == nil || f.Params.Gap != nil {
		return fmt.Errorf("this cannot be: %s", f.raw)
	}
	if isOlder := strings.HasPrefix(f.Method, "command/"); isOlder != latest.isOlder && !latest.isVague {
		return fmt.Errorf("this is not its dialect: %s", f.raw)
	} else if isOlder {
		return latest.notifiedOlder(f, at)
	}
	s, err := saidOf(f)
	if err != nil {
		return err
	}
	return latest.push(f.Params.Seq, s, at)
}

// judge says what is wrong with the answer to a request, and learns from it.
func (m *model) judge(a *asked, f *frame) error {
	wrong := fmt.Errorf("%s of %s is answered with %s", a.method, a.process, f.raw)
	if a.refusal != nil {
		if f.Error == nil || f.Error.Code != a.refusal.Code || f.Error.Message != a.refusal.Message {
			return fmt.Errorf("%w, want %+v", wrong, *a.refusal)
		}
		return nil
	}
	answers := map[string]func(*asked, *frame) error{
		"initialize": m.judgeInitialize, "process/start": m.judgeStart, "command/exec": m.judgeStart, "process/read": m.judgeRead,
		"process/write": m.judgeWrite, "process/signal": m.judgeSignal, "process/terminate": m.judgeTerminate,
		"environment/status": m.judgeStatus, "process/closeStdin": m.judgeCloseStdin, "process/wait": m.judgeWait,
		"process/list": m.judgeList, "command/exec/write": m.judgeWriteOlder, "command/exec/terminate": m.judgeTerminate,
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

func (m *model) judgeInitialize(a *asked, f *frame) error {
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
		return errors.New("it does not tell which run of the server it is")
	}
	m.session = answer.SessionID
	return nil
}

func (m *model) judgeStatus(_ *asked, f *frame) error {
	if string(f.Result) != `{"status":"ready"}` {
		return fmt.Errorf("the status is %s", f.Result)
	}
	return nil
}

func (m *model) judgeSignal(_ *asked, f *frame) error {
	if string(f.Result) != `{}` {
		return fmt.Errorf("the result is %s", f.Result)
	}
	return nil
}

func (m *model) judgeStart(a *asked, f *frame) error {
	before, sure := m.target(a)
	switch exists := before != nil && sure; {
	case isError(f, -32600, "process "+a.process+" already exists"):
		if before == nil && sure {
			return fmt.Errorf("there is none")
		}
		if before != nil && before.certainty == doubted {
			before.certainty = granted
		}
		a.life.certainty = refused
		return nil
	case exists:
		return fmt.Errorf("there is one already")
	case a.life.fails:
		if !isError(f, -32603, "No such file or directory (os error 2)") {
			return fmt.Errorf("there is no such program")
		}
		a.life.certainty = refused
		return nil
	}
	judge := judgeStarted
	if a.life.isOlder {
		judge = judgeStartedOlder
	}
	if err := judge(a, f); err != nil {
		return err
	}
	if before != nil && before.certainty == doubted {
		before.certainty = refused
	}
	a.life.certainty = granted
	lives := m.lives[a.process]
	now := slices.Index(lives, a.life)
	m.past = append(m.past, lives[:now]...)
	m.lives[a.process] = lives[now:]
	return nil
}

func judgeStarted(a *asked, f *frame) error {
	var answer startResult
	if err := result(f, &answer); err != nil || answer != (startResult{ProcessID: processID(a.process), SandboxType: "none"}) {
		return fmt.Errorf("the result is %s: %v", f.Result, err)
	}
	return nil
}

func (m *model) judgeTerminate(a *asked, f *frame) error {
	var answer terminateResult
	if err := result(f, &answer); err != nil {
		return err
	}
	l, sure := m.target(a)
	switch {
	case answer.Running && l == nil && sure:
		return fmt.Errorf("there is no such process")
	case answer.Running && a.knownExit:
		return fmt.Errorf("it had exited before")
	case !answer.Running && l != nil && sure && !l.mayHaveExited(a):
		return fmt.Errorf("nothing else has ended it")
	}
	return nil
}

func (m *model) judgeWrite(a *asked, f *frame) error {
	l, sure := m.target(a)
	if l != nil && l.isVague {
		l, sure = nil, false
	}
	if isError(f, -32603, "failed to write to process stdin") {
		if l != nil && (!l.pipe || !l.mayHaveExited(a)) || l == nil && sure {
			return fmt.Errorf("it has not exited")
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
	a.write.taken = answer == writeAccepted
	return nil
}
