package gateway

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// steps are the remaining bytes that determine a walk.
type steps []byte

// next returns a number below n; at the end of the steps 0.
func (s *steps) next(n int) int {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return int(b) % n
}

// maxSteps bounds a walk.
const maxSteps = 60

// step is one possible step of a walk.
type step struct {
	weight int
	do     func(w *walker, s *steps)
}

var walkSteps = []step{
	{7, func(w *walker, s *steps) { w.start(s.process(), programs[s.next(len(programs))]) }},
	{5, stepWrite},
	{5, stepRead},
	{2, func(w *walker, s *steps) { w.end(w.reusableID(s), "process/terminate", s.process()) }},
	{2, func(w *walker, s *steps) { w.end("", "process/signal", s.process()) }},
	{2, func(w *walker, s *steps) { w.awaitResponses() }},
	{3, func(w *walker, s *steps) { w.await() }},
	{2, stepOutOfOrder},
	{2, stepHandshake},
	{2, stepResume},
	{1, func(w *walker, s *steps) { w.closeNormally() }},
	{1, stepOtherClient},
	{3, func(w *walker, s *steps) { w.startOlder(s.process(), programs[s.next(len(programs))]) }},
	{2, func(w *walker, s *steps) { w.closeInput(s.process()) }},
	{2, func(w *walker, s *steps) { w.wait(s.process(), s.next(2) == 1, s.next(4)*5) }},
	{1, func(w *walker, _ *steps) { w.list() }},
	{1, func(w *walker, s *steps) { w.writeOlder(s.process()) }},
	{1, func(w *walker, s *steps) { w.end("", "command/exec/terminate", s.process()) }},
}

// processNames are the ids of processes in a walk.
var processNames = []string{"p", "q", "~"}

func (s *steps) process() string { return processNames[s.next(len(processNames))] }

// key returns a writeId, or none.
func (s *steps) key() string { return []string{"", "", "k1", "k2"}[s.next(4)] }

// stepWrite writes to a process, preferably one that echoes. With one of the
// writeIds it may repeat a write, as clients do that do not know whether the
// first one arrived.
func stepWrite(w *walker, s *steps) {
	id, wholeLine, key := s.process(), s.next(3) > 0, s.key()
	if key != "k2" {
		w.write(id, wholeLine, key)
		return
	}
	for _, other := range processNames {
		if l, _ := w.model.current(w.model.processes[other]); l != nil && l.pipe && l.echoes {
			id = other
		}
	}
	w.write(id, wholeLine, key)
	w.write(id, wholeLine, key)
}

func stepRead(w *walker, s *steps) {
	id, after := s.process(), uint64(0)
	last := uint64(0)
	for _, l := range w.model.processes[id] {
		last = l.last()
	}
	switch s.next(5) {
	case 1, 2:
		after = last
	case 3:
		after = last + 1
	case 4:
		after = last + 100
	}
	w.read(id, after, uint64(s.next(3)*2), uint64(s.next(4)*5))
}

// stepOutOfOrder sends an invalid request.
func stepOutOfOrder(w *walker, s *steps) {
	messages := []string{`{"method":"process/start"}`, `not JSON`, `{"id":1,"result":{}}`, `{"id":1.5,"method":"initialize"}`, `[]`}
	if i := s.next(len(messages) + 1); i < len(messages) {
		w.model.errorsWithoutID++
		w.send(messages[i])
		return
	}
	w.askUnknown()
}

func stepHandshake(w *walker, s *steps) {
	switch s.next(4) {
	case 0:
		w.initialize("")
	case 1:
		w.initializeRefused("nope", -32600, "unknown session id nope")
	default:
		w.initialized()
	}
}

// stepResume breaks the connection and resumes the session, if the client knows
// one.
func stepResume(w *walker, s *steps) {
	w.cut()
	if s.next(3) == 0 {
		w.initializeRefused("nope", -32600, "unknown session id nope")
	}
	w.initialize(w.model.session)
	w.initialized()
}

