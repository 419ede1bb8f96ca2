package sandbox

import "testing"

func TestEveryBackendWorksHere(t *testing.T) {
	s := Probe(t.Context(), Options{})
	defer s.Close()
	for _, status := range s.Statuses() {
		if status.Err != nil {
			t.Errorf("%v: %v", status.Backend, status.Err)
		}
	}
}
