package client

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/backoff"
)

// singleByteStreams returns streams that each send one byte and fail with err.
func singleByteStreams(n int, err error) []script {
	var scripts []script
	for i := range uint64(n) {
		scripts = append(scripts, sends(err, started(0), events(stdout(i+1, i, "a"))))
	}
	last := uint64(n)
	return append(scripts, sends(nil, started(0), events(exited(last+1, 0), closed(last+2, last))))
}

// A bad connection that makes progress is neither given up nor waited for longer each
// time.
func TestRun_Progress_ResetsFailures(t *testing.T) {
	const failures = 2 * maxUnexpected
	for _, err := range []error{errCut, status.Error(codes.Internal, "a proxy broke it")} {
		t.Run(fmt.Sprint(status.Code(err)), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, c := newFake(t, singleByteStreams(failures, err)...)
				begin := time.Now()
				exit, err := c.Run(t.Context(), RunOptions{Process: direct("x")})
				if err != nil || exit.Resumed != failures || exit.StdoutBytes != failures {
					t.Fatalf("got %+v, %v", exit, err)
				}
				if took := time.Since(begin); took > failures*backoff.DefaultMin {
					t.Errorf("took %v: the waits grew", took)
				}
			})
		})
	}
}

func TestRun_WaitsForRetryAfter(t *testing.T) {
	const asked = 1500 * time.Millisecond
	for reason, code := range map[execwirev1.ErrorReason]codes.Code{
		execwirev1.ErrorReason_ERROR_REASON_DRAINING:             codes.Unavailable,
		execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_CONNECTIONS: codes.ResourceExhausted,
	} {
		busy := serverError(code, reason, func(st *status.Status) *status.Status {
			st, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(asked)})
			if err != nil {
				t.Fatal(err)
			}
			return st
		})
		t.Run(reason.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, c := newFake(t, singleByteStreams(1, busy)...)
				begin := time.Now()
				if _, err := c.Run(t.Context(), RunOptions{Process: direct("x")}); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took != asked {
					t.Errorf("came back after %v, was asked to after %v", took, asked)
				}
			})
		})
	}
}
