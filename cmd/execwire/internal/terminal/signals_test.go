//go:build unix

package terminal

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"

	"github.com/execwire/execwire/client"
)

// A signal waits for a connection that was just lost, and applies to this program when the loss is
// reported.
func TestRun_SignalBeforeALossIsReported_Interrupts(t *testing.T) {
	before := LossDelay
	defer func() { LossDelay = before }()
	LossDelay = 0
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	_, _, err = Run(t.Context(), client.RunOptions{}, Options{In: null, Out: null, Err: null},
		func(ctx context.Context, options client.RunOptions) (client.Exit, error) {
			if err := syscall.Kill(os.Getpid(), syscall.SIGQUIT); err != nil {
				return client.Exit{}, err
			}
			for len(options.Signals) == 0 {
				runtime.Gosched()
			}
			options.OnLost(errors.New("lost"))
			<-ctx.Done()
			return client.Exit{}, context.Cause(ctx)
		})
	if !errors.Is(err, ErrInterrupted) {
		t.Error(err)
	}
}

// timeout(1) sends SIGTERM twice. The second may arrive when the process has ended by the
// first one, and must not end this program. If it does, it ends the test.
func TestRun_LateDuplicateOfSIGTERM_IsIgnored(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	defer signal.Reset(syscall.SIGTERM)
	self := os.Getpid()
	exit, _, err := Run(t.Context(), client.RunOptions{}, Options{In: null, Out: null, Err: null},
		func(_ context.Context, options client.RunOptions) (client.Exit, error) {
			if err := syscall.Kill(self, syscall.SIGTERM); err != nil {
				return client.Exit{}, err
			}
			<-options.Signals
			return client.Exit{Code: 7}, nil
		})
	if err != nil || exit.Code != 7 {
		t.Errorf("exit %+v, %v", exit, err)
	}
	if err := syscall.Kill(self, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}
