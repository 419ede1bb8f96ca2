package client

import (
	"syscall"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func TestShellCode(t *testing.T) {
	code := func(n int32) *execwirev1.ExitRecord {
		return &execwirev1.ExitRecord{Status: &execwirev1.ExitRecord_ExitCode{ExitCode: n}}
	}
	signal := func(n syscall.Signal) *execwirev1.ExitRecord {
		return &execwirev1.ExitRecord{Status: &execwirev1.ExitRecord_Signal{Signal: execwirev1.Signal(n)}}
	}
	for _, test := range []struct {
		record *execwirev1.ExitRecord
		want   int
	}{
		{code(0), 0},
		{code(255), 255},
		{signal(syscall.SIGKILL), 137},
		{signal(64), 192},
		{&execwirev1.ExitRecord{Cause: execwirev1.ExitCause_EXIT_CAUSE_LOST}, 255},
	} {
		exit := newExit(test.record)
		if got := exit.ShellCode(); got != test.want {
			t.Errorf("%v: got %d, want %d", test.record, got, test.want)
		}
		if got := exit.HasStatus(); got != (test.want != 255 || test.record.GetExitCode() == 255) {
			t.Errorf("%v: has a status: %t", test.record, got)
		}
	}
}
