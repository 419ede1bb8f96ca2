package hub_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/audit/audittest"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testcert"
	"github.com/execwire/execwire/relay/hub"
)

const (
	clientSecret = "a secret/of the+client"
	personTable  = `
[[principal]]
name = "ann"
oidc_identities = ["email:ann@example.org"]
connect_to_executors = ["build-*"]

[[principal]]
name = "bob"
oidc_identities = ["sub:bob-1"]
connect_to_executors = ["build-*"]
`
)

// issuer is an OpenID provider, at which everybody is ann.
type issuer struct {
	*httptest.Server
	t   *testing.T
	key *rsa.PrivateKey

	// Set before a request.
	metadata, claims map[string]any    // instead of the usual ones
	broken           map[string][]byte // the answers of paths
	methods          []string          // of clients to authenticate
	secret           string

	mu    sync.Mutex
	asked map[string]int        // guarded by mu; requests by path
	codes map[string]url.Values // guarded by mu; what the browser was sent with, by code
	sent  []string              // guarded by mu; secrets that the hub got
}

func startIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{t: t, key: key, secret: clientSecret, methods: []string{"client_secret_post", "client_secret_basic"}, asked: map[string]int{}, codes: map[string]url.Values{}}
	i.Server = httptest.NewServer(i)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked[r.URL.Path]++
	w.Header().Set("Content-Type", "application/json")
	if answer := i.broken[r.URL.Path]; answer != nil {
		_, _ = w.Write(answer)
		return
	}
	var body map[string]any
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		body = map[string]any{"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize?tenant=1", "token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys",
			"token_endpoint_auth_methods_supported": i.methods}
		maps.Copy(body, i.metadata)
	case "/keys":
		body = map[string]any{"keys": []jose.JSONWebKey{{Key: i.key.Public(), KeyID: "1", Algorithm: "RS256", Use: "sig"}}}
	case "/token":
		body = i.token(r)
		if body["error"] != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
	default:
		w.WriteHeader(http.StatusNotFound)
	}
	_ = json.NewEncoder(w).Encode(body)
}

// token answers a request for a token. mu is held.
func (i *issuer) token(r *http.Request) map[string]any {
	client, secret, basic := r.BasicAuth()
	if basic {
		client, _ = url.QueryUnescape(client)
		secret, _ = url.QueryUnescape(secret)
	} else {
		client, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	if client != "console" || secret != i.secret || basic != (i.secret != "" && i.methods[len(i.methods)-1] == "client_secret_basic") {
		return map[string]any{"error": "invalid_client"}
	}
	code := r.PostFormValue("code")
	begun := i.codes[code]
	delete(i.codes, code)
	challenge := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if begun == nil || r.PostFormValue("grant_type") != "authorization_code" || r.PostFormValue("redirect_uri") != begun.Get("redirect_uri") ||
		base64.RawURLEncoding.EncodeToString(challenge[:]) != begun.Get("code_challenge") {
		return map[string]any{"error": "invalid_grant"}
	}
	now := time.Now().Unix()
	claims := map[string]any{"iss": i.URL, "aud": "console", "sub": "ann-1", "nonce": begun.Get("nonce"), "iat": now, "exp": now + 3600, "email": "ann@example.org", "email_verified": true}
	maps.Copy(claims, i.claims)
	content, err := json.Marshal(claims)
	if err != nil {
		i.t.Error(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: i.key, KeyID: "1"}}, nil)
	if err != nil {
		i.t.Error(err)
		return nil
	}
	signed, err := signer.Sign(content)
	if err != nil {
		i.t.Error(err)
		return nil
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		i.t.Error(err)
	}
	i.sent = append(i.sent, code, token, r.PostFormValue("code_verifier"))
	return map[string]any{"access_token": "an-access-token", "token_type": "Bearer", "id_token": token}
}

