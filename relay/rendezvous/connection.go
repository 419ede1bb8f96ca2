package rendezvous

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
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
	c, tookOver, err := h.install(r, route, id, t.Epoch, member.Principal.Name)
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
		h.reportOnline(id, t.Epoch, false)
		return nil // the response was sent, or the client is gone
	}
	defer onEvict(c)()
	logger.Info("an executor connected", "resumable", c.resumable)
	stop := h.keepOnline(c, id, t.Epoch)
	err = c.serve(route.handleExecutorFrame, route.disconnectExecutor)
	stop()
	h.reportOnline(id, t.Epoch, false)
	logger.Info("an executor disconnected", c.endAttrs(err)...)
	return nil
}

// install makes an epoch that of the executor and adds the connection to the
// route before the websocket is accepted, because a harness may come as soon as
// the record shows the executor. It is serialized, so that of two epochs the
// later one remains.
func (h *Hub) install(r *http.Request, route *executorRoute, id string, epoch uint64, principal string) (c *peerConn, tookOver bool, err error) {
	route.installMu.Lock()
	defer route.installMu.Unlock()
	ctx, cancel := context.WithTimeoutCause(r.Context(), presenceTimeout, errPresenceSlow)
	defer cancel()
	reg, err := h.registry.connect(ctx, id, epoch, h.BaseURL(r))
	if err != nil {
		return nil, false, err
	}
	c = newPeerConn(principal, reg.instance != "")
	c.capacity = reg.streams
	return c, route.connectExecutor(c, reg.instance), nil
}

// reportOnline records whether the executor of an epoch is connected, and reports
// whether a later one has connected. Failures are logged.
func (h *Hub) reportOnline(id string, epoch uint64, online bool) (takenOver bool) {
	// This must work while the hub is closing, too.
	ctx, cancel := context.WithTimeoutCause(context.Background(), presenceTimeout, errPresenceSlow)
	defer cancel()
	err := h.registry.setOnline(ctx, id, epoch, online)
	if err != nil && !errors.Is(err, errTakenOver) {
		h.logger.Error("failed to store the presence of an executor", "executor", id, "error", err.Error())
	}
	return errors.Is(err, errTakenOver)
}

// keepOnline periodically renews the presence of an executor, and closes its
// connection if a later one has connected to another node. stop ends that and
// waits for it.
func (h *Hub) keepOnline(c *peerConn, id string, epoch uint64) (stop func()) {
	connected, left := context.WithCancelCause(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(h.shared.limits.PresenceInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if h.reportOnline(id, epoch, true) {
					c.close(CodeSuperseded, reasonSuperseded)
					return
				}
			case <-connected.Done():
				return
			}
		}
	})
	return func() {
		left(nil)
		wg.Wait()
	}
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

// checkReachable rejects a harness whose executor is not connected to this node.
// A harness that retransmits may also come during the executor's grace period.
func (h *Hub) checkReachable(ctx context.Context, id string, resumable bool) error {
	record, err := h.locate(ctx, id, resumable)
	if err == nil && record.Node != h.config.Node {
		return newRefusal(http.StatusMisdirectedRequest, codeExecutorElsewhere,
			"executor %s is connected to another node of this hub, %s: ask POST /cloud/executor/%s/connect for its URL", id, record.URL, id)
	}
	return err
}

// locate returns the record of an executor that is connected to a node of this hub or, if
// expected, expected back at this one.
func (h *Hub) locate(ctx context.Context, id string, expected bool) (Record, error) {
	if route := h.routes.lookup(id); route != nil {
		if route.isConnected() || expected && route.isExpected() {
			return Record{Executor: id, Node: h.config.Node}, nil
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, presenceTimeout, errPresenceSlow)
	defer cancel()
	record, err := h.findExecutor(ctx, id)
	if err == nil && record.Node == h.config.Node && !h.isInstalled(id) {
		err = newRefusal(http.StatusNotFound, codeExecutorOffline, "executor %s is not connected: try again", id)
	}
	return record, err
}

// isInstalled reports whether an executor is connected, after waiting for an
// install in progress.
func (h *Hub) isInstalled(id string) bool {
	route := h.routes.lookup(id)
	if route == nil {
		return false
	}
	route.installMu.Lock()
	defer route.installMu.Unlock()
	return route.isConnected()
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