// stepOtherClient makes another client request the session.
func stepOtherClient(w *walker, _ *steps) {
	if w.awaitResponses(); w.model.phase == fresh {
		return
	}
	other := &walker{t: w.t, srv: w.srv, model: model{processes: map[string][]*modelProcess{}}, log: w.log}
	other.connect()
	session := w.model.session
	other.initializeRefused(session, -32010, "session "+session+" is already attached to another connection")
	other.awaitResponses()
	other.pipe.drop()
	other.running.Wait()
	w.log = append(other.log, "-- the other client disconnects")
}

// walk takes the steps of the input and checks everything at the end.
func walk(t *testing.T, servers [2]*testServer, input []byte) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("as a file of testdata/fuzz/FuzzLifecycle:\ngo test fuzz v1\n[]byte(%q)", input)
		}
	})
	s := steps(input)
	flags := s.next(4)
	w := newWalker(t, servers[flags&1], flags&1 == 1)
	if flags&2 == 0 {
		w.initialize("")
		w.initialized()
	}
	total := 0
	for _, step := range walkSteps {
		total += step.weight
	}
	for range maxSteps {
		if len(s) == 0 {
			break
		}
		choice := s.next(total)
		for _, step := range walkSteps {
			if choice -= step.weight; choice < 0 {
				step.do(w, &s)
				break
			}
		}
	}
	w.finish()
}

// finish ends all processes, reads what is left of their output, and closes the
// connection.
func (w *walker) finish() {
	w.t.Helper()
	if w.model.phase == fresh {
		w.awaitResponses()
		w.initialize("")
	}
	if w.model.phase != live {
		w.initialized()
	}
	w.awaitResponses()
	startConfirmed := w.confirmedProcesses()
	for _, l := range startConfirmed {
		if !l.hasExited() && (l.stays || l.isAmbiguous) {
			w.end("", "process/terminate", l.id)
		}
	}
	w.awaitResponses()
	for _, l := range startConfirmed {
		w.readAll(l)
	}
	w.ask("", "environment/status", "", nil)
	w.awaitResponses()
	w.checkProcesses(append(startConfirmed, w.model.past...))
	w.log = append(w.log, "-- closes normally")
	close(w.pipe.finished)
	w.drain(func(err error) bool { return err == nil })
}

// confirmedProcesses returns the processes that are known to exist, in the order
// of their ids.
func (w *walker) confirmedProcesses() (found []*modelProcess) {
	for _, id := range slices.Sorted(maps.Keys(w.model.processes)) {
		if l, _ := w.model.current(w.model.processes[id]); l != nil && l.startState == startConfirmed {
			found = append(found, l)
		}
	}
	return found
}

// readAll reads everything of a process.
func (w *walker) readAll(l *modelProcess) {
	w.t.Helper()
	// An exit that a response reported on a lost connection is not sent again in
	// the older dialect, which an ambiguous process may have.
	isToldAll := !l.resumed && !l.isAmbiguous && !(l.isOlder && l.wasResumed && (l.mayBeAcknowledged || len(l.reads) > 0))
	for begun := time.Now(); !isToldAll && !l.hasClosed() && !l.isRemoved; w.awaitResponses() { // it may have closed before
		if time.Since(begun) > patience {
			w.fail("%s does not close", l.id)
		}
		w.read(l.id, l.last(), 0, 100)
	}
	if isToldAll {
		w.receiveUntil(func() bool { return l.exitNotified || l.closed > 0 && l.closed == l.pushed })
	}
	w.read(l.id, 0, 0, 0)
	w.awaitResponses()
}

// checkProcesses checks processes whose events the client knows completely.
func (w *walker) checkProcesses(over []*modelProcess) {
	w.t.Helper()
	for _, l := range over {
		if l.startState != startConfirmed || w.model.removes && (l.wasResumed || l.isOlder) {
			continue
		}
		if err := l.complete(); err != nil {
			w.fail("%v", err)
		}
	}
}

