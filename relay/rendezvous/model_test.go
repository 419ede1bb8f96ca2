package rendezvous

import (
	"maps"
	"slices"
	"time"

	"github.com/execwire/execwire/relay"
)

// model specifies what a route has to do, as simply as possible: no goroutines,
// no fairness, every queue a list of the frames to expect.
type model struct {
	limits   Limits
	now      time.Time
	executor *modelConn // nil while not connected
	instance string
	graceEnd time.Time // end of the instance's grace period; zero if it is not absent
	streams  map[string]*modelStream
	owed     map[string]string
}

type modelConn struct {
	principal string
	resumable bool
	number    int
	frames    map[string][]string // expected frames of each stream
	resets    []pendingReset      // resets to be sent
	ended     map[string]bool
	closed    bool // it did not read its resets for too long
}

type modelStream struct {
	principal          string
	harness            *modelConn // nil while the harness is absent
	graceEnd           time.Time  // end of its grace period
	resumable, reached bool
	used               time.Time
	stuckSince         [2]time.Time // up, down: since when nothing has left although a frame did not fit
}

func newModel(limits Limits, now time.Time) *model {
	return &model{limits: limits, now: now, streams: map[string]*modelStream{}, owed: map[string]string{}}
}

func newModelConn(principal string, resumable bool, number int) *modelConn {
	return &modelConn{principal: principal, resumable: resumable, number: number, frames: map[string][]string{}, ended: map[string]bool{}}
}

func (m *model) sendReset(c *modelConn, id, reason string) {
	c.ended[id] = true
	c.resets = append(c.resets, pendingReset{stream: id, reason: reason})
	c.closed = c.closed || len(c.resets) > m.limits.StreamsPerExecutor+m.limits.StreamsPerConnection
}

func (m *model) isResumable(s *modelStream) bool { return s.resumable && m.instance != "" }

func (m *model) end(id, reason string, harness, executor bool) {
	s := m.streams[id]
	delete(m.streams, id)
	if m.executor != nil {
		delete(m.executor.frames, id)
	}
	switch {
	case s.harness != nil:
		delete(s.harness.frames, id)
		if harness {
			m.sendReset(s.harness, id, reason)
		}
	}
	switch {
	case !executor || !s.reached:
	case m.executor != nil:
		m.sendReset(m.executor, id, reason)
	case !m.graceEnd.IsZero():
		m.owed[id] = reason
	}
}

// all calls f with each stream, which f may end.
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
		if !m.isResumable(s) {
			m.end(id, relay.ReasonExecutorGone, true, true)
		}
	})
}

func (m *model) detachExecutor(c *modelConn) {
	for _, n := range c.resets {
		m.owed[n.stream] = n.reason
	}
	c.resets = nil
	clear(c.frames)
	m.all(func(_ string, s *modelStream) { s.stuckSince[0] = time.Time{} })
	m.executor = nil
}

func (m *model) connectExecutor(c *modelConn, instance string) {
	if m.executor != nil {
		m.detachExecutor(m.executor)
	}
	m.graceEnd = time.Time{}
	m.executor = c
	if instance != "" && instance == m.instance {
		m.endPlain()
		for id, reason := range m.owed {
			m.sendReset(c, id, reason)
		}
	} else {
		m.endAll()
	}
	m.instance = instance
	clear(m.owed)
}

func (m *model) disconnectExecutor(c *modelConn) {
	if m.executor != c {
		return
	}
	m.detachExecutor(c)
	if m.instance == "" {
		m.endAll()
		clear(m.owed)
		return
	}
	m.graceEnd = m.now.Add(m.limits.StreamGrace)
	m.endPlain()
}

func (m *model) disconnectHarness(c *modelConn) {
	until := m.now.Add(m.limits.StreamGrace)
	m.all(func(id string, s *modelStream) {
		switch {
		case s.harness != c:
		case !m.isResumable(s):
			s.harness = nil
			m.end(id, relay.ReasonHarnessGone, false, true)
		default:
			s.harness, s.graceEnd, s.stuckSince[1] = nil, until, time.Time{}
		}
	})
}

// pass advances the clock to then.
func (m *model) pass(then time.Time) {
	for {
		next := then
		soonest := func(t time.Time) {
			if !t.IsZero() && t.Before(next) {
				next = t
			}
		}
		soonest(m.graceEnd)
		for _, s := range m.streams {
			if s.harness == nil {
				soonest(s.graceEnd)
			}
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
		if s.harness == nil && due(s.graceEnd) {
			m.end(id, relay.ReasonHarnessGone, false, true)
		}
	})
	if due(m.graceEnd) {
		m.graceEnd = time.Time{}
		m.endAll()
		m.instance = ""
		clear(m.owed)
	}
}

