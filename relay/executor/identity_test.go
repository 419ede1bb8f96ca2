package executor_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/relay/executor"
)

func TestIdentity_Header(t *testing.T) {
	a := newAuthority(t)
	c, err := a.find(" " + goodToken(goodClaims()) + "\n")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the task is registered only once
		header, err := c.Header(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if task := assertion(t, header); task != "task-1" {
			t.Errorf("the task is %q", task)
		}
		if header.Get("ChatGPT-Account-ID") != "account" || header["X-Openai-Fedramp"] != nil {
			t.Errorf("the headers are %v", header)
		}
	}
	keys, tasks := a.seen()
	if len(keys) != 1 || keys[0] != "GET /backend-api/wham/agent-identities/jwks " {
		t.Errorf("keys were asked for by %q", keys)
	}
	body, ok := strings.CutPrefix(tasks[0], "POST /accounts/v1/agent/runtime-1/task/register ")
	var sent map[string]string
	if err := json.Unmarshal([]byte(body), &sent); len(tasks) != 1 || !ok || err != nil || len(sent) != 2 {
		t.Fatalf("tasks were asked for by %q", tasks)
	}
	expectSignature(t, sent["signature"], "runtime-1:"+sent["timestamp"], sent["timestamp"])
	if text := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(text, "ey") {
		t.Errorf("printed as %s", text)
	}
}

