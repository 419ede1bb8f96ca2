package relay

import "slices"

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
	waiting map[string]bool // by id: whether it is a reset
}

// add has an answer sent. A reset takes the place of an acknowledgement of its
// stream.
func (a *answers) add(one answer) {
	reset, waits := a.waiting[one.id]
	switch {
	case waits && !reset && one.reason != "":
		at := slices.IndexFunc(a.queue, func(other answer) bool { return other.id == one.id })
		a.queue[at] = one
	case waits || len(a.queue) >= a.limit:
		return
	default:
		a.queue = append(a.queue, one)
	}
	if a.waiting == nil {
		a.waiting = map[string]bool{}
	}
	a.waiting[one.id] = one.reason != ""
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
