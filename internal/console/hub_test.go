package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const patience = time.Minute

// hub is a console of a hub whose principals have their names as tokens, and may connect to the
// executors in a list.
type hub struct {
	t       *testing.T
	page    *Hub
	url     string
	allowed map[string][]string
	behind  *executor
}

// executor answers unary calls with an empty message, and streams nothing until the call ends.
type executor struct {
	server
	uses    chan string // who has connected to what, and releases
	streams chan struct{}
}

type endless struct {
	grpc.ClientStream
	ctx context.Context
}

func (s *endless) SendMsg(any) error { return nil }
func (s *endless) CloseSend() error  { return nil }
func (s *endless) RecvMsg(any) error {
	<-s.ctx.Done()
	return context.Cause(s.ctx)
}

func (e *executor) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	e.streams <- struct{}{}
	return &endless{ctx: ctx}, nil
}

func newHub(t *testing.T, change func(*HubConfig)) *hub {
	t.Helper()
	h := &hub{t: t, allowed: map[string][]string{"ann": {"build-1"}, "bob": {}}, behind: &executor{uses: make(chan string, 100), streams: make(chan struct{}, 1)}}
	config := HubConfig{
		Lifetime: time.Hour, Sessions: 2, NeedsToken: true, Secure: func(r *http.Request) bool { return r.TLS != nil },
		Login: func(_ *http.Request, token string) (string, error) {
			if h.allowed[token] == nil {
				return "", &HubError{Status: http.StatusUnauthorized, Message: "invalid token"}
			}
			return token, nil
		},
		Executors: func(_ *http.Request, principal string) (any, error) { return h.allowed[principal], nil },
		MayConnect: func(_ *http.Request, principal, executor string) error {
			if !slices.Contains(h.allowed[principal], executor) {
				return &HubError{Status: http.StatusForbidden, Message: "not allowed"}
			}
			return nil
		},
		Connect: func(_ context.Context, principal, executor string) (grpc.ClientConnInterface, func(), error) {
			h.behind.uses <- principal + " to " + executor
			if executor == "away" {
				return nil, nil, errors.New("it is not connected")
			}
			return h.behind, func() { h.behind.uses <- "released" }, nil
		},
		Use: func(*http.Request, func(error)) func() { return func() {} },
		Reject: func(w http.ResponseWriter, _ *http.Request, executor string, err error) {
			refused := err.(*HubError)
			http.Error(w, executor+": "+refused.Message, refused.Status)
		},
	}
	if change != nil {
		change(&config)
	}
	h.page = NewHub(config)
	served := httptest.NewServer(h.page)
	h.url = served.URL
	t.Cleanup(func() {
		h.page.Close()
		served.Close()
	})
	return h
}

// login signs a browser in, and returns the header with its cookie.
func (h *hub) login(token string) []string {
	h.t.Helper()
	response, text := send(h.t, http.MethodPost, h.url+HubPrefix+hubSession, token+"\n", "Origin", h.url, "Sec-Fetch-Site", "same-origin")
	if response.StatusCode != http.StatusOK || len(response.Cookies()) != 1 || !strings.Contains(text, fmt.Sprintf("%q", token)) {
		h.t.Fatalf("%d %s %v", response.StatusCode, text, response.Cookies())
	}
	cookie := response.Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.MaxAge != 3600 || strings.Contains(cookie.Value, token) {
		h.t.Errorf("the cookie is %v", cookie)
	}
	return []string{"Cookie", cookie.Name + "=" + cookie.Value}
}

// call makes a call at an executor, and returns its status.
func (h *hub) call(executor string, header ...string) int {
	h.t.Helper()
	return call(h.t, h.url+HubPrefix+executorParts+executor, header...)
}

// expectStatus expects the status of a request for a path of the console.
func (h *hub) expectStatus(want int, method, path string, header ...string) string {
	h.t.Helper()
	response, text := send(h.t, method, h.url+path, "", header...)
	if response.StatusCode != want {
		h.t.Errorf("%s %s with %v: %d %s, want %d", method, path, header, response.StatusCode, text, want)
	}
	return text
}

