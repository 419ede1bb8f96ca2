package integration

import (
	"slices"
	"testing"
	"time"
)

// samples are measurements of one thing, in the order in which they were made.
type samples[T time.Duration | float64] []T

// quantile is the measurement below which the share q of all lies; 0.5 is the
// median. There must be one measurement at least.
func (s samples[T]) quantile(q float64) T {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func (s samples[T]) median() T { return s.quantile(0.5) }

// timed measures one call.
func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

func TestQuantiles(t *testing.T) {
	s := samples[float64]{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := s.quantile(q); got != want {
			t.Errorf("quantile %v of %v is %v, want %v", q, s, got, want)
		}
	}
	if s[0] != 5 {
		t.Error("quantile changed the samples")
	}
}
