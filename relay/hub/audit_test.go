package hub_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/audit/audittest"
	"github.com/execwire/execwire/internal/config"
)

// TestHub_Audit records who connects to which executor, previews, and denials.
func TestHub_Audit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	c := startPreviews(t, func(cfg *config.Hub) { cfg.AuditFile = path })
	meet(t, c.url, fleetToken, agentToken, nil)
	link, _ := c.link(agentToken, map[string]any{"executor_id": "build-1", "port": 80})
	if response, answer := c.ask("POST", c.url+"/v1/previews/revoke", bearer(agentToken), map[string]any{"url": link}); response.StatusCode != http.StatusOK {
		t.Fatal(refusal(response, answer))
	}
	for _, token := range []string{agentToken, "wrong-token-0123456789-0123456789-0123"} {
		if status, _ := ask(t, client(t, nil), "POST", c.url+"/cloud/executor/build-1/register", token); status/100 != 4 {
			t.Errorf("a registration with a wrong token gives %d", status)
		}
	}
	records := audittest.Read(t, path)
	for _, want := range []audit.Record{
		{Type: audit.Result, Action: "executor.register", Caller: audit.Caller{Principal: "fleet", Credential: "token"}, Status: "OK"},
		{Type: audit.Intent, Action: "executor.connect", Caller: audit.Caller{Principal: "fleet", Credential: "signed-url"}},
		{Type: audit.Intent, Action: "harness.connect", Caller: audit.Caller{Principal: "agent", Credential: "token"}},
		{Type: audit.Result, Action: "preview.link", Caller: audit.Caller{Principal: "agent", Credential: "token"}, Status: "OK", Address: ":80"},
		{Type: audit.Intent, Action: "preview.redeem", Caller: audit.Caller{Principal: "agent", Credential: "signed-url"}, Address: ":80"},
		{Type: audit.Result, Action: "preview.revoke", Caller: audit.Caller{Principal: "agent", Credential: "token"}, Status: "OK", Address: ":80"},
		{Type: audit.Denied, Action: "call", Caller: audit.Caller{Principal: "agent", Credential: "token"}, Status: "403", Reason: "FORBIDDEN"},
		{Type: audit.Denied, Action: "authenticate", Caller: audit.Caller{Credential: "token"}, Status: "401", Reason: "UNAUTHORIZED"},
	} {
		count := 0
		for _, r := range records {
			if r.Type == want.Type && r.Action == want.Action && r.Principal == want.Principal && r.Credential == want.Credential && r.Status == want.Status &&
				r.Reason == want.Reason && r.Address == want.Address && r.Executor == "build-1" && r.API == "relay" && r.Peer != "" {
				count++
			}
		}
		if count != 1 {
			t.Errorf("%s of %s is there %d times: %+v", want.Type, want.Action, count, records)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{fleetToken, agentToken, "sig=", strings.SplitN(link, "=", 2)[1]} {
		if strings.Contains(string(text), secret) {
			t.Errorf("the log has a secret: %s", text)
		}
	}
}
