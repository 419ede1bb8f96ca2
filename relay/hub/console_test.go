package hub_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/audit/audittest"
	"github.com/execwire/execwire/internal/config"
)

// signIn signs in at the console, and returns the header with the cookie.
func (c *previewClient) signIn(token string) http.Header {
	c.t.Helper()
	r, err := http.NewRequest("POST", c.url+"/console/session", strings.NewReader(token))
	if err != nil {
		c.t.Fatal(err)
	}
	response, err := c.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || len(response.Cookies()) != 1 {
		c.t.Fatalf("signing in gives %s, %v", response.Status, response.Header)
	}
	one := response.Cookies()[0]
	return http.Header{"Cookie": {one.Name + "=" + one.Value}}
}

func TestConsole_IsOffByDefault(t *testing.T) {
	c := startPreviews(t, nil)
	for _, path := range []string{"/console", "/console/", "/console/session"} {
		if got := refusal(c.ask("GET", c.url+path, nil, nil)); !strings.HasPrefix(got, "404 not_found") {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// The console has the permissions that the table gives a principal at each request, and what
// happens is in the audit log.
func TestConsole_FollowsTheTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	var table string
	c := startPreviews(t, func(cfg *config.Hub) {
		cfg.Console, cfg.AuditFile = "on", path
		table = cfg.Principals
	})
	meet(t, c.url, fleetToken, agentToken, nil)
	if got := refusal(c.ask("GET", c.url+"/console/executors", nil, nil)); !strings.HasPrefix(got, "401 unauthorized sign in at the console") {
		t.Errorf("without a session: %s", got)
	}
	if got := refusal(c.ask("POST", c.url+"/console/session", nil, "wrong-token")); !strings.HasPrefix(got, "401 unauthorized invalid bearer token") {
		t.Errorf("a wrong token: %s", got)
	}
	if got := refusal(c.ask("GET", "http://evil.example.org/console/session", nil, nil)); !strings.HasPrefix(got, "421 host_unknown") {
		t.Errorf("an unknown host: %s", got)
	}
	agent, other := c.signIn(agentToken), c.signIn(otherPrincipalToken)
	list := func(header http.Header) string {
		_, answer := c.ask("GET", c.url+"/console/executors", header, nil)
		var ids []string
		executors, _ := answer["executors"].([]any)
		for _, one := range executors {
			executor, _ := one.(map[string]any)
			ids = append(ids, fmt.Sprint(executor["id"]))
		}
		return strings.Join(ids, " ")
	}
	if list(agent) != "build-1" || list(other) != "" {
		t.Errorf("the executors are %q and %q", list(agent), list(other))
	}
	const call = "/execwire.v1.EnvironmentService/GetEnvironment"
	ask := func(executor string, header http.Header) string {
		header = header.Clone()
		header.Set("Content-Type", "application/json")
		response, answer := c.ask("POST", c.url+"/console/executor/"+executor+call, header, map[string]any{})
		return fmt.Sprint(response.StatusCode, answer)
	}
	if got := ask("build-1", other); !strings.HasPrefix(got, "403") || !strings.Contains(got, "connect_to_executors") {
		t.Errorf("a call of another principal: %s", got)
	}
	if got := ask("build-9", agent); !strings.HasPrefix(got, "503") || !strings.Contains(got, "executor build-9 cannot be reached: executor build-9 is unknown") {
		t.Errorf("a call: %s", got)
	}
	// The permission ends with the entry of the table.
	content, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(table, []byte(strings.Replace(string(content), `connect_to_executors = ["build-*"]`, `connect_to_executors = ["nothing"]`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); !strings.HasPrefix(ask("build-9", agent), "403"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the permission did not end")
		}
	}
	records := audittest.Read(t, path)
	for _, want := range []audit.Record{
		{Type: audit.Result, Action: "console.login", Caller: audit.Caller{Principal: "agent", Credential: "token"}, Status: "OK"},
		{Type: audit.Result, Action: "console.login", Caller: audit.Caller{Principal: "other", Credential: "token"}, Status: "OK"},
		{Type: audit.Denied, Action: "call", Caller: audit.Caller{Principal: "other", Credential: "none"}, Status: "403", Executor: "build-1"},
	} {
		count := 0
		for _, r := range records {
			if r.Type == want.Type && r.Action == want.Action && r.Principal == want.Principal && r.Status == want.Status && r.Executor == want.Executor {
				count++
			}
		}
		if count != 1 {
			t.Errorf("%s of %s is there %d times: %+v", want.Type, want.Action, count, records)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(text), agentToken) {
		t.Errorf("the log has a secret: %v", err)
	}
}
