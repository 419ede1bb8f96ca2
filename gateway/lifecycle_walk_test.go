package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/jsonrpc"
)

// walker is a client that goes from step to step, over as many connections as it
// takes, and holds what it is told against a model.
type walker struct {
	t     *testing.T
	core  *core
	model model

	pipe    *pipe
	said    chan stamped // closed when the connection has no more
	served  chan error
	running *sync.WaitGroup

	ids    int
	writes int
	log    []string // what was said and told, in order
}

// stamped is a message with the time when it was read.
type stamped struct {
	raw []byte
	at  time.Time
}

func newWalker(t *testing.T, c *core, removes bool) *walker {
	w := &walker{t: t, core: c, model: model{removes: removes, lives: map[string][]*life{}}}
	w.connect()
	return w
}

// connect opens a connection. The one before is over.
func (w *walker) connect() {
	w.t.Helper()
	w.log = append(w.log, "-- connects")
	w.pipe, w.said, w.served, w.running = w.serve()
	w.model.phase, w.model.since = fresh, time.Now()
}

func (w *walker) serve() (*pipe, chan stamped, chan error, *sync.WaitGroup) {
	w.t.Helper()
	p, said, served := newPipe(), make(chan stamped, 1<<16), make(chan error, 1)
	gateway, err := New(Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	running := new(sync.WaitGroup)
	running.Go(func() { served <- gateway.Serve(w.t.Context(), "p", w.core.channel, p.transport()) })
	running.Go(func() {
		defer close(said)
		for raw := p.next(); raw != nil; raw = p.next() {
			said <- stamped{raw, time.Now()}
		}
	})
	w.t.Cleanup(func() {
		p.drop()
		running.Wait()
	})
	return p, said, served, running
}

func (w *walker) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\nafter:\n%s", fmt.Sprintf(format, args...), strings.Join(w.log[max(0, len(w.log)-80):], "\n"))
}

// say sends a message, after it has taken what was told before.
func (w *walker) say(text string) {
	w.t.Helper()
	w.takeAll()
	w.log = append(w.log, "> "+text)
	select {
	case w.pipe.in <- []byte(text):
	case <-w.pipe.lost:
		w.fail("the connection is gone")
	case <-time.After(patience):
		w.fail("the gateway does not receive")
	}
}

// take takes one message; ok is false if none comes any more.
func (w *walker) take() (ok bool) {
	w.t.Helper()
	select {
	case s, ok := <-w.said:
		if ok {
			w.told(s)
		}
		return ok
	case <-time.After(patience):
		w.fail("nothing comes")
		return false
	}
}

// takeAll takes what was told already.
func (w *walker) takeAll() {
	w.t.Helper()
	for {
		select {
		case s, ok := <-w.said:
			if !ok {
				return
			}
			w.told(s)
		default:
			return
		}
	}
}

func (w *walker) told(s stamped) {
	w.t.Helper()
	w.log = append(w.log, "< "+string(s.raw))
	f := frame{raw: s.raw}
	if err := json.Unmarshal(s.raw, &f); err != nil {
		w.fail("%v", err)
	}
	if err := w.model.told(&f, s.at); err != nil {
		w.fail("%v", err)
	}
}

// takeUntil takes messages until it is done.
func (w *walker) takeUntil(done func() bool) {
	w.t.Helper()
	for !done() {
		if !w.take() {
			w.fail("the connection is gone")
		}
	}
}

// settle waits for all answers.
func (w *walker) settle() {
	w.t.Helper()
	w.takeUntil(func() bool { return len(w.model.pending) == 0 && w.model.noIDs == 0 })
}

// ask sends a request. The id is a new one unless it is given.
func (w *walker) ask(id, method, process string, params map[string]any) *asked {
	w.t.Helper()
	w.takeAll()
	if id == "" {
		w.ids++
		id = fmt.Sprint(w.ids)
	}
	a := &asked{id: id, method: method, process: process, at: time.Now()}
	a.refusal = w.refusalOf(method)
	if process != "" {
		a.about = slices.Clone(w.model.lives[process])
		a.inDoubt = slices.ContainsFunc(a.about, func(l *life) bool { return l.certainty == doubted })
		if l, sure := w.model.current(a.about); sure && l != nil {
			a.knownLast, a.knownExit, a.knownClosed = l.last(), l.hasExited(), l.closed > 0
		}
	}
	w.model.pending = append(w.model.pending, a)
	m := map[string]any{"id": json.RawMessage(id), "method": method}
	if params != nil {
		m["params"] = params
	}
	w.say(toJSON(m))
	return a
}

