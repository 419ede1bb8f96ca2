package relay

import "time"

// Bounds of the retransmission timeout.
const (
	initialTimeout = time.Second
	minTimeout     = 200 * time.Millisecond
	maxTimeout     = 10 * time.Second
)

// rttEstimator computes the retransmission timeout as RFC 6298 does. The zero
// value has no samples.
type rttEstimator struct {
	srtt, rttvar time.Duration
	measured     bool
	backoff      uint // doublings since the last acknowledgement
}

// addSample records the time from sending a segment, once, to its
// acknowledgement.
func (r *rttEstimator) addSample(sample time.Duration) {
	if !r.measured {
		r.srtt, r.rttvar, r.measured = sample, sample/2, true
		return
	}
	r.rttvar += ((r.srtt - sample).Abs() - r.rttvar) / 4
	r.srtt += (sample - r.srtt) / 8
}

// timeout returns the retransmission timeout with backoff.
func (r *rttEstimator) timeout() time.Duration {
	timeout := initialTimeout
	if r.measured {
		timeout = r.srtt + 4*r.rttvar
	}
	timeout = min(max(timeout, minTimeout), maxTimeout)
	return min(timeout<<min(r.backoff, 10), maxTimeout)
}
