package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

const (
	// silentAfter is for how long nothing has to be heard of a server until its
	// connection counts as lost. It may still exist: a relay keeps it for longer, for
	// an executor that is away.
	silentAfter = 10 * time.Second
	// silenceInterval is how often that is looked at.
	silenceInterval = time.Second
)

// silence is why a stream is given up over whose connection nothing comes.
type silence struct{ since time.Time }

func (*silence) Error() string {
	return fmt.Sprintf("nothing has been heard of the server for %v", silentAfter)
}

// endInSilence calls cancel with a *silence when nothing has been heard of the server
// for silentAfter. The caller calls stop, which waits until it does not any more.
func (l *lifetime) endInSilence(cancel context.CancelCauseFunc) (stop func()) {
	if l.heardAt == nil {
		return func() {}
	}
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		ticker := time.NewTicker(silenceInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-over:
				return
			}
			if heard := l.heardAt(); !heard.IsZero() && time.Since(heard) > silentAfter {
				cancel(&silence{since: heard})
				return
			}
		}
	})
	return func() {
		close(over)
		watching.Wait()
	}
}

// orSilence returns why a stream ended with err, whose context is ctx.
func orSilence(ctx context.Context, err error) error {
	var silent *silence
	if e, ok := err.(*Error); !ok || e.Code != codes.Canceled || !errors.As(context.Cause(ctx), &silent) {
		return err
	}
	return &Error{Code: codes.Unavailable, Message: silent.Error(), lostAt: silent.since}
}

// lostAt returns when the connection was lost of a call that has failed with err.
func lostAt(err error) time.Time {
	var e *Error
	if errors.As(err, &e) && !e.lostAt.IsZero() {
		return e.lostAt
	}
	return time.Now()
}
