package rendezvous

import "github.com/execwire/execwire/relay"

// canYield reports whether a stream gives way to one more of l, because l's
// principal has fewer at this executor than another one, or l fewer than another
// websocket of the principal that has the most. Who is given a place has no more than
// who gives it, so that they do not take it from each other in turns. mu is held.
func (x *exchange) canYield(l *line) bool {
	principal, most := x.heaviestPrincipal(l)
	if principal != l.principal {
		return most > x.of[l.principal]+1
	}
	return x.heaviestLine(l) > len(l.streams)+1
}

// heaviestPrincipal returns the principal with the most streams, and how many: that
// of l if none has two more than it. mu is held.
func (x *exchange) heaviestPrincipal(l *line) (principal string, most int) {
	principal, most = l.principal, x.of[l.principal]+1
	for other, n := range x.of {
		if n > most || n == most && principal != l.principal && other < principal {
			principal, most = other, n
		}
	}
	return principal, most
}

// heaviestLine returns how many streams the websocket has that has the most of the
// principal of l. mu is held.
func (x *exchange) heaviestLine(l *line) (most int) {
	for other := range x.lines {
		if other.principal == l.principal {
			most = max(most, len(other.streams))
		}
	}
	return most
}

// yield ends a stream so that l has a place for one: of the principal with the most,
// at its websocket with the most, the one that was used least recently. canYield
// has reported true. mu is held.
func (x *exchange) yield(l *line) {
	principal, _ := x.heaviestPrincipal(l)
	var chosen *stream
	for _, s := range x.streams {
		if s.principal == principal && (chosen == nil || s.yieldsBefore(chosen)) {
			chosen = s
		}
	}
	if chosen != nil {
		x.end(chosen, relay.ReasonStreamLimit, true, true)
	}
}

func (s *stream) yieldsBefore(other *stream) bool {
	if a, b := s.beside(), other.beside(); a != b {
		return a > b
	}
	if !s.used.Equal(other.used) {
		return s.used.Before(other.used)
	}
	return s.id < other.id
}

// beside is how many streams the websocket of s has; 0 while that is away.
func (s *stream) beside() int {
	if s.line == nil {
		return 0
	}
	return len(s.line.streams)
}
