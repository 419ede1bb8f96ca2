package execserver

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestLinuxErrno_AgreesWithTheSystem(t *testing.T) {
	for number := -1; number < 1000; number++ {
		if got, want := linuxErrno(number), unix.ErrnoName(unix.Errno(max(number, 0))); got != want {
			t.Errorf("linuxErrno(%d) = %q, want %q", number, got, want)
		}
	}
}
