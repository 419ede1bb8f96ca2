package wsserver

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/httpstall"
	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/wsconn"
)

// websocketLabel is the reference's name of a websocket in error texts.
const websocketLabel = "exec-server websocket"

var _ jsonrpc.Transport = (*wsconn.Conn)(nil)

// HTTPConfig configures a [Handler].
type HTTPConfig struct {
	// Websocket has the options of every connection except Principal. An empty label
	// becomes the reference's.
	Websocket wsconn.Options
	// Origins are the accepted values of the Origin header, compared exactly. Without
	// them, every request with the header, as browsers send it, is refused.
	Origins []string
	// OriginRefused is called for each request that is refused for its Origin,
	// concurrently. nil ignores them.
	OriginRefused func(*http.Request)
	// HostKnown reports whether the Host of a request means this server; others are
	// refused, whatever they request. It is called concurrently; nil accepts every
	// host.
	HostKnown func(*http.Request) bool
	// Mounts are further handlers, by the prefix of their paths; the longest prefix
	// counts, and paths are not cleaned. They get requests whose Origin and Host are
	// accepted, and authenticate them themselves. A response may take any time, as long
	// as the client takes each part of it within StallTimeout; so may a request body.
	// The request's context ends with [Handler.Shutdown], which waits for the handler;
	// see [httpstall.Interrupt]. The ResponseWriter is an [*httpstall.Writer].
	Mounts map[string]http.Handler
	// StallTimeout is how long a client of a mount may delay the next part of its
	// request or response; zero is [DefaultStallTimeout].
	StallTimeout time.Duration
	// Authenticate returns the caller of a request for a websocket, or the refusal. It
	// is called concurrently. Health needs no authentication.
	Authenticate func(*http.Request) (auth.Caller, *Refusal)
	// Ready reports whether the server accepts connections. It is called concurrently;
	// nil is always true.
	Ready func() bool
	// Serve serves a connection, closes it, and returns. It is called in a goroutine
	// of its own. ctx has the values of the request's context and ends with
	// [Handler.Shutdown], with the cause [ErrShutdown]; it does not end with the
	// connection.
	Serve func(ctx context.Context, caller auth.Caller, conn *wsconn.Conn)
}

// DefaultStallTimeout is the default of [HTTPConfig.StallTimeout].
const DefaultStallTimeout = time.Minute

// ErrShutdown is the cancellation cause of Shutdown.
var ErrShutdown = errors.New("the gateway is shutting down")

// Handler is the HTTP handler of a listener: websockets at /, health, and mounts. It may
// be used concurrently.
type Handler struct {
	config  HTTPConfig // without what changeable has
	current atomic.Pointer[changeable]
	over    context.Context // done at shutdown
	end     context.CancelCauseFunc

	mu      sync.Mutex
	serving int           // guarded by mu; connections in Serve, and requests of mounts
	idle    chan struct{} // guarded by mu; closed when none is left after shutdown
}

// changeable is what SetConnections changes.
type changeable struct {
	websocket wsconn.Options
	origins   []string
}

// NewHandler returns a handler. Authenticate and Serve must be set.
func NewHandler(config HTTPConfig) *Handler {
	if config.Ready == nil {
		config.Ready = func() bool { return true }
	}
	config.StallTimeout = cmp.Or(config.StallTimeout, DefaultStallTimeout)
	h := &Handler{config: config, idle: make(chan struct{})}
	h.SetConnections(config.Websocket, config.Origins)
	h.over, h.end = context.WithCancelCause(context.Background())
	return h
}

// SetConnections changes the options of websockets that are opened later, and the accepted
// values of the Origin header, as in [HTTPConfig]. It may be called concurrently.
func (h *Handler) SetConnections(websocket wsconn.Options, origins []string) {
	websocket.Label = cmp.Or(websocket.Label, websocketLabel)
	h.current.Store(&changeable{websocket, origins})
}

