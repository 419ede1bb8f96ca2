package gateway

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// steps are what is left of the bytes that say what a walk does.
type steps []byte

// next is a number below n; at the end of the steps it is 0.
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

// step is something a walk may do next.
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
	{2, func(w *walker, s *steps) { w.settle() }},
	{3, func(w *walker, s *steps) { w.await() }},
	{2, stepOutOfOrder},
	{2, stepHandshake},
	{2, stepResume},
	{1, func(w *walker, s *steps) { w.leave() }},
	{1, stepContest},
	{3, func(w *walker, s *steps) { w.startOlder(s.process(), programs[s.next(len(programs))]) }},
	{2, func(w *walker, s *steps) { w.closeInput(s.process()) }},
	{2, func(w *walker, s *steps) { w.wait(s.process(), s.next(2) == 1, s.next(4)*5) }},
	{1, func(w *walker, _ *steps) { w.list() }},
	{1, func(w *walker, s *steps) { w.writeOlder(s.process()) }},
	{1, func(w *walker, s *steps) { w.end("", "command/exec/terminate", s.process()) }},
}

// processNames are what processes of a walk are called.
var processNames = []string{"p", "q", "~"}

func (s *steps) process() string { return processNames[s.next(len(processNames))] }

// key is a writeId, or none.
func (s *steps) key() string { return []string{"", "", "k1", "k2"}[s.next(4)] }

// stepWrite writes, and with one of the writeIds again, as clients do that doubt
// whether the first time came through: to a process that says what it read, if
// there may be one.
func stepWrite(w *walker, s *steps) {
	id, wholeLine, key := s.process(), s.next(3) > 0, s.key()
	if key != "k2" {
		w.write(id, wholeLine, key)
		return
	}
	for _, other := range processNames {
		if l, _ := w.model.current(w.model.lives[other]); l != nil && l.pipe && l.echoes {
			id = other
		}
	}
	w.write(id, wholeLine, key)
	w.write(id, wholeLine, key)
}

