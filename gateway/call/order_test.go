package call

import "testing"

func TestOverlap(t *testing.T) {
	for _, test := range []struct {
		one, other string
		want       bool
	}{
		{"/a", "/a", true}, {"/a", "/a/b", true}, {"/a/b/c", "/a", true}, {"/", "/a", true}, {"/a", "/", true},
		{"/a", "/b", false}, {"/a", "/ab", false}, {"/a/b", "/a/c", false},
	} {
		if got := overlap([]string{"/x", test.one}, []string{test.other}); got != test.want {
			t.Errorf("%s and %s: %v", test.one, test.other, got)
		}
	}
}

func TestPaths_ConflictingCallsKeepOrder(t *testing.T) {
	var order Paths
	enter := func(changes bool, paths ...string) *Turn {
		t := new(Turn)
		order.Enqueue(t, paths, changes)
		return t
	}
	ready := func(t *Turn) bool {
		for _, before := range t.after {
			select {
			case <-before:
			default:
				return false
			}
		}
		return true
	}
	write, read, readAgain, elsewhere := enter(true, "/d/f"), enter(false, "/d/f"), enter(false, "/d"), enter(true, "/e")
	remove := enter(true, "/d")
	if !ready(write) || ready(read) || ready(readAgain) || !ready(elsewhere) || ready(remove) {
		t.Fatal("the first requests are not ordered as expected")
	}
	write.End()
	if !ready(read) || !ready(readAgain) || ready(remove) {
		t.Fatal("after the write, exactly the reads should be ready")
	}
	read.End()
	readAgain.End()
	if !ready(remove) {
		t.Fatal("after the reads, the removal should be ready")
	}
	remove.End()
	elsewhere.End()
	if len(order.inFlight) != 0 {
		t.Error("requests in flight remain")
	}
}
