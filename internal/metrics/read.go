package metrics

import "github.com/prometheus/client_golang/prometheus"

// Total returns the sum of a counter over all values of its labels. It does not block.
func Total(counter *prometheus.CounterVec) uint64 {
	registry, total := prometheus.NewRegistry(), 0.0
	registry.MustRegister(counter)
	families, _ := registry.Gather() // of a counter it cannot fail
	for _, family := range families {
		for _, one := range family.GetMetric() {
			total += one.GetCounter().GetValue()
		}
	}
	return uint64(total)
}

// Distribution returns the sum of those series of a histogram that counts is true for, which
// gets the values of their labels by name: the upper bounds of the classes, and the events of
// each, with one more for those above all. Without events both are empty. It does not block.
func Distribution(histogram *prometheus.HistogramVec, counts func(labels map[string]string) bool) (bounds []float64, events []uint64) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(histogram)
	families, _ := registry.Gather() // of a histogram it cannot fail
	for _, family := range families {
		for _, one := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range one.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if !counts(labels) {
				continue
			}
			buckets, below := one.GetHistogram().GetBucket(), uint64(0)
			if bounds == nil {
				bounds, events = make([]float64, len(buckets)), make([]uint64, len(buckets)+1)
			}
			for i, bucket := range buckets { // they are cumulative
				bounds[i] = bucket.GetUpperBound()
				events[i] += bucket.GetCumulativeCount() - below
				below = bucket.GetCumulativeCount()
			}
			events[len(buckets)] += one.GetHistogram().GetSampleCount() - below
		}
	}
	return bounds, events
}
