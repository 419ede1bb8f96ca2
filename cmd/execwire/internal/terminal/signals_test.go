//go:build unix

package terminal

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/execwire/execwire/client"
)

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
