package rendezvous

import "github.com/execwire/execwire/relay"

// canEvict reports whether a stream may be evicted for one more of c: the
// principal of c has fewer streams at this executor than another one, or c has
// fewer than another websocket of the principal with the most. The newcomer never
// ends up with more than its victim, so that two of them do not evict each other
// in turns. mu is held.
func (r *executorRoute) canEvict(c *peerConn) bool {
	principal, most := r.heaviestPrincipal(c)
	if principal != c.principal {
		return most > r.streamsOf[c.principal]+1
	}
	return r.heaviestConn(c) > len(c.streams)+1
}

// heaviestPrincipal returns the principal with the most streams and their number:
// the principal of c unless another has two more. mu is held.
func (r *executorRoute) heaviestPrincipal(c *peerConn) (principal string, most int) {
	principal, most = c.principal, r.streamsOf[c.principal]+1
	for other, n := range r.streamsOf {
		if n > most || n == most && principal != c.principal && other < principal {
			principal, most = other, n
		}
	}
	return principal, most
}

// heaviestConn returns the number of streams of the websocket that has the most
// among those of the principal of c. mu is held.
func (r *executorRoute) heaviestConn(c *peerConn) (most int) {
	for other := range r.harnesses {
		if other.principal == c.principal {
			most = max(most, len(other.streams))
		}
	}
	return most
}

// evictStream ends a stream to make space for one of c: of the principal with the
// most, on its websocket with the most, the least recently used. canEvict has
// returned true. mu is held.
func (r *executorRoute) evictStream(c *peerConn) {
	principal, _ := r.heaviestPrincipal(c)
	var victim *stream
	for _, s := range r.streams {
		if s.principal == principal && (victim == nil || s.evictedBefore(victim)) {
			victim = s
		}
	}
	if victim != nil {
		r.endStream(victim, relay.ReasonStreamLimit, true, true)
	}
}

func (s *stream) evictedBefore(other *stream) bool {
	if a, b := s.connStreams(), other.connStreams(); a != b {
		return a > b
	}
	if !s.lastUsed.Equal(other.lastUsed) {
		return s.lastUsed.Before(other.lastUsed)
	}
	return s.id < other.id
}

// connStreams returns how many streams the websocket of s has; 0 while the harness
// is absent.
func (s *stream) connStreams() int {
	if s.harness == nil {
		return 0
	}
	return len(s.harness.streams)
}
