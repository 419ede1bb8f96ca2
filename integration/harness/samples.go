package harness

import (
	"slices"
	"time"
)

// Samples are measurements of one thing, in the order in which they were made.
type Samples[T time.Duration | float64] []T

// Quantile returns the q-quantile; 0.5 is the median. There must be a measurement.
func (s Samples[T]) Quantile(q float64) T {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// Median returns the median.
func (s Samples[T]) Median() T { return s.Quantile(0.5) }

// Timed measures one call.
func Timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}
