package server_test

import (
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
)

// expectRetry checks that an error names the setting and has a retry delay.
func expectRetry(t *testing.T, err error, setting string) {
	t.Helper()
	named, retry := false, false
	for _, detail := range status.Convert(err).Details() {
		switch detail := detail.(type) {
		case *errdetails.QuotaFailure:
			for _, violation := range detail.GetViolations() {
				named = named || violation.GetSubject() == setting
			}
		case *errdetails.RetryInfo:
			retry = detail.GetRetryDelay().AsDuration() > 0
		}
	}
	if !named || !retry {
		t.Errorf("%v: it names %s: %v, it has a retry delay: %v", err, setting, named, retry)
	}
}
