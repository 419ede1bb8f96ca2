package gateway

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
)

// This is what a client may be told of processes, written down once more and
// without regard to how the gateway does it. Where the order of things is not
// fixed the model allows every order, and where it is, that alone.

// program is something that a process of a walk runs.
type program struct {
	name   string
	argv   []string
	tty    bool
	pipe   bool
	fails  bool     // it cannot be started
	stays  bool     // it ends only if it is killed, or by a line of input if lines
	lines  bool     // a line of input ends it
	echoes bool     // it says what was written to it
	stdout []string // what it says, in parts that can be missing if it is killed
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
	{name: "late", argv: shell("(sleep 0.005; echo late) & echo first; exit 4"), stdout: []string{"first\n", "late\n"}, code: 4},
	{name: "terminal", argv: []string{"cat"}, tty: true, stays: true, echoes: true},
	{name: "none", argv: []string{"/no/such"}, fails: true},
}

// certainty is what is known of a life's start.
type certainty int

const (
	awaited certainty = iota // it is not answered
	doubted                  // it will never be: the connection was lost
	granted
	refused
)

// life is a process from a start on.
type life struct {
	program
	id        string
	begun     *asked
	certainty certainty
	isVague   bool // one of several, and nobody knows which
	isOlder   bool // of the older dialect
	isTold    bool // of that: its exit was told
	skipped   bool // of that: a number was
	isGone    bool // an answer said that it is unknown, as it may be

	seen           map[uint64]said
	pushed         uint64 // the last seq that was pushed
	resumed        bool   // it may have missed some, and nothing was pushed since
	wasResumed     bool   // ever
	exited, closed uint64 // their seqs, 0 while unknown
	isExited       bool   // an answer said so
	isClosed       bool   // an answer said so

	killers []*asked // requests that may end it
	loose   bool     // one of those was lost with its connection
	inputs  []input  // of the writes to it, in their order
	// mayBeTaken says that the client may count as having all of it, because it
	// claimed to have what it had not, or it is not known of what it read the end.
	mayBeTaken bool
	reads      []*reported
}

// said is an event as the client knows it.
type said struct {
	kind string // "stdout", "stderr", "pty", "exited", "closed"
	data string
	code int
}

// written is a write.
type written struct {
	key   string // the writeId
	ask   *asked
	taken bool // it was accepted
	lost  bool // nobody knows
}

// input is what a write comes to for a process: nothing if it repeats another.
type input struct {
	*written
	text    string
	perhaps bool // nobody knows whether it came to this process, or repeats one that did
}

// reported is what an answer of process/read said.
type reported struct {
	next           uint64
	exited, closed bool
	isCut          bool // by maxBytes
	raw            string
}

func newLife(p program, id string) *life {
	return &life{program: p, id: id, seen: map[uint64]said{}}
}

// meets notes a request that may change what the process does.
func (l *life) meets(a *asked, perhaps bool) {
	switch a.method {
	case "process/terminate", "process/signal", "command/exec/terminate":
		l.killers = append(l.killers, a)
	case "process/closeStdin":
		if l.pipe {
			l.killers = append(l.killers, a)
		}
	case "process/write", "command/exec/write":
		l.inputs = append(l.inputs, l.inputOf(a, perhaps))
		if l.lines && strings.Contains(a.text, "\n") {
			l.killers = append(l.killers, a)
		}
	}
}

// inputOf is what a write comes to.
func (l *life) inputOf(a *asked, perhaps bool) input {
	in := input{written: a.write, text: a.text, perhaps: perhaps}
	for _, other := range l.inputs {
		if a.write.key == "" || other.key != a.write.key || other.ask.isAnswered && !other.taken {
			continue
		}
		if !other.lost && !other.perhaps && !other.ask.inDoubt {
			in.text = ""
		}
		in.perhaps = true
	}
	return in
}

// mayEnd reports whether anything but the requests in killers can have ended it.
func (l *life) mayEnd() bool { return !l.stays || l.loose || l.isVague }

// wasKilled reports whether anybody tried.
func (l *life) wasKilled() bool {
	kills := []string{"process/terminate", "process/signal", "command/exec/terminate"}
	return l.loose || slices.ContainsFunc(l.killers, func(k *asked) bool { return slices.Contains(kills, k.method) })
}

