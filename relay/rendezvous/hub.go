package rendezvous

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/quota"
	"github.com/execwire/execwire/internal/wsconn"
)

// Config configures a [Hub]. Authenticate and Recall are required.
type Config struct {
	// Limits are the limits of the hub; zero fields mean the defaults.
	Limits Limits
	// Presence stores the records of executors. The hub closes it. Nil means a
	// [Memory].
	Presence Presence
	// Authenticate returns the caller of r, or an *[auth.Error]. It is called
	// concurrently.
	Authenticate func(r *http.Request) (auth.Member, error)
	// Recall returns the current permissions of a principal that Authenticate has
	// returned before: one that shows a URL issued to it. The error is an
	// *[auth.Error]. It is called concurrently.
	Recall func(r *http.Request, principal auth.Principal) (auth.Member, error)
	// Use marks the connection of r as in use until end is called. It calls evict
	// when the connection is to be closed to free capacity, with an *[auth.Error]
	// of [auth.KindTooManyConnections]. May be nil.
	Use func(r *http.Request, evict func(error)) (end func())
	// Node is the name of this hub among those that share a presence. Empty means
	// the hostname.
	Node string
	// PublicURL is where clients reach the hub, as https://HOST. Empty means the
	// host named by each request, which is wrong behind a proxy that terminates
	// TLS.
	PublicURL string
	// URLKey signs the URLs that the hub issues. All nodes need the same key. Nil
	// means a random one, so that URLs expire with the process.
	URLKey []byte
	// Origins are the allowed values of the Origin header, compared exactly.
	// Other requests with that header, as from browsers, are rejected.
	Origins []string
	// HostKnown reports whether the Host of a request means this hub; others are
	// rejected, whatever they request. It is called concurrently. Nil accepts every
	// host.
	HostKnown func(*http.Request) bool
	// Calls are further requests of authenticated callers, by their pattern for
	// http.ServeMux. What they return is the response, as JSON; an error that is not a
	// [*Refusal] is one of the hub. They are called concurrently.
	Calls map[string]func(r *http.Request, caller auth.Member) (any, error)
	// Metrics serves /metrics to authenticated callers. Nil is not found.
	Metrics http.Handler
	// OnRefuse is called for each request that is refused, and OnLimit with the setting of
	// each limit for which a request, a websocket or a stream is refused. They are called
	// concurrently and must not block. Nil calls nothing.
	OnRefuse func(*Refusal)
	OnLimit  func(limit string)
	// PingInterval and DeadAfter apply to every websocket; see [wsconn.Options].
	PingInterval, DeadAfter time.Duration
	// Audit records registrations, connections and denials. Nil records nothing.
	Audit *Auditor
	// Logger logs registrations, connections and rejections. Nil discards.
	Logger *slog.Logger
}

// Hub is the registry and the rendezvous, as an http.Handler. It may be used
// concurrently.
type Hub struct {
	config Config
	shared *hubState
	directory
	signer        Signer
	receiveBudget *wsconn.Budget
	connCounts    quota.Counter // of each principal
	mux           *http.ServeMux
	logger        *slog.Logger

	closing     context.Context // done when the hub is closing
	stop        context.CancelCauseFunc
	maintenance sync.WaitGroup
}

// errClosing is the cause for canceling operations of a hub that shuts down.
var errClosing = errors.New("the hub is shutting down")

// New returns a hub, which must be closed. It waits for the presence to list its
// records.
func New(config Config) (*Hub, error) {
	return newHub(config, config.Limits.withDefaults(), realClock{})
}