func TestIdentity_Variants(t *testing.T) {
	for name, token := range map[string]string{
		"fedramp":   goodToken(goodClaims().with("chatgpt_account_is_fedramp", true)),
		"RS256":     signed(members{"alg": "RS256", "kid": "rsa", "typ": "JWT"}, goodClaims(), rs256),
		"audiences": goodToken(goodClaims().with("aud", []string{"other", "codex-app-server"})),
	} {
		a := newAuthority(t)
		a.answerTask = func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{"taskId":"<t>&","task_id":null}`)) }
		c, err := a.find(token)
		if err != nil {
			t.Fatal(err)
		}
		header, err := c.Header(t.Context())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if task := assertion(t, header); task != "<t>&" {
			t.Errorf("%s: the task is %q", name, task)
		}
		if got := header.Get("X-OpenAI-Fedramp"); (got == "true") != (name == "fedramp") {
			t.Errorf("%s: fedramp is %q", name, got)
		}
	}
}

// The alternative path of the keys, and one authority for both services.
func TestIdentity_AuthorityURLs(t *testing.T) {
	a := newAuthority(t)
	c, err := executor.FindCredentials(executor.Sources{AgentIdentity: true, Getenv: environment{
		executor.AccessTokenVariable: goodToken(goodClaims()), executor.KeysVariable: a.URL + "/",
	}.get})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Header(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys, tasks := a.seen()
	if !strings.HasPrefix(keys[0], "GET /agent-identities/jwks ") || !strings.HasPrefix(tasks[0], "POST /v1/agent/runtime-1/task/register ") {
		t.Errorf("requests %q and %q", keys, tasks)
	}
}

func TestIdentity_InvalidToken_Fails(t *testing.T) {
	other := func(text []byte) []byte { return eddsa(append(text, 'x')) }
	claim := func(name string, value any) string { return goodToken(goodClaims().with(name, value)) }
	head := func(header members) string { return signed(header, goodClaims(), eddsa) }
	wrongKey, err := x509.MarshalPKCS8PrivateKey(rsaKey())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ token, text string }{
		"other signature":   {signed(goodHeader, goodClaims(), other), "signature is invalid"},
		"none":              {signed(members{"alg": "none", "kid": "ed"}, goodClaims(), func([]byte) []byte { return []byte("x") }), "signing method none is invalid"},
		"HS256":             {signed(members{"alg": "HS256", "kid": "ed"}, goodClaims(), eddsa), "signing method HS256 is invalid"},
		"key of another":    {head(members{"alg": "EdDSA", "kid": "rsa"}), "the authority's key is for RS256"},
		"no kid":            {head(members{"alg": "EdDSA"}), "has no kid"},
		"kid of nobody":     {head(goodHeader.with("kid", "x")), `kid "x" is not trusted`},
		"kid is a number":   {head(goodHeader.with("kid", 1)), "has no kid"},
		"critical":          {head(goodHeader.with("crit", []string{"x"})), "critical extensions"},
		"key of P-256":      {head(goodHeader.with("kid", "ec")), "neither RSA nor Ed25519"},
		"short RSA":         {head(members{"alg": "RS256", "kid": "short"}), "0 bits; 2048"},
		"even exponent":     {head(members{"alg": "RS256", "kid": "even"}), "exponent is not accepted"},
		"long Ed25519":      {head(goodHeader.with("kid", "long")), "33 bytes; Ed25519"},
		"key to encrypt":    {head(goodHeader.with("kid", "enc")), "not for signatures"},
		"key of Ed448":      {head(goodHeader.with("kid", "other")), "not for EdDSA"},
		"other issuer":      {claim("iss", "https://evil.invalid"), "issuer"},
		"no issuer":         {claim("iss", nil), "iss"},
		"other audience":    {claim("aud", "other"), "audience"},
		"no audience":       {claim("aud", nil), "aud"},
		"expired":           {claim("exp", time.Now().Add(-time.Hour).Unix()), "expired"},
		"for ever":          {claim("exp", nil), "exp"},
		"no runtime":        {claim("agent_runtime_id", nil), "agent_runtime_id"},
		"runtime of a path": {claim("agent_runtime_id", "a/b"), "agent_runtime_id"},
		"runtime of dots":   {claim("agent_runtime_id", ".."), "agent_runtime_id"},
		"no key":            {claim("agent_private_key", nil), "agent_private_key"},
		"key of nonsense":   {claim("agent_private_key", "%t0psecret"), "agent_private_key is not base64"},
		"key of RSA":        {claim("agent_private_key", base64.StdEncoding.EncodeToString(wrongKey)), "not an Ed25519 key"},
		"no account":        {claim("account_id", nil), "account_id"},
		"account of lines":  {claim("account_id", "a\r\nb"), "account_id"},
	} {
		a := newAuthority(t)
		c, err := a.find(tc.token)
		if err != nil {
			t.Errorf("%s: found %v", name, err)
			continue
		}
		header, err := c.Header(t.Context())
		if _, ok := errors.AsType[*executor.CredentialsError](err); !ok || header != nil || !strings.Contains(err.Error(), tc.text) || strings.Contains(err.Error(), "t0psecret") {
			t.Errorf("%s: %v, %v, want a CredentialsError that says %q", name, header, err, tc.text)
		}
		if !executor.Final(err, false) {
			t.Errorf("%s: %v is not final", name, err)
		}
		if _, tasks := a.seen(); len(tasks) != 0 {
			t.Errorf("%s: a task was registered", name)
		}
	}
}

func TestIdentity_Missing_Fails(t *testing.T) {
	good := goodToken(goodClaims())
	for name, tc := range map[string]struct {
		e    environment
		text string
	}{
		"none":        {environment{}, "CODEX_ACCESS_TOKEN is required when --use-agent-identity-auth is set"},
		"no token":    {environment{executor.AccessTokenVariable: "t0psecret"}, "invalid agent identity JWT format"},
		"two parts":   {environment{executor.AccessTokenVariable: "t0psecret.x"}, "invalid agent identity JWT format"},
		"empty part":  {environment{executor.AccessTokenVariable: "t0psecret..x"}, "invalid agent identity JWT format"},
		"two tokens":  {environment{executor.AccessTokenVariable: "t0psecret.x.x t0psecret"}, "invalid agent identity JWT format"},
		"plain keys":  {environment{executor.AccessTokenVariable: good, executor.KeysVariable: "http://192.0.2.1"}, executor.KeysVariable + " is http:// to another host"},
		"plain tasks": {environment{executor.AccessTokenVariable: good, executor.TasksVariable: "http://192.0.2.1"}, executor.TasksVariable + " is http:// to another host"},
	} {
		c, err := executor.FindCredentials(executor.Sources{AgentIdentity: true, Registry: "http://127.0.0.1", Getenv: tc.e.get})
		if _, ok := errors.AsType[*executor.CredentialsError](err); !ok || c != nil || !strings.Contains(err.Error(), tc.text) || strings.Contains(err.Error(), "t0psecret") {
			t.Errorf("%s: %v, %v, want a CredentialsError that says %q", name, c, err, tc.text)
		}
	}
	if c, err := executor.FindCredentials(executor.Sources{AgentIdentity: true, TokenFile: "file", Getenv: environment{executor.AccessTokenVariable: good}.get}); c != nil || err == nil {
		t.Errorf("beside a token file: %v, %v", c, err)
	}
}

func TestIdentity_AuthorityFails(t *testing.T) {
	type answer = func(http.ResponseWriter)
	says := func(status int, body string) answer {
		return func(w http.ResponseWriter) { w.WriteHeader(status); _, _ = w.Write([]byte(body)) }
	}
	for name, tc := range map[string]struct {
		keys, task answer
		text       string
		final      bool
	}{
		"no such keys":      {says(404, ``), nil, "agent identity authority request failed (404 Not Found)", true},
		"keys later":        {says(503, ``), nil, "(503 Service Unavailable)", false},
		"keys in HTML":      {says(200, `<html>`), nil, "error decoding response body of the agent identity authority", true},
		"keys of nonsense":  {says(200, `{"keys":{}}`), nil, "the authority's response has no keys", true},
		"redirected":        {func(w http.ResponseWriter) { w.Header().Set("Location", "/x"); w.WriteHeader(302) }, nil, "(302 Found)", true},
		"task refused":      {nil, says(403, `{"error":{"message":"not you"}}`), "agent identity authority authentication failed (403 Forbidden): not you", true},
		"task later":        {nil, says(500, ``), "(500 Internal Server Error)", false},
		"task without id":   {nil, says(200, `{"encrypted_task_id":"x"}`), "no task_id", true},
		"task of nothing":   {nil, says(200, `{"task_id":""}`), "no task_id", true},
		"task without end":  {nil, says(200, `{"task_id":"`+strings.Repeat("x", 1025)+`"}`), "no task_id", true},
		"task, dropped":     {nil, func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, "agent identity authority at 127.0.0.1", false},
		"task of no answer": {nil, func(http.ResponseWriter) {}, "not a JSON object", true},
	} {
		a, h := newAuthority(t), newHub(t)
		if tc.keys != nil {
			a.answerKeys = tc.keys
		}
		if tc.task != nil {
			a.answerTask = tc.task
		}
		c, err := a.find(goodToken(goodClaims()))
		if err != nil {
			t.Fatal(err)
		}
		r := h.start(t, func(o *executor.Options) { o.Credentials = c })
		if tc.final {
			err = r.wait()
		} else {
			err = r.next(retrying).err
		}
		if err == nil || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v, want %q", name, err, tc.text)
		}
		if registrations, _ := h.seen(); len(registrations) != 0 {
			t.Errorf("%s: it registered", name)
		}
	}
}

// A task may expire before the agent: when a registry rejects one that worked
// before, a new one is registered, once.
func TestIdentity_RejectedTask_IsRenewedOnce(t *testing.T) {
	a, h := newAuthority(t), newHub(t)
	h.upgrade = refuseUpgrade
	h.register = func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 2 || n >= 4 {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.admit(w, "machine-1")
	}
	c, err := a.find(goodToken(goodClaims()))
	if err != nil {
		t.Fatal(err)
	}
	r := h.start(t, func(o *executor.Options) { o.Credentials = c })
	status, ok := errors.AsType[*executor.StatusError](r.wait())
	registrations, _ := h.seen()
	var shown []string
	for _, request := range registrations {
		shown = append(shown, assertion(t, request.Header))
	}
	if want := "task-1 task-1 task-2 task-2 task-3"; !ok || status.Status != http.StatusUnauthorized || strings.Join(shown, " ") != want {
		t.Errorf("%v after the tasks %q, want %s", status, shown, want)
	}
}

// An expired agent identity is final.
func TestIdentity_Expires_IsFinal(t *testing.T) {
	a, h := newAuthority(t), newHub(t)
	h.upgrade = refuseUpgrade
	c, err := a.find(goodToken(goodClaims()))
	if err != nil {
		t.Fatal(err)
	}
	var asked int
	executor.SetClock(c, func() time.Time {
		if asked++; asked > 6 {
			return time.Now().Add(2 * time.Hour)
		}
		return time.Now()
	})
	err = h.start(t, func(o *executor.Options) { o.Credentials = c }).wait()
	if _, ok := errors.AsType[*executor.CredentialsError](err); !ok || !strings.Contains(err.Error(), "expired at") {
		t.Errorf("Run = %v, want a CredentialsError", err)
	}
	if registrations, _ := h.seen(); len(registrations) == 0 {
		t.Error("it never registered")
	}
}