// hasExited reports whether the client knows that it has.
func (l *life) hasExited() bool { return l.exited > 0 || l.isExited || l.hasClosed() }

func (l *life) hasClosed() bool { return l.closed > 0 || l.isClosed }

// mayHaveExited reports whether it can have, if other is not what ended it.
func (l *life) mayHaveExited(other *asked) bool {
	return l.mayEnd() || slices.ContainsFunc(l.killers, func(k *asked) bool { return k != other })
}

// last is the highest seq that the client knows.
func (l *life) last() (last uint64) {
	for seq := range l.seen {
		last = max(last, seq)
	}
	return last
}

// note takes an event, pushed or read.
func (l *life) note(seq uint64, s said) error {
	if before, ok := l.seen[seq]; ok {
		if before != s && !l.isVague {
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
		if !l.isVague && !slices.Contains(want, s.kind) || s.data == "" {
			return fmt.Errorf("event %d of %s is %+v", seq, l.id, s)
		}
	}
	return nil
}

// wasPushedWhole reports whether every event was pushed on one connection.
func (l *life) wasPushedWhole() bool {
	return l.pushed > 0 && uint64(len(l.seen)) == l.last() && !l.resumed
}

func (l *life) checkCode(code int) error {
	wanted := []int{l.code}
	if l.wasKilled() {
		wanted = append(wanted, signalBase+2, signalBase+9)
	}
	if !l.isVague && !slices.Contains(wanted, code) {
		return fmt.Errorf("%s, which runs %s, exited with %d", l.id, l.name, code)
	}
	return nil
}

// push takes a notification that came at a time.
func (l *life) push(seq uint64, s said, at time.Time) error {
	switch {
	case l.certainty == awaited:
		return fmt.Errorf("%s is told of before its start is answered", l.id)
	case l.certainty == refused:
		return fmt.Errorf("%s is told of and was not started", l.id)
	case l.resumed && seq <= l.pushed, !l.resumed && seq != l.pushed+1:
		return fmt.Errorf("event %d of %s comes after %d (resumed: %v)", seq, l.id, l.pushed, l.resumed)
	}
	l.certainty = granted
	l.pushed, l.resumed = seq, false
	if err := l.note(seq, s); err != nil {
		return err
	}
	if s.kind == "exited" && !l.mayEnd() && !isAnsweredBy(l.killers, at, gateEndLimit) {
		return fmt.Errorf("%s exited before an answer to what ended it", l.id)
	}
	if s.kind == "stdout" && l.echoes && !l.isVague {
		return l.checkEcho(at)
	}
	return nil
}

// isAnsweredBy reports whether one of the requests was answered, or may have
// taken longer than its effects are held back. A time is measured here, so that a
// machine that is slow makes the model forgiving and nothing else.
func isAnsweredBy(asks []*asked, at time.Time, patience time.Duration) bool {
	return slices.ContainsFunc(asks, func(a *asked) bool { return a.isAnswered || at.Sub(a.at) >= patience })
}

// checkEcho checks that what was written has been answered before it is said.
func (l *life) checkEcho(at time.Time) error {
	room := 0
	for _, in := range l.inputs {
		if in.taken || in.lost || at.Sub(in.ask.at) >= gateOutputLimit {
			room += len(in.text)
		}
	}
	if said := l.text("stdout"); len(said) > room {
		return fmt.Errorf("%s has said %q before the writes were answered", l.id, said)
	}
	return nil
}

// text is what is known of a stream, in the order of its events.
func (l *life) text(stream string) string {
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

// saidOf is the event of a notification.
func saidOf(f *frame) (said, error) {
	e := f.Params
	switch f.Method {
	case "process/output":
		return said{kind: e.Stream, data: string(bytes.Clone(e.Chunk))}, nil
	case "process/exited":
		if e.ExitCode == nil {
			return said{}, fmt.Errorf("there is no exit code: %s", f.raw)
		}
		return said{kind: "exited", code: *e.ExitCode}, nil
	case "process/closed":
		return said{kind: "closed"}, nil
	}
	return said{}, fmt.Errorf("nobody asked for this notification: %s", f.raw)
}
