package rendezvous

import (
	"context"
	"encoding/base64"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/wsconn"
)

// refusalLevel returns the log level of a refusal: failures of the hub matter
// more than those of clients and executors.
func refusalLevel(r *Refusal) slog.Level {
	if r.Code == codeInternal || r.Code == codePresenceUnavailable {
		return slog.LevelError
	}
	return slog.LevelInfo
}

// websocket serves the websocket of an executor or a harness.
func (h *Hub) websocket(w http.ResponseWriter, r *http.Request) {
	id, err := executorIDOf(r)
	if err == nil {
		err = checkUpgrade(r)
	}
	if err == nil {
		switch role(r.URL.Query().Get("role")) {
		case roleExecutor:
			err = h.serveExecutor(w, r, id)
		case roleHarness:
			err = h.serveHarness(w, r, id)
		default:
			err = newRefusal(http.StatusBadRequest, codeInvalidRole, "the URL needs role=executor or role=harness")
		}
	}
	if err != nil {
		h.Reject(w, r, id, err)
	}
}

// verifyTicket returns the principal that the sig of a URL was issued to.
func (h *Hub) verifyTicket(r *http.Request, want role, id string) (auth.Member, ticket, error) {
	t, err := verifyTicket(h.signer, r.URL.Query().Get("sig"), want, id, h.shared.clock.now())
	if err != nil {
		return auth.Member{}, ticket{}, newRefusal(http.StatusUnauthorized, CodeUnauthorized, "%v: ask for a new one", err)
	}
	member, err := h.config.Recall(r, auth.Principal{Name: t.Principal})
	return member, t, err
}

// serveExecutor serves the websocket of an executor. An error is returned before
// the websocket is accepted.
func (h *Hub) serveExecutor(w http.ResponseWriter, r *http.Request, id string) error {
	member, t, err := h.verifyTicket(r, roleExecutor, id)
	switch {
	case err != nil:
		return err
	case r.URL.Query().Get("epoch") != strconv.FormatUint(t.Epoch, 10):
		return newRefusal(http.StatusUnauthorized, CodeUnauthorized, "%v: ask for a new one", errTicketInvalid)
	case !member.MayActAs(id):
		return forbidden(member.Principal, "may no longer act as executor %s", id)
	}
	release, route, err := h.admit(member.Principal.Name, id)
	if err != nil {
		return err
	}
	defer release()
	onEvict, end := h.use(r)
	defer end()
	endAudit, err := h.config.Audit.Begin(r, member.Principal.Name, &audit.Record{Action: "executor.connect", Executor: id})
	if err != nil {
		return err
	}
	c, tookOver, err := h.install(r.Context(), route, id, t.Epoch, member.Principal.Name, h.BaseURL(r))
	if err != nil {
		endAudit(err)
		return err
	}
	defer endAudit(nil) // when it has left
	logger := h.logger.With("executor", id, "role", string(roleExecutor), "principal", c.principal, "peer", r.RemoteAddr, "epoch", t.Epoch)
	if tookOver {
		logger.Info("an executor replaced a connected one")
	}
	if c.conn, err = wsconn.Accept(w, r, h.connOptions(c.principal)); err != nil {
		route.disconnectExecutor(c)
		h.registry.reportOnline(id, t.Epoch, false)
		return nil // the response was sent, or the client is gone
	}
	defer onEvict(c)()
	logger.Info("an executor connected", "resumable", c.resumable)
	stop := h.registry.keepOnline(id, t.Epoch, func() { c.close(CodeSuperseded, reasonSuperseded) })
	err = c.serve(route.handleExecutorFrame, route.disconnectExecutor)
	stop()
	h.registry.reportOnline(id, t.Epoch, false)
	logger.Info("an executor disconnected", c.endAttrs(err)...)
	return nil
}