// authorize returns the query with which the browser is sent back from the address to which it
// was sent.
func (i *issuer) authorize(to string) url.Values {
	i.t.Helper()
	at, err := url.Parse(to)
	if err != nil {
		i.t.Fatal(err)
	}
	query := at.Query()
	if !strings.HasPrefix(to, i.URL+"/authorize?tenant=1&") || query.Get("client_id") != "console" || query.Get("response_type") != "code" ||
		query.Get("scope") != "openid email" || query.Get("code_challenge_method") != "S256" {
		i.t.Fatalf("the browser is sent to %s", to)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	code := fmt.Sprintf("the-code-%d", len(i.sent))
	i.codes[code] = query
	return url.Values{"code": {code}, "state": {query.Get("state")}}
}

func (i *issuer) requests(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked[path]
}

// person is a browser at the console of a hub.
type person struct {
	*previewClient
	issuer *issuer
	hub    *hub.Hub
	cfg    config.Hub
	log    *lockedBuffer
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func startWithIssuer(t *testing.T, change func(*config.Hub, *issuer)) *person {
	t.Helper()
	p := &person{issuer: startIssuer(t), log: &lockedBuffer{}}
	var at string
	p.hub, p.cfg, at = startHubWith(t, "http", slog.New(slog.NewTextHandler(p.log, nil)), func(cfg *config.Hub) {
		dir := t.TempDir()
		withTable(t, cfg, personTable)
		cfg.Console, cfg.AuditFile, cfg.FailedAttempts = "on", filepath.Join(dir, "audit.log"), 100
		cfg.ConsoleOIDCIssuer, cfg.ConsoleOIDCClient = p.issuer.URL, "console"
		cfg.ConsoleOIDCSecret = testcert.WriteFile(t, filepath.Join(dir, "secret"), []byte(clientSecret+"\n"))
		if change != nil {
			change(cfg, p.issuer)
		}
	})
	p.previewClient = newPreviewClient(t, at)
	p.Jar, _ = cookiejar.New(nil)
	return p
}

// begin begins to sign in, and returns where the browser is sent, or why not.
func (p *person) begin() (to, refused string) {
	p.t.Helper()
	response, answer := p.ask("GET", p.url+"/console/oidc", nil, nil)
	if response.StatusCode != http.StatusOK {
		return "", refusal(response, answer)
	}
	cookies := response.Cookies()
	if len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode || cookies[0].MaxAge != 600 {
		p.t.Errorf("the cookies are %v", cookies)
	}
	to, _ = answer["url"].(string)
	return to, ""
}

// finish returns who is signed in by an answer of the provider, or why nobody is.
func (p *person) finish(query url.Values) string {
	p.t.Helper()
	r, err := http.NewRequest("POST", p.url+"/console/oidc", strings.NewReader(query.Encode()))
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := p.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	var answer map[string]any
	_ = json.NewDecoder(response.Body).Decode(&answer)
	if response.StatusCode != http.StatusOK {
		return refusal(response, answer)
	}
	return fmt.Sprint(answer["principal"])
}

// signIn signs in, and returns who is, or why nobody is.
func (p *person) signIn() string {
	p.t.Helper()
	to, refused := p.begin()
	if refused != "" {
		return refused
	}
	return p.finish(p.issuer.authorize(to))
}

func (p *person) session() string {
	p.t.Helper()
	_, answer := p.ask("GET", p.url+"/console/session", nil, nil)
	return fmt.Sprint(answer["principal"])
}

func TestOIDC_SignsIn(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*config.Hub, *issuer)
		want   string
	}{
		"by email":         {nil, "ann"},
		"by subject":       {func(_ *config.Hub, i *issuer) { i.claims = map[string]any{"sub": "bob-1", "email": "bob@example.org"} }, "bob"},
		"email as text":    {func(_ *config.Hub, i *issuer) { i.claims = map[string]any{"email_verified": "true"} }, "ann"},
		"secret in a body": {func(_ *config.Hub, i *issuer) { i.methods = []string{"client_secret_post"} }, "ann"},
		"public client":    {func(cfg *config.Hub, i *issuer) { cfg.ConsoleOIDCSecret, i.secret = "", "" }, "ann"},
		"public URL":       {func(cfg *config.Hub, _ *issuer) { cfg.PublicURL = "http://hub.example.org/" }, "ann"},
	} {
		t.Run(name, func(t *testing.T) {
			p := startWithIssuer(t, tc.change)
			_, answer := p.ask("GET", p.url+"/console/session", nil, nil)
			if answer["provider"] != strings.TrimPrefix(p.issuer.URL, "http://") || answer["principal"] != "" {
				t.Errorf("at first: %v", answer)
			}
			to, refused := p.begin()
			if refused != "" {
				t.Fatal(refused)
			}
			page := strings.TrimSuffix(p.url, "/") + "/console/"
			if p.cfg.PublicURL != "" {
				page = "http://hub.example.org/console/"
			}
			if at, err := url.Parse(to); err != nil || at.Query().Get("redirect_uri") != page {
				t.Errorf("the provider sends the browser back to %s, want %s", to, page)
			}
			if got := p.finish(p.issuer.authorize(to)); got != tc.want {
				t.Fatalf("signed in as %s", got)
			}
			response, answer := p.ask("GET", p.url+"/console/executors", nil, nil)
			if response.StatusCode != http.StatusOK || p.session() != tc.want {
				t.Errorf("%v %v, session of %s", response.Status, answer, p.session())
			}
			logins := 0
			for _, r := range audittest.Read(t, p.cfg.AuditFile) {
				if r.Type == audit.Result && r.Action == "console.login" && r.Principal == tc.want && r.Credential == "oidc" && r.Status == "OK" {
					logins++
				}
			}
			text, err := os.ReadFile(p.cfg.AuditFile)
			if err != nil || logins != 1 {
				t.Errorf("%d logins, %v: %s", logins, err, text)
			}
			for _, secret := range append(p.issuer.sent, clientSecret) {
				if secret == "" || strings.Contains(string(text)+p.log.String(), secret) {
					t.Errorf("the logs have %q", secret)
				}
			}
		})
	}
}

