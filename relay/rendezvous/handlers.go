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
	"strings"
	"time"

	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/tracing"
)

// newMux returns the HTTP routes.
func (h *Hub) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, kind := range []string{"executor", "environment"} {
		mux.HandleFunc("POST /cloud/"+kind+"/{id}/register", h.executorHandler(kind, h.register))
		mux.HandleFunc("POST /cloud/"+kind+"/{id}/connect", h.executorHandler(kind, h.connect))
	}
	mux.HandleFunc("GET /executor/{id}", h.websocket)
	mux.HandleFunc("GET /v1/executors", h.jsonHandler(h.list))
	for pattern, call := range h.config.Calls {
		mux.HandleFunc(pattern, h.jsonHandler(func(r *http.Request) (any, error) {
			caller, err := h.config.Authenticate(r)
			if err != nil {
				return nil, err
			}
			r.Body = http.MaxBytesReader(nil, r.Body, maxBody)
			return call(r, caller)
		}))
	}
	mux.HandleFunc("GET /metrics", h.metrics)
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if h.closing.Err() != nil {
			ShuttingDown().write(w)
		} else if err := h.config.Presence.Ready(); err != nil {
			refusalOf(err).write(w)
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		newRefusal(http.StatusNotFound, codeNotFound, "the hub has no route %s %.200q", r.Method, r.URL.Path).write(w)
	})
	return mux
}

// ServeHTTP implements http.Handler. For a websocket it returns when that has
// ended.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if origins := r.Header.Values("Origin"); len(origins) > 1 || len(origins) == 1 && !slices.Contains(h.config.Origins, origins[0]) {
		h.Reject(w, r, "", newRefusal(http.StatusForbidden, CodeOriginRefused, "requests with an Origin header are rejected, unless allowed_origins lists the origin"))
		return
	}
	if err := h.CheckHost(r); err != nil {
		h.Reject(w, r, "", err)
		return
	}
	h.mux.ServeHTTP(w, r)
}

// CheckHost returns the refusal of a request whose Host is not a name of this hub, or nil.
func (h *Hub) CheckHost(r *http.Request) error {
	if h.config.HostKnown != nil && !h.config.HostKnown(r) {
		return newRefusal(http.StatusMisdirectedRequest, codeHostUnknown,
			"the Host %.100q is not a name of this hub: use the host of public_url, an IP address or localhost, or add the name to the hub's setting allowed_hosts", r.Host)
	}
	return nil
}

// jsonHandler returns a handler that responds with the returned value as JSON, or
// with the error.
func (h *Hub) jsonHandler(handle func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeoutCause(r.Context(), presenceTimeout, errPresenceSlow)
		defer cancel()
		defer context.AfterFunc(h.closing, cancel)()
		body, err := handle(r.WithContext(ctx))
		if err != nil {
			h.Reject(w, r, r.PathValue("id"), err)
			return
		}
		writeJSON(w, http.StatusOK, body)
	}
}

// executorHandler is jsonHandler for an authenticated request about an executor. The
// response also has the id, as the member KIND_id.
func (h *Hub) executorHandler(kind string, handle func(r *http.Request, id string, caller auth.Member) (map[string]any, error)) http.HandlerFunc {
	return h.jsonHandler(func(r *http.Request) (any, error) {
		id, err := executorIDOf(r)
		if err != nil {
			return nil, err
		}
		caller, err := h.config.Authenticate(r)
		if err != nil {
			return nil, err
		}
		response, err := handle(r, id, caller)
		if err != nil {
			return nil, err
		}
		response[kind+"_id"] = id
		return response, nil
	})
}

// Reject responds to a request about an executor, whose id may be empty, with an error
// and logs it: a [*Refusal], an *[auth.Error], or an error of the hub.
func (h *Hub) Reject(w http.ResponseWriter, r *http.Request, id string, err error) {
	refusal := refusalOf(err)
	if (refusal.Code == codeInternal || refusal.Code == codePresenceUnavailable) && h.closing.Err() != nil {
		refusal = ShuttingDown() // the request was cut short by the shutdown
	}
	h.logger.Log(r.Context(), refusalLevel(refusal), "a request was refused", "executor", id, "peer", r.RemoteAddr,
		"path", r.URL.Path, "code", refusal.Code, "error", err.Error())
	h.config.OnRefuse(refusal)
	if refusal.Limit != "" {
		h.config.OnLimit(refusal.Limit)
	}
	h.config.Audit.denied(r, id, refusal, err)
	tracing.FromContext(r.Context()).Refused(refusal.Status, refusal.Code)
	refusal.write(w)
}

const maxExecutorID = 256

var executorID = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// executorIDOf returns the executor that a request refers to.
func executorIDOf(r *http.Request) (string, error) {
	id := r.PathValue("id")
	if len(id) > maxExecutorID || !executorID.MatchString(id) {
		return "", newRefusal(http.StatusBadRequest, codeInvalidExecutorID,
			"executor id %.300q must have 1 to 256 ASCII letters, digits, - and _", id)
	}
	return id, nil
}

// maxBody bounds how much of a request body is read.
const maxBody = 64 << 10

