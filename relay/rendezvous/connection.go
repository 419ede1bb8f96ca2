package rendezvous

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/wsconn"
)

const levelInfo = slog.LevelInfo

func logID(id string) slog.Attr               { return slog.String("executor", id) }
func logString(name, value string) slog.Attr  { return slog.String(name, value) }
func logUint(name string, n uint64) slog.Attr { return slog.Uint64(name, n) }
func trimHTTP(base string) string             { return strings.TrimPrefix(strings.TrimRight(base, "/"), "http") }

// refusalLevel is how important a refusal is: the hub's own failures are more so
// than what clients do wrong.
func refusalLevel(r *Refusal) slog.Level {
	if r.Status >= http.StatusInternalServerError && r.Code != codeShuttingDown {
		return slog.LevelError
	}
	return slog.LevelInfo
}

// websocket answers an executor or a harness that connects, and serves it.
func (h *Hub) websocket(w http.ResponseWriter, r *http.Request) {
	id, err := idOf(r)
	if err == nil {
		err = notUpgrade(r)
	}
	if err == nil {
		switch role(r.URL.Query().Get("role")) {
		case roleExecutor:
			err = h.serveExecutor(w, r, id)
		case roleHarness:
			err = h.serveHarness(w, r, id)
		default:
			err = refuse(http.StatusBadRequest, codeInvalidRole, "the URL needs role=executor or role=harness")
		}
	}
	if err != nil {
		h.refused(r, id, err, w)
	}
}

// bearer returns who shows the sig of a URL.
func (h *Hub) bearer(r *http.Request, as role, id string) (auth.Member, ticket, error) {
	t, err := h.signer.check(r.URL.Query().Get("sig"), as, id, h.shared.clock.now())
	if err != nil {
		return auth.Member{}, ticket{}, refuse(http.StatusUnauthorized, codeUnauthorized, "%v: ask for a new one", err)
	}
	member, err := h.config.Recall(r, auth.Principal{Name: t.Principal})
	return member, t, err
}

// serveExecutor serves the websocket of an executor. An error is why there is
// none.
func (h *Hub) serveExecutor(w http.ResponseWriter, r *http.Request, id string) error {
	member, t, err := h.bearer(r, roleExecutor, id)
	switch {
	case err != nil:
		return err
	case r.URL.Query().Get("epoch") != strconv.FormatUint(t.Epoch, 10):
		return refuse(http.StatusUnauthorized, codeUnauthorized, "%v: ask for a new one", errTicketInvalid)
	case !member.MayActAs(id):
		return refuse(http.StatusForbidden, codeForbidden, "principal %s may not be executor %s any more", member.Principal, id)
	}
	leave, place, err := h.enter(member.Principal.Name, id)
	if err != nil {
		return err
	}
	defer leave()
	evicts, end := h.use(r)
	defer end()
	l, tookOver, err := h.install(r, place, id, t.Epoch, member.Principal.Name)
	if err != nil {
		return err
	}
	who := h.logger.With(logID(id), "role", string(roleExecutor), "principal", l.principal, "peer", r.RemoteAddr, "epoch", t.Epoch)
	if tookOver {
		who.Info("an executor took over from one that was connected")
	}
	if l.carrier, err = wsconn.Accept(w, r, h.options(l.principal)); err != nil {
		place.departExecutor(l)
		h.see(id, t.Epoch, false)
		return nil // it is answered, or nobody is there
	}
	defer evicts(l)()
	who.Info("an executor connected", "resumable", l.resumable)
	stop := h.keepSeen(l, id, t.Epoch)
	err = l.serve(func(frame []byte) { place.fromExecutor(l, frame) }, func() { place.departExecutor(l) })
	if err == io.EOF {
		place.executorIsDone(l)
	}
	stop()
	h.see(id, t.Epoch, false)
	code, reason := l.ending()
	who.Info("an executor left", "code", code, "reason", reason, "error", errText(err))
	return nil
}

// install makes an epoch that of the executor, and has it there before it is told
// so: a harness may come the next moment, or when others read that it is there. One
// at a time, so that of two the later epoch is there in the end.
func (h *Hub) install(r *http.Request, p *place, id string, epoch uint64, principal string) (l *line, tookOver bool, err error) {
	p.installing.Lock()
	defer p.installing.Unlock()
	made, err := h.claim(r, id, epoch)
	if err != nil {
		return nil, false, err
	}
	l = newLine(principal, made.instance != "")
	l.capacity = made.streams
	return l, p.connectExecutor(l, made.instance), nil
}

// claim makes an epoch that of the executor.
func (h *Hub) claim(r *http.Request, id string, epoch uint64) (registration, error) {
	ctx, cancel := context.WithTimeoutCause(r.Context(), presenceTimeout, errPresenceSlow)
	defer cancel()
	return h.registry.connect(ctx, id, epoch, h.base(r))
}

// see says whether the executor of an epoch is there, and reports whether a later
// one is. That nobody could be told is in the log.
func (h *Hub) see(id string, epoch uint64, online bool) (takenOver bool) {
	// Also while the hub is closing.
	ctx, cancel := context.WithTimeoutCause(context.Background(), presenceTimeout, errPresenceSlow)
	defer cancel()
	err := h.registry.see(ctx, id, epoch, online)
	if err != nil && !errors.Is(err, errTakenOver) {
		h.logger.Error("the presence of an executor could not be kept", "executor", id, "error", err.Error())
	}
	return errors.Is(err, errTakenOver)
}