func (m *model) handleHarnessFrame(c *modelConn, id, payload string) {
	s := m.streams[id]
	switch {
	case s == nil:
		if s = m.beginStream(c, id); s == nil {
			return
		}
	case s.principal != c.principal, s.harness != nil && s.harness.number > c.number:
		return
	case s.harness != c:
		if s.harness != nil {
			delete(s.harness.frames, id)
		}
		s.harness, s.resumable, s.stuckSince[1] = c, c.resumable, time.Time{}
	}
	if s.used = m.now; m.executor != nil {
		m.send(id, s, 0, m.executor, payload)
	}
}

func (m *model) beginStream(c *modelConn, id string) *modelStream {
	has, own := 0, 0
	for _, s := range m.streams {
		if s.harness == c {
			has++
		}
		if s.principal == c.principal {
			own++
		}
	}
	switch {
	case c.ended[id]:
		return nil
	case m.executor == nil && (m.graceEnd.IsZero() || !c.resumable):
		m.sendReset(c, id, relay.ReasonExecutorGone)
		return nil
	case has >= m.limits.StreamsPerConnection, own >= m.limits.StreamsPerPrincipal, len(m.streams) >= m.limits.StreamsPerExecutor && m.victim(c) == "",
		m.executor != nil && len(m.executor.resets) >= m.limits.StreamsPerExecutor:
		m.sendReset(c, id, relay.ReasonStreamLimit)
		return nil
	}
	if len(m.streams) >= m.limits.StreamsPerExecutor {
		m.end(m.victim(c), relay.ReasonStreamLimit, true, true)
	}
	s := &modelStream{principal: c.principal, harness: c, resumable: c.resumable, used: m.now}
	m.streams[id] = s
	return s
}

// victim returns the stream that is evicted for one more of c; empty if none.
func (m *model) victim(c *modelConn) (chosen string) {
	of, at := map[string]int{}, map[*modelConn]int{}
	for _, s := range m.streams {
		of[s.principal]++
		at[s.harness]++
	}
	at[nil] = 0
	heaviest := c.principal
	for _, other := range slices.Sorted(maps.Keys(of)) {
		if of[other] > of[c.principal]+1 && (heaviest == c.principal || of[other] > of[heaviest]) {
			heaviest = other
		}
	}
	most := 0
	m.all(func(id string, s *modelStream) {
		c := m.streams[chosen]
		if s.principal != heaviest {
			return
		}
		most = max(most, at[s.harness])
		if c == nil || at[s.harness] > at[c.harness] || at[s.harness] == at[c.harness] && s.used.Before(c.used) {
			chosen = id
		}
	})
	if heaviest == c.principal && most <= at[c]+1 {
		return ""
	}
	return chosen
}

func (m *model) handleExecutorFrame(c *modelConn, id, payload string) {
	s := m.streams[id]
	if m.executor != c || s == nil {
		return
	}
	if s.used = m.now; s.harness != nil {
		m.send(id, s, 1, s.harness, payload)
	}
}

// send adds an expected frame of a stream on c, or drops it. Every frame counts
// as minFrameBytes.
func (m *model) send(id string, s *modelStream, direction int, c *modelConn, payload string) {
	most := m.limits.PlainQueueBytes
	if m.isResumable(s) {
		most = m.limits.QueueBytes
	}
	if int64(len(c.frames[id])+1)*minFrameBytes <= most {
		c.frames[id] = append(c.frames[id], payload)
		return
	}
	if s.stuckSince[direction].IsZero() {
		s.stuckSince[direction] = m.now
	}
	if !m.isResumable(s) || m.now.Sub(s.stuckSince[direction]) >= m.limits.StreamGrace {
		m.end(id, relay.ReasonSlowConsumer, true, true)
	}
}

// received records that a frame of a stream was received on c, and returns the
// expected one.
func (m *model) received(c *modelConn, id string) (payload string, expected bool) {
	left := c.frames[id]
	if len(left) == 0 {
		return "", false
	}
	if c.frames[id] = left[1:]; len(left) == 1 {
		delete(c.frames, id)
	}
	if s := m.streams[id]; s != nil {
		if c == m.executor {
			s.stuckSince[0], s.reached = time.Time{}, true
		} else {
			s.stuckSince[1] = time.Time{}
		}
	}
	return left[0], true
}
