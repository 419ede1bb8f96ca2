package process

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Without free descriptors processes cannot be listed. The kill then reaches the group and the
// control group, counts no process as dead that it could not check, and continues when it can scan
// again.
func TestTerminate_NoDescriptorsLeft_VerifiesOnlyAfterScan(t *testing.T) {
	for _, graceful := range []bool{false, true} {
		h := newHostileTree(t, "session", "daemon")
		s := killSetup{adopt: true}.supervisor(t)
		p := h.startReady(s)
		restore := exhaustDescriptors(t)
		ended := make(chan TerminateResult, 1)
		go func() {
			result, err := p.Terminate(testContext(t), Termination{Graceful: graceful, Timeout: minOrphanCheckDelay})
			if err != nil {
				t.Error(err)
			}
			ended <- result
		}()
		<-p.Exited()
		select {
		case result := <-ended:
			t.Errorf("graceful %v: it ended with %+v without a scan", graceful, result)
			restore()
		default:
			restore()
			if result := <-ended; !result.Verified || result.Method < MethodDescendants {
				t.Errorf("graceful %v: %+v", graceful, result)
			}
		}
		if left := h.alive(); len(left) > 0 {
			t.Errorf("graceful %v: %d are alive", graceful, len(left))
		}
		waitClosed(t, p)
	}
}

// exhaustDescriptors makes opening a file fail until restore is called.
func exhaustDescriptors(t *testing.T) (restore func()) {
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
