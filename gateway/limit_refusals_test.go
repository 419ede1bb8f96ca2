package gateway

import (
	"strings"
	"testing"

	"github.com/execwire/execwire/gateway/rpcerror"
	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/wsconn"
)

// Errors of limits name the setting and the retry delay.
func TestLimitRefusals_NameTheSettingAndWhenToRetry(t *testing.T) {
	refusalOf := func(c Config, control bool, requests int) *jsonrpc.Error {
		var p permits
		p.configure(c, new(wsconn.Share))
		for range requests {
			if _, refused := p.acquire(control, 100); refused != nil {
				return refused
			}
		}
		return nil
	}
	for setting, refused := range map[string]*jsonrpc.Error{
		"requests_per_connection":         refusalOf(Config{Requests: 1, ControlRequests: 1, Incoming: 1 << 20}, false, 2),
		"control_requests_per_connection": refusalOf(Config{Requests: 1, ControlRequests: 1, Incoming: 1 << 20}, true, 3),
		"incoming_bytes_per_connection":   refusalOf(Config{Requests: 9, ControlRequests: 1, Incoming: 150}, false, 2),
		"incoming_bytes_total":            rpcerror.BudgetReached(),
	} {
		if refused == nil {
			t.Errorf("%s is not reached", setting)
			continue
		}
		data := refused.Data.(map[string]any)
		if data["setting"] != setting || !strings.Contains(refused.Message, setting) || data["retryAfterMs"] != int64(1000) {
			t.Errorf("%s: %+v", setting, refused)
		}
	}
}
