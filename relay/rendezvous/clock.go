package rendezvous

import "time"

// clock is the time, which tests make pass themselves.
type clock interface {
	now() time.Time
	// afterFunc calls f in a goroutine of its own once d has passed, unless stop
	// is called before.
	afterFunc(d time.Duration, f func()) (stop func())
}

type realClock struct{}

func (realClock) now() time.Time { return time.Now() }

func (realClock) afterFunc(d time.Duration, f func()) func() {
	timer := time.AfterFunc(d, f)
	return func() { timer.Stop() }
}
