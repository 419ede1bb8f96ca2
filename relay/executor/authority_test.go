package executor_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/relay/executor"
)

var (
	agentKey   = ed25519.NewKeyFromSeed([]byte(strings.Repeat("a", ed25519.SeedSize)))
	signingKey = ed25519.NewKeyFromSeed([]byte(strings.Repeat("s", ed25519.SeedSize)))
	rsaKey     = sync.OnceValue(func() *rsa.PrivateKey {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		return key
	})
)

func base64url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func asJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

type members map[string]any

// with returns a copy with one member changed, or removed if nil.
func (m members) with(name string, value any) members {
	changed := members{}
	for n, v := range m {
		changed[n] = v
	}
	if changed[name] = value; value == nil {
		delete(changed, name)
	}
	return changed
}

// goodClaims are valid claims of an agent.
func goodClaims() members {
	der, err := x509.MarshalPKCS8PrivateKey(agentKey)
	if err != nil {
		panic(err)
	}
	return members{
		"iss": "https://chatgpt.com/codex-backend/agent-identity", "aud": "codex-app-server",
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
		"agent_runtime_id": "runtime-1", "agent_private_key": base64.StdEncoding.EncodeToString(der),
		"account_id": "account", "chatgpt_user_id": "user", "email": "e@example.org", "plan_type": "team", "chatgpt_account_is_fedramp": false,
	}
}

// signed builds a token.
func signed(header, claims members, sign func([]byte) []byte) string {
	text := base64url(asJSON(header)) + "." + base64url(asJSON(claims))
	return text + "." + base64url(sign([]byte(text)))
}

func eddsa(text []byte) []byte { return ed25519.Sign(signingKey, text) }

func rs256(text []byte) []byte {
	digest := sha256.Sum256(text)
	signature, err := rsa.SignPKCS1v15(nil, rsaKey(), crypto.SHA256, digest[:])
	if err != nil {
		panic(err)
	}
	return signature
}

var goodHeader = members{"alg": "EdDSA", "kid": "ed"}

func goodToken(claims members) string { return signed(goodHeader, claims, eddsa) }

// authorityKeys is the key set of an authority.
func authorityKeys() members {
	return members{"keys": []members{
		{"kty": "EC", "kid": "ec", "crv": "P-256"},
		{"kty": "RSA", "kid": "rsa", "alg": "RS256", "use": "sig", "n": base64url(rsaKey().N.Bytes()), "e": base64url(big.NewInt(int64(rsaKey().E)).Bytes())},
		{"kty": "RSA", "kid": "short", "n": base64url(make([]byte, 128)), "e": "AQAB"},
		{"kty": "RSA", "kid": "even", "n": base64url(rsaKey().N.Bytes()), "e": "BA"},
		{"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": base64url(signingKey.Public().(ed25519.PublicKey))},
		{"kty": "OKP", "crv": "Ed25519", "kid": "long", "x": base64url(make([]byte, 33))},
		{"kty": "OKP", "crv": "Ed25519", "kid": "enc", "use": "enc", "x": base64url(signingKey.Public().(ed25519.PublicKey))},
		{"kty": "OKP", "crv": "Ed25519", "kid": "other", "alg": "Ed448", "x": base64url(signingKey.Public().(ed25519.PublicKey))},
	}}
}

// authority is a fake authority of agent identities.
type authority struct {
	*httptest.Server
	answerKeys, answerTask func(w http.ResponseWriter)

	mu       sync.Mutex
	requests []string // guarded by mu; method, path and body of each
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.answerKeys = func(w http.ResponseWriter) { _, _ = w.Write(asJSON(authorityKeys())) }
	a.answerTask = func(w http.ResponseWriter) {
		_, tasks := a.seen()
		_, _ = fmt.Fprintf(w, `{"task_id":"task-%d"}`, len(tasks))
	}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *authority) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	a.requests = append(a.requests, fmt.Sprintf("%s %s %s%s", r.Method, r.RequestURI, r.Header.Get("Authorization"), body))
	a.mu.Unlock()
	if r.Method == http.MethodPost {
		a.answerTask(w)
		return
	}
	a.answerKeys(w)
}

// seen returns the requests for keys and for tasks.
func (a *authority) seen() (keys, tasks []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, request := range a.requests {
		if strings.HasPrefix(request, http.MethodGet) {
			keys = append(keys, request)
		} else {
			tasks = append(tasks, request)
		}
	}
	return keys, tasks
}

// find returns the credentials for an agent token.
func (a *authority) find(token string) (executor.Credentials, error) {
	return executor.FindCredentials(executor.Sources{AgentIdentity: true, Registry: "https://registry.invalid", Getenv: environment{
		executor.AccessTokenVariable: token, executor.TokenVariable: "unused", executor.KeysVariable: a.URL + "/backend-api/", executor.TasksVariable: a.URL + "/accounts",
	}.get})
}

// assertion parses the header of an agent and verifies its signature.
func assertion(t *testing.T, header http.Header) (task string) {
	t.Helper()
	text, ok := strings.CutPrefix(header.Get("Authorization"), "AgentAssertion ")
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	if !ok || err != nil {
		t.Fatalf("the header is %q: %v", header.Get("Authorization"), err)
	}
	var a struct{ RuntimeID, Signature, TaskID, Timestamp string }
	form := `{"agent_runtime_id":%q,"signature":%q,"task_id":%q,"timestamp":%q}`
	if _, err := fmt.Sscanf(string(decoded), form, &a.RuntimeID, &a.Signature, &a.TaskID, &a.Timestamp); err != nil ||
		string(decoded) != fmt.Sprintf(form, a.RuntimeID, a.Signature, a.TaskID, a.Timestamp) {
		t.Fatalf("the assertion is %s: %v", decoded, err)
	}
	expectSignature(t, a.Signature, "runtime-1:"+a.TaskID+":"+a.Timestamp, a.Timestamp)
	return a.TaskID
}

func expectSignature(t *testing.T, signature, text, timestamp string) {
	t.Helper()
	decoded, err := base64.StdEncoding.DecodeString(signature)
	if err != nil || !ed25519.Verify(agentKey.Public().(ed25519.PublicKey), []byte(text), decoded) {
		t.Errorf("the signature of %q is %q: %v", text, signature, err)
	}
	at, err := time.Parse(time.RFC3339, timestamp)
	if err != nil || !strings.HasSuffix(timestamp, "Z") || strings.Contains(timestamp, ".") || time.Since(at).Abs() > time.Hour {
		t.Errorf("the timestamp is %q: %v", timestamp, err)
	}
}
