package console

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/gateway/connectrpc"
	"github.com/execwire/execwire/gateway/filehttp"
	"github.com/execwire/execwire/gen/web"
	"github.com/execwire/execwire/internal/httpstall"
)

// HubPrefix is the path below which a hub has its console.
const HubPrefix = "/console/"

// Paths of the console of a hub, below its prefix.
const (
	hubSession    = "session"
	hubOIDC       = "oidc"
	hubExecutors  = "executors"
	executorParts = "executor/"
)

const (
	// maxToken is the most that the body of a login may have.
	maxToken = 8 << 10
	// signInCookie has the secret of a sign-in at the OpenID provider. Its name is the same at
	// each hub of a cluster, and after a restart.
	signInCookie = "execwire-sign-in"
	// signInTime is how long a user may take at the provider.
	signInTime = 10 * time.Minute
)

// IsProviderPath reports whether a request for a path is that of a sign-in at a provider.
func IsProviderPath(path string) bool { return path == HubPrefix+hubOIDC }

// HubConfig configures a [Hub]. All of it is required, except for Provider.
type HubConfig struct {
	// Lifetime is how long a browser stays signed in, and Sessions how many browsers of one
	// principal are signed in at a time; a further one ends the oldest session.
	Lifetime time.Duration
	Sessions int
	// Secure reports whether the client of a request uses TLS.
	Secure func(r *http.Request) bool
	// NeedsToken is whether nobody is known without a credential.
	NeedsToken bool
	// Login authenticates a request with a token, which may be empty, and returns the
	// principal.
	Login func(r *http.Request, token string) (principal string, err error)
	// Provider is where people sign in without a token; nil if nowhere.
	Provider *Provider
	// Executors returns the list of the principal's executors, to be encoded as JSON.
	Executors func(r *http.Request, principal string) (any, error)
	// MayConnect returns why a principal may not connect to an executor now, or nil.
	MayConnect func(r *http.Request, principal, executor string) error
	// Connect returns the connection of a principal to an executor, which is used until
	// release is called.
	Connect func(ctx context.Context, principal, executor string) (conn grpc.ClientConnInterface, release func(), err error)
	// Use marks the connection of a request as in use until end is called, and calls evict
	// when it is to be closed.
	Use func(r *http.Request, evict func(error)) (end func())
	// Reject responds with an error: a *[HubError], or one of these functions. The executor
	// may be empty.
	Reject func(w http.ResponseWriter, r *http.Request, executor string, err error)
}

// Provider is an OpenID provider. All of it is required.
type Provider struct {
	// Name is what people know it by.
	Name string
	// Begin returns the address at the provider to which a browser goes to sign in. The secret
	// is random, and only that browser has it.
	Begin func(r *http.Request, secret string) (url string, err error)
	// Login returns the principal of the browser with that secret, which comes back with an
	// answer of the provider.
	Login func(r *http.Request, secret string, answer url.Values) (principal string, err error)
}

// HubError is why the console of a hub refuses a request.
type HubError struct {
	Status  int    // of HTTP
	Code    string // for programs
	Message string // for people
}

func (e *HubError) Error() string { return e.Message }

// Hub serves the page to the principals of a hub, and the page's calls to its executors. A
// browser signs in by a token or at an OpenID provider, and gets a cookie. Permissions are those that the
// principal has at each request. It is an http.Handler for the paths below [HubPrefix], may be
// used concurrently, and must be closed.
type Hub struct {
	config  HubConfig
	name    string // of the cookie, without the prefix of secure ones
	calls   *connectrpc.Handler
	files   *filehttp.Handler
	closing context.Context // done when it is closing
	stop    context.CancelCauseFunc
	serving sync.WaitGroup // requests; added to with mu held and not closed

	mu       sync.Mutex
	closed   bool                   // guarded by mu
	sessions map[digested]*hubLogin // guarded by mu; by the digest of the cookie
	byOwner  map[string][]*hubLogin // guarded by mu; by principal, the oldest first
}

type digested = [sha256.Size]byte

// hubLogin is a browser that is signed in.
type hubLogin struct {
	digest    digested
	principal string
	valid     context.Context // until it expires, is ended, or the console closes
	end       context.CancelFunc
}

var (
	errHubClosing    = errors.New("the hub is shutting down")
	errLoginExpired  = errors.New("the session has expired")
	errNotLoggedIn   = &HubError{Status: http.StatusUnauthorized, Code: "unauthorized", Message: "sign in at the console: this browser is not signed in, or its session has ended"}
	errInvalidBody   = &HubError{Status: http.StatusBadRequest, Code: "invalid_token", Message: "the token, or the answer of the provider, is too long or malformed"}
	errForeignOrigin = &HubError{Status: http.StatusForbidden, Code: "origin_refused", Message: "pages of other origins cannot use the console"}
	errHubNotFound   = &HubError{Status: http.StatusNotFound, Code: "not_found", Message: "the console has no such path"}
	errHubClosed     = &HubError{Status: http.StatusServiceUnavailable, Code: "shutting_down", Message: errHubClosing.Error() + ": try again"}
)

