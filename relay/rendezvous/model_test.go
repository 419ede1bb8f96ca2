package rendezvous

import (
	"maps"
	"slices"
	"time"

	"github.com/execwire/execwire/relay"
)

// model is what an exchange has to do, said as simply as can be: no goroutines,
// no turns between streams, every queue a list of what must still come.
type model struct {
	limits   Limits
	now      time.Time
	executor *modelLine // nil while there is none
	instance string
	vacant   time.Time // until when the instance may be back; zero: it is not away
	streams  map[string]*modelStream
	owed     map[string]string
	untold   map[owner]modelUntold
}

type modelLine struct {
	principal string
	resumable bool
	number    int
	frames    map[string][]string // what must come of each stream
	resets    []notice            // what it must be told
	ended     map[string]bool
	over      bool // it has not read what it was told for too long
}

type modelStream struct {
	principal          string
	line               *modelLine // nil while the harness is away
	away               time.Time  // until when that may be back
	resumable, reached bool
	used               time.Time
	stuck              [2]time.Time // since when nothing has left while something did not fit: up, down
}

type modelUntold struct {
	reason string
	until  time.Time
}

func newModel(limits Limits, now time.Time) *model {
	return &model{limits: limits, now: now, streams: map[string]*modelStream{}, owed: map[string]string{}, untold: map[owner]modelUntold{}}
}

func newModelLine(principal string, resumable bool, number int) *modelLine {
	return &modelLine{principal: principal, resumable: resumable, number: number, frames: map[string][]string{}, ended: map[string]bool{}}
}

func (m *model) tell(l *modelLine, id, reason string) {
	l.ended[id] = true
	l.resets = append(l.resets, notice{stream: id, reason: reason})
	l.over = l.over || len(l.resets) > m.limits.StreamsPerExecutor+m.limits.StreamsPerConnection
}

func (m *model) lasting(s *modelStream) bool { return s.resumable && m.instance != "" }

func (m *model) end(id, reason string, harness, executor bool) {
	s := m.streams[id]
	delete(m.streams, id)
	if m.executor != nil {
		delete(m.executor.frames, id)
	}
	switch {
	case s.line != nil:
		delete(s.line.frames, id)
		if harness {
			m.tell(s.line, id, reason)
		}
	case harness:
		m.untold[owner{s.principal, id}] = modelUntold{reason, s.away}
	}
	switch {
	case !executor || !s.reached:
	case m.executor != nil:
		m.tell(m.executor, id, reason)
	case !m.vacant.IsZero():
		m.owed[id] = reason
	}
}

// all calls f with each stream. It may end it.
func (m *model) all(f func(id string, s *modelStream)) {
	for _, id := range slices.Sorted(maps.Keys(m.streams)) {
		f(id, m.streams[id])
	}
}

func (m *model) endAll() {
	m.all(func(id string, _ *modelStream) { m.end(id, relay.ReasonExecutorGone, true, false) })
}

func (m *model) endPlain() {
	m.all(func(id string, s *modelStream) {
		if !m.lasting(s) {
			m.end(id, relay.ReasonExecutorGone, true, true)
		}
	})
}

func (m *model) leave(l *modelLine) {
	for _, n := range l.resets {
		m.owed[n.stream] = n.reason
	}
	l.resets = nil
	clear(l.frames)
	m.all(func(_ string, s *modelStream) { s.stuck[0] = time.Time{} })
	m.executor = nil
}

func (m *model) connectExecutor(l *modelLine, instance string) {
	if m.executor != nil {
		m.leave(m.executor)
	}
	m.vacant = time.Time{}
	m.executor = l
	if instance != "" && instance == m.instance {
		m.endPlain()
		for id, reason := range m.owed {
			m.tell(l, id, reason)
		}
	} else {
		m.endAll()
	}
	m.instance = instance
	clear(m.owed)
}

func (m *model) departExecutor(l *modelLine) {
	if m.executor != l {
		return
	}
	m.leave(l)
	if m.instance == "" {
		m.endAll()
		clear(m.owed)
		return
	}
	m.vacant = m.now.Add(m.limits.StreamGrace)
	m.endPlain()
}

func (m *model) departHarness(l *modelLine) {
	until := m.now.Add(m.limits.StreamGrace)
	if l.resumable {
		for _, n := range l.resets {
			m.untold[owner{l.principal, n.stream}] = modelUntold{n.reason, until}
		}
	}
	m.all(func(id string, s *modelStream) {
		switch {
		case s.line != l:
		case !m.lasting(s):
			s.line = nil
			m.end(id, relay.ReasonHarnessGone, false, true)
		default:
			s.line, s.away, s.stuck[1] = nil, until, time.Time{}
		}
	})
}

// pass lets time pass until then.
func (m *model) pass(then time.Time) {
	for {
		next := then
		soonest := func(t time.Time) {
			if !t.IsZero() && t.Before(next) {
				next = t
			}
		}
		soonest(m.vacant)
		for _, s := range m.streams {
			if s.line == nil {
				soonest(s.away)
			}
		}
		for _, u := range m.untold {
			soonest(u.until)
		}
		m.now = next
		m.expire()
		if next.Equal(then) {
			return
		}
	}
}