// register handles the registration of an executor.
func (h *Hub) register(r *http.Request, id string, caller auth.Member) (map[string]any, error) {
	if !caller.MayActAs(id) {
		return nil, forbidden(caller.Principal, "may not act as executor %s: no pattern of act_as_executors in the table of principals matches", id)
	}
	if err := checkProfile(r); err != nil {
		return nil, err
	}
	reg, err := parseRegistration(r.Header)
	if err != nil {
		return nil, err
	}
	reg.principal = caller.Principal.Name
	end, err := h.config.Audit.Begin(r, reg.principal, &audit.Record{Action: "executor.register", Executor: id})
	if err != nil {
		return nil, err
	}
	epoch, err := h.registry.register(r.Context(), id, reg)
	end(err)
	if err != nil {
		return nil, err
	}
	h.logger.Info("an executor registered", "executor", id, "principal", reg.principal, "peer", r.RemoteAddr, "epoch", epoch)
	sig := h.signer.Sign(ticket{Role: roleExecutor, Executor: id, Epoch: epoch, Principal: reg.principal, Until: h.urlExpiry()})
	query := url.Values{"role": {string(roleExecutor)}, "epoch": {strconv.FormatUint(epoch, 10)}, "sig": {sig}}
	return map[string]any{"epoch": epoch, "url": websocketURL(h.BaseURL(r), id, query)}, nil
}

// checkProfile rejects executors that ask for a security profile, since the hub
// knows none.
func checkProfile(r *http.Request) error {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil || len(text) == 0 {
		return err
	}
	var body struct {
		Profile string `json:"security_profile"`
	}
	if json.Unmarshal(text, &body) == nil && body.Profile != "" {
		return newRefusal(http.StatusUnprocessableEntity, codeUnsupportedProfile,
			"security_profile %.100q is not supported: register for the plain relay, without a body", body.Profile)
	}
	return nil
}

// connect handles a harness's request for a URL.
func (h *Hub) connect(r *http.Request, id string, caller auth.Member) (map[string]any, error) {
	if err := MayConnect(caller, id); err != nil {
		return nil, err
	}
	record, err := h.find(r.Context(), id)
	if err != nil {
		if refusal, ok := errors.AsType[*Refusal](err); ok && refusal.Code == codeExecutorOffline {
			return nil, newRefusal(http.StatusConflict, codeEnvironmentOffline, "%s", refusal.Message)
		}
		return nil, err
	}
	base := h.BaseURL(r)
	if record.Node != h.config.Node && record.URL != "" {
		base = record.URL
	}
	return map[string]any{"url": h.harnessURL(base, id, caller.Principal.Name)}, nil
}

// harnessURL returns a signed URL at which a harness of the principal reaches an executor
// at the node with that base URL.
func (h *Hub) harnessURL(base, id, principal string) string {
	sig := h.signer.Sign(ticket{Role: roleHarness, Executor: id, Principal: principal, Until: h.urlExpiry()})
	return websocketURL(base, id, url.Values{"role": {string(roleHarness)}, "sig": {sig}})
}

// MayConnect returns nil if a member may connect to an executor, or the refusal.
func MayConnect(member auth.Member, id string) error {
	if member.MayConnectTo(id) {
		return nil
	}
	return forbidden(member.Principal, "may not connect to executor %s: no pattern of connect_to_executors in the table of principals matches", id)
}

// urlExpiry is when URLs issued now expire.
func (h *Hub) urlExpiry() int64 { return h.shared.clock.now().Add(h.shared.limits.URLLifetime).Unix() }

// BaseURL is the URL of the hub as the client of r knows it.
func (h *Hub) BaseURL(r *http.Request) string {
	switch {
	case h.config.PublicURL != "":
		return h.config.PublicURL
	case r.TLS != nil:
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// websocketURL returns the URL of an executor. base is an http or https URL.
func websocketURL(base, id string, query url.Values) string {
	return "ws" + strings.TrimPrefix(strings.TrimRight(base, "/"), "http") + "/executor/" + url.PathEscape(id) + "?" + query.Encode()
}

// executorInfo is an executor in a list.
type executorInfo struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels"`
	Version   string            `json:"version"`
	Connected bool              `json:"connected"`
	LastSeen  *time.Time        `json:"last_seen,omitempty"`
	Epoch     uint64            `json:"epoch"`
	Streams   int               `json:"streams"`
}

// list lists the executors of the caller.
func (h *Hub) list(r *http.Request) (any, error) {
	member, err := h.config.Authenticate(r)
	if err != nil {
		return nil, err
	}
	return h.Executors(func(id string) bool { return member.MayActAs(id) || member.MayConnectTo(id) }), nil
}

// Executors lists the executors that may be shown, to be encoded as JSON as the answer of
// GET /v1/executors.
func (h *Hub) Executors(may func(id string) bool) any {
	list := []executorInfo{}
	for _, record := range h.registry.index.all() {
		if !may(record.Executor) {
			continue
		}
		info := executorInfo{ID: record.Executor, Name: record.Name, Labels: record.Labels, Version: record.Version,
			Connected: h.registry.online(record), Epoch: record.Connected}
		if info.Labels == nil {
			info.Labels = map[string]string{}
		}
		if !record.LastSeen.IsZero() {
			seen := record.LastSeen.UTC()
			info.LastSeen = &seen
		}
		if route := h.routes.lookup(record.Executor); route != nil {
			info.Streams = route.streamCount()
		}
		list = append(list, info)
	}
	return map[string]any{"executors": list}
}
