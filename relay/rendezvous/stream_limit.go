package rendezvous

// mayEvict reports whether a stream may be evicted for one more of c: unless the
// principal of c has the most at this executor and c has no fewer than its other
// websockets. The newcomer never ends up with more than its victim, so that two of
// them do not evict each other in turns. Refused streams arrive at any rate, so it
// does not look at each stream. mu is held.
func (r *executorRoute) mayEvict(c *peerConn) bool {
	if r.heaviestPrincipal(c.principal) != c.principal {
		return true
	}
	for other := range r.harnesses {
		if other.principal == c.principal && len(other.streams) > len(c.streams)+1 {
			return true
		}
	}
	return false
}

// evictable returns the stream to evict for one more of c, which may evict one: of
// the principal with the most at this executor, on its websocket with the most, the
// least recently used. mu is held.
func (r *executorRoute) evictable(c *peerConn) (victim *stream) {
	principal := r.heaviestPrincipal(c.principal)
	for _, s := range r.streams {
		if s.principal == principal && (victim == nil || s.evictedBefore(victim)) {
			victim = s
		}
	}
	return victim
}

// heaviestPrincipal returns the principal with the most streams: the newcomer
// unless another has two more. mu is held.
func (r *executorRoute) heaviestPrincipal(newcomer string) string {
	principal, most := newcomer, r.streamsOf[newcomer]+1
	for other, n := range r.streamsOf {
		if n > most || n == most && principal != newcomer && other < principal {
			principal, most = other, n
		}
	}
	return principal
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
