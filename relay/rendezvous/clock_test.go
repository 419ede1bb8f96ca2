package rendezvous

import (
	"slices"
	"time"
)

// fakeClock is a clock that tests advance. It is for one goroutine.
type fakeClock struct {
	time   time.Time
	timers []*fakeTimer // ordered by when they are due, then by when they were set
}

type fakeTimer struct {
	due time.Time
	f   func()
}

func newFakeClock() *fakeClock { return &fakeClock{time: time.Unix(1_800_000_000, 0)} }

func (c *fakeClock) now() time.Time { return c.time }

func (c *fakeClock) afterFunc(d time.Duration, f func()) func() {
	timer := &fakeTimer{due: c.time.Add(d), f: f}
	i := slices.IndexFunc(c.timers, func(t *fakeTimer) bool { return t.due.After(timer.due) })
	if i < 0 {
		i = len(c.timers)
	}
	c.timers = slices.Insert(c.timers, i, timer)
	return func() { c.timers = slices.DeleteFunc(c.timers, func(t *fakeTimer) bool { return t == timer }) }
}

// advance advances the clock and runs timers.
func (c *fakeClock) advance(d time.Duration) {
	end := c.time.Add(d)
	for len(c.timers) > 0 && !c.timers[0].due.After(end) {
		timer := c.timers[0]
		c.timers = c.timers[1:]
		c.time = timer.due
		timer.f()
	}
	c.time = end
}