// serveHarness serves the websocket of a harness. An error is returned before the
// websocket is accepted.
func (h *Hub) serveHarness(w http.ResponseWriter, r *http.Request, id string) error {
	var member auth.Member
	var err error
	if r.URL.Query().Has("sig") {
		member, _, err = h.verifyTicket(r, roleHarness, id)
	} else {
		member, err = h.config.Authenticate(r)
	}
	if err != nil {
		return err
	}
	if err := MayConnect(member, id); err != nil {
		return err
	}
	resumable := isResumable(r.Header)
	if err := h.checkReachable(r.Context(), id, resumable); err != nil {
		return err
	}
	release, route, err := h.admit(member.Principal.Name, id)
	if err != nil {
		return err
	}
	defer release()
	onEvict, end := h.use(r)
	defer end()
	endAudit, err := h.config.Audit.Begin(r, member.Principal.Name, &audit.Record{Action: "harness.connect", Executor: id})
	if err != nil {
		return err
	}
	defer endAudit(nil) // when it has left
	conn, err := wsconn.Accept(w, r, h.connOptions(member.Principal.Name))
	if err != nil {
		return nil // the response was sent, or the client is gone
	}
	c := newPeerConn(member.Principal.Name, resumable)
	c.conn = conn
	logger := h.logger.With("executor", id, "role", string(roleHarness), "principal", c.principal, "peer", r.RemoteAddr)
	route.connectHarness(c)
	defer onEvict(c)()
	logger.Info("a harness connected", "resumable", c.resumable)
	err = c.serve(route.handleHarnessFrame, route.disconnectHarness)
	logger.Info("a harness disconnected", c.endAttrs(err)...)
	return nil
}

// admit counts one more connection of a principal. release undoes that.
func (h *Hub) admit(principal, id string) (release func(), route *executorRoute, err error) {
	if !h.connCounts.Acquire(principal) {
		return nil, nil, LimitReached(CodeConnectionLimit, "connections_per_principal", h.shared.limits.Connections, time.Second)
	}
	if route = h.routes.acquire(id); route == nil {
		h.connCounts.Release(principal)
		return nil, nil, ShuttingDown()
	}
	return func() {
		h.routes.release(route, 1)
		h.connCounts.Release(principal)
		h.routes.serving.Done()
	}, route, nil
}

// connOptions returns the options of every websocket of a principal.
func (h *Hub) connOptions(principal string) wsconn.Options {
	return wsconn.Options{
		Binary: true, Label: "relay websocket", Budget: h.receiveBudget, Principal: principal,
		FrameBytes: h.shared.limits.FrameBytes, MessageBytes: h.shared.limits.FrameBytes,
		PingInterval: h.config.PingInterval, DeadAfter: h.config.DeadAfter,
	}
}

// use marks the connection of r as in use until end is called. onEvict closes a
// peerConn when the connection is evicted, including an eviction before the call,
// until stop is called.
func (h *Hub) use(r *http.Request) (onEvict func(*peerConn) (stop func() bool), end func()) {
	evicted, evict := context.WithCancelCause(context.Background())
	unused := func() {}
	if h.config.Use != nil {
		unused = h.config.Use(r, func(why error) { evict(why) })
	}
	return func(c *peerConn) (stop func() bool) {
			return context.AfterFunc(evicted, func() { c.evict(context.Cause(evicted)) })
		}, func() {
			unused()
			evict(nil)
		}
}

// checkUpgrade rejects requests that are not websocket handshakes. It is called
// first because connecting uses up an executor's registration before the
// websocket library validates the request.
func checkUpgrade(r *http.Request) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(r.Header.Get("Sec-WebSocket-Key")))
	if !httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade") || !httpguts.HeaderValuesContainsToken(r.Header["Upgrade"], "websocket") ||
		r.Header.Get("Sec-WebSocket-Version") != "13" || err != nil || len(key) != 16 || len(r.Header.Values("Sec-WebSocket-Key")) != 1 {
		return newRefusal(http.StatusBadRequest, codeNotWebsocket, "the request is not a websocket handshake")
	}
	return nil
}
