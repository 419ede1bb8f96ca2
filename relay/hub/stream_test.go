package hub

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/execwire/execwire/relay/harness"
	"github.com/execwire/execwire/relay/rendezvous"
)

func TestRefusalOf(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
		want   string // the code; empty: the error itself
	}{
		{http.StatusTooManyRequests, `{"error":{"code":"connection_limit","message":"too many"}}`, rendezvous.CodeConnectionLimit},
		{http.StatusNotFound, `{"error":{"code":"executor_offline","message":"away"}}`, "executor_offline"},
		{http.StatusUnauthorized, `{"error":{"code":"unauthorized","message":"the signature is wrong"}}`, ""},
		{http.StatusBadGateway, "a proxy", ""},
	} {
		err := fmt.Errorf("failed: %w", harness.NewRefusedError("node", tt.status, tt.body))
		got := refusalOf(err)
		refusal, ok := errors.AsType[*rendezvous.Refusal](got)
		switch {
		case tt.want == "" && got != err:
			t.Errorf("%d %s: %v", tt.status, tt.body, got)
		case tt.want != "" && (!ok || refusal.Status != tt.status || refusal.Code != tt.want || refusal.Message == ""):
			t.Errorf("%d %s: %#v", tt.status, tt.body, got)
		}
	}
}
