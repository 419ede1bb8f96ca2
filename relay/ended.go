package relay

// maxEndedStreams is how many ended streams an endpoint remembers, so that late
// frames do not begin them anew.
const maxEndedStreams = 4096

// endedStreams maps the most recently ended streams to their reasons. The zero
// value is ready to use.
type endedStreams struct {
	reasons map[string]string
	order   []string // a ring buffer once it is full
	oldest  int
}

// add records why a stream ended.
func (m *endedStreams) add(id, reason string) {
	if m.reasons == nil {
		m.reasons = map[string]string{}
	}
	if _, known := m.reasons[id]; known {
		m.reasons[id] = reason
		return
	}
	if len(m.order) < maxEndedStreams {
		m.order = append(m.order, id)
	} else {
		delete(m.reasons, m.order[m.oldest])
		m.order[m.oldest] = id
		m.oldest = (m.oldest + 1) % maxEndedStreams
	}
	m.reasons[id] = reason
}

// has reports whether the stream is recorded.
func (m *endedStreams) has(id string) bool {
	_, known := m.reasons[id]
	return known
}

// remove allows the id to be used again. It stays in order, so an id that is
// added again may be evicted early.
func (m *endedStreams) remove(id string) { delete(m.reasons, id) }
