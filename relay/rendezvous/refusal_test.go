package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/execwire/execwire/internal/wsconn"
)

func expectRefused(t *testing.T, url string, header http.Header, status int, code string) {
	t.Helper()
	_, err := dial(t, url, header)
	var refused *wsconn.RefusedError
	if !errors.As(err, &refused) || refused.Status != status {
		t.Errorf("%s: %v, want status %d", url, err, status)
		return
	}
	var body struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal([]byte(refused.Text), &body); err != nil || body.Error.Code != code || body.Error.Message == "" {
		t.Errorf("%s: %q, want code %s", url, refused.Text, code)
	}
}

func TestWebsocket_InvalidRequests_AreRejected(t *testing.T) {
	hub := startHub(t, Config{Origins: []string{"https://app.example.org"}})
	executor := hub.executor("here", "one")
	executorURL := hub.register("here", "one")
	hub.register("waiting", "one")
	gone := hub.executor("gone", "")
	gone.close()
	eventually(t, "the executor is known to be gone", func() bool { return hub.Connections() == 1 })
	ws := "ws" + strings.TrimPrefix(hub.url, "http")
	ann := http.Header{"Authorization": {"Bearer ann"}}
	with := func(name, value string) http.Header {
		h := ann.Clone()
		h.Set(name, value)
		return h
	}
	_, body := hub.ask(http.MethodPost, "/cloud/executor/here/connect", "ann", nil)
	harnessURL := body["url"].(string)
	for name, tc := range map[string]struct {
		url    string
		header http.Header
		status int
		code   string
	}{
		"no token":            {ws + "/executor/here?role=harness", nil, 401, CodeUnauthorized},
		"wrong token":         {ws + "/executor/here?role=harness", with("Authorization", "Bearer wrong"), 401, CodeUnauthorized},
		"no permission":       {ws + "/executor/here?role=harness", with("Authorization", "Bearer nobody"), 403, codeForbidden},
		"origin":              {ws + "/executor/here?role=harness", with("Origin", "https://evil.example.org"), 403, CodeOriginRefused},
		"unknown executor":    {ws + "/executor/none?role=harness", ann, 404, codeExecutorNotFound},
		"never connected":     {ws + "/executor/waiting?role=harness", ann, 404, codeExecutorNotFound},
		"gone":                {ws + "/executor/gone?role=harness", ann, 404, codeExecutorOffline},
		"gone, resumable":     {ws + "/executor/gone?role=harness", with(headerResumable, "1"), 404, codeExecutorOffline},
		"bad id":              {ws + "/executor/a.b?role=harness", ann, 400, codeInvalidExecutorID},
		"no role":             {ws + "/executor/here", ann, 400, codeInvalidRole},
		"executor, no sig":    {ws + "/executor/here?role=executor&epoch=1", ann, 401, CodeUnauthorized},
		"executor, other sig": {strings.Replace(harnessURL, "role=harness", "role=executor&epoch=1", 1), nil, 401, CodeUnauthorized},
		"other executor":      {strings.Replace(harnessURL, "/here", "/gone", 1), nil, 401, CodeUnauthorized},
		"other epoch":         {strings.Replace(executorURL, "epoch=2", "epoch=3", 1), nil, 401, CodeUnauthorized},
		"changed sig":         {harnessURL + "x", nil, 401, CodeUnauthorized},
	} {
		t.Run(name, func(t *testing.T) { expectRefused(t, tc.url, tc.header, tc.status, tc.code) })
	}
	mustDial(t, harnessURL, nil).close()
	mustDial(t, ws+"/executor/here?role=harness", with("Origin", "https://app.example.org")).close()
	mustDial(t, executorURL, nil)
	executor.expectClosed(CodeSuperseded, reasonSuperseded)
	expectRefused(t, executorURL, nil, http.StatusConflict, codeSuperseded)
}