// keepSeen says every now and then that an executor is there, and closes its
// line if another node has a later one. Calling stop ends that and waits for it.
func (h *Hub) keepSeen(l *line, id string, epoch uint64) (stop func()) {
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		ticker := time.NewTicker(h.shared.limits.PresenceInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if h.see(id, epoch, true) {
					l.supersede()
					return
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-over
	}
}

// serveHarness serves the websocket of a harness. An error is why there is none.
func (h *Hub) serveHarness(w http.ResponseWriter, r *http.Request, id string) error {
	var member auth.Member
	var err error
	if r.URL.Query().Has("sig") {
		member, _, err = h.bearer(r, roleHarness, id)
	} else {
		member, err = h.config.Authenticate(r)
	}
	if err != nil {
		return err
	}
	if err := mayConnect(member, id); err != nil {
		return err
	}
	resumable := isResumable(r.Header)
	if err := h.reachable(r, id, resumable); err != nil {
		return err
	}
	leave, place, err := h.enter(member.Principal.Name, id)
	if err != nil {
		return err
	}
	defer leave()
	evicts, end := h.use(r)
	defer end()
	conn, err := wsconn.Accept(w, r, h.options(member.Principal.Name))
	if err != nil {
		return nil // it is answered, or nobody is there
	}
	l := newLine(member.Principal.Name, resumable)
	l.carrier = conn
	who := h.logger.With(logID(id), "role", string(roleHarness), "principal", l.principal, "peer", r.RemoteAddr)
	place.connectHarness(l)
	defer evicts(l)()
	who.Info("a harness connected", "resumable", l.resumable)
	err = l.serve(func(frame []byte) { place.fromHarness(l, frame) }, func() { place.departHarness(l) })
	if err == io.EOF {
		place.harnessIsDone(l)
	}
	code, reason := l.ending()
	who.Info("a harness left", "code", code, "reason", reason, "error", errText(err))
	return nil
}

// reachable refuses a harness whose executor is not here. One that retransmits
// may come while the executor is away for a moment.
func (h *Hub) reachable(r *http.Request, id string, resumable bool) error {
	if x := h.look(id); x != nil {
		if connected, _ := x.isConnected(); connected || resumable && x.isExpected() {
			return nil
		}
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), presenceTimeout, errPresenceSlow)
	defer cancel()
	record, err := h.find(ctx, id)
	switch {
	case err != nil:
		return err
	case record.Node != h.config.Node:
		return refuse(http.StatusMisdirectedRequest, codeExecutorElsewhere,
			"executor %s is connected to another node of this hub, %s: ask POST /cloud/executor/%s/connect for its URL", id, record.URL, id)
	}
	if h.isInstalled(id) {
		return nil
	}
	return refuse(http.StatusNotFound, codeExecutorOffline, "executor %s is not connected at this moment: try again", id)
}

// isInstalled reports whether an executor is connected, once one that is just
// coming is.
func (h *Hub) isInstalled(id string) bool {
	p := h.look(id)
	if p == nil {
		return false
	}
	p.installing.Lock()
	defer p.installing.Unlock()
	connected, _ := p.isConnected()
	return connected
}

// enter gives a principal one more connection. Calling leave takes it back.
func (h *Hub) enter(principal, id string) (leave func(), p *place, err error) {
	if !h.sockets.add(principal, h.shared.limits.Connections) {
		return nil, nil, limitReached(codeConnectionLimit, "connections_per_principal", h.shared.limits.Connections, time.Second)
	}
	if p = h.visit(id); p == nil {
		h.sockets.remove(principal)
		return nil, nil, shuttingDown()
	}
	return func() {
		h.drop(p, 1)
		h.sockets.remove(principal)
		h.serving.Done()
	}, p, nil
}

// options are those of every websocket of a principal.
func (h *Hub) options(principal string) wsconn.Options {
	return wsconn.Options{
		Binary: true, Label: "relay websocket", Budget: h.incoming, Principal: principal,
		FrameBytes: h.shared.limits.FrameBytes, MessageBytes: h.shared.limits.FrameBytes,
		PingInterval: h.config.PingInterval, DeadAfter: h.config.DeadAfter,
	}
}

// use notes that the connection of r is in use until end is called. evicts has it closed
// as a line when it gives way to another, also if it did so before, until stop is called.
func (h *Hub) use(r *http.Request) (evicts func(*line) (stop func() bool), end func()) {
	evicted, evict := context.WithCancelCause(context.Background())
	unused := func() {}
	if h.config.Use != nil {
		unused = h.config.Use(r, func(why error) { evict(why) })
	}
	return func(l *line) (stop func() bool) {
			return context.AfterFunc(evicted, func() { l.evict(context.Cause(evicted)) })
		}, func() {
			unused()
			evict(nil)
		}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// notUpgrade returns what keeps r from becoming a websocket; nil if nothing does.
// The registration of an executor is used up before the websocket library looks.
func notUpgrade(r *http.Request) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(r.Header.Get("Sec-WebSocket-Key")))
	if !hasToken(r.Header, "Connection", "upgrade") || !hasToken(r.Header, "Upgrade", "websocket") ||
		r.Header.Get("Sec-WebSocket-Version") != "13" || err != nil || len(key) != 16 || len(r.Header.Values("Sec-WebSocket-Key")) != 1 {
		return refuse(http.StatusBadRequest, codeNotWebsocket, "this URL is for websockets")
	}
	return nil
}

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
