package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/execwire/execwire/internal/auth"
)

// newRoutes returns what answers which path.
func (h *Hub) newRoutes() *http.ServeMux {
	routes := http.NewServeMux()
	for _, kind := range []string{"executor", "environment"} {
		routes.HandleFunc("POST /cloud/"+kind+"/{id}/register", h.answering(h.register(kind)))
		routes.HandleFunc("POST /cloud/"+kind+"/{id}/connect", h.answering(h.connect(kind)))
	}
	routes.HandleFunc("GET /executor/{id}", h.websocket)
	routes.HandleFunc("GET /v1/executors", h.answering(h.list))
	routes.HandleFunc("GET /metrics", h.metrics)
	routes.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	routes.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if h.over.Err() != nil {
			shuttingDown().answer(w)
		} else if err := h.config.Presence.Ready(); err != nil {
			refusalOf(err).answer(w)
		}
	})
	routes.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(http.StatusNotFound, codeNotFound, "there is nothing at %s %.200q of a hub of the relay", r.Method, r.URL.Path).answer(w)
	})
	return routes
}

// ServeHTTP implements http.Handler. For a websocket it returns when that has
// ended.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if origins := r.Header.Values("Origin"); len(origins) > 1 || len(origins) == 1 && !slices.Contains(h.config.Origins, origins[0]) {
		h.refused(r, "", refuse(http.StatusForbidden, codeOriginRefused, "requests of web pages are refused: allowed_origins lists the exceptions"), w)
		return
	}
	h.routes.ServeHTTP(w, r)
}

// answering makes a handler of what returns an answer in JSON, or why there is
// none.
func (h *Hub) answering(answer func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeoutCause(r.Context(), presenceTimeout, errPresenceSlow)
		defer cancel()
		defer context.AfterFunc(h.over, cancel)()
		body, err := answer(r.WithContext(ctx))
		if err != nil {
			h.refused(r, r.PathValue("id"), err, w)
			return
		}
		answerJSON(w, http.StatusOK, body)
	}
}

// refused answers with why, and has the log say so.
func (h *Hub) refused(r *http.Request, id string, err error, w http.ResponseWriter) {
	refusal := refusalOf(err)
	if (refusal.Code == codeInternal || refusal.Code == codePresenceUnavailable) && h.over.Err() != nil {
		refusal = shuttingDown() // what it asked is closed, or was not waited for
	}
	h.logger.LogAttrs(r.Context(), refusalLevel(refusal), "a request was refused", logID(id), logString("peer", r.RemoteAddr),
		logString("path", r.URL.Path), logString("code", refusal.Code), logString("error", err.Error()))
	refusal.answer(w)
}

