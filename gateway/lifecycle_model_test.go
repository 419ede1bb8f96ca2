package gateway

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The model states which messages a client may receive about processes,
// independently of the implementation. Where the order of messages is not
// defined, the model permits every order; otherwise only the defined one.

// program is a program that a process of a walk runs.
type program struct {
	name   string
	argv   []string
	tty    bool
	pipe   bool
	fails  bool     // it cannot be started
	stays  bool     // it ends only if it is killed, or by a line of input if lines
	lines  bool     // a line of input ends it
	echoes bool     // it echoes its input
	stdout []string // its output, in parts that can be missing if it is killed
	stderr string
	code   int
}

func shell(script string) []string { return []string{"/bin/sh", "-c", script} }

var programs = []program{
	{name: "true", argv: []string{"true"}},
	{name: "both", argv: shell("echo out; echo err >&2; exit 3"), stdout: []string{"out\n"}, stderr: "err\n", code: 3},
	{name: "cat", argv: []string{"cat"}, pipe: true, stays: true, echoes: true},
	{name: "sleep", argv: []string{"sleep", "1000"}, stays: true},
	{name: "line", argv: shell("read line; echo got; exit 7"), pipe: true, stays: true, lines: true, stdout: []string{"got\n"}, code: 7},
	{name: "late", argv: shell("echo first; (sleep 0.005; echo late) & exit 4"), stdout: []string{"first\n", "late\n"}, code: 4},
	{name: "terminal", argv: []string{"cat"}, tty: true, stays: true, echoes: true},
	{name: "none", argv: []string{"/no/such"}, fails: true},
}

// startState is what is known about the start of a process.
type startState int

const (
	startPending startState = iota // no response yet
	startUnknown                   // the response was lost with the connection
	startConfirmed
	startRefused
)

// modelProcess is what the client knows about a process.
type modelProcess struct {
	program
	id           string
	begun        *walkRequest
	startState   startState
	isAmbiguous  bool // one of several whose starts were abandoned
	isOlder      bool // of the older dialect
	exitNotified bool // older dialect: its exit was sent
	skipped      bool // older dialect: a seq was skipped
	isRemoved    bool // a response reported it as unknown, which is valid

	seen           map[uint64]seenEvent
	pushed         uint64 // the last seq of its notifications
	resumed        bool   // no notification since the session was resumed
	wasResumed     bool   // the session was resumed at least once
	exited, closed uint64 // their seqs, 0 while unknown
	isExited       bool   // reported by a response
	isClosed       bool   // reported by a response

	killRequests []*walkRequest // requests that may end it
	killLost     bool           // one of those was abandoned
	inputs       []input        // in the order of the writes
	// mayBeAcknowledged reports that all events may count as acknowledged, because the client
	// claimed to have events that it had not, or an abandoned read may have returned the end.
	mayBeAcknowledged bool
	reads             []*reported
}

// seenEvent is an event as the client knows it.
type seenEvent struct {
	kind string // "stdout", "stderr", "pty", "exited", "closed"
	data string
	code int
}

// written is a write request.
type written struct {
	key      string // the writeId
	ask      *walkRequest
	accepted bool // the response was accepted
	lost     bool // the response was lost
}

// input is the effect of a write on a process: none if it repeats another write.
type input struct {
	*written
	text      string
	uncertain bool // it may have reached another process, or repeat a write
}

// reported is a result of process/read.
type reported struct {
	next           uint64
	exited, closed bool
	isCut          bool // by maxBytes
	raw            string
}

func newModelProcess(p program, id string) *modelProcess {
	return &modelProcess{program: p, id: id, seen: map[uint64]seenEvent{}}
}

// noteRequest records a request that may affect the process.
func (l *modelProcess) noteRequest(a *walkRequest, uncertain bool) {
	switch a.method {
	case "process/terminate", "process/signal", "command/exec/terminate":
		l.killRequests = append(l.killRequests, a)
	case "process/closeStdin":
		if l.pipe {
			l.killRequests = append(l.killRequests, a)
		}
	case "process/write", "command/exec/write":
		l.inputs = append(l.inputs, l.inputOf(a, uncertain))
		if l.lines && strings.Contains(a.text, "\n") {
			l.killRequests = append(l.killRequests, a)
		}
	}
}

// inputOf returns the effect of a write.
func (l *modelProcess) inputOf(a *walkRequest, uncertain bool) input {
	in := input{written: a.write, text: a.text, uncertain: uncertain}
	for _, other := range l.inputs {
		if a.write.key == "" || other.key != a.write.key || other.ask.isAnswered && !other.accepted {
			continue
		}
		if !other.lost && !other.uncertain && !other.ask.mayOvertake {
			in.text = ""
		}
		in.uncertain = true
	}
	return in
}

// mayEnd reports whether the process can have ended other than by killRequests.
func (l *modelProcess) mayEnd() bool { return !l.stays || l.killLost || l.isAmbiguous }

// wasKilled reports whether a request may have killed the process.
func (l *modelProcess) wasKilled() bool {
	kills := []string{"process/terminate", "process/signal", "command/exec/terminate"}
	return l.killLost || slices.ContainsFunc(l.killRequests, func(k *walkRequest) bool { return slices.Contains(kills, k.method) })
}

// hasExited reports whether the client knows of the exit.
func (l *modelProcess) hasExited() bool { return l.exited > 0 || l.isExited || l.hasClosed() }