func newHub(config Config, limits Limits, clock clock) (*Hub, error) {
	if config.Presence == nil {
		config.Presence = NewMemory()
	}
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	if config.Metrics == nil {
		config.Metrics = http.NotFoundHandler()
	}
	if config.OnRefuse == nil {
		config.OnRefuse = func(*Refusal) {}
	}
	if config.OnLimit == nil {
		config.OnLimit = func(string) {}
	}
	if config.Node == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("failed to get the hostname: %w", err)
		}
		config.Node = name
	}
	if config.URLKey == nil {
		config.URLKey = make([]byte, 32)
		_, _ = rand.Read(config.URLKey) // never fails
	}
	shared := &hubState{limits: limits, clock: clock, queueBudget: newBudget(limits.TotalQueueBytes), streamCounts: quota.Counter{Most: limits.StreamsPerPrincipal}, stats: new(stats), onLimit: config.OnLimit}
	h := &Hub{
		config: config, shared: shared,
		directory: directory{routes: newRouteTable(shared), registry: &registry{presence: config.Presence, limits: limits, clock: clock, node: config.Node,
			index: newIndex(), logger: config.Logger, pending: make(map[string][]registration)}},
		signer: Signer{Key: config.URLKey, Purpose: purposeURL}, receiveBudget: wsconn.NewBudget(limits.TotalQueueBytes),
		connCounts: quota.Counter{Most: limits.Connections}, logger: config.Logger,
	}
	h.receiveBudget.Setting, h.receiveBudget.MinRate = "queue_bytes_total", limits.MinIncomingRate
	h.closing, h.stop = context.WithCancelCause(context.Background())
	h.mux = h.newMux()
	if err := h.loadPresence(); err != nil {
		h.stop(err)
		h.maintenance.Wait()
		return nil, err
	}
	h.maintenance.Go(h.maintain)
	return h, nil
}

// loadPresence waits until the index has all records, and marks executors offline
// that were connected to this node before it restarted.
func (h *Hub) loadPresence() error {
	ctx, cancel := context.WithTimeoutCause(h.closing, presenceTimeout, errPresenceSlow)
	defer cancel()
	complete := make(chan struct{})
	once := sync.OnceFunc(func() { close(complete) })
	h.maintenance.Go(func() { h.registry.follow(h.closing, once) })
	select {
	case <-complete:
	case <-ctx.Done():
		return fmt.Errorf("failed to list executors: %w", context.Cause(ctx))
	}
	return h.registry.resetOwn(ctx)
}

// presenceTimeout bounds requests to the presence. It is below the write timeout
// of HTTP servers, so that a failure can still be reported.
const presenceTimeout = 5 * time.Second

var errPresenceSlow = errors.New("the presence of executors did not answer in time")

// maintain periodically expires registrations and idle streams.
func (h *Hub) maintain() {
	ticker := time.NewTicker(h.shared.limits.PresenceInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			h.expire()
		case <-h.closing.Done():
			return
		}
	}
}

// Close rejects new connections, resets the streams that do not survive it,
// closes all websockets with code 1001, waits for their goroutines and closes the
// presence. Further calls wait for the same.
func (h *Hub) Close() error {
	h.stop(errClosing)
	first := h.routes.close()
	h.routes.serving.Wait()
	h.maintenance.Wait()
	if !first {
		return nil
	}
	return h.config.Presence.Close()
}

// Connections returns the number of websockets.
func (h *Hub) Connections() int { return h.routes.connections() }

// metrics serves /metrics.
func (h *Hub) metrics(w http.ResponseWriter, r *http.Request) {
	if _, err := h.config.Authenticate(r); err != nil {
		h.Reject(w, r, "", err)
		return
	}
	h.config.Metrics.ServeHTTP(w, r)
}

// Stats returns what the hub has and has done. It takes time in proportion to the number
// of executors, and does not block.
func (h *Hub) Stats() Stats {
	c := h.shared.stats
	s := Stats{
		Connections: h.Connections(), QueuedBytes: h.shared.queueBudget.inUse(), PresenceReady: h.config.Presence.Ready() == nil,
		Frames: c.frames.Load(), FrameBytes: c.bytes.Load(), Resets: c.resets.Load(), Dropped: make(map[string]int64, numDropReasons),
	}
	for why, name := range dropNames {
		s.Dropped[name] = c.dropped[why].Load()
	}
	for _, route := range h.routes.all() {
		s.Streams += route.streamCount()
	}
	for _, record := range h.registry.index.all() {
		if h.registry.online(record) {
			s.Online++
		} else {
			s.Offline++
		}
	}
	return s
}
