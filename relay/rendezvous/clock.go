package rendezvous

import "time"

// clock provides time, so that tests can control it.
type clock interface {
	now() time.Time
	// afterFunc calls f in its own goroutine after d, unless stop is called
	// first.
	afterFunc(d time.Duration, f func()) (stop func())
}

type realClock struct{}

func (realClock) now() time.Time { return time.Now() }

func (realClock) afterFunc(d time.Duration, f func()) func() {
	timer := time.AfterFunc(d, f)
	return func() { timer.Stop() }
}