// NewHub returns the console of a hub. Sessions end with it.
func NewHub(config HubConfig) *Hub {
	h := &Hub{config: config, name: "execwire-console-" + newSecret()[:8], sessions: make(map[digested]*hubLogin), byOwner: make(map[string][]*hubLogin)}
	h.closing, h.stop = context.WithCancelCause(context.Background())
	h.calls = connectrpc.New(connectrpc.Config{MessageBytes: messageBytes, Begin: func(r *http.Request, _ string) (connectrpc.Call, error) {
		conn, release, err := h.connect(r)
		if err != nil {
			return connectrpc.Call{}, err
		}
		return connectrpc.Call{Context: r.Context(), Conn: conn, End: release}, nil
	}})
	h.files = filehttp.NewHandler(filehttp.Config{Prefix: filesPrefix, Begin: func(r *http.Request, _, _ string) (filehttp.Access, error) {
		conn, release, err := h.connect(r)
		if err != nil {
			return filehttp.Access{}, err
		}
		return filehttp.Access{Calls: conn, End: release}, nil
	}})
	return h
}

// Close ends all sessions and requests, and returns when their handlers have returned.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.stop(errHubClosing)
	h.serving.Wait()
}

// ServeHTTP implements http.Handler.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setSafety(w.Header())
	if r.URL.Path+"/" == HubPrefix {
		http.Redirect(w, r, HubPrefix, http.StatusPermanentRedirect)
		return
	}
	executor, err := h.serve(w, r, strings.TrimPrefix(r.URL.Path, HubPrefix))
	if err != nil {
		h.config.Reject(w, r, executor, err)
	}
}

// serve serves a request for a path below the prefix. The error is returned before a response.
func (h *Hub) serve(w http.ResponseWriter, r *http.Request, path string) (executor string, err error) {
	part, isPart := web.Assets[path]
	if path == "" {
		part, isPart = web.Assets["index.html"]
	}
	if !h.enter() {
		return "", errHubClosed
	}
	defer h.serving.Done()
	switch {
	case isForeign(r, isPart):
		return "", errForeignOrigin
	case isPart:
		servePart(w, r, part)
		return "", nil
	case path == hubSession:
		return "", h.serveSession(w, r)
	case path == hubOIDC && h.config.Provider != nil:
		return "", h.serveProvider(w, r)
	}
	login := h.find(r)
	if login == nil {
		return "", errNotLoggedIn
	}
	if path == hubExecutors {
		list, err := h.config.Executors(r, login.principal)
		if err == nil {
			writeJSON(w, list)
		}
		return "", err
	}
	rest, ok := strings.CutPrefix(path, executorParts)
	executor, _, _ = strings.Cut(rest, "/")
	if !ok || len(executor) > maxExecutorID || !executorID.MatchString(executor) {
		return "", errHubNotFound
	}
	if err := h.config.MayConnect(r, login.principal, executor); err != nil {
		return executor, err
	}
	h.serveCall(w, r, login, executor)
	return executor, nil
}

const maxExecutorID = 256

var executorID = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// enter counts a request, unless the console is closed.
func (h *Hub) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.serving.Add(1)
	return true
}

// isForeign reports whether a request is not one of the page itself, or of a user who opens it.
// A user may follow a link from another site to the page, but not to its calls.
func isForeign(r *http.Request, isPart bool) bool {
	if origins := r.Header.Values("Origin"); len(origins) > 0 {
		origin, err := url.Parse(origins[0])
		if err != nil || len(origins) > 1 || !strings.EqualFold(origin.Host, r.Host) {
			return true
		}
	}
	site := r.Header.Get("Sec-Fetch-Site")
	return !isPart && site != "" && site != "same-origin" && site != "none"
}

// serveSession signs a browser in by POST with a token, and out by DELETE, and says by GET who is
// signed in.
func (h *Hub) serveSession(w http.ResponseWriter, r *http.Request) error {
	switch r.Method {
	case http.MethodPost:
		token, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxToken))
		if err != nil {
			return errInvalidBody
		}
		principal, err := h.config.Login(r, strings.TrimSpace(string(token)))
		if err != nil {
			return err
		}
		h.signIn(w, r, principal)
	case http.MethodDelete:
		if login := h.find(r); login != nil {
			h.drop(login)
		}
		h.setCookie(w, r, h.name, "", -time.Second)
		w.WriteHeader(http.StatusNoContent)
	default:
		principal := ""
		if login := h.find(r); login != nil {
			principal = login.principal
		}
		h.writeSession(w, principal)
	}
	return nil
}

// serveProvider begins a sign-in at the provider by GET, which says where to go, and ends it by
// POST of the query with which the provider sent the browser back to the page. Meanwhile the hub
// keeps nothing of it: the browser has a secret, from which the provider's answer must derive.
func (h *Hub) serveProvider(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodPost {
		secret := newSecret()
		to, err := h.config.Provider.Begin(r, secret)
		if err == nil {
			h.setCookie(w, r, signInCookie, secret, signInTime)
			writeJSON(w, map[string]any{"url": to})
		}
		return err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxToken))
	if err != nil {
		return errInvalidBody
	}
	answer, err := url.ParseQuery(string(body))
	if err != nil {
		return errInvalidBody
	}
	secret := ""
	if cookie, err := r.Cookie(h.cookieName(r, signInCookie)); err == nil {
		secret = cookie.Value
	}
	h.setCookie(w, r, signInCookie, "", -time.Second) // it is for one answer
	principal, err := h.config.Provider.Login(r, secret, answer)
	if err == nil {
		h.signIn(w, r, principal)
	}
	return err
}

