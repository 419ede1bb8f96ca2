package relay

// rememberedStreams is how many streams that have ended an endpoint remembers, so
// that frames on the way do not begin them anew.
const rememberedStreams = 4096

// memory has why the latest streams ended, by id. The zero value is empty.
type memory struct {
	reasons map[string]string
	order   []string // a ring once it is full
	oldest  int
}

// remember notes why a stream ended.
func (m *memory) remember(id, reason string) {
	if m.reasons == nil {
		m.reasons = map[string]string{}
	}
	if _, known := m.reasons[id]; known {
		m.reasons[id] = reason
		return
	}
	if len(m.order) < rememberedStreams {
		m.order = append(m.order, id)
	} else {
		delete(m.reasons, m.order[m.oldest])
		m.order[m.oldest] = id
		m.oldest = (m.oldest + 1) % rememberedStreams
	}
	m.reasons[id] = reason
}

// has reports whether it remembers the stream.
func (m *memory) has(id string) bool {
	_, known := m.reasons[id]
	return known
}

// forget makes the id one that may be used again. Its place in the order stays,
// which only makes it be forgotten earlier if it is remembered again.
func (m *memory) forget(id string) { delete(m.reasons, id) }
