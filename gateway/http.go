package gateway

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/execwire/execwire/gateway/jsonrpc"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/wsconn"
)

// websocketLabel is what the reference calls a websocket when it names the peer.
const websocketLabel = "exec-server websocket"

var _ jsonrpc.Transport = (*wsconn.Conn)(nil)

// HTTPConfig is what a [Handler] needs.
type HTTPConfig struct {
	// Websocket is for every connection, but for its Principal. An empty label becomes that of the
	// reference.
	Websocket wsconn.Options
	// Origins are the values of the Origin header that are let in, compared
	// exactly. Without them whatever has the header is refused, as browsers are.
	Origins []string
	// OriginRefused is told of each request that is refused for its Origin. It is
	// called concurrently; nil is nobody.
	OriginRefused func(*http.Request)
	// Authenticate says who asks for a websocket, or why it gets none. It is
	// called concurrently; health is anybody's.
	Authenticate func(*http.Request) (auth.Caller, *Refusal)
	// Ready is whether new connections are wanted. It is called concurrently;
	// nil is always.
	Ready func() bool
	// Serve has the connection until it returns; it closes it. It is called in a
	// goroutine of its own. ctx carries what
	// that of the request does and ends with [Handler.Shutdown], whose cause is
	// [ErrShutdown]; the end of the connection is not in it.
	Serve func(ctx context.Context, caller auth.Caller, conn *wsconn.Conn)
}

// ErrShutdown is the cause of contexts that end because the handler is shut down.
var ErrShutdown = errors.New("the gateway is shutting down")

// Handler is the HTTP surface of the gateway: websockets at /, and health. It
// may be used concurrently.
type Handler struct {
	config HTTPConfig
	over   context.Context // done when it is shutting down
	end    context.CancelCauseFunc

	mu      sync.Mutex
	serving int           // guarded by mu; connections that Serve has
	idle    chan struct{} // guarded by mu; closed when there are none and no more can come
}

// NewHandler returns a handler. Authenticate and Serve must be set.
func NewHandler(config HTTPConfig) *Handler {
	if config.Ready == nil {
		config.Ready = func() bool { return true }
	}
	if config.Websocket.Label == "" {
		config.Websocket.Label = websocketLabel
	}
	h := &Handler{config: config, idle: make(chan struct{})}
	h.over, h.end = context.WithCancelCause(context.Background())
	return h
}

// ServeHTTP implements http.Handler. For a websocket it returns when Serve was
// called; Shutdown waits for its end.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.originAllowed(r.Header) {
		if h.config.OriginRefused != nil {
			h.config.OriginRefused(r)
		}
		w.WriteHeader(http.StatusForbidden)
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

// originAllowed reports whether there is no Origin, not even an empty one, or
// one that is let in.
func (h *Handler) originAllowed(header http.Header) bool {
	origins := header.Values("Origin")
	return len(origins) == 0 || len(origins) == 1 && slices.Contains(h.config.Origins, origins[0])
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
		refusal.answer(w)
		return
	}
	if !h.ready() {
		notReady.answer(w)
		return
	}
	caller, refusal := h.config.Authenticate(r)
	if refusal != nil {
		refusal.answer(w)
		return
	}
	if !h.enter() {
		notReady.answer(w)
		return
	}
	options := h.config.Websocket
	options.Principal = caller.Principal.Name
	conn, err := wsconn.Accept(w, r, options)
	if err != nil {
		h.leave()
		return // it is answered, or nobody is there
	}
	go h.serve(context.WithoutCancel(r.Context()), caller, conn)
}

// serve has the connection until it ends. It has a goroutine of its own: that of
// the request keeps some 20 KiB of buffers and stack, which an idle connection
// has no use for.
func (h *Handler) serve(ctx context.Context, caller auth.Caller, conn *wsconn.Conn) {
	defer h.leave()
	defer conn.Close(wsconn.CodeInternalError, "")
	ctx, cancel := context.WithCancelCause(ctx)
	defer context.AfterFunc(h.over, func() { cancel(ErrShutdown) })()
	defer cancel(nil)
	h.config.Serve(ctx, caller, conn)
}

// notUpgrade returns what keeps r from becoming a websocket, in the words of the
// reference; nil if nothing does.
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

// hasToken reports whether a header that is a list of tokens has one, in any
// case.
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

// enter counts a connection, unless the handler is shutting down.
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

// settle says so when the last connection has left. mu is held.
func (h *Handler) settle() {
	if h.serving == 0 && h.over.Err() != nil {
		close(h.idle)
	}
}

// Shutdown lets no new websocket in, ends the contexts of those there are, and
// waits until Serve has returned for all of them, which http.Server.Shutdown
// does not, or for the end of ctx, whose cause it returns.
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

// Connections returns how many connections Serve has.
func (h *Handler) Connections() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.serving
}

// answer writes the refusal as the whole of an answer.
func (f *Refusal) answer(w http.ResponseWriter) {
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(seconds(f.RetryAfter), 10))
	}
	if f.Text != "" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	w.WriteHeader(f.Status)
	_, _ = w.Write([]byte(f.Text)) // whoever does not read it has gone
}