// ServeHTTP implements http.Handler. For a websocket it returns once Serve is running;
// Shutdown waits for its end.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.originAllowed(r.Header) {
		if h.config.OriginRefused != nil {
			h.config.OriginRefused(r)
		}
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if h.config.HostKnown != nil && !h.config.HostKnown(r) {
		hostUnknown(r).Answer(w)
		return
	}
	if mounted := h.mounted(r.URL.Path); mounted != nil {
		if !allowOrigin(w, r) {
			h.serveMounted(mounted, w, r)
		}
		return
	}
	switch r.URL.Path {
	case "/":
		h.websocket(w, r)
	case "/healthz":
		health(w, r, true)
	case "/readyz":
		health(w, r, h.ready())
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// mounted returns the handler with the longest prefix of path, or nil.
func (h *Handler) mounted(path string) (found http.Handler) {
	longest := 0
	for prefix, handler := range h.config.Mounts {
		if len(prefix) > longest && strings.HasPrefix(path, prefix) {
			found, longest = handler, len(prefix)
		}
	}
	return found
}

// serveMounted serves a request for a mount.
func (h *Handler) serveMounted(mounted http.Handler, w http.ResponseWriter, r *http.Request) {
	if !h.enter() {
		notReady.Answer(w)
		return
	}
	defer h.leave()
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(h.over, func() { cancel(ErrShutdown) })()
	bounded, r := httpstall.Bound(w, r.WithContext(ctx), h.config.StallTimeout)
	defer bounded.Extend()
	mounted.ServeHTTP(bounded, r)
}

// originAllowed reports whether the header is absent or allowed. An empty value is not
// absent.
func (h *Handler) originAllowed(header http.Header) bool {
	origins := header.Values("Origin")
	return len(origins) == 0 || len(origins) == 1 && slices.Contains(h.current.Load().origins, origins[0])
}

func (h *Handler) ready() bool { return h.over.Err() == nil && h.config.Ready() }

func health(w http.ResponseWriter, r *http.Request, good bool) {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET,HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
	case !good:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (h *Handler) websocket(w http.ResponseWriter, r *http.Request) {
	if refusal := notUpgrade(r); refusal != nil {
		refusal.Answer(w)
		return
	}
	if !h.ready() {
		notReady.Answer(w)
		return
	}
	caller, refusal := h.config.Authenticate(r)
	if refusal != nil {
		refusal.Answer(w)
		return
	}
	if !h.enter() {
		notReady.Answer(w)
		return
	}
	options := h.current.Load().websocket
	options.Principal = caller.Principal.Name
	conn, err := wsconn.Accept(w, r, options)
	if err != nil {
		h.leave()
		return // answered already, or the client is gone
	}
	go h.serve(context.WithoutCancel(r.Context()), caller, conn)
}

// serve runs Serve in a new goroutine: the goroutine of the request holds some 20 KiB
// of buffers and stack, which an idle connection does not need.
func (h *Handler) serve(ctx context.Context, caller auth.Caller, conn *wsconn.Conn) {
	defer h.leave()
	defer conn.Close(wsconn.CodeInternalError, "")
	ctx, cancel := context.WithCancelCause(ctx)
	defer context.AfterFunc(h.over, func() { cancel(ErrShutdown) })()
	defer cancel(nil)
	h.config.Serve(ctx, caller, conn)
}

// notUpgrade returns why r is not a websocket upgrade, with the reference's text; nil
// if it is one.
func notUpgrade(r *http.Request) *Refusal {
	keys := r.Header.Values("Sec-WebSocket-Key")
	switch {
	case r.Method != http.MethodGet:
		return &Refusal{Status: http.StatusMethodNotAllowed, Text: "Request method must be `GET`"}
	case !hasToken(r.Header, "Connection", "upgrade"):
		return badUpgrade("Connection header did not include 'upgrade'")
	case !hasToken(r.Header, "Upgrade", "websocket"):
		return badUpgrade("`Upgrade` header did not include 'websocket'")
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		return badUpgrade("`Sec-WebSocket-Version` header did not include '13'")
	case len(keys) == 0:
		return badUpgrade("`Sec-WebSocket-Key` header missing")
	case len(keys) > 1:
		return badUpgrade("`Sec-WebSocket-Key` header sent more than once")
	case !isKey(keys[0]):
		return badUpgrade("`Sec-WebSocket-Key` header is not 16 bytes in base64")
	}
	return nil
}

func badUpgrade(text string) *Refusal { return &Refusal{Status: http.StatusBadRequest, Text: text} }

// hasToken reports whether a header with a list of tokens contains one, ignoring case.
func hasToken(header http.Header, name, token string) bool {
	for _, value := range header.Values(name) {
		for one := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(one), token) {
				return true
			}
		}
	}
	return false
}

func isKey(value string) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value))
	return err == nil && len(key) == 16
}

// enter counts a connection; false during shutdown.
func (h *Handler) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over.Err() != nil {
		return false
	}
	h.serving++
	return true
}

func (h *Handler) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serving--
	h.settle()
}

// settle signals idle after the last connection. mu is held.
func (h *Handler) settle() {
	if h.serving == 0 && h.over.Err() != nil {
		close(h.idle)
	}
}

// Shutdown refuses new websockets and requests of mounts, ends the contexts of the
// others, and waits until Serve and the mounts have returned for all
// (http.Server.Shutdown does not), or until ctx ends; then it returns its cause.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.mu.Lock()
	if h.over.Err() == nil {
		h.end(ErrShutdown)
		h.settle()
	}
	h.mu.Unlock()
	select {
	case <-h.idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Connections returns the number of connections in Serve, and of requests of mounts.
func (h *Handler) Connections() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.serving
}
