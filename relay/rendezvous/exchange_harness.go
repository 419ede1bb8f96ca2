package rendezvous

import "github.com/execwire/execwire/relay"

// connectHarness adds a line of a harness.
func (x *exchange) connectHarness(l *line) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.join(l)
	x.lines[l] = struct{}{}
	x.endIfClosed(l)
}

// departHarness says that the line l has ended. What both ends retransmit waits
// for its principal to take it up on another.
func (x *exchange) departHarness(l *line) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.lines, l)
	if x.closed {
		return
	}
	var away *departure
	if l.resumable && len(l.control) > 0 {
		away = x.wait(x.abandon)
		for _, n := range l.control {
			x.keepUntold(owner{l.principal, n.stream}, &untold{reason: n.reason, away: away})
		}
		l.control = nil
	}
	for s := range l.streams {
		if !x.retransmit(s) {
			x.end(s, relay.ReasonHarnessGone, false, true)
			continue
		}
		if away == nil {
			away = x.wait(x.abandon)
		}
		x.clear(s.down, l)
		s.line, s.away = nil, away
	}
	clear(l.streams)
	l.away = away
}

// harnessIsDone says of the line l, which has departed, that its end closed it as
// one that does not come back.
func (x *exchange) harnessIsDone(l *line) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, waiting := x.parting[l.away]; waiting {
		x.back(l.away)
		x.abandon(l.away)
	}
}

// untoldPerStream is how many ends are kept for harnesses that are away, for each
// stream that there may be at once.
const untoldPerStream = 4

// keepUntold keeps what a harness that is away is told when it is back, unless
// that is too much. mu is held.
func (x *exchange) keepUntold(of owner, u *untold) {
	if len(x.untold) < untoldPerStream*x.limits.StreamsPerExecutor {
		x.untold[of] = u
	}
}

// abandon ends the streams of a harness that has not come back. mu is held.
func (x *exchange) abandon(away *departure) {
	for _, s := range x.streams {
		if s.away == away {
			x.end(s, relay.ReasonHarnessGone, false, true)
		}
	}
	for of, u := range x.untold {
		if u.away == away {
			delete(x.untold, of)
		}
	}
}

// fromHarness routes a frame that came on l.
func (x *exchange) fromHarness(l *line, frame []byte) {
	id, err := relay.StreamID(frame)
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case err != nil:
		x.drop(dropMalformed)
		return
	case l.over:
		x.drop(dropStale)
		return
	}
	s := x.streams[id]
	if s == nil {
		s = x.begin(l, id)
	} else if !x.takeUp(s, l) {
		s = nil
	}
	switch {
	case s == nil:
	case x.executor == nil:
		s.used = x.clock.now()
		x.drop(dropAway)
	default:
		s.used = x.clock.now()
		x.send(s, s.up, x.executor, frame)
	}
}

// begin makes the stream that a frame on l names first, or returns nil and tells
// why there is none. mu is held.
func (x *exchange) begin(l *line, id string) *stream {
	if u := x.untold[owner{l.principal, id}]; u != nil {
		delete(x.untold, owner{l.principal, id})
		l.tell(id, u.reason)
		return nil
	}
	if _, ended := l.ended[id]; ended {
		x.drop(dropEnded)
		return nil
	}
	switch reachable := x.executor != nil || x.vacant != nil && l.resumable; {
	case !reachable:
		l.tell(id, relay.ReasonExecutorGone)
		return nil
	case len(l.streams) >= x.limits.StreamsPerConnection,
		x.executor != nil && len(x.executor.control) >= x.limits.StreamsPerExecutor,
		len(x.streams) >= x.capacity && !x.canYield(l),
		!x.hubwide.streams.add(l.principal, x.limits.StreamsPerPrincipal):
		l.tell(id, relay.ReasonStreamLimit)
		return nil
	}
	if len(x.streams) >= x.capacity {
		x.yield(l)
	}
	s := &stream{id: id, principal: l.principal, line: l, resumable: l.resumable, used: x.clock.now()}
	x.of[s.principal]++
	s.up, s.down = &outlet{stream: s}, &outlet{stream: s}
	x.streams[id] = s
	l.streams[s] = struct{}{}
	return s
}

// takeUp gives s to l if l may have it: a later line of the same principal. mu is
// held.
func (x *exchange) takeUp(s *stream, l *line) bool {
	switch {
	case s.principal != l.principal:
		x.drop(dropForeign)
		return false
	case s.line == l:
		return true
	case s.line != nil && s.line.number > l.number:
		x.drop(dropStale)
		return false
	}
	if s.line != nil {
		x.clear(s.down, s.line)
		delete(s.line.streams, s)
	}
	s.line, s.away, s.resumable = l, nil, l.resumable
	l.streams[s] = struct{}{}
	return true
}
