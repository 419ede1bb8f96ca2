package rendezvous

import (
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
	"github.com/execwire/execwire/internal/wsconn"
)

// Config is what a [Hub] needs. Only Authenticate and Recall must be set.
type Config struct {
	// Limits bound what the hub holds; zeros are the defaults.
	Limits Limits
	// Presence keeps the records of executors, and is closed with the hub. Nil is
	// a [Memory].
	Presence Presence
	// Authenticate returns who asks by r, or an *[auth.Error]. It is called
	// concurrently.
	Authenticate func(r *http.Request) (auth.Member, error)
	// Recall returns what a principal may do now that Authenticate returned
	// before: one who shows a URL that was made for it. The error is an
	// *[auth.Error]. It is called concurrently.
	Recall func(r *http.Request, principal auth.Principal) (auth.Member, error)
	// Use notes that the connection of r is in use until end is called. evict gets the
	// error, an *[auth.Error] of [auth.KindTooManyConnections], when it has to give way
	// to another. Nil is never called.
	Use func(r *http.Request, evict func(error)) (end func())
	// Node names this hub among those that share a presence. Empty is the name of
	// the machine.
	Node string
	// PublicURL is where the hub is reached, as https://HOST; empty is as each
	// request names it, which is wrong behind a proxy that ends TLS.
	PublicURL string
	// URLKey signs the URLs that the hub hands out. All nodes need the same; nil is
	// a random one, with which they end when the hub does.
	URLKey []byte
	// Origins are the values of the Origin header that are let in, compared
	// exactly. Without them whatever has the header is refused, as browsers are.
	Origins []string
	// PingInterval and DeadAfter are of every websocket; see [wsconn.Options].
	PingInterval, DeadAfter time.Duration
	// Logger is told who registered, connected, took over, left and was refused.
	// Nil is nobody.
	Logger *slog.Logger
}

// Hub is the registry and the rendezvous, as an http.Handler. It may be used
// concurrently.
type Hub struct {
	config   Config
	shared   *hubwide
	registry *registry
	signer   signer
	incoming *wsconn.Budget
	sockets  *tally // of each principal
	routes   *http.ServeMux
	logger   *slog.Logger

	over context.Context // done when it is closing
	end  context.CancelCauseFunc

	mu        sync.Mutex
	exchanges map[string]*place // guarded by mu; by executor
	closed    bool              // guarded by mu
	serving   sync.WaitGroup    // of connections and the heart; added to with mu held and not closed
}

// place is an exchange and how many connections have it.
type place struct {
	*exchange
	lines      int
	installing sync.Mutex // held from when an executor is written down until it is connected
}

// errClosing is why what a hub waits for is not waited for any more.
var errClosing = errors.New("the hub is shutting down")

// New returns a hub, which has to be closed. It waits for the presence to say
// what is there.
func New(config Config) (*Hub, error) {
	limits, err := config.Limits.withDefaults()
	if err != nil {
		return nil, err
	}
	return newHub(config, limits, realClock{})
}

func newHub(config Config, limits Limits, clock clock) (*Hub, error) {
	if config.Presence == nil {
		config.Presence = NewMemory()
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Node == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("failed to name this node of the hub: %w", err)
		}
		config.Node = name
	}
	if config.URLKey == nil {
		config.URLKey = make([]byte, 32)
		_, _ = rand.Read(config.URLKey) // never fails
	}
	h := &Hub{
		config: config,
		shared: &hubwide{limits: limits, clock: clock, total: newBudget(limits.TotalQueueBytes), streams: newTally(), counts: new(counts)},
		registry: &registry{presence: config.Presence, limits: limits, clock: clock, node: config.Node,
			index: newIndex(), logger: config.Logger, pending: make(map[string][]registration)},
		signer: signer{key: config.URLKey}, incoming: wsconn.NewBudget(limits.TotalQueueBytes),
		sockets: newTally(), logger: config.Logger, exchanges: make(map[string]*place),
	}
	h.incoming.Setting, h.incoming.MinRate = "queue_bytes_total", limits.MinIncomingRate
	h.over, h.end = context.WithCancelCause(context.Background())
	h.routes = h.newRoutes()
	if err := h.begin(); err != nil {
		h.end(err)
		h.serving.Wait()
		return nil, err
	}
	h.serving.Go(h.beat)
	return h, nil
}

// begin waits until the index has what the presence has, and says of executors
// that were connected to this node before it was started that they are not.
func (h *Hub) begin() error {
	ctx, cancel := context.WithTimeoutCause(h.over, presenceTimeout, errPresenceSlow)
	defer cancel()
	complete := make(chan struct{})
	once := sync.OnceFunc(func() { close(complete) })
	h.serving.Go(func() { h.registry.follow(h.over, once) })
	select {
	case <-complete:
	case <-ctx.Done():
		return fmt.Errorf("failed to list executors: %w", context.Cause(ctx))
	}
	return h.registry.clean(ctx)
}

// presenceTimeout bounds what is asked of the presence. It leaves time to answer
// that it did not, within the time that servers of HTTP give for an answer.
const presenceTimeout = 5 * time.Second

var errPresenceSlow = errors.New("the presence of executors did not answer in time")

// beat says every now and then that executors are there, and forgets what is not
// used any more.
func (h *Hub) beat() {
	ticker := time.NewTicker(h.shared.limits.PresenceInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			h.tidy()
		case <-h.over.Done():
			return
		}
	}
}

func (h *Hub) tidy() {
	h.registry.expireAll()
	for _, p := range h.places() {
		p.forget()
		h.drop(p, 0)
	}
}

func (h *Hub) places() []*place {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*place, 0, len(h.exchanges))
	for _, p := range h.exchanges {
		all = append(all, p)
	}
	return all
}

// visit returns the exchange of an executor with a connection more, for which
// the caller calls drop in the end, and done of serving; nil if the hub is
// closing.
func (h *Hub) visit(id string) *place {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	p := h.exchanges[id]
	if p == nil {
		p = &place{exchange: newExchange(h.shared, id)}
		h.exchanges[id] = p
	}
	p.lines++
	h.serving.Add(1)
	return p
}

// drop says that p has so many connections less, and forgets it if nothing is
// left.
func (h *Hub) drop(p *place, lines int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.lines -= lines; p.lines == 0 && h.exchanges[p.id] == p && p.unused() {
		delete(h.exchanges, p.id)
	}
}

// look returns the exchange of an executor, or nil if there is none.
func (h *Hub) look(id string) *place {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.exchanges[id]
}

// Close takes no new connections, tells the ends of streams that do not survive
// it, closes all websockets with code 1001 and waits for their goroutines, and
// closes the presence. Closing again waits for the same.
func (h *Hub) Close() error {
	h.mu.Lock()
	first := !h.closed
	h.closed = true
	h.mu.Unlock()
	h.end(errClosing)
	for _, p := range h.places() {
		p.dismiss()
	}
	h.serving.Wait()
	if !first {
		return nil
	}
	return h.config.Presence.Close()
}

// Connections returns how many websockets there are.
func (h *Hub) Connections() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, p := range h.exchanges {
		n += p.lines
	}
	return n
}
