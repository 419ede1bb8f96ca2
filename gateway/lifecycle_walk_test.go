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

// walker is a client that takes random steps over several connections, and
// compares what it receives with a model.
type walker struct {
	t     *testing.T
	srv   *testServer
	model model

	pipe     *pipe
	messages chan timedMessage // closed at the end of the connection
	served   chan error
	running  *sync.WaitGroup

	ids    int
	writes int
	log    []string // sent and received messages, in order
}

// timedMessage is a message with the time when it was read.
type timedMessage struct {
	raw []byte
	at  time.Time
}

func newWalker(t *testing.T, c *testServer, removes bool) *walker {
	w := &walker{t: t, srv: c, model: model{removes: removes, processes: map[string][]*modelProcess{}}}
	w.connect()
	return w
}

// connect opens a connection after the end of the previous one.
func (w *walker) connect() {
	w.t.Helper()
	w.log = append(w.log, "-- connects")
	w.pipe, w.messages, w.served, w.running = w.serve()
	w.model.phase, w.model.since = fresh, time.Now()
}

func (w *walker) serve() (*pipe, chan timedMessage, chan error, *sync.WaitGroup) {
	w.t.Helper()
	p, messages, served := newPipe(), make(chan timedMessage, 1<<16), make(chan error, 1)
	gateway, err := New(Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	running := new(sync.WaitGroup)
	running.Go(func() { served <- gateway.Serve(w.t.Context(), "p", w.srv.channel, p.transport()) })
	running.Go(func() {
		defer close(messages)
		for raw := p.next(); raw != nil; raw = p.next() {
			messages <- timedMessage{raw, time.Now()}
		}
	})
	w.t.Cleanup(func() {
		p.drop()
		running.Wait()
	})
	return p, messages, served, running
}

func (w *walker) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\nafter:\n%s", fmt.Sprintf(format, args...), strings.Join(w.log[max(0, len(w.log)-80):], "\n"))
}

// send receives the buffered messages, and then sends one.
func (w *walker) send(text string) {
	w.t.Helper()
	w.receiveBuffered()
	w.log = append(w.log, "> "+text)
	select {
	case w.pipe.in <- []byte(text):
	case <-w.pipe.lost:
		w.fail("the connection was lost")
	case <-time.After(patience):
		w.fail("the gateway does not receive")
	}
}

// receiveOne receives one message; ok is false at the end of the connection.
func (w *walker) receiveOne() (ok bool) {
	w.t.Helper()
	select {
	case s, ok := <-w.messages:
		if ok {
			w.receive(s)
		}
		return ok
	case <-time.After(patience):
		w.fail("no message received")
		return false
	}
}

// receiveBuffered receives the messages that have arrived.
func (w *walker) receiveBuffered() {
	w.t.Helper()
	for {
		select {
		case s, ok := <-w.messages:
			if !ok {
				return
			}
			w.receive(s)
		default:
			return
		}
	}
}

func (w *walker) receive(s timedMessage) {
	w.t.Helper()
	w.log = append(w.log, "< "+string(s.raw))
	f := frame{raw: s.raw}
	if err := json.Unmarshal(s.raw, &f); err != nil {
		w.fail("%v", err)
	}
	if err := w.model.receive(&f, s.at); err != nil {
		w.fail("%v", err)
	}
}

// receiveUntil receives messages until done returns true.
func (w *walker) receiveUntil(done func() bool) {
	w.t.Helper()
	for !done() {
		if !w.receiveOne() {
			w.fail("the connection was lost")
		}
	}
}

// awaitResponses waits for all pending responses.
func (w *walker) awaitResponses() {
	w.t.Helper()
	w.receiveUntil(func() bool { return len(w.model.pending) == 0 && w.model.errorsWithoutID == 0 })
}

