package client

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// lostBeforeStarted runs a process whose start is never answered.
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

// The answer is lost, which is detected only when the server may have forgotten the
// process.
func TestRun_StartLostLate_IsNotRepeated(t *testing.T) {
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

func TestRun_UnansweredStart_IsNotRepeatedForever(t *testing.T) {
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
		if starts < 2 || last > startRetryTimeout {
			t.Errorf("started %d times, the last after %v; want repetitions for %v", starts, last, startRetryTimeout)
		}
	})
}

// The repetition begins to connect in time, and is connected too late.
func TestRun_SlowReconnect_DoesNotRepeatStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts := 0
		fake, c := newFake(t)
		begin := time.Now()
		fake.beyond = startsCounted(&starts, func() error {
			fake.mu.Lock()
			fake.onDial = func() { time.Sleep(time.Until(begin.Add(startRetryTimeout + time.Second))) }
			fake.mu.Unlock()
			time.Sleep(startRetryTimeout - time.Second)
			fake.cutConnections()
			return errCut
		})
		lostBeforeStarted(t, c)
		if took := time.Since(begin); starts != 1 || took != startRetryTimeout+time.Second {
			t.Errorf("started %d times, gave up after %v; want once, and once connected", starts, took)
		}
	})
}

// The answer is lost, and another run of the server gets the retry.
func TestRun_ServerRestartedBeforeAnswer_IsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ages []time.Duration
		fake, c := newFake(t)
		fake.beyond = func(stream serverStream) error {
			request, err := stream.Recv()
			if err != nil {
				return err
			}
			ages = append(ages, request.GetStart().GetProcess().GetFirstSentAgo().AsDuration())
			if len(ages) > 1 {
				return serverError(codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND)
			}
			time.Sleep(time.Second)
			return errCut
		}
		_, err := c.Run(t.Context(), RunOptions{Process: direct("x"), Grace: new(time.Hour)})
		var lost *LostError
		if !errors.As(err, &lost) || lost.Started || !errors.Is(err, ErrRestarted) {
			t.Errorf("got %v, want that the server was restarted and the start is unknown", err)
		}
		if len(ages) != 2 || ages[0] != 0 || ages[1] < time.Second {
			t.Errorf("the starts were first sent %v ago, want 0 and at least 1s", ages)
		}
	})
}