// refusalOf is what requests are answered with that come out of order.
func (w *walker) refusalOf(method string) *wireError {
	refuse := func(code int, message string) *wireError { return &wireError{Code: code, Message: message} }
	group := groupExec
	if strings.HasPrefix(method, "environment/") {
		group = groupEnvironment
	}
	phase := w.model.phase
	switch {
	case method == "initialize" && phase != fresh:
		return refuse(jsonrpc.CodeInvalidRequest, "initialize may only be sent once per connection")
	case method == "initialize", phase == live:
		return nil
	case phase == fresh:
		return refuse(jsonrpc.CodeInvalidRequest, "client must call initialize before using "+group+" methods")
	}
	return refuse(jsonrpc.CodeInvalidRequest, "client must send initialized before using "+group+" methods")
}

// initialize asks for a session, a new one or the one to resume.
func (w *walker) initialize(resume string) {
	w.t.Helper()
	params := map[string]any{"clientName": "walker"}
	if resume != "" {
		params["resumeSessionId"] = resume
	}
	a := w.ask("", "initialize", "", params)
	if a.refusal != nil {
		return
	}
	a.resumeSession = resume
	w.model.phase = initialized
	if resume == "" {
		w.model.session, w.model.lives = "", map[string][]*life{}
	}
}

// initializeRefused asks for a session that cannot be had.
func (w *walker) initializeRefused(session string, code int, message string) {
	w.t.Helper()
	a := w.ask("", "initialize", "", map[string]any{"clientName": "walker", "resumeSessionId": session})
	if a.refusal == nil {
		a.refusal = &wireError{Code: code, Message: message}
	}
}

// initialized says that it is.
func (w *walker) initialized() {
	w.t.Helper()
	switch w.model.phase {
	case fresh:
		w.model.noIDs++
	case initialized:
		w.model.phase = live
	}
	w.say(`{"method":"initialized"}`)
}

func (w *walker) start(id string, p program) {
	w.t.Helper()
	a := w.ask("", "process/start", id, map[string]any{"processId": id, "argv": p.argv, "cwd": "/",
		"env": map[string]string{"PATH": "/usr/bin:/bin"}, "tty": p.tty, "pipeStdin": p.pipe})
	a.life = newLife(p, id)
	w.begin(a)
}

// begin has a life begin if its start is not refused.
func (w *walker) begin(a *asked) {
	a.life.begun = a
	if a.refusal != nil || a.life.fails {
		return
	}
	w.model.lives[a.process] = append(w.model.lives[a.process], a.life)
	for _, other := range w.model.pending {
		if other.process == a.process && other.life == nil && other.refusal == nil {
			other.later = append(other.later, a.life) // which may overtake it
			a.life.meets(other, true)
		}
	}
}

// about are the lives that a request that is sent now may be about; none if it is
// refused.
func (w *walker) about(id string) []*life {
	w.t.Helper()
	w.takeAll()
	if w.model.phase != live {
		return nil
	}
	return slices.Clone(w.model.lives[id])
}

// write writes a line, or a part of one.
func (w *walker) write(id string, wholeLine bool, key string) {
	w.t.Helper()
	w.writeBy("process/write", id, wholeLine, key)
}

func (w *walker) writeBy(method, id string, wholeLine bool, key string) {
	w.t.Helper()
	w.writes++
	text := fmt.Sprintf("w%d ", w.writes)
	if wholeLine {
		text += "\n"
	}
	params := map[string]any{"processId": id, "chunk": base64.StdEncoding.EncodeToString([]byte(text))}
	if key != "" {
		params["writeId"] = key
	}
	about := w.about(id)
	a := w.ask("", method, id, params)
	a.write = &written{key: key, ask: a}
	a.text = text
	for _, l := range about {
		l.meets(a, false)
	}
}

func (w *walker) read(id string, after, most, wait uint64) {
	w.t.Helper()
	params := map[string]any{"processId": id, "afterSeq": after, "waitMs": wait}
	if most > 0 {
		params["maxBytes"] = most
	}
	about := w.about(id)
	a := w.ask("", "process/read", id, params)
	a.after, a.max = after, most
	for _, l := range about {
		l.mayBeTaken = l.mayBeTaken || after > l.last()
	}
}

// end sends a request that may end a process.
func (w *walker) end(reuse, method, id string) {
	w.t.Helper()
	params := map[string]any{"processId": id}
	if method == "process/signal" {
		params["signal"] = "interrupt"
	}
	about := w.about(id)
	a := w.ask(reuse, method, id, params)
	for _, l := range about {
		l.meets(a, false)
	}
}
