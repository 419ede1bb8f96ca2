package metrics

import (
	"slices"
	"testing"
)

func TestTotalAndDistribution_AddSeries(t *testing.T) {
	set := New(Server, "test")
	starts, times := set.Counter("execwire_process_starts_total"), set.Histogram("execwire_process_start_duration_seconds")
	all := func(map[string]string) bool { return true }
	if bounds, events := Distribution(times, all); Total(starts) != 0 || len(bounds) != 0 || len(events) != 0 {
		t.Errorf("without events there are %v and %v", bounds, events)
	}
	starts.WithLabelValues("none").Add(2)
	starts.WithLabelValues("landlock").Inc()
	for label, seconds := range map[string][]float64{"none": {0.0001, 0.003, 99}, "landlock": {0.003}} {
		for _, s := range seconds {
			times.WithLabelValues(label).Observe(s)
		}
	}
	bounds, events := Distribution(times, all)
	if Total(starts) != 3 || !slices.Equal(bounds, startBuckets) || !slices.Equal(events, []uint64{1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1}) {
		t.Errorf("%d starts, %v, %v", Total(starts), bounds, events)
	}
	_, events = Distribution(times, func(labels map[string]string) bool { return labels["sandbox"] == "landlock" })
	if !slices.Equal(events, []uint64{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}) {
		t.Errorf("of landlock %v", events)
	}
}
