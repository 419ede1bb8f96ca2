package relay

// leastAnswers is how many answers of no stream may wait at least.
const leastAnswers = 1024

// answer is a frame of a stream that this end does not have, or no longer: an
// acknowledgement of nothing, or a reset.
type answer struct {
	id     string
	ack    uint32
	reason string // of a reset; empty for an acknowledgement
}

// answers are to be sent before all else. There is one for each stream at most,
// and those that find no room are not sent: whoever needs them asks again.
type answers struct {
	limit   int
	queue   []answer
	waiting map[string]bool
}

// add has an answer sent.
func (a *answers) add(one answer) {
	if a.waiting[one.id] || len(a.queue) >= a.limit {
		return
	}
	if a.waiting == nil {
		a.waiting = map[string]bool{}
	}
	a.waiting[one.id] = true
	a.queue = append(a.queue, one)
}

// next returns the oldest; false if there is none.
func (a *answers) next() (answer, bool) {
	if len(a.queue) == 0 {
		return answer{}, false
	}
	one := a.queue[0]
	if a.queue = a.queue[1:]; len(a.queue) == 0 {
		a.queue = nil
	}
	delete(a.waiting, one.id)
	return one, true
}

// keepResets drops the acknowledgements: after a carrier was replaced they are
// asked for again.
func (a *answers) keepResets() {
	kept := a.queue[:0]
	for _, one := range a.queue {
		if one.reason != "" {
			kept = append(kept, one)
		} else {
			delete(a.waiting, one.id)
		}
	}
	a.queue = kept
}