// await receives one message if a response is pending.
func (w *walker) await() {
	w.t.Helper()
	if len(w.model.pending) > 0 && !w.receiveOne() {
		w.fail("the connection was lost")
	}
}

// askUnknown calls an unknown method.
func (w *walker) askUnknown() {
	w.t.Helper()
	a := w.ask("", "no/such", "", nil)
	a.refusal = &wireError{Code: -32601, Message: "exec-server stub does not implement `no/such` yet"}
}

// reusableID returns the id of a request in flight, if the steps choose that and
// the responses can be distinguished; else none.
func (w *walker) reusableID(s *steps) string {
	if s.next(3) > 0 || w.model.phase != live {
		return ""
	}
	for _, a := range w.model.pending {
		isOfEnd := func(other *walkRequest) bool { return other.id == a.id && other.isEnd() }
		if a.refusal == nil && !slices.ContainsFunc(w.model.pending, isOfEnd) {
			return a.id
		}
	}
	return ""
}

// newLifecycleServers returns a server that keeps closed processes, and one that
// soon removes them.
func newLifecycleServers(t testing.TB) [2]*testServer {
	t.Helper()
	retain := func(d time.Duration) *testServer {
		return newTestServer(t, func(s *serverSettings) { s.sessions.ClosedRetention = d })
	}
	return [2]*testServer{retain(time.Hour), retain(time.Millisecond)}
}

// FuzzLifecycle sends valid messages in any order.
func FuzzLifecycle(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(randomSteps(seed))
	}
	servers := newLifecycleServers(f)
	f.Fuzz(func(t *testing.T, input []byte) { walk(t, servers, input) })
}

// These constants are the number of walks of TestLifecycle_RandomWalks, also with
// -short, and how many run at a time.
const walks, walksInShort, walksAtOnce = 160, 40, 4

// The steps are random, and the same in each run.
func TestLifecycle_RandomWalks(t *testing.T) {
	servers, most := newLifecycleServers(t), uint64(walks)
	if testing.Short() {
		most = walksInShort
	}
	for group := range uint64(walksAtOnce) {
		t.Run(fmt.Sprint("group ", group), func(t *testing.T) {
			t.Parallel()
			for seed := group; seed < most; seed += walksAtOnce {
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { walk(t, servers, randomSteps(1000+seed)) })
			}
		})
	}
}

// A termination has the id of another request in flight. The model matches each
// response with its own request.
func TestLifecycleModel_ReusedID_MatchesResponses(t *testing.T) {
	answers := map[string]string{
		"process/list": `{"processes":[],"nextPageToken":null}`, "process/signal": `{}`, "process/write": `{"status":"unknownProcess"}`,
		"process/closeStdin": `{"status":"unknownProcess"}`, "environment/status": `{"status":"ready"}`,
	}
	for method, answer := range answers {
		for _, first := range []int{0, 1} {
			m := model{phase: live, pending: []*walkRequest{{id: "1", method: method, process: "p", write: &written{}}, {id: "1", method: "process/terminate", process: "p"}}}
			left := m.pending[1-first]
			responses := []string{answer, `{"running":false}`}
			f := &frame{ID: []byte("1"), Result: []byte(responses[first])}
			if err := m.receive(f, time.Now()); err != nil || len(m.pending) != 1 || m.pending[0] != left {
				t.Errorf("%s of %s and a termination: %v, and %d are pending", responses[first], method, err, len(m.pending))
			}
		}
	}
}

func randomSteps(seed uint64) []byte {
	random := rand.New(rand.NewPCG(seed, 0))
	input := make([]byte, 10+random.IntN(110))
	for i := range input {
		input[i] = byte(random.Uint32())
	}
	return input
}