func TestOIDC_AnswersThatAreNotValid_AreRefused(t *testing.T) {
	const invalid = "401 unauthorized what the provider says about you is not valid"
	foreign, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := startWithIssuer(t, nil)
	own := p.issuer.key
	for _, tc := range []struct {
		name   string
		claims map[string]any
		want   string // of what the person is told
		logged string
	}{
		{"nonce", map[string]any{"nonce": "another"}, invalid, "nonce is wrong"},
		{"no nonce", map[string]any{"nonce": ""}, invalid, "nonce is wrong"},
		{"expired", map[string]any{"exp": time.Now().Unix() - 10}, invalid, "token is expired"},
		{"audience", map[string]any{"aud": []string{"another"}}, invalid, "expected audience"},
		{"issuer", map[string]any{"iss": "https://accounts.example.org"}, invalid, "issued by a different provider"},
		{"key", nil, invalid, "failed to verify"},
		{"unknown", map[string]any{"email": "eve@example.org", "sub": "eve-1"},
			`401 unauthorized no principal has ["sub:eve-1" "email:eve@example.org"]: the hub's operator has to list one`, ""},
		{"unverified", map[string]any{"email_verified": false}, `401 unauthorized no principal has ["sub:ann-1"]: `, ""},
		{"not said", map[string]any{"email_verified": nil}, `401 unauthorized no principal has ["sub:ann-1"]: `, ""},
		{"another case", map[string]any{"email": "Ann@example.org"}, `401 unauthorized no principal has ["sub:ann-1" "email:Ann@example.org"]: `, ""},
		{"two principals", map[string]any{"sub": "bob-1"}, "401 unauthorized it belongs to both bob and ann: the hub's operator", ""},
		{"no subject", map[string]any{"sub": "", "email": ""}, `401 unauthorized no principal has ["sub:"]: `, ""},
	} {
		p.issuer.claims, p.issuer.key = tc.claims, own
		if tc.name == "key" {
			if got := p.signIn(); got != "ann" { // the hub knows the key
				t.Fatal(got)
			}
			p.Jar, _ = cookiejar.New(nil)
			p.issuer.broken = map[string][]byte{"/keys": keySet(t, own)}
			p.issuer.key = foreign
		}
		if got := p.signIn(); !strings.HasPrefix(got, tc.want) || p.session() != "" {
			t.Errorf("%s: %s, session of %q", tc.name, got, p.session())
		}
		p.issuer.broken = nil
		if !strings.Contains(p.log.String(), tc.logged) {
			t.Errorf("%s: the log has no %q: %s", tc.name, tc.logged, p.log.String())
		}
	}
	for _, secret := range p.issuer.sent {
		if strings.Contains(p.log.String(), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
}

func keySet(t *testing.T, key *rsa.PrivateKey) []byte {
	t.Helper()
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Algorithm: "RS256", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestOIDC_AnAnswerIsForOneBrowserOnce(t *testing.T) {
	const notBegun = "401 unauthorized this browser has not begun to sign in"
	p := startWithIssuer(t, nil)
	expect := func(name, got, want string) {
		t.Helper()
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	begin := func() url.Values {
		t.Helper()
		to, refused := p.begin()
		if refused != "" {
			t.Fatal(refused)
		}
		return p.issuer.authorize(to)
	}
	answer := begin()
	own := p.Jar
	p.Jar, _ = cookiejar.New(nil)
	expect("another browser", p.finish(answer), notBegun)
	begin()
	expect("a browser that has begun, too", p.finish(answer), notBegun)
	p.Jar = own
	expect("no state", p.finish(url.Values{"code": answer["code"]}), notBegun)
	expect("the cookie is for one answer", p.finish(answer), notBegun)
	if n := p.issuer.requests("/token"); n != 0 {
		t.Errorf("the provider was asked %d times", n)
	}
	answer = begin()
	at, _ := url.Parse(p.url)
	begun := p.Jar.Cookies(at)
	expect("its own", p.finish(answer), "ann")
	p.Jar, _ = cookiejar.New(nil)
	p.Jar.SetCookies(at, begun)
	expect("again", p.finish(answer), "401 unauthorized the code of the provider is used")
	// The secret in the cookie is required, even where everything derives from its absence.
	p.Jar.SetCookies(at, []*http.Cookie{{Name: begun[0].Name, Value: "short"}})
	expect("a short secret", p.finish(answer), notBegun)
	answer = begin()
	expect("refused by the user", p.finish(url.Values{"state": answer["state"], "error": {"access_denied"}}),
		fmt.Sprintf("401 unauthorized %s does not sign you in: \"access_denied\"", strings.TrimPrefix(p.issuer.URL, "http://")))
	expect("an answer that is too long", p.finish(url.Values{"state": {strings.Repeat("x", 10<<10)}}), "400 invalid_token")
	for _, header := range []http.Header{{"Origin": {"https://evil.example.org"}}, {"Sec-Fetch-Site": {"cross-site"}}} {
		for _, method := range []string{"GET", "POST"} {
			expect(method+" of another site", refusal(p.ask(method, p.url+"/console/oidc", header, nil)), "403 origin_refused")
		}
	}
	expect("an unknown host", refusal(p.ask("GET", "http://evil.example.org/console/oidc", nil, nil)), "421 host_unknown")
}

func TestOIDC_FollowsTheTable(t *testing.T) {
	p := startWithIssuer(t, nil)
	if got := p.signIn(); got != "ann" {
		t.Fatal(got)
	}
	content, err := os.ReadFile(p.cfg.Principals)
	if err != nil {
		t.Fatal(err)
	}
	reload := func(text string) {
		t.Helper()
		if err := os.WriteFile(p.cfg.Principals, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p.hub.Reload(func() (config.Hub, error) { return p.cfg, nil })
	}
	reload(strings.Replace(string(content), "ann@example.org", "eve@example.org", 1))
	if got := p.signIn(); !strings.HasPrefix(got, "401 unauthorized no principal has") {
		t.Errorf("after the identity was removed: %s", got)
	}
	if response, _ := p.ask("GET", p.url+"/console/executors", nil, nil); response.StatusCode != http.StatusOK {
		t.Errorf("the session that began before: %s", response.Status)
	}
	reload(strings.Replace(string(content), "\"ann\"", "\"eve\"", 1))
	if response, _ := p.ask("GET", p.url+"/console/executors", nil, nil); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("after the principal was removed: %s", response.Status)
	}
	if got := p.signIn(); got != "eve" {
		t.Errorf("signed in as %s", got)
	}
}

// What a provider does wrong is answered, and stops neither the hub nor those with a token.
func TestOIDC_AProviderThatDoesNotWork_IsAskedAgain(t *testing.T) {
	const failed = "502 provider_failed the OpenID provider of the console does not work"
	p := startWithIssuer(t, nil)
	large := []byte(`{"x":"` + strings.Repeat("x", 2<<20) + `"}`)
	for _, tc := range []struct {
		name     string
		metadata map[string]any
		broken   map[string][]byte
		want     string
		logged   string
	}{
		{name: "large metadata", broken: map[string][]byte{"/.well-known/openid-configuration": large}, want: failed, logged: "too large"},
		{name: "no metadata", broken: map[string][]byte{"/.well-known/openid-configuration": []byte("<html>")}, want: failed, logged: "invalid character"},
		{name: "another issuer", metadata: map[string]any{"issuer": "https://accounts.example.org"}, want: failed, logged: "did not match"},
		{name: "script", metadata: map[string]any{"authorization_endpoint": "javascript:alert(1)"}, want: failed, logged: "authorization_endpoint is"},
		{name: "plain text", metadata: map[string]any{"authorization_endpoint": "http://accounts.example.org/"}, want: failed, logged: "authorization_endpoint is"},
	} {
		p.issuer.metadata, p.issuer.broken = tc.metadata, tc.broken
		if got := p.signIn(); !strings.HasPrefix(got, tc.want) || !strings.Contains(p.log.String(), tc.logged) {
			t.Errorf("%s: %s: %s", tc.name, got, p.log.String())
		}
	}
	p.issuer.metadata, p.issuer.broken = nil, nil
	for name, answer := range map[string][]byte{"large token": large, "no token": []byte(`{"access_token":"x"}`), "large keys": large} {
		path := "/token"
		if name == "large keys" {
			path = "/keys"
		}
		p.issuer.broken = map[string][]byte{path: answer}
		if got := p.signIn(); p.session() != "" || !strings.HasPrefix(got, "401") && !strings.HasPrefix(got, "502") {
			t.Errorf("%s: %s", name, got)
		}
	}
	p.issuer.broken = nil
	if got := p.signIn(); got != "ann" {
		t.Errorf("a provider that works again: %s", got)
	}
	if n := p.issuer.requests("/.well-known/openid-configuration"); n != 6 {
		t.Errorf("the provider was asked for its metadata %d times", n)
	}
}

func TestOIDC_SendsNothingInPlainText(t *testing.T) {
	p := startWithIssuer(t, func(_ *config.Hub, i *issuer) {
		i.metadata = map[string]any{"token_endpoint": "http://accounts.example.org/token"}
	})
	if got := p.signIn(); !strings.HasPrefix(got, "502 provider_failed") || !strings.Contains(p.log.String(), "neither https:// nor on loopback") {
		t.Errorf("%s: %s", got, p.log.String())
	}
}

// A provider that is down keeps nobody from using the hub.
func TestOIDC_AProviderThatIsDown(t *testing.T) {
	p := startWithIssuer(t, func(_ *config.Hub, i *issuer) { i.Close() })
	if got := p.signIn(); !strings.HasPrefix(got, "502 provider_failed") {
		t.Error(got)
	}
	if response, _ := p.ask("GET", p.url+"/console/executors", p.previewClient.signIn(agentToken), nil); response.StatusCode != http.StatusOK {
		t.Error(response.Status)
	}
}

// A provider that does not answer delays those alone who sign in there, and not for ever.
func TestOIDC_AProviderThatHangs(t *testing.T) {
	hanging, asked := make(chan struct{}), make(chan struct{}, 1)
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-hanging
	}))
	defer silent.Close()
	defer close(hanging)
	p := startWithIssuer(t, func(cfg *config.Hub, _ *issuer) { cfg.ConsoleOIDCIssuer = silent.URL })
	ended := make(chan string, 1)
	go func() {
		_, refused := p.begin()
		ended <- refused
	}()
	<-asked
	p.previewClient.signIn(agentToken)
	if refused := <-ended; !strings.HasPrefix(refused, "502 provider_failed") {
		t.Error(refused)
	}
}

func TestOIDC_FailedAttemptsAreLimited(t *testing.T) {
	p := startWithIssuer(t, func(cfg *config.Hub, i *issuer) {
		cfg.FailedAttempts, cfg.FailedAttemptInterval = 1, config.Duration(time.Hour)
		i.claims = map[string]any{"email": "eve@example.org"}
	})
	if got := p.signIn(); !strings.HasPrefix(got, "401 unauthorized no principal has") {
		t.Fatal(got)
	}
	if got := p.signIn(); !strings.HasPrefix(got, "429 too_many_attempts") {
		t.Error(got)
	}
	if n := p.issuer.requests("/token"); n != 1 {
		t.Errorf("the provider was asked %d times", n)
	}
}

func TestOIDC_AWrongSecretFile_IsAnError(t *testing.T) {
	cfg := config.DefaultHub()
	withTable(t, &cfg, personTable)
	cfg.ConsoleOIDCIssuer, cfg.ConsoleOIDCClient = "https://accounts.example.org", "console"
	cfg.ConsoleOIDCSecret = filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(cfg.ConsoleOIDCSecret, []byte(clientSecret), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := hub.New(cfg, hub.Options{}); err == nil || !strings.Contains(err.Error(), "console_oidc_client_secret_file") || !strings.Contains(err.Error(), "chmod") {
		t.Error(err)
	}
}
