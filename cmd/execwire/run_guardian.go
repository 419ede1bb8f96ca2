package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/process"
)

// errRunUnguarded is why a run ends whose guardian was killed.
var errRunUnguarded = errors.New("the guardian was killed")

// unguardedPatience is how long a run may take to end once its guardian is gone and
// its processes have been ended: it blocks where nobody reads its output.
const unguardedPatience = time.Second

// guardEmbedded runs this program once more, under this process as its guardian, if
// the server inside it is to have one. done is whether it has, with how that ended.
func guardEmbedded() (done bool, err error) {
	cfg, err := daemon.LoadConfig("", os.Environ())
	if err != nil || cfg.Guardian != "on" {
		return err != nil, err
	}
	return true, guard(process.Guarding{Cgroups: cfg.Cgroup, SharesGroup: true})
}

// underGuardian calls run with a context that ends with the guardian, and with the
// signals that the guardian got. closeServer ends the server inside this program with
// all processes, which is done in any case when the guardian is gone: this program
// then ends, too.
func underGuardian(
	ctx context.Context, guardian *process.GuardianWatch, closeServer func(),
	run func(context.Context, <-chan syscall.Signal) error,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	passed := make(chan syscall.Signal, 16)
	gone, forget := watchGuardian(guardian, func(sig syscall.Signal) {
		select {
		case passed <- sig:
		default: // the run has more of them than it can take
		}
	})
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-gone:
			cancel(errRunUnguarded)
			closeServer()
			patience := time.NewTimer(unguardedPatience)
			defer patience.Stop()
			select {
			case <-over:
			case <-patience.C:
				os.Exit(codeFailed)
			}
		case <-over:
		}
	})
	err := run(ctx, passed)
	close(over)
	watching.Wait()
	forget()
	return err
}
