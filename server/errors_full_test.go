package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/httpclient"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/server/fileworker"
)

// notRetryable lists the reasons for which the same request fails again: limits on the size of
// one request.
var notRetryable = []string{"WRITE_TOO_LARGE", "FILE_TOO_LARGE", "MESSAGE_TOO_LARGE", "HTTP_HEAD_TOO_LARGE"}

// Every error about a limit names it in its text, metadata and QuotaFailure, and has a
// retry delay unless the same request fails again.
func TestLimitErrors_NameSettingAndRetryDelay(t *testing.T) {
	s := New(Config{Limits: Limits{ServerLimits: &execwirev1.ServerLimits{ReadersPerProcess: 3, StdinWriteBytes: 5, MessageBytes: 1}}})
	failures := []error{eventlog.ErrTooManyReaders}
	for kind := process.Kind(1); kind < process.KindEnd; kind++ {
		failures = append(failures, &process.Error{Kind: kind, Err: syscall.EAGAIN})
	}
	for kind := session.Kind(1); kind < session.KindEnd; kind++ {
		failures = append(failures, &session.Error{Kind: kind, Limit: 7})
	}
	for kind := fsops.Kind(1); kind < fsops.KindEnd; kind++ {
		failures = append(failures, &fsops.Error{Kind: kind, Limit: 7, Errno: syscall.ENOSPC, Err: errors.New("cause")})
	}
	failures = append(failures, &fsops.Error{Kind: fsops.WatchUnavailable, Errno: syscall.EMFILE, Err: errors.New("cause")})
	for kind := httpclient.Kind(1); kind < httpclient.KindEnd; kind++ {
		failures = append(failures, &httpclient.Error{Kind: kind, Limit: 7})
	}
	failures = append(failures, s.check(context.Background(), &errdetails.ErrorInfo{Reason: "large"}),
		fromWorkerStart("sandbox", "", &fileworker.LimitError{Setting: "file_workers_total", Limit: 7}),
		fromAuth(&auth.Error{Kind: auth.KindTooManyAttempts, RetryAfter: time.Second, Err: errors.New("cause")}))
	limits := 0
	for _, failure := range failures {
		err := s.toStatus(context.Background(), failure)
		if status.Code(err) != codes.ResourceExhausted {
			continue
		}
		limits++
		if problem := limitProblem(err); problem != "" {
			t.Errorf("%v of %#v %s", err, failure, problem)
		}
	}
	if limits < 20 {
		t.Errorf("only %d of the errors are about limits", limits)
	}
}

// limitProblem returns what is wrong with an error about a limit, or "".
func limitProblem(err error) string {
	var setting, subject, reason string
	var retry time.Duration
	for _, detail := range status.Convert(err).Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			setting, reason = detail.GetMetadata()["setting"], detail.GetReason()
		case *errdetails.QuotaFailure:
			subject = detail.GetViolations()[0].GetSubject()
		case *errdetails.RetryInfo:
			retry = detail.GetRetryDelay().AsDuration()
		}
	}
	switch unlikely := slices.Contains(notRetryable, reason) || setting == "watched_directories_per_watch"; {
	case setting == "":
		return "names no setting"
	case subject != setting:
		return fmt.Sprintf("has the setting %q and the subject %q", setting, subject)
	case !strings.Contains(status.Convert(err).Message(), setting):
		return "does not name the setting in its text"
	case unlikely && retry != 0:
		return "has a retry delay although the same request fails again"
	case !unlikely && retry <= 0:
		return "has no retry delay"
	}
	return ""
}
