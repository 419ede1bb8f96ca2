//go:build linux

package innerexec

import (
	"slices"
	"syscall"
	"testing"
)

func TestOriginal_RestoresTheProgramsEntries(t *testing.T) {
	got := original([]string{"PWD=/", "0.A=1", "GOGC=off", "1.A=2", "2.", "3..x=y", "4.5.z", "x.B=1", "12", ".C=1"})
	if want := []string{"A=1", "A=2", "", ".x=y", "5.z"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSetLimit_RefusesWhatIsNoLimit(t *testing.T) {
	for _, limits := range []string{"x", "1:2:3:4", "1,2", "1:2", "1:-2:3"} {
		if _, errno := setLimit(limits); errno != syscall.EINVAL {
			t.Errorf("%q: %v", limits, errno)
		}
	}
}

// TestSetLimit_SetsTheFirst sets the limits that hold already.
func TestSetLimit_SetsTheFirst(t *testing.T) {
	var before, after syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_CORE, &before); err != nil {
		t.Fatal(err)
	}
	const lower = "4:0:0" // RLIMIT_CORE
	rest, errno := setLimit(lower + ",7:1:2")
	if errno != 0 || rest != "7:1:2" {
		t.Errorf("rest %q, %v", rest, errno)
	}
	if err := syscall.Getrlimit(syscall.RLIMIT_CORE, &after); err != nil || after != (syscall.Rlimit{}) {
		t.Errorf("was %+v, is %+v: %v", before, after, err)
	}
}
