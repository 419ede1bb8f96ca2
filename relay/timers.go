package relay

import "container/heap"

// timers is a heap of the streams that have a deadline. A stream may be scheduled
// earlier than its deadline; it is rescheduled when that time comes.
type timers []*streamState

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].due.Before(t[j].due) }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].timerIndex, t[j].timerIndex = i, j
}

// Push implements heap.Interface.
func (t *timers) Push(x any) {
	st := x.(*streamState)
	st.timerIndex = len(*t)
	*t = append(*t, st)
}

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	last := len(*t) - 1
	st := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	st.timerIndex = noTimer
	return st
}

// noTimer is the index of a stream that is not scheduled.
const noTimer = -1

// update schedules a stream by its deadline.
func (t *timers) update(st *streamState) {
	due := st.deadline()
	switch {
	case due.IsZero() && st.timerIndex != noTimer:
		heap.Remove(t, st.timerIndex)
	case due.IsZero():
	case st.timerIndex == noTimer:
		st.due = due
		heap.Push(t, st)
	case due.Before(st.due):
		st.due = due
		heap.Fix(t, st.timerIndex)
	}
}