var executorID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`)

// idOf returns the executor that a request is about.
func idOf(r *http.Request) (string, error) {
	id := r.PathValue("id")
	if !executorID.MatchString(id) {
		return "", refuse(http.StatusBadRequest, codeInvalidExecutorID,
			"an executor's id has 1 to 256 ASCII letters, digits, - and _; this one is %.300q", id)
	}
	return id, nil
}

// maxBody is what of a request's body is read: nothing in it is needed.
const maxBody = 64 << 10

// register answers an executor that wants to connect.
func (h *Hub) register(kind string) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		id, err := idOf(r)
		if err != nil {
			return nil, err
		}
		member, err := h.config.Authenticate(r)
		if err != nil {
			return nil, err
		}
		if !member.MayActAs(id) {
			return nil, refuse(http.StatusForbidden, codeForbidden,
				"principal %s may not be executor %s: act_as_executors of the table of principals has no pattern for it", member.Principal, id)
		}
		if err := checkProfile(r); err != nil {
			return nil, err
		}
		made, err := registrationOf(r.Header)
		if err != nil {
			return nil, err
		}
		made.principal = member.Principal.Name
		epoch, err := h.registry.register(r.Context(), id, made)
		if err != nil {
			return nil, err
		}
		h.logger.LogAttrs(r.Context(), levelInfo, "an executor registered", logID(id), logString("principal", made.principal),
			logString("peer", r.RemoteAddr), logUint("epoch", epoch))
		sig := h.signer.sign(ticket{Role: roleExecutor, Executor: id, Epoch: epoch, Principal: made.principal, Until: h.until()})
		return map[string]any{
			kind + "_id": id, "epoch": epoch,
			"url": websocketURL(h.base(r), id, url.Values{"role": {string(roleExecutor)}, "epoch": {strconv.FormatUint(epoch, 10)}, "sig": {sig}}),
		}, nil
	}
}

// checkProfile refuses executors that want to be spoken to in a way that this hub
// does not know, which they would find out by an answer that they do not
// understand.
func checkProfile(r *http.Request) error {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil || len(text) == 0 {
		return err
	}
	var body struct {
		Profile string `json:"security_profile"`
	}
	if json.Unmarshal(text, &body) == nil && body.Profile != "" {
		return refuse(http.StatusUnprocessableEntity, codeUnsupportedProfile,
			"security_profile %.100q is not supported: register for the plain relay, without a body", body.Profile)
	}
	return nil
}

// connect answers a harness that wants a URL to connect by.
func (h *Hub) connect(kind string) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		id, err := idOf(r)
		if err != nil {
			return nil, err
		}
		member, err := h.config.Authenticate(r)
		if err != nil {
			return nil, err
		}
		if err := mayConnect(member, id); err != nil {
			return nil, err
		}
		record, err := h.find(r.Context(), id)
		if err != nil {
			if refusal, ok := errors.AsType[*Refusal](err); ok && refusal.Code == codeExecutorOffline {
				return nil, refuse(http.StatusConflict, codeEnvironmentOffline, "%s", refusal.Message)
			}
			return nil, err
		}
		base := h.base(r)
		if record.Node != h.config.Node && record.URL != "" {
			base = record.URL
		}
		sig := h.signer.sign(ticket{Role: roleHarness, Executor: id, Principal: member.Principal.Name, Until: h.until()})
		return map[string]any{
			kind + "_id": id,
			"url":        websocketURL(base, id, url.Values{"role": {string(roleHarness)}, "sig": {sig}}),
		}, nil
	}
}

func mayConnect(member auth.Member, id string) error {
	if member.MayConnectTo(id) {
		return nil
	}
	return refuse(http.StatusForbidden, codeForbidden,
		"principal %s may not use executor %s: connect_to_executors of the table of principals has no pattern for it", member.Principal, id)
}

// find returns the record of an executor that is connected, or that may be back
// any moment.
func (h *Hub) find(ctx context.Context, id string) (Record, error) {
	record, revision, err := h.config.Presence.Get(ctx, id)
	if x := h.look(id); err != nil && x != nil {
		if connected, _ := x.isConnected(); connected {
			return Record{Executor: id, Node: h.config.Node}, nil
		}
	}
	switch {
	case err != nil:
		return Record{}, err
	case revision == 0 || record.Connected == 0:
		return Record{}, refuse(http.StatusNotFound, codeExecutorNotFound,
			"executor %s is not known here: start it with execwire serve --remote and --executor-id %s", id, id)
	case h.registry.online(record):
		return record, nil
	}
	if x := h.look(id); x != nil && x.isExpected() {
		record.Node = h.config.Node
		return record, nil
	}
	return Record{}, refuse(http.StatusNotFound, codeExecutorOffline,
		"executor %s is not connected; it was last seen at %s", id, record.LastSeen.UTC().Format(time.RFC3339))
}

// until is when URLs that are made now end.
func (h *Hub) until() int64 { return h.shared.clock.now().Add(h.shared.limits.URLLifetime).Unix() }

// base is where the hub is reached, as far as the one that asks by r knows.
func (h *Hub) base(r *http.Request) string {
	switch {
	case h.config.PublicURL != "":
		return h.config.PublicURL
	case r.TLS != nil:
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// websocketURL is that of an executor at base, an http or https URL.
func websocketURL(base, id string, query url.Values) string {
	return "ws" + trimHTTP(base) + "/executor/" + url.PathEscape(id) + "?" + query.Encode()
}

// listed is an executor in a list.
type listed struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels"`
	Version   string            `json:"version"`
	Connected bool              `json:"connected"`
	LastSeen  *time.Time        `json:"last_seen,omitempty"`
	Epoch     uint64            `json:"epoch"`
	Streams   int               `json:"streams"`
}

// list answers with the executors that the caller has to do with.
func (h *Hub) list(r *http.Request) (any, error) {
	member, err := h.config.Authenticate(r)
	if err != nil {
		return nil, err
	}
	list := []listed{}
	for _, record := range h.registry.index.all() {
		if !member.MayActAs(record.Executor) && !member.MayConnectTo(record.Executor) {
			continue
		}
		one := listed{ID: record.Executor, Name: record.Name, Labels: record.Labels, Version: record.Version,
			Connected: h.registry.online(record), Epoch: record.Connected}
		if one.Labels == nil {
			one.Labels = map[string]string{}
		}
		if !record.LastSeen.IsZero() {
			seen := record.LastSeen.UTC()
			one.LastSeen = &seen
		}
		if x := h.look(record.Executor); x != nil {
			one.Streams = x.size()
		}
		list = append(list, one)
	}
	return map[string]any{"executors": list}, nil
}