// signIn responds with a new session.
func (h *Hub) signIn(w http.ResponseWriter, r *http.Request, principal string) {
	h.setCookie(w, r, h.name, h.add(principal), h.config.Lifetime)
	h.writeSession(w, principal)
}

func (h *Hub) writeSession(w http.ResponseWriter, principal string) {
	provider := ""
	if h.config.Provider != nil {
		provider = h.config.Provider.Name
	}
	writeJSON(w, map[string]any{"hub": true, "principal": principal, "needs_token": h.config.NeedsToken, "provider": provider})
}

func writeJSON(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

// cookieName returns the whole name of a cookie. Browsers accept the secure one only from the
// host itself, with TLS, so that the pages of previews cannot set it.
func (h *Hub) cookieName(r *http.Request, name string) string {
	if h.config.Secure(r) {
		return "__Host-" + name
	}
	return name
}

func (h *Hub) setCookie(w http.ResponseWriter, r *http.Request, name, value string, age time.Duration) {
	http.SetCookie(w, &http.Cookie{Name: h.cookieName(r, name), Value: value, Path: "/", MaxAge: int(age.Seconds()),
		HttpOnly: true, Secure: h.config.Secure(r), SameSite: http.SameSiteStrictMode})
}

// add returns the cookie of a new session.
func (h *Hub) add(principal string) (cookie string) {
	cookie = newSecret()
	login := &hubLogin{digest: digest(cookie), principal: principal}
	login.valid, login.end = context.WithTimeoutCause(h.closing, h.config.Lifetime, errLoginExpired)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, owned := range h.byOwner {
		for _, old := range append([]*hubLogin{}, owned...) {
			if old.valid.Err() != nil {
				h.remove(old)
			}
		}
	}
	if owned := h.byOwner[principal]; len(owned) >= h.config.Sessions {
		h.remove(owned[0])
	}
	h.sessions[login.digest] = login
	h.byOwner[principal] = append(h.byOwner[principal], login)
	return cookie
}

// drop ends a session.
func (h *Hub) drop(login *hubLogin) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(login)
}

// remove ends a session. mu is held.
func (h *Hub) remove(login *hubLogin) {
	login.end()
	if h.sessions[login.digest] != login {
		return
	}
	delete(h.sessions, login.digest)
	var kept []*hubLogin
	for _, other := range h.byOwner[login.principal] {
		if other != login {
			kept = append(kept, other)
		}
	}
	if h.byOwner[login.principal] = kept; len(kept) == 0 {
		delete(h.byOwner, login.principal)
	}
}

// find returns the session of a request; nil if there is none that is valid.
func (h *Hub) find(r *http.Request) *hubLogin {
	cookie, err := r.Cookie(h.cookieName(r, h.name))
	if err != nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	login := h.sessions[digest(cookie.Value)]
	if login == nil || login.valid.Err() != nil {
		return nil
	}
	return login
}

// hubCallKey is the context key of the hubCall of a request.
type hubCallKey struct{}

// hubCall is whose call a request is, and to which executor.
type hubCall struct{ principal, executor string }

// serveCall serves a call to an executor. It ends with the session.
func (h *Hub) serveCall(w http.ResponseWriter, r *http.Request, login *hubLogin, executor string) {
	bounded, r := httpstall.Bound(w, r, stallTimeout)
	defer bounded.Extend()
	ctx, cancel := context.WithCancelCause(context.WithValue(r.Context(), hubCallKey{}, hubCall{principal: login.principal, executor: executor}))
	defer cancel(nil)
	interrupt := func(cause error) {
		cancel(cause)
		httpstall.Interrupt(ctx) // the client may not read
	}
	defer context.AfterFunc(login.valid, func() { interrupt(context.Cause(login.valid)) })()
	defer h.config.Use(r, interrupt)()
	var handler http.Handler = h.calls
	prefix := HubPrefix + executorParts + executor
	if strings.HasPrefix(r.URL.Path, prefix+filesPrefix+"/") {
		handler = h.files
	}
	http.StripPrefix(prefix, handler).ServeHTTP(bounded, r.WithContext(ctx))
}

// connect returns the connection for a request. The error is a status.
func (h *Hub) connect(r *http.Request) (conn grpc.ClientConnInterface, release func(), err error) {
	call, _ := r.Context().Value(hubCallKey{}).(hubCall)
	conn, release, err = h.config.Connect(r.Context(), call.principal, call.executor)
	if err != nil {
		return nil, nil, status.Errorf(codes.Unavailable, "executor %s cannot be reached: %v", call.executor, err)
	}
	return conn, release, nil
}
