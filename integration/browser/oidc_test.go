package browser

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// startProvider starts an OpenID provider, whose page has a form with which its user is an
// address.
func startProvider(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	answer := func(w http.ResponseWriter, body map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	}
	var at, email string
	var begun atomic.Pointer[url.Values]
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"issuer": at, "authorization_endpoint": at + "/authorize", "token_endpoint": at + "/token", "jwks_uri": at + "/keys"})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"keys": []any{map[string]any{"kty": "RSA", "alg": "RS256", "kid": "1", "n": encode(key.N.Bytes()), "e": encode(big.NewInt(int64(key.E)).Bytes())}}})
	})
	mux.HandleFunc("GET /authorize", func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		begun.Store(&query)
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, `<!doctype html><title>provider</title><link rel=icon href=data:,><form method=post action=/agree><input name=email><button>Agree</button></form>`)
	})
	mux.HandleFunc("POST /agree", func(w http.ResponseWriter, r *http.Request) {
		email = r.PostFormValue("email")
		back := url.Values{"code": {"the-code"}, "state": {begun.Load().Get("state")}}
		http.Redirect(w, r, begun.Load().Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		challenge := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if r.PostFormValue("code") != "the-code" || encode(challenge[:]) != begun.Load().Get("code_challenge") {
			http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
			return
		}
		claims, _ := json.Marshal(map[string]any{"iss": at, "aud": "console", "sub": "1", "nonce": begun.Load().Get("nonce"), "exp": time.Now().Unix() + 60, "email": email, "email_verified": true})
		signed := encode([]byte(`{"alg":"RS256","kid":"1"}`)) + "." + encode(claims)
		digest := sha256.Sum256([]byte(signed))
		signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:])
		if err != nil {
			t.Error(err)
		}
		answer(w, map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": signed + "." + encode(signature)})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	// Another site than the hub, as real ones are.
	at = strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	return at
}

// Principals of a hub sign in at a provider of another site, whose answers leave the address of
// the page.
func TestConsole_OfAHub_SignInAtAProvider(t *testing.T) {
	t.Parallel()
	provider := startProvider(t)
	hub, _ := newHubConsole(t, "--console-oidc-issuer", provider, "--console-oidc-client-id", "console")
	tab := open(t, hub+"/console/")
	for _, tc := range []struct{ email, want string }{
		{"eve@example.org", `/no principal has .*email:eve@example.org/.test(document.querySelector(".problem")?.textContent)`},
		{"ann@example.org", `/build-1connected/.test(document.querySelector("#executors tbody tr")?.textContent)`},
	} {
		until(t, tab, fmt.Sprintf(`document.querySelector("#provider")?.textContent === "Sign in with %s"`, strings.TrimPrefix(provider, "http://")))
		call[bool](t, tab, `async () => { setTimeout(() => document.querySelector("#provider").click()); return true }`)
		waitVisible(t, tab, "input[name=email]")
		call[bool](t, tab, `async (email) => { document.querySelector("input[name=email]").value = email; setTimeout(() => document.querySelector("button").click()); return true }`, tc.email)
		waitVisible(t, tab, ".brand, #provider")
		until(t, tab, tc.want)
		if at := call[string](t, tab, `async () => location.href`); strings.Contains(at, "code") || strings.Contains(at, "state") {
			t.Errorf("the page is at %s", at)
		}
	}
}