func stepRead(w *walker, s *steps) {
	id, after := s.process(), uint64(0)
	last := uint64(0)
	for _, l := range w.model.lives[id] {
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

// stepOutOfOrder says what is no request that can be carried out.
func stepOutOfOrder(w *walker, s *steps) {
	messages := []string{`{"method":"process/start"}`, `not JSON`, `{"id":1,"result":{}}`, `{"id":1.5,"method":"initialize"}`, `[]`}
	if i := s.next(len(messages) + 1); i < len(messages) {
		w.model.noIDs++
		w.say(messages[i])
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

// stepResume loses the connection and takes the session up again, if there is
// one that it knows.
func stepResume(w *walker, s *steps) {
	w.cut()
	if s.next(3) == 0 {
		w.initializeRefused("nope", -32600, "unknown session id nope")
	}
	w.initialize(w.model.session)
	w.initialized()
}

// stepContest has another client ask for the session.
func stepContest(w *walker, _ *steps) {
	if w.settle(); w.model.phase == fresh {
		return
	}
	other := &walker{t: w.t, core: w.core, model: model{lives: map[string][]*life{}}, log: w.log}
	other.connect()
	session := w.model.session
	other.initializeRefused(session, -32010, "session "+session+" is already attached to another connection")
	other.settle()
	other.pipe.drop()
	other.running.Wait()
	w.log = append(other.log, "-- the other one has gone")
}

// walk does what the bytes say and checks all that can be checked in the end.
func walk(t *testing.T, cores [2]*core, input []byte) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("as a file of testdata/fuzz/FuzzLifecycle:\ngo test fuzz v1\n[]byte(%q)", input)
		}
	})
	s := steps(input)
	flags := s.next(4)
	w := newWalker(t, cores[flags&1], flags&1 == 1)
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

// finish ends all processes, has everything told that is to be told, and leaves.
func (w *walker) finish() {
	w.t.Helper()
	if w.model.phase == fresh {
		w.settle()
		w.initialize("")
	}
	if w.model.phase != live {
		w.initialized()
	}
	w.settle()
	granted := w.grantedLives()
	for _, l := range granted {
		if !l.hasExited() && (l.stays || l.isVague) {
			w.end("", "process/terminate", l.id)
		}
	}
	w.settle()
	for _, l := range granted {
		w.learnAll(l)
	}
	w.ask("", "environment/status", "", nil)
	w.settle()
	w.checkLives(append(granted, w.model.past...))
	w.log = append(w.log, "-- leaves")
	close(w.pipe.finished)
	w.reap(func(err error) bool { return err == nil })
}

// grantedLives are those that are known to be there, by their names.
func (w *walker) grantedLives() (found []*life) {
	for _, id := range slices.Sorted(maps.Keys(w.model.lives)) {
		if l, _ := w.model.current(w.model.lives[id]); l != nil && l.certainty == granted {
			found = append(found, l)
		}
	}
	return found
}

// learnAll has the client know the whole of a process.
func (w *walker) learnAll(l *life) {
	w.t.Helper()
	// An exit that an answer has told already, on a connection that was lost, is
	// not told again in the older dialect, which a vague one may be of.
	isToldAll := !l.resumed && !l.isVague && !(l.isOlder && l.wasResumed && (l.mayBeTaken || len(l.reads) > 0))
	for begun := time.Now(); !isToldAll && !l.hasClosed() && !l.isGone; w.settle() { // it may have closed before
		if time.Since(begun) > patience {
			w.fail("%s does not close", l.id)
		}
		w.read(l.id, l.last(), 0, 100)
	}
	if isToldAll {
		w.takeUntil(func() bool { return l.isTold || l.closed > 0 && l.closed == l.pushed })
	}
	w.read(l.id, 0, 0, 0)
	w.settle()
}

// checkLives checks what is over, but for that of which the client may have
// missed a part, or was not told all, and which was forgotten then.
func (w *walker) checkLives(over []*life) {
	w.t.Helper()
	for _, l := range over {
		if l.certainty != granted || w.model.removes && (l.wasResumed || l.isOlder) {
			continue
		}
		if err := l.complete(); err != nil {
			w.fail("%v", err)
		}
	}
}

// await takes one message if one must come.
func (w *walker) await() {
	w.t.Helper()
	if len(w.model.pending) > 0 && !w.take() {
		w.fail("the connection is gone")
	}
}

// askUnknown calls a method that is not there.
func (w *walker) askUnknown() {
	w.t.Helper()
	a := w.ask("", "no/such", "", nil)
	a.refusal = &wireError{Code: -32601, Message: "exec-server stub does not implement `no/such` yet"}
}

// reusableID is the id of a request in flight, if the steps want that and the
// answers cannot be taken for each other; else none.
func (w *walker) reusableID(s *steps) string {
	if s.next(3) > 0 || w.model.phase != live {
		return ""
	}
	for _, a := range w.model.pending {
		isOfEnd := func(other *asked) bool { return other.id == a.id && other.isEnd() }
		if a.refusal == nil && !slices.ContainsFunc(w.model.pending, isOfEnd) {
			return a.id
		}
	}
	return ""
}

// newLifecycleCores returns a core that keeps what it knows of closed processes,
// and one that soon forgets it.
func newLifecycleCores(t testing.TB) [2]*core {
	t.Helper()
	retain := func(d time.Duration) *core {
		return newCore(t, func(s *coreSettings) { s.sessions.ClosedRetention = d })
	}
	return [2]*core{retain(time.Hour), retain(time.Millisecond)}
}

// FuzzLifecycle sends valid messages in any order.
func FuzzLifecycle(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(randomSteps(seed))
	}
	cores := newLifecycleCores(f)
	f.Fuzz(func(t *testing.T, input []byte) { walk(t, cores, input) })
}

// How many walks TestLifecycleWalks goes, also with -short, and how many at a time.
const walks, walksInShort, walksAtOnce = 160, 40, 4

// TestLifecycleWalks is FuzzLifecycle on random steps, the same each time.
func TestLifecycleWalks(t *testing.T) {
	cores, most := newLifecycleCores(t), uint64(walks)
	if testing.Short() {
		most = walksInShort
	}
	for group := range uint64(walksAtOnce) {
		t.Run(fmt.Sprint("group ", group), func(t *testing.T) {
			t.Parallel()
			for seed := group; seed < most; seed += walksAtOnce {
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { walk(t, cores, randomSteps(1000+seed)) })
			}
		})
	}
}

// TestAnswersUnderOneID gives a termination the id of each other request in
// flight: the model takes no answer for that of another.
func TestAnswersUnderOneID(t *testing.T) {
	answers := map[string]string{
		"process/list": `{"processes":[],"nextPageToken":null}`, "process/signal": `{}`, "process/write": `{"status":"unknownProcess"}`,
		"process/closeStdin": `{"status":"unknownProcess"}`, "environment/status": `{"status":"ready"}`,
	}
	for method, answer := range answers {
		for _, first := range []int{0, 1} {
			m := model{phase: live, pending: []*asked{{id: "1", method: method, process: "p", write: &written{}}, {id: "1", method: "process/terminate", process: "p"}}}
			left := m.pending[1-first]
			said := []string{answer, `{"running":false}`}
			f := &frame{ID: []byte("1"), Result: []byte(said[first])}
			if err := m.told(f, time.Now()); err != nil || len(m.pending) != 1 || m.pending[0] != left {
				t.Errorf("%s of %s and a termination: %v, and %d are awaited", said[first], method, err, len(m.pending))
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