func TestHTTP_InvalidRequests_AreRejected(t *testing.T) {
	hub := startHub(t, Config{Limits: Limits{Executors: 2}})
	hub.register("one", "")
	hub.executor("two", "").close()
	eventually(t, "the executor is known to be gone", func() bool { return hub.Connections() == 0 })
	for name, tc := range map[string]struct {
		method, path, token string
		header              http.Header
		status              int
		code                string
	}{
		"no token":         {"POST", "/cloud/executor/one/register", "", nil, 401, CodeUnauthorized},
		"wrong token":      {"POST", "/cloud/environment/one/register", "wrong", nil, 401, CodeUnauthorized},
		"no permission":    {"POST", "/cloud/executor/one/register", "nobody", nil, 403, codeForbidden},
		"bad id":           {"POST", "/cloud/executor/a%2Fb/register", "ann", nil, 400, codeInvalidExecutorID},
		"long id":          {"POST", "/cloud/executor/" + strings.Repeat("x", 257) + "/register", "ann", nil, 400, codeInvalidExecutorID},
		"one too many":     {"POST", "/cloud/executor/three/register", "ann", nil, 429, codeExecutorLimit},
		"bad labels":       {"POST", "/cloud/executor/one/register", "ann", http.Header{headerLabels: {"os"}}, 400, codeInvalidHeader},
		"label twice":      {"POST", "/cloud/executor/one/register", "ann", http.Header{headerLabels: {"a=1,a=2"}}, 400, codeInvalidHeader},
		"long name":        {"POST", "/cloud/executor/one/register", "ann", http.Header{headerName: {strings.Repeat("x", 257)}}, 400, codeInvalidHeader},
		"unprintable name": {"POST", "/cloud/executor/one/register", "ann", http.Header{headerName: {"a%0ab"}}, 400, codeInvalidHeader},
		"long instance":    {"POST", "/cloud/executor/one/register", "ann", http.Header{headerInstance: {strings.Repeat("x", 65)}}, 400, codeInvalidHeader},
		"connect, none":    {"POST", "/cloud/executor/none/connect", "ann", nil, 404, codeExecutorNotFound},
		"connect, gone":    {"POST", "/cloud/environment/two/connect", "ann", nil, 409, codeEnvironmentOffline},
		"connect, nobody":  {"POST", "/cloud/executor/two/connect", "nobody", nil, 403, codeForbidden},
		"list, no token":   {"GET", "/v1/executors", "", nil, 401, CodeUnauthorized},
		"origin":           {"GET", "/v1/executors", "ann", http.Header{"Origin": {"null"}}, 403, CodeOriginRefused},
		"elsewhere":        {"GET", "/", "ann", nil, 404, codeNotFound},
		"no websocket":     {"GET", "/executor/one?role=harness", "ann", nil, 400, codeNotWebsocket},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := hub.ask(tc.method, tc.path, tc.token, tc.header)
			problem, _ := body["error"].(map[string]any)
			if status != tc.status || problem["code"] != tc.code || problem["message"] == "" {
				t.Errorf("%d, %v, want %d and %s", status, body, tc.status, tc.code)
			}
		})
	}
}

// goneMemory is a presence that does not respond after Close.
type goneMemory struct {
	*Memory
	gone atomic.Bool
}

func (g *goneMemory) Close() error {
	g.gone.Store(true)
	return nil
}

func (g *goneMemory) Get(ctx context.Context, id string) (Record, uint64, error) {
	if g.gone.Load() {
		return Record{}, 0, errors.New("it is closed")
	}
	return g.Memory.Get(ctx, id)
}

// A request during the shutdown is told to try again, rather than that the hub
// failed.
func TestHub_Closed_RejectsRequests(t *testing.T) {
	hub := startHub(t, Config{Presence: &goneMemory{Memory: NewMemory()}})
	hub.executor("build-1", "one").close()
	if err := hub.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/cloud/executor/build-1/register", "/cloud/executor/build-1/connect"} {
		if status, body := hub.ask(http.MethodPost, path, "fleet", nil); status != http.StatusServiceUnavailable {
			t.Errorf("%s gave %d, %v", path, status, body)
		}
	}
}
