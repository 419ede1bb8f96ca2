package relay

import "time"

// Bounds of the time after which a segment is sent again.
const (
	firstTimeout = time.Second
	leastTimeout = 200 * time.Millisecond
	mostTimeout  = 10 * time.Second
)

// roundTrip estimates, as RFC 6298 says, after what time without an
// acknowledgement a segment counts as lost. The zero value has measured nothing.
type roundTrip struct {
	smooth, varies time.Duration
	measured       bool
	backoff        uint // doublings since something was acknowledged
}

// measure takes in the time from sending a segment, once, to its acknowledgement.
func (r *roundTrip) measure(sample time.Duration) {
	if !r.measured {
		r.smooth, r.varies, r.measured = sample, sample/2, true
		return
	}
	r.varies += ((r.smooth - sample).Abs() - r.varies) / 4
	r.smooth += (sample - r.smooth) / 8
}

// timeout returns the time with its doublings.
func (r *roundTrip) timeout() time.Duration {
	timeout := firstTimeout
	if r.measured {
		timeout = r.smooth + 4*r.varies
	}
	timeout = min(max(timeout, leastTimeout), mostTimeout)
	return min(timeout<<min(r.backoff, 10), mostTimeout)
}