func (m *model) expire() {
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(m.now) }
	m.all(func(id string, s *modelStream) {
		if s.line == nil && due(s.away) {
			m.end(id, relay.ReasonHarnessGone, false, true)
		}
	})
	maps.DeleteFunc(m.untold, func(_ owner, u modelUntold) bool { return due(u.until) })
	if due(m.vacant) {
		m.vacant = time.Time{}
		m.endAll()
		m.instance = ""
		clear(m.owed)
	}
}

func (m *model) fromHarness(l *modelLine, id, payload string) {
	s := m.streams[id]
	switch {
	case s == nil:
		if s = m.begin(l, id); s == nil {
			return
		}
	case s.principal != l.principal, s.line != nil && s.line.number > l.number:
		return
	case s.line != l:
		if s.line != nil {
			delete(s.line.frames, id)
		}
		s.line, s.resumable, s.stuck[1] = l, l.resumable, time.Time{}
	}
	if s.used = m.now; m.executor != nil {
		m.send(id, s, 0, m.executor, payload)
	}
}

func (m *model) begin(l *modelLine, id string) *modelStream {
	if u, ok := m.untold[owner{l.principal, id}]; ok {
		delete(m.untold, owner{l.principal, id})
		m.tell(l, id, u.reason)
		return nil
	}
	has, own := 0, 0
	for _, s := range m.streams {
		if s.line == l {
			has++
		}
		if s.principal == l.principal {
			own++
		}
	}
	switch {
	case l.ended[id]:
		return nil
	case m.executor == nil && (m.vacant.IsZero() || !l.resumable):
		m.tell(l, id, relay.ReasonExecutorGone)
		return nil
	case has >= m.limits.StreamsPerConnection, own >= m.limits.StreamsPerPrincipal, len(m.streams) >= m.limits.StreamsPerExecutor && m.yields(l) == "",
		m.executor != nil && len(m.executor.resets) >= m.limits.StreamsPerExecutor:
		m.tell(l, id, relay.ReasonStreamLimit)
		return nil
	}
	if len(m.streams) >= m.limits.StreamsPerExecutor {
		m.end(m.yields(l), relay.ReasonStreamLimit, true, true)
	}
	s := &modelStream{principal: l.principal, line: l, resumable: l.resumable, used: m.now}
	m.streams[id] = s
	return s
}

// yields returns the stream that gives way to one more of l; empty is none.
func (m *model) yields(l *modelLine) (chosen string) {
	of, at := map[string]int{}, map[*modelLine]int{}
	for _, s := range m.streams {
		of[s.principal]++
		at[s.line]++
	}
	at[nil] = 0
	heaviest := l.principal
	for _, other := range slices.Sorted(maps.Keys(of)) {
		if of[other] > of[l.principal]+1 && (heaviest == l.principal || of[other] > of[heaviest]) {
			heaviest = other
		}
	}
	most := 0
	m.all(func(id string, s *modelStream) {
		c := m.streams[chosen]
		if s.principal != heaviest {
			return
		}
		most = max(most, at[s.line])
		if c == nil || at[s.line] > at[c.line] || at[s.line] == at[c.line] && s.used.Before(c.used) {
			chosen = id
		}
	})
	if heaviest == l.principal && most <= at[l]+1 {
		return ""
	}
	return chosen
}

func (m *model) fromExecutor(l *modelLine, id, payload string) {
	s := m.streams[id]
	if m.executor != l || s == nil {
		return
	}
	if s.used = m.now; s.line != nil {
		m.send(id, s, 1, s.line, payload)
	}
}

// send has one frame more come of a stream on l, or not. Every frame weighs
// minFrameBytes.
func (m *model) send(id string, s *modelStream, way int, l *modelLine, payload string) {
	most := m.limits.PlainQueueBytes
	if m.lasting(s) {
		most = m.limits.QueueBytes
	}
	if int64(len(l.frames[id])+1)*minFrameBytes <= most {
		l.frames[id] = append(l.frames[id], payload)
		return
	}
	if s.stuck[way].IsZero() {
		s.stuck[way] = m.now
	}
	if !m.lasting(s) || m.now.Sub(s.stuck[way]) >= m.limits.StreamGrace {
		m.end(id, relay.ReasonSlowConsumer, true, true)
	}
}

// came says that a frame of a stream came on l, and returns what must have come.
func (m *model) came(l *modelLine, id string) (payload string, expected bool) {
	left := l.frames[id]
	if len(left) == 0 {
		return "", false
	}
	if l.frames[id] = left[1:]; len(left) == 1 {
		delete(l.frames, id)
	}
	if s := m.streams[id]; s != nil {
		if l == m.executor {
			s.stuck[0], s.reached = time.Time{}, true
		} else {
			s.stuck[1] = time.Time{}
		}
	}
	return left[0], true
}