func (l *modelProcess) hasClosed() bool { return l.closed > 0 || l.isClosed }

// mayHaveExited reports whether the process can have exited, if other did not end
// it.
func (l *modelProcess) mayHaveExited(other *walkRequest) bool {
	return l.mayEnd() || slices.ContainsFunc(l.killRequests, func(k *walkRequest) bool { return k != other })
}

// last returns the highest seq that the client knows.
func (l *modelProcess) last() (last uint64) {
	for seq := range l.seen {
		last = max(last, seq)
	}
	return last
}

// note records an event from a notification or a read.
func (l *modelProcess) note(seq uint64, s seenEvent) error {
	if before, ok := l.seen[seq]; ok {
		if before != s && !l.isAmbiguous {
			return fmt.Errorf("event %d of %s was %+v and is %+v", seq, l.id, before, s)
		}
		return nil
	}
	if (l.closed > 0 && seq > l.closed) || (s.kind == "closed" && seq < l.last()) {
		return fmt.Errorf("%s closed with %d, and event %d is %+v", l.id, l.closed, seq, s)
	}
	l.seen[seq] = s
	switch s.kind {
	case "exited":
		if l.exited > 0 {
			return fmt.Errorf("%s exited with event %d and again with %d", l.id, l.exited, seq)
		}
		l.exited = seq
		return l.checkCode(s.code)
	case "closed":
		if l.exited == 0 && l.wasPushedWhole() {
			return fmt.Errorf("%s closed with event %d before it exited", l.id, seq)
		}
		l.closed = seq
	default:
		want := map[bool][]string{false: {"stdout", "stderr"}, true: {"pty"}}[l.tty]
		if !l.isAmbiguous && !slices.Contains(want, s.kind) || s.data == "" {
			return fmt.Errorf("event %d of %s is %+v", seq, l.id, s)
		}
	}
	return nil
}

// wasPushedWhole reports whether all events were sent as notifications on one
// connection.
func (l *modelProcess) wasPushedWhole() bool {
	return l.pushed > 0 && uint64(len(l.seen)) == l.last() && !l.resumed
}

func (l *modelProcess) checkCode(code int) error {
	wanted := []int{l.code}
	if l.wasKilled() {
		wanted = append(wanted, signalBase+2, signalBase+9)
	}
	if !l.isAmbiguous && !slices.Contains(wanted, code) {
		return fmt.Errorf("%s, which runs %s, exited with %d", l.id, l.name, code)
	}
	return nil
}

// push checks and records a notification and the time of its arrival.
func (l *modelProcess) push(seq uint64, s seenEvent, at time.Time) error {
	switch {
	case l.startState == startPending:
		return fmt.Errorf("a notification of %s precedes the response to its start", l.id)
	case l.startState == startRefused:
		return fmt.Errorf("a notification of %s, which was not started", l.id)
	case l.resumed && seq <= l.pushed, !l.resumed && seq != l.pushed+1:
		return fmt.Errorf("event %d of %s follows %d (resumed: %v)", seq, l.id, l.pushed, l.resumed)
	}
	l.startState = startConfirmed
	l.pushed, l.resumed = seq, false
	if err := l.note(seq, s); err != nil {
		return err
	}
	if s.kind == "exited" && !l.mayEnd() && !isAnsweredBy(l.killRequests, at, gateEndLimit) {
		return fmt.Errorf("the exit of %s precedes the response to the request that caused it", l.id)
	}
	if s.kind == "stdout" && l.echoes && !l.isAmbiguous {
		return l.checkEcho(at)
	}
	return nil
}

// isAnsweredBy reports whether one of the requests was answered, or may have
// exceeded the limit of its event gate. A slow machine can only make the model
// more permissive.
func isAnsweredBy(requests []*walkRequest, at time.Time, patience time.Duration) bool {
	return slices.ContainsFunc(requests, func(a *walkRequest) bool { return a.isAnswered || at.Sub(a.at) >= patience })
}

// checkEcho checks that writes are answered before their echo.
func (l *modelProcess) checkEcho(at time.Time) error {
	room := 0
	for _, in := range l.inputs {
		if in.accepted || in.lost || at.Sub(in.ask.at) >= gateOutputLimit {
			room += len(in.text)
		}
	}
	if output := l.text("stdout"); len(output) > room {
		return fmt.Errorf("%s wrote %q before the writes were answered", l.id, output)
	}
	return nil
}

// text returns what is known of a stream, in the order of its events.
func (l *modelProcess) text(stream string) string {
	var b strings.Builder
	for _, seq := range sortedKeys(l.seen) {
		if s := l.seen[seq]; s.kind == stream {
			b.WriteString(s.data)
		}
	}
	return b.String()
}

func sortedKeys[V any](m map[uint64]V) []uint64 {
	keys := make([]uint64, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// eventOf returns the event of a notification.
func eventOf(f *frame) (seenEvent, error) {
	e := f.Params
	switch f.Method {
	case "process/output":
		return seenEvent{kind: e.Stream, data: string(bytes.Clone(e.Chunk))}, nil
	case "process/exited":
		if e.ExitCode == nil {
			return seenEvent{}, fmt.Errorf("there is no exit code: %s", f.raw)
		}
		return seenEvent{kind: "exited", code: *e.ExitCode}, nil
	case "process/closed":
		return seenEvent{kind: "closed"}, nil
	}
	return seenEvent{}, fmt.Errorf("unexpected notification: %s", f.raw)
}
