package hub_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testcert"
)

// previewClient makes requests at a hub whatever their host is.
type previewClient struct {
	t   *testing.T
	url string // of the hub
	*http.Client
}

func newPreviewClient(t *testing.T, hub string) *previewClient {
	c := client(t, nil)
	c.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(hub, "http://"))
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &previewClient{t: t, url: hub, Client: c}
}

// ask returns the response to a request, without its body, and the code of its error.
func (c *previewClient) ask(method, url string, header http.Header, body any) (*http.Response, map[string]any) {
	c.t.Helper()
	content, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := http.NewRequest(method, url, bytes.NewReader(content))
	if err != nil {
		c.t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	response, err := c.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	var answer map[string]any
	_ = json.NewDecoder(response.Body).Decode(&answer) // a redirect has none
	return response, answer
}

// refusal returns status, code and message of the error in an answer.
func refusal(response *http.Response, answer map[string]any) string {
	failed, _ := answer["error"].(map[string]any)
	return fmt.Sprintf("%d %v %v", response.StatusCode, failed["code"], failed["message"])
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// link makes a link, and returns it and the cookie that it is exchanged for.
func (c *previewClient) link(token string, body map[string]any) (link, cookie string) {
	c.t.Helper()
	response, made := c.ask("POST", c.url+"/v1/previews", bearer(token), body)
	link, _ = made["url"].(string)
	if response.StatusCode != http.StatusOK || link == "" {
		c.t.Fatalf("%s, %v", response.Status, made)
	}
	response, _ = c.ask("GET", link, nil, nil)
	if response.StatusCode != http.StatusSeeOther || len(response.Cookies()) != 1 {
		c.t.Fatalf("a link gave %s, %v", response.Status, response.Header)
	}
	one := response.Cookies()[0]
	return link, one.Name + "=" + one.Value
}

// metrics returns the text of /metrics.
func (c *previewClient) metrics(token string) string {
	c.t.Helper()
	r, err := http.NewRequest("GET", c.url+"/metrics", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header = bearer(token)
	response, err := c.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text)
}

// startPreviews starts a hub with a table and previews below preview.test. Whatever is
// authorized finds no executor.
func startPreviews(t *testing.T, change func(*config.Hub)) *previewClient {
	t.Helper()
	other := testcert.WriteFile(t, filepath.Join(t.TempDir(), "other"), []byte(otherPrincipalToken))
	return newPreviewClient(t, start(t, "http", func(cfg *config.Hub) {
		cfg.PreviewDomain = "preview.test"
		withTable(t, cfg, fmt.Sprintf("[[principal]]\nname = \"other\"\ntoken_file = %q\nconnect_to_executors = [\"other\"]\n", other))
		if change != nil {
			change(cfg)
		}
	}))
}

const (
	otherPrincipalToken = "other-token-0123456789-0123456789-0123"
	authorized          = "404 executor_not_found"
)

func TestPreview_Hosts_NamePortAndExecutor(t *testing.T) {
	c := startPreviews(t, nil)
	long := "build-" + strings.Repeat("x", 63-len("8080--build-"))
	for host, want := range map[string]string{
		"8080--build-1.preview.test":          authorized,
		"1--build-1.PREVIEW.test:99":          authorized,
		"65535--build-a--b.preview.test":      authorized,
		"8080--" + long + ".preview.test":     authorized,
		"8080--" + long + "x.preview.test":    "421 host_unknown",
		"0--build-1.preview.test":             "421 host_unknown",
		"080--build-1.preview.test":           "421 host_unknown",
		"+80--build-1.preview.test":           "421 host_unknown",
		"65536--build-1.preview.test":         "421 host_unknown",
		"8080--build_1.preview.test":          "421 host_unknown",
		"8080--build-.preview.test":           "421 host_unknown",
		"8080-build-1.preview.test":           "421 host_unknown",
		"8080--build-1.x.preview.test":        "421 host_unknown",
		"x.8080--build-1.preview.test":        "421 host_unknown",
		"preview.test":                        "421 host_unknown",
		"8080--build-1preview.test":           "421 host_unknown",
		"8080--build-1.preview.test.evil.org": "421 host_unknown",
	} {
		if got := refusal(c.ask("GET", "http://"+host+"/", bearer(agentToken), nil)); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}

func TestPreview_Links_AreValidated(t *testing.T) {
	c := startPreviews(t, func(cfg *config.Hub) { cfg.PreviewLinks = 2 })
	type body = map[string]any
	for name, tc := range map[string]struct {
		token string
		body  any
		want  string
	}{
		"no token":                 {"", body{"executor_id": "build-1", "port": 1}, "401 unauthorized"},
		"no permission":            {fleetToken, body{"executor_id": "build-1", "port": 1}, "403 forbidden"},
		"another executor":         {agentToken, body{"executor_id": "other", "port": 1}, "403 forbidden"},
		"no port":                  {agentToken, body{"executor_id": "build-1"}, "400 invalid_preview the port must be 1 to 65535"},
		"large port":               {agentToken, body{"executor_id": "build-1", "port": 65536}, "400 invalid_preview the port must be 1 to 65535"},
		"an id with an underscore": {agentToken, body{"executor_id": "build_1", "port": 80}, "400 invalid_preview executor \"build_1\" has no preview"},
		"an id in upper case":      {agentToken, body{"executor_id": "build-A", "port": 80}, "400 invalid_preview executor \"build-A\" has no preview"},
		"a long id":                {agentToken, body{"executor_id": strings.Repeat("x", 60), "port": 80}, "400 invalid_preview executor \"" + strings.Repeat("x", 60) + "\" has no preview: its id is part of a name in DNS, so it needs lower-case letters, digits and -, and at most 59 bytes for port 80"},
		"too long a lifetime":      {agentToken, body{"executor_id": "build-1", "port": 80, "lifetime_seconds": 86401}, "400 invalid_preview the lifetime of a link is 1s to 24h0m0s (preview_link_lifetime)"},
		"too short a lifetime":     {agentToken, body{"executor_id": "build-1", "port": 80, "lifetime_seconds": 0.5}, "400 invalid_preview the lifetime"},
		"no JSON":                  {agentToken, "build-1", "400 invalid_preview the body is not the JSON of this request"},
		"an unknown member":        {agentToken, body{"executor_id": "build-1", "port": 80, "more": 1}, "400 invalid_preview the body is not the JSON of this request"},
		"large body":               {agentToken, body{"executor_id": strings.Repeat("x", 1<<17)}, "400 invalid_preview the body is not the JSON of this request"},
	} {
		header := bearer(tc.token)
		if tc.token == "" {
			header = nil
		}
		if got := refusal(c.ask("POST", c.url+"/v1/previews", header, tc.body)); !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	one := body{"executor_id": "build-1", "port": 80}
	first, _ := c.link(agentToken, one)
	second, _ := c.link(agentToken, body{"executor_id": "build-1", "port": 80, "lifetime_seconds": 86400})
	if got := refusal(c.ask("POST", c.url+"/v1/previews", bearer(agentToken), one)); !strings.HasPrefix(got, "429 preview_link_limit the limit preview_links_per_principal of 2 is reached") {
		t.Errorf("one link too many: %s", got)
	}
	foreign, _ := c.link(otherPrincipalToken, body{"executor_id": "other", "port": 81}) // not affected
	expectLinks := func(token string, want ...string) {
		t.Helper()
		_, answer := c.ask("GET", c.url+"/v1/previews", bearer(token), nil)
		list, _ := answer["previews"].([]any)
		var got []string
		for _, one := range list {
			made, _ := one.(map[string]any)
			url, _ := made["url"].(string)
			got = append(got, fmt.Sprint(made["executor_id"], " ", made["port"], " ", url))
		}
		if !slices.Equal(got, want) {
			t.Errorf("the links are %q, want %q", got, want)
		}
	}
	expectLinks(otherPrincipalToken, "other 81 "+foreign)
	expectLinks(agentToken, "build-1 80 "+first, "build-1 80 "+second)
	expectLinks(fleetToken)
	if response, answer := c.ask("POST", c.url+"/v1/previews/revoke", bearer(agentToken), body{"url": first}); response.StatusCode != http.StatusOK || answer["executor_id"] != "build-1" || answer["port"] != 80.0 {
		t.Errorf("revoking: %s, %v", response.Status, answer)
	}
	expectLinks(agentToken, "build-1 80 "+second)
	if metrics := c.metrics(agentToken); !strings.Contains(metrics, "\nexecwire_hub_preview_links 2\n") || !strings.Contains(metrics, "\nexecwire_hub_preview_requests_total 0\n") {
		t.Errorf("the metrics are %s", metrics)
	}
	c.link(agentToken, one)

	off := newPreviewClient(t, start(t, "http", nil))
	for _, path := range []string{"/v1/previews", "/v1/previews/revoke"} {
		if got := refusal(off.ask("POST", off.url+path, nil, one)); !strings.HasPrefix(got, "404 previews_off the hub has no previews: set preview_domain") {
			t.Errorf("%s without previews: %s", path, got)
		}
	}
	if got := refusal(off.ask("GET", off.url+"/v1/previews", nil, nil)); !strings.HasPrefix(got, "404 previews_off") {
		t.Errorf("a list without previews: %s", got)
	}
	if got := refusal(off.ask("GET", "http://80--build-1.localhost/", nil, nil)); !strings.HasPrefix(got, "421 host_unknown") {
		t.Errorf("a preview without previews: %s", got)
	}
}

func TestPreview_Access_NeedsPermissionOrValidLink(t *testing.T) {
	c := startPreviews(t, nil)
	link, cookie := c.link(agentToken, map[string]any{"executor_id": "build-1", "port": 8080})
	host, _, _ := strings.Cut(link, "?")
	with := func(cookies string) http.Header { return http.Header{"Cookie": {cookies}} }
	_, claim, _ := strings.Cut(cookie, "=")
	payload, signature, _ := strings.Cut(claim, ".")
	tampered := payload[:5] + string(payload[5]^1) + payload[6:] + "." + signature
	for name, tc := range map[string]struct {
		url    string
		header http.Header
		want   string
	}{
		"no credential":           {host, nil, "401 unauthorized a preview needs a link"},
		"a token":                 {host, bearer(agentToken), authorized},
		"a wrong token":           {host, bearer("wrong"), "401 unauthorized invalid bearer token"},
		"a token without right":   {host, bearer(otherPrincipalToken), "403 forbidden"},
		"the cookie":              {host, with(cookie), authorized},
		"the cookie among others": {host, with("execwire-preview=tossed; a=b; " + cookie), authorized},
		"a tampered claim":        {host, with("execwire-preview=" + tampered), "401 unauthorized the link of the preview is not one that this hub has made"},
		"no signature":            {host, with("execwire-preview=" + payload), "401 unauthorized the link of the preview is not one that this hub has made"},
		"another port":            {strings.Replace(host, "8080", "8081", 1), with(cookie), "401 unauthorized the link is for port 8080 of executor build-1: ask for one for this preview"},
		"another executor":        {strings.Replace(host, "build-1", "build-2", 1), with(cookie), "401 unauthorized the link is for port 8080 of executor build-1: ask for one for this preview"},
		"the hub itself":          {c.url + "/v1/executors", with(cookie), "401 unauthorized missing bearer token"},
		"a tampered link":         {host + "?execwire-preview=" + tampered, nil, "401 unauthorized the link of the preview is not one that this hub has made"},
		"a link to another port":  {strings.Replace(link, "8080", "8081", 1), nil, "401 unauthorized the link is for port 8080 of executor build-1: ask for one for this preview"},
	} {
		if got := refusal(c.ask("GET", tc.url, tc.header, nil)); !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	if got := refusal(c.ask("POST", c.url+"/v1/previews/revoke", bearer(otherPrincipalToken), map[string]any{"url": link})); !strings.HasPrefix(got, "404 preview_not_found") {
		t.Errorf("revoking by another principal: %s", got)
	}
	if got := refusal(c.ask("GET", host, with(cookie), nil)); !strings.HasPrefix(got, authorized) {
		t.Errorf("after another principal tried to revoke it: %s", got)
	}
	if response, answer := c.ask("POST", c.url+"/v1/previews/revoke", bearer(agentToken), map[string]any{"url": link}); response.StatusCode != http.StatusOK {
		t.Errorf("revoking: %s", refusal(response, answer))
	}
	const revoked = "401 unauthorized the link of the preview was revoked"
	if got := refusal(c.ask("GET", host, with(cookie), nil)); !strings.HasPrefix(got, revoked) {
		t.Errorf("the cookie of a revoked link: %s", got)
	}
	// Authorization is still the application's. Pages of previews do not lock out their
	// visitors at the hub.
	const failedAttempts = 10
	for range failedAttempts + 1 {
		c.ask("GET", host, bearer("of-the-application"), nil)
		if got := refusal(c.ask("GET", host, http.Header{"Cookie": {cookie}, "Authorization": {"Bearer of-the-application"}}, nil)); !strings.HasPrefix(got, revoked) {
			t.Errorf("the cookie of a revoked link, and a token of the application: %s", got)
		}
	}
	if got := refusal(c.ask("GET", link, nil, nil)); !strings.HasPrefix(got, revoked) {
		t.Errorf("a revoked link: %s", got)
	}
	if got := refusal(c.ask("POST", c.url+"/v1/previews/revoke", bearer(agentToken), map[string]any{"url": link})); !strings.HasPrefix(got, "404 preview_not_found") {
		t.Errorf("revoking twice: %s", got)
	}
	if got := refusal(c.ask("POST", c.url+"/v1/previews/revoke", bearer(agentToken), map[string]any{"url": host})); !strings.HasPrefix(got, "400 invalid_preview") {
		t.Errorf("revoking what is not a link: %s", got)
	}
}

// A link works until it expires, also for those who have exchanged it.
func TestPreview_Link_Expires(t *testing.T) {
	c := startPreviews(t, nil)
	_, made := c.ask("POST", c.url+"/v1/previews", bearer(agentToken), map[string]any{"executor_id": "build-1", "port": 8080, "lifetime_seconds": 1})
	link := made["url"].(string)
	host, claim, _ := strings.Cut(link, "?execwire-preview=")
	for _, header := range []http.Header{nil, {"Cookie": {"execwire-preview=" + claim}}} {
		to := host
		if header == nil {
			to = link
		}
		for got := ""; !strings.HasPrefix(got, "401 unauthorized the link of the preview has expired"); {
			if got = refusal(c.ask("GET", to, header, nil)); strings.HasPrefix(got, "401") && !strings.Contains(got, "expired") {
				t.Fatal(got)
			}
		}
	}
}

// The cookie of a link, unlike a token, comes with requests of pages of other previews,
// which are of the same site.
func TestPreview_OtherOrigins_OnlyOpenIt(t *testing.T) {
	c := startPreviews(t, nil)
	link, cookie := c.link(agentToken, map[string]any{"executor_id": "build-1", "port": 8080})
	made, _ := url.Parse(link)
	own, sibling := "http://"+made.Host, "http://8081--build-1.preview.test"
	fetched := func(method, site, mode, dest, origin string) (string, http.Header) {
		header := http.Header{"Cookie": {cookie}, "Sec-Fetch-Site": {site}, "Sec-Fetch-Mode": {mode}, "Sec-Fetch-Dest": {dest}}
		if origin != "" {
			header.Set("Origin", origin)
		}
		return method, header
	}
	old := func(method, origin string) (string, http.Header) {
		header := http.Header{"Cookie": {cookie}}
		if origin != "" {
			header.Set("Origin", origin)
		}
		return method, header
	}
	const refused = "403 origin_refused"
	check := func(name, want, method string, header http.Header) {
		t.Helper()
		if got := refusal(c.ask(method, own+"/", header, nil)); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	one := func(name, want string) func(string, http.Header) {
		return func(method string, header http.Header) { t.Helper(); check(name, want, method, header) }
	}
	one("its own page posts", authorized)(fetched("POST", "same-origin", "cors", "empty", own))
	one("the user opens it", authorized)(fetched("GET", "none", "navigate", "document", ""))
	one("another site leads to it", authorized)(fetched("GET", "cross-site", "navigate", "document", ""))
	one("a sibling leads to it", authorized)(fetched("GET", "same-site", "navigate", "document", ""))
	one("a sibling posts a form", refused)(fetched("POST", "same-site", "navigate", "document", sibling))
	one("a sibling posts", refused)(fetched("POST", "same-site", "no-cors", "empty", sibling))
	one("a sibling reads", refused)(fetched("GET", "same-site", "cors", "empty", sibling))
	one("a sibling embeds it", refused)(fetched("GET", "same-site", "navigate", "iframe", ""))
	one("a sibling uses an image", refused)(fetched("GET", "same-site", "no-cors", "image", ""))
	one("another site posts", refused)(fetched("POST", "cross-site", "no-cors", "empty", "null"))
	one("an old browser, its own page", authorized)(old("POST", own))
	one("an old browser, a sibling", refused)(old("POST", sibling))
	one("an old browser, a sandboxed page", refused)(old("POST", "null"))
	one("no browser", authorized)(old("POST", ""))
	check("a token from anywhere", authorized, "POST", http.Header{"Authorization": {"Bearer " + agentToken}, "Origin": {sibling}, "Sec-Fetch-Site": {"same-site"}})

	// The user of the hub on loopback needs no credential, and neither do pages in the
	// user's browser.
	c = newPreviewClient(t, start(t, "http", func(cfg *config.Hub) { cfg.PreviewDomain = "localhost" }))
	cookie, own = "a=b", "http://8080--build-1.localhost"
	one("the user on loopback", authorized)(old("GET", ""))
	one("a page on loopback", refused)(fetched("POST", "cross-site", "no-cors", "empty", "https://evil.example"))
}

// Over TLS the cookie is of its host alone, and a redirect keeps the URL, whatever it is.
func TestPreview_TLS_CookieIsHostOnly(t *testing.T) {
	authority := testcert.NewAuthority(t)
	hub := start(t, "https", func(cfg *config.Hub) {
		cfg.TLSCertificate, cfg.TLSKey = authority.Issue("hub").Write(t, t.TempDir(), "hub")
		cfg.PreviewDomain = "preview.test"
		withTable(t, cfg, "")
	})
	c := newPreviewClient(t, strings.Replace(hub, "https", "http", 1))
	c.url = hub
	c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // the certificate has no name of a preview
	_, made := c.ask("POST", hub+"/v1/previews", bearer(agentToken), map[string]any{"executor_id": "build-1", "port": 8080, "lifetime_seconds": 600})
	link, _ := made["url"].(string)
	host, signed, _ := strings.Cut(link, "?")
	_, port, _ := strings.Cut(strings.TrimPrefix(hub, "https://"), ":")
	if host != "https://8080--build-1.preview.test:"+port+"/" {
		t.Fatalf("the link is %s", link)
	}
	response, _ := c.ask("GET", host+"/evil.example/%2f?a=1;2&"+signed+"&b&"+signed, nil, nil)
	if got := response.Header.Get("Location"); response.StatusCode != http.StatusSeeOther || got != host+"/evil.example/%2f?a=1;2&b" {
		t.Errorf("%s to %q", response.Status, got)
	}
	for name, want := range map[string]string{"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"} {
		if got := response.Header.Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	cookie := response.Cookies()[0]
	if cookie.Name != "__Host-execwire-preview" || cookie.Path != "/" || cookie.Domain != "" || !cookie.Secure || !cookie.HttpOnly ||
		cookie.SameSite != http.SameSiteLaxMode || cookie.MaxAge > 600 || cookie.MaxAge < 1 {
		t.Errorf("the cookie is %q", response.Header.Get("Set-Cookie"))
	}
	if got := refusal(c.ask("GET", host, http.Header{"Cookie": {cookie.Name + "=" + cookie.Value}}, nil)); !strings.HasPrefix(got, authorized) {
		t.Errorf("the cookie: %s", got)
	}
	if got := refusal(c.ask("GET", host, http.Header{"Cookie": {"execwire-preview=" + cookie.Value}}, nil)); !strings.HasPrefix(got, "401 unauthorized") {
		t.Errorf("a cookie that any host may set: %s", got)
	}
}

// A link has the present permission of its principal.
func TestPreview_PermissionWithdrawn_EndsLinks(t *testing.T) {
	table := ""
	c := startPreviews(t, func(cfg *config.Hub) { table = cfg.Principals })
	link, cookie := c.link(agentToken, map[string]any{"executor_id": "build-1", "port": 8080})
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	testcert.WriteFile(t, table, bytes.Replace(text, []byte(`connect_to_executors = ["build-*"]`), []byte(`connect_to_executors = ["test-*"]`), 1))
	host, _, _ := strings.Cut(link, "?")
	for _, use := range []struct {
		url    string
		header http.Header
	}{{host, http.Header{"Cookie": {cookie}}}, {link, nil}} {
		for got := ""; !strings.HasPrefix(got, "403 forbidden"); {
			if got = refusal(c.ask("GET", use.url, use.header, nil)); strings.HasPrefix(got, "401") {
				t.Fatal(got)
			}
		}
	}
}