// ask sends a request. An empty id means a new one.
func (w *walker) ask(id, method, process string, params map[string]any) *walkRequest {
	w.t.Helper()
	w.receiveBuffered()
	if id == "" {
		w.ids++
		id = fmt.Sprint(w.ids)
	}
	a := &walkRequest{id: id, method: method, process: process, at: time.Now()}
	a.refusal = w.refusalOf(method)
	if process != "" {
		a.candidates = slices.Clone(w.model.processes[process])
		a.mayOvertake = slices.ContainsFunc(a.candidates, func(l *modelProcess) bool { return l.startState == startUnknown })
		if l, sure := w.model.current(a.candidates); sure && l != nil {
			a.knownLast, a.knownExit, a.knownClosed = l.last(), l.hasExited(), l.closed > 0
		}
	}
	w.model.pending = append(w.model.pending, a)
	m := map[string]any{"id": json.RawMessage(id), "method": method}
	if params != nil {
		m["params"] = params
	}
	w.send(toJSON(m))
	return a
}

// refusalOf returns the error of a request that is out of order.
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

// initialize requests a new session, or resumes one.
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
		w.model.session, w.model.processes = "", map[string][]*modelProcess{}
	}
}

// initializeRefused requests a session that cannot be attached.
func (w *walker) initializeRefused(session string, code int, message string) {
	w.t.Helper()
	a := w.ask("", "initialize", "", map[string]any{"clientName": "walker", "resumeSessionId": session})
	if a.refusal == nil {
		a.refusal = &wireError{Code: code, Message: message}
	}
}

// initialized completes the handshake.
func (w *walker) initialized() {
	w.t.Helper()
	switch w.model.phase {
	case fresh:
		w.model.errorsWithoutID++
	case initialized:
		w.model.phase = live
	}
	w.send(`{"method":"initialized"}`)
}

func (w *walker) start(id string, p program) {
	w.t.Helper()
	a := w.ask("", "process/start", id, map[string]any{"processId": id, "argv": p.argv, "cwd": "/",
		"env": map[string]string{"PATH": "/usr/bin:/bin"}, "tty": p.tty, "pipeStdin": p.pipe})
	a.modelProcess = newModelProcess(p, id)
	w.addProcess(a)
}

// addProcess adds a process to the model if its start is not rejected.
func (w *walker) addProcess(a *walkRequest) {
	a.modelProcess.begun = a
	if a.refusal != nil || a.modelProcess.fails {
		return
	}
	w.model.processes[a.process] = append(w.model.processes[a.process], a.modelProcess)
	for _, other := range w.model.pending {
		if other.process == a.process && other.modelProcess == nil && other.refusal == nil {
			other.laterStarts = append(other.laterStarts, a.modelProcess) // which may overtake it
			a.modelProcess.noteRequest(other, true)
		}
	}
}

// candidates returns the processes that a request sent now may be about; none if
// it is rejected.
func (w *walker) candidates(id string) []*modelProcess {
	w.t.Helper()
	w.receiveBuffered()
	if w.model.phase != live {
		return nil
	}
	return slices.Clone(w.model.processes[id])
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
	candidates := w.candidates(id)
	a := w.ask("", method, id, params)
	a.write = &written{key: key, ask: a}
	a.text = text
	for _, l := range candidates {
		l.noteRequest(a, false)
	}
}

func (w *walker) read(id string, after, most, wait uint64) {
	w.t.Helper()
	params := map[string]any{"processId": id, "afterSeq": after, "waitMs": wait}
	if most > 0 {
		params["maxBytes"] = most
	}
	candidates := w.candidates(id)
	a := w.ask("", "process/read", id, params)
	a.after, a.max = after, most
	for _, l := range candidates {
		l.mayBeAcknowledged = l.mayBeAcknowledged || after > l.last()
	}
}

// end sends a request that may end a process.
func (w *walker) end(reuse, method, id string) {
	w.t.Helper()
	params := map[string]any{"processId": id}
	if method == "process/signal" {
		params["signal"] = "interrupt"
	}
	candidates := w.candidates(id)
	a := w.ask(reuse, method, id, params)
	for _, l := range candidates {
		l.noteRequest(a, false)
	}
}
