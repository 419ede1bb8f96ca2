package process

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A program that may open no more files cannot look at processes. It kills whom it can reach without, takes nobody for
// dead whom it could not look at, and does the rest when it can.
func TestWhoCannotBeLookedAtIsNotTakenForDead(t *testing.T) {
	for _, graceful := range []bool{false, true} {
		h := newTribe(t, "session", "daemon")
		s := strength{adopt: true}.supervisor(t)
		p := h.startReady(s)
		restore := openNoMoreFiles(t)
		ended := make(chan TerminateResult, 1)
		go func() {
			result, err := p.Terminate(testContext(t), Termination{Graceful: graceful, Timeout: minJudgeDelay})
			if err != nil {
				t.Error(err)
			}
			ended <- result
		}()
		<-p.Exited()
		select {
		case result := <-ended:
			t.Errorf("graceful %v: it ended with %+v, and nobody was looked at", graceful, result)
			restore()
		default:
			restore()
			if result := <-ended; !result.Verified || result.Method < MethodDescendants {
				t.Errorf("graceful %v: %+v", graceful, result)
			}
		}
		if left := h.alive(); len(left) > 0 {
			t.Errorf("graceful %v: %d survive", graceful, len(left))
		}
		exit(t, p)
	}
}

// openNoMoreFiles makes every attempt to open a file fail until the returned function was called.
func openNoMoreFiles(t *testing.T) (restore func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: before.Max}, nil); err != nil {
		t.Fatal(err)
	}
	restore = func() {
		if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &before, nil); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(restore)
	return restore
}
