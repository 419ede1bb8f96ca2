package bench

import (
	"github.com/execwire/execwire/integration/harness"
	"testing"
)

func TestQuantiles(t *testing.T) {
	s := harness.Samples[float64]{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := s.Quantile(q); got != want {
			t.Errorf("quantile %v of %v is %v, want %v", q, s, got, want)
		}
	}
	if s[0] != 5 {
		t.Error("quantile changed the samples")
	}
}
