package relay

import "container/heap"

// timers are the streams that have something due, the soonest first. A stream may
// be in at an earlier time than its own, and is put back then.
type timers []*line

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].due.Before(t[j].due) }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].timer, t[j].timer = i, j
}

// Push implements heap.Interface.
func (t *timers) Push(x any) {
	one := x.(*line)
	one.timer = len(*t)
	*t = append(*t, one)
}

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	last := len(*t) - 1
	one := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	one.timer = noTimer
	return one
}

// noTimer is the place of a stream that has nothing due.
const noTimer = -1

// arrange puts a stream where its deadline belongs.
func (t *timers) arrange(one *line) {
	due := one.deadline()
	switch {
	case due.IsZero() && one.timer != noTimer:
		heap.Remove(t, one.timer)
	case due.IsZero():
	case one.timer == noTimer:
		one.due = due
		heap.Push(t, one)
	case due.Before(one.due):
		one.due = due
		heap.Fix(t, one.timer)
	}
}
