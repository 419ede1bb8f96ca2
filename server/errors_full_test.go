package server

import (
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/internal/session"
)

// Every limit of package session that is reached is named, with when to try again.
func TestSessionLimits_NameTheSettingAndWhenToRetry(t *testing.T) {
	for kind, translated := range sessionErrors {
		if translated.code != codes.ResourceExhausted {
			continue
		}
		named, retry := "", false
		for _, detail := range status.Convert((&Server{}).fromSession(&session.Error{Kind: kind, Limit: 7})).Details() {
			switch detail := detail.(type) {
			case *errdetails.QuotaFailure:
				named = detail.GetViolations()[0].GetSubject()
			case *errdetails.RetryInfo:
				retry = detail.GetRetryDelay().AsDuration() > 0
			}
		}
		if named == "" || !retry {
			t.Errorf("%v names %q, and says when to retry: %v", kind, named, retry)
		}
	}
}
