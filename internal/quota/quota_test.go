package quota

import "testing"

func TestCounter_BoundsEachOwner(t *testing.T) {
	c := Counter{Most: 2}
	for _, step := range []struct {
		owner string
		want  bool
		held  int
	}{{"a", true, 1}, {"a", true, 2}, {"a", false, 2}, {"b", true, 1}} {
		if got := c.Acquire(step.owner); got != step.want || c.Held(step.owner) != step.held {
			t.Errorf("%+v: got %v, %d are held", step, got, c.Held(step.owner))
		}
	}
	c.Release("a")
	if !c.Acquire("a") {
		t.Error("what was released cannot be acquired")
	}
	for _, owner := range []string{"a", "a", "b"} {
		c.Release(owner)
	}
	if len(c.held) != 0 {
		t.Errorf("owners without anything are remembered: %v", c.held)
	}
	if new(Counter).Acquire("a") {
		t.Error("the zero value allows one")
	}
}
