package client

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// lostBeforeStarted runs something whose start is never answered.
func lostBeforeStarted(t *testing.T, c *Client) *LostError {
	t.Helper()
	_, err := c.Run(t.Context(), RunOptions{Process: direct("x"), Grace: new(time.Hour)})
	var lost *LostError
	if !errors.As(err, &lost) || lost.Started {
		t.Fatalf("got %v, want a LostError of a process that may not have started", err)
	}
	if status.Code(lost.Err) != codes.Unavailable {
		t.Errorf("lost because of %v, want the failure of the last attempt", lost.Err)
	}
	return lost
}

// startsCounted counts the starts that arrive; none is answered.
func startsCounted(n *int, answer func() error) script {
	return func(stream serverStream) error {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		*n++
		return answer()
	}
}

// TestRunDoesNotRepeatAStartThatBrokeLate loses the answer and notices only when
// the server may have forgotten the process that ran.
func TestRunDoesNotRepeatAStartThatBrokeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts := 0
		fake, c := newFake(t)
		fake.beyond = startsCounted(&starts, func() error {
			time.Sleep(keepaliveInterval + keepaliveTimeout)
			return errCut
		})
		lostBeforeStarted(t, c)
		if starts != 1 {
			t.Errorf("started %d times, want once", starts)
		}
	})
}

func TestRunStopsRepeatingAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts := 0
		fake, c := newFake(t)
		begin := time.Now()
		var last time.Duration
		fake.beyond = startsCounted(&starts, func() error {
			last = time.Since(begin)
			return errCut
		})
		lostBeforeStarted(t, c)
		if starts < 2 || last > repeatWithin {
			t.Errorf("started %d times, the last after %v; want repetitions for %v", starts, last, repeatWithin)
		}
	})
}

// TestRunDoesNotRepeatAStartAfterASlowConnect is in time when it begins to
// connect and late when it has.
func TestRunDoesNotRepeatAStartAfterASlowConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts := 0
		fake, c := newFake(t)
		begin := time.Now()
		fake.beyond = startsCounted(&starts, func() error {
			fake.mu.Lock()
			fake.onDial = func() { time.Sleep(time.Until(begin.Add(repeatWithin + time.Second))) }
			fake.mu.Unlock()
			time.Sleep(repeatWithin - time.Second)
			fake.cutConnections()
			return errCut
		})
		lostBeforeStarted(t, c)
		if took := time.Since(begin); starts != 1 || took != repeatWithin+time.Second {
			t.Errorf("started %d times, gave up after %v; want once, and once connected", starts, took)
		}
	})
}