func TestHub_Login_AllowsWhatThePrincipalMay(t *testing.T) {
	h := newHub(t, nil)
	if got := h.expectStatus(http.StatusOK, "GET", "/console/session"); got != `{"hub":true,"needs_token":true,"principal":"","provider":""}`+"\n" {
		t.Errorf("without a session: %s", got)
	}
	h.expectStatus(http.StatusUnauthorized, "GET", "/console/executors")
	for _, wrong := range []string{"", "eve", strings.Repeat("x", maxToken+1)} {
		if response, _ := send(t, "POST", h.url+"/console/session", wrong); response.StatusCode/100 != 4 || len(response.Cookies()) != 0 {
			t.Errorf("%.10q: %d", wrong, response.StatusCode)
		}
	}
	ann, bob := h.login("ann"), h.login("bob")
	if got := h.expectStatus(http.StatusOK, "GET", "/console/executors", ann...); got != "[\"build-1\"]\n" {
		t.Errorf("the executors of ann: %s", got)
	}
	for _, tc := range []struct {
		executor string
		header   []string
		want     int
	}{
		{"build-1", ann, http.StatusOK}, {"build-1", bob, http.StatusForbidden}, {"build-1", nil, http.StatusUnauthorized},
		{"build-2", ann, http.StatusForbidden}, {"a..b", ann, http.StatusNotFound}, {"", ann, http.StatusNotFound},
	} {
		if got := h.call(tc.executor, tc.header...); got != tc.want {
			t.Errorf("a call to %q with %v: %d, want %d", tc.executor, tc.header, got, tc.want)
		}
	}
	for _, want := range []string{"ann to build-1", "released"} {
		select {
		case got := <-h.behind.uses:
			if got != want {
				t.Errorf("%s, want %s", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("not %s", want)
		}
	}
	if h.behind.called != 1 || len(h.behind.uses) != 0 {
		t.Errorf("the executor was called %d times", h.behind.called)
	}
	h.allowed["ann"] = append(h.allowed["ann"], "away")
	if got := h.call("away", ann...); got != http.StatusServiceUnavailable {
		t.Errorf("a call to an executor that is away: %d", got)
	}
	// What the principal loses is lost at once.
	h.allowed["ann"] = nil
	if got := h.call("build-1", ann...); got != http.StatusForbidden {
		t.Errorf("a call after the permission is gone: %d", got)
	}
}

func TestHub_RequestsOfOtherSites_AreRefused(t *testing.T) {
	h := newHub(t, nil)
	ann := h.login("ann")
	for _, header := range [][]string{
		{"Origin", "https://evil.example.org"}, {"Origin", "null"}, {"Origin", "http://127.0.0.1:1"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
	} {
		header = append(header, ann...)
		if got := h.call("build-1", header...); got != http.StatusForbidden {
			t.Errorf("%v: %d", header, got)
		}
		for _, path := range []string{"/console/session", "/console/executors", "/console/executor/build-1/v1/files/etc/hostname"} {
			h.expectStatus(http.StatusForbidden, "GET", path, header...)
		}
		h.expectStatus(http.StatusForbidden, "POST", "/console/session", header...)
	}
	if len(h.behind.uses) != 0 {
		t.Errorf("%s", <-h.behind.uses)
	}
	// Anybody may follow a link to the page, whose policy allows no other script.
	response, text := send(t, "GET", h.url+"/console", "", "Sec-Fetch-Site", "cross-site")
	if response.StatusCode != http.StatusOK || response.Request.URL.Path != HubPrefix || !strings.Contains(text, "console.js") ||
		!strings.HasPrefix(response.Header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src") {
		t.Errorf("%d %v", response.StatusCode, response.Header)
	}
}

// watch begins a call that streams nothing, and returns what waits for its end.
func (h *hub) watch(header ...string) (awaitEnd func()) {
	h.t.Helper()
	body := "\x00\x00\x00\x00\x11" + `{"processId":"x"}`
	r, err := http.NewRequestWithContext(h.t.Context(), "POST", h.url+HubPrefix+executorParts+"build-1"+execwirev1.ProcessService_WatchProcess_FullMethodName, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/connect+json")
	r.Header.Set(header[0], header[1])
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return
		}
		defer func() { _ = response.Body.Close() }()
		_, _ = bufio.NewReader(response.Body).ReadString(0xff)
	}()
	select {
	case <-h.behind.streams:
	case <-time.After(patience):
		h.t.Fatal("the call does not begin")
	}
	return func() {
		h.t.Helper()
		select {
		case <-ended:
		case <-time.After(patience):
			h.t.Fatal("the call does not end")
		}
	}
}

func TestHub_CallsEndWithTheirSession(t *testing.T) {
	h := newHub(t, nil)
	oldest := h.login("ann")
	ended := h.watch(oldest...)
	second := h.login("ann")
	if got := h.call("build-1", oldest...); got != http.StatusOK {
		t.Errorf("of two sessions, the first: %d", got)
	}
	third := h.login("ann") // one more than are allowed
	ended()
	if got := h.call("build-1", oldest...); got != http.StatusUnauthorized {
		t.Errorf("the oldest session: %d", got)
	}
	ended = h.watch(second...)
	h.expectStatus(http.StatusNoContent, "DELETE", "/console/session", second...)
	ended()
	if got := h.call("build-1", second...); got != http.StatusUnauthorized {
		t.Errorf("after signing out: %d", got)
	}
	ended = h.watch(third...)
	h.page.Close()
	ended()
	if got := h.call("build-1", third...); got != http.StatusServiceUnavailable {
		t.Errorf("after Close: %d", got)
	}
	if len(h.page.byOwner["ann"]) != 1 || len(h.page.sessions) != 1 {
		t.Errorf("the console keeps %d sessions", len(h.page.sessions))
	}
}

// The end of a session by its time is that of its context, whose deadline is its expiry.
func TestHub_SessionsExpire(t *testing.T) {
	h := newHub(t, nil)
	begun := time.Now()
	header := h.login("ann")
	ended := h.watch(header...)
	login := h.page.byOwner["ann"][0]
	if until, ok := login.valid.Deadline(); !ok || until.Before(begun.Add(time.Hour)) || until.After(time.Now().Add(time.Hour)) {
		t.Errorf("the session ends at %v", until)
	}
	login.end()
	ended()
	if got := h.call("build-1", header...); got != http.StatusUnauthorized {
		t.Errorf("after its end: %d", got)
	}
	h.login("bob") // which removes it
	if len(h.page.sessions) != 1 || len(h.page.byOwner) != 1 {
		t.Errorf("the console keeps %d sessions", len(h.page.sessions))
	}
}

// The secret of a sign-in at the provider stays in the browser that has begun, and is used once.
func TestHub_Provider_SignsInTheBrowserThatHasBegun(t *testing.T) {
	for _, secure := range []bool{false, true} {
		var begun string
		h := newHub(t, func(config *HubConfig) {
			config.Secure = func(*http.Request) bool { return secure }
			config.Provider = &Provider{
				Name: "accounts.example.org",
				Begin: func(_ *http.Request, secret string) (string, error) {
					begun = secret
					return "https://accounts.example.org/", nil
				},
				Login: func(_ *http.Request, secret string, answer url.Values) (string, error) {
					if secret == "" || secret != begun {
						return "", &HubError{Status: http.StatusUnauthorized, Message: "not begun"}
					}
					return answer.Get("code"), nil
				},
			}
		})
		h.expectStatus(http.StatusUnauthorized, "POST", "/console/oidc")
		response, text := send(t, "GET", h.url+"/console/oidc", "")
		if len(response.Cookies()) != 1 || text != "{\"url\":\"https://accounts.example.org/\"}\n" {
			t.Fatalf("%s %v", text, response.Cookies())
		}
		cookie := response.Cookies()[0]
		if want := map[bool]string{false: "execwire-sign-in", true: "__Host-execwire-sign-in"}[secure]; cookie.Name != want || cookie.Value != begun ||
			cookie.Secure != secure || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.MaxAge != 600 {
			t.Errorf("the cookie is %v", cookie)
		}
		response, text = send(t, "POST", h.url+"/console/oidc", "code=ann", "Cookie", cookie.Name+"="+begun, "Origin", h.url)
		if response.StatusCode != http.StatusOK || len(response.Cookies()) != 2 {
			t.Fatalf("%d %s %v", response.StatusCode, text, response.Cookies())
		}
		if ended, session := response.Cookies()[0], response.Cookies()[1]; ended.Name != cookie.Name || ended.MaxAge >= 0 || session.MaxAge != 3600 ||
			h.call("build-1", "Cookie", session.Name+"="+session.Value) != http.StatusOK {
			t.Errorf("%v", response.Cookies())
		}
	}
}
