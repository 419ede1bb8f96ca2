package preview

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/httpstall"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/relay/channels"
	"github.com/execwire/execwire/relay/rendezvous"
)

// Defaults of [Limits].
const (
	DefaultLinkLifetime           = 24 * time.Hour
	DefaultLinksPerPrincipal      = 256
	DefaultConnectionsPerPort     = 256
	DefaultConnectionsPerExecutor = 1024
)

// Limits bound what previews use. Zero fields mean the defaults.
type Limits struct {
	// LinkLifetime is the longest lifetime of a link.
	LinkLifetime time.Duration
	// LinksPerPrincipal is how many links of one principal may be valid.
	LinksPerPrincipal int
	// ConnectionsPerPort is how many requests and websockets the previews of one port
	// may have in progress, and ConnectionsPerExecutor those of one executor. Further
	// ones are refused.
	ConnectionsPerPort, ConnectionsPerExecutor int
}

// Config configures [Previews]. Fields without a comment on zero are required.
type Config struct {
	// Domain is the domain below which each port has a host, in lower case. Empty means
	// that there are no previews.
	Domain string
	// PublicURL is the URL of the hub; see [rendezvous.Config].
	PublicURL string
	// Limits are the limits of previews.
	Limits Limits
	// Reachable returns why an executor cannot be reached; see
	// [rendezvous.Hub.Reachable].
	Reachable func(ctx context.Context, executor string) error
	// Open opens a stream to an executor; see [rendezvous.Hub.Open].
	Open func(ctx context.Context, principal, executor string) (net.Conn, error)
	// Reject responds with an error; see [rendezvous.Hub.Reject].
	Reject func(w http.ResponseWriter, r *http.Request, executor string, err error)
	// Authenticate, Recall and Use are those of [rendezvous.Config].
	Authenticate func(r *http.Request) (auth.Member, error)
	Recall       func(r *http.Request, principal auth.Principal) (auth.Member, error)
	Use          func(r *http.Request, evict func(error)) (end func())
	// Audit records links and their use. Nil records nothing.
	Audit *rendezvous.Auditor
	// Logger logs links. Nil discards.
	Logger *slog.Logger
}

// Previews serves the ports of executors. It may be used concurrently, and must be
// closed.
type Previews struct {
	config   Config
	signer   rendezvous.Signer
	proxy    *httputil.ReverseProxy
	pool     *http.Transport // connections to ports
	closing  context.Context // done when the previews are closing
	stop     context.CancelCauseFunc
	serving  sync.WaitGroup // requests; added to with mu held and not closed
	channels *channels.Pool

	mu         sync.Mutex
	closed     bool             // guarded by mu
	links      map[string]*link // guarded by mu; by id
	byPort     map[target]int   // guarded by mu; requests in progress
	byExecutor map[string]int   // guarded by mu; the same
	requests   int64            // guarded by mu; that have begun
}

// New returns previews. Links are signed with a random key, and are known to this
// Previews alone: none survives it, so that none that was revoked does.
func New(config Config) *Previews {
	l := &config.Limits
	l.LinkLifetime = cmp.Or(l.LinkLifetime, DefaultLinkLifetime)
	l.LinksPerPrincipal = cmp.Or(l.LinksPerPrincipal, DefaultLinksPerPrincipal)
	l.ConnectionsPerPort = cmp.Or(l.ConnectionsPerPort, DefaultConnectionsPerPort)
	l.ConnectionsPerExecutor = cmp.Or(l.ConnectionsPerExecutor, DefaultConnectionsPerExecutor)
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	p := &Previews{
		config: config, signer: rendezvous.Signer{Key: key, Purpose: "execwire preview"},
		links: make(map[string]*link), channels: channels.New(config.Open),
		byPort: make(map[target]int), byExecutor: make(map[string]int),
	}
	p.closing, p.stop = context.WithCancelCause(context.Background())
	p.pool = p.newPool()
	p.proxy = p.newProxy()
	return p
}

// errClosing is the cause of the end of requests when the hub shuts down.
var errClosing = errors.New("the hub is shutting down")

// Close ends all requests, and returns when their handlers have returned and all streams
// to executors are closed. Further requests are refused.
func (p *Previews) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop(errClosing)
	p.channels.Close()
	p.serving.Wait()
	p.pool.CloseIdleConnections()
}

// target is a port of an executor.
type target struct {
	executor string
	port     uint16
}

// hostname is the name of the host of the target.
func (t target) hostname(domain string) string {
	return fmt.Sprintf("%d--%s.%s", t.port, t.executor, domain)
}

// maxLabel is the longest label of a name in DNS.
const maxLabel = 63

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// hasHost reports whether the target can be named by a host: names have no underscores
// and no upper case.
func (t target) hasHost() bool {
	return dnsLabel.MatchString(t.executor) && len(t.hostname("")) <= maxLabel+1
}

// target returns what a Host header names, if it is a preview.
func (p *Previews) target(host string) (t target, ok bool) {
	label, below := strings.CutSuffix(listen.HostName(host), "."+p.config.Domain)
	digits, executor, named := strings.Cut(label, "--")
	port, err := strconv.ParseUint(digits, 10, 16)
	t = target{executor: executor, port: uint16(port)}
	return t, p.config.Domain != "" && below && named && err == nil && port > 0 && digits == strconv.FormatUint(port, 10) && t.hasHost()
}

// Serves reports whether a Host header names a preview, whose requests are for
// ServeHTTP.
func (p *Previews) Serves(host string) bool {
	_, ok := p.target(host)
	return ok
}

// stallTimeout is how long a client may delay the next part of its request or response.
const stallTimeout = time.Minute

// ServeHTTP implements http.Handler, for requests whose host [Previews.Serves]. It
// returns when a websocket has ended.
func (p *Previews) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bounded, r := httpstall.Bound(w, r, stallTimeout)
	defer bounded.Extend()
	to, _ := p.target(r.Host)
	if err := p.serve(bounded, r, to); err != nil {
		p.config.Reject(bounded, r, to.executor, err)
	}
}

// serve serves a request for a target. The error is returned before a response.
func (p *Previews) serve(w http.ResponseWriter, r *http.Request, to target) error {
	if signed, rest, ok := cutLink(r.URL.RawQuery); ok {
		return p.redeem(w, r, to, signed, rest)
	}
	by, err := p.authorize(r, to)
	if err != nil {
		return err
	}
	// A stream would wait for the executor to return.
	if err := p.config.Reachable(r.Context(), to.executor); err != nil {
		return err
	}
	ctx, end, err := p.begin(r, to, by)
	if err != nil {
		return err
	}
	defer end()
	p.proxy.ServeHTTP(w, r.WithContext(context.WithValue(ctx, requestKey{}, &request{to: to, access: by, host: r.Host, secure: p.isSecure(r)})))
	return nil
}

// interruptDelay is how long the handler of a request whose context has ended has to
// respond with an error.
const interruptDelay = time.Second

// begin counts a request until end is called. The context ends with it, and when the
// link of its access is revoked or expires, its connection is evicted, or the previews
// close; then pending reads and writes of the client are interrupted.
func (p *Previews) begin(r *http.Request, to target, by access) (ctx context.Context, end func(), err error) {
	if err := p.enter(to); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	ends, release := p.closing, func() {}
	if by.link != nil {
		ends = by.link.valid
		expiry := time.AfterFunc(time.Until(by.link.expires()), func() { cancel(errExpired) })
		release = func() { expiry.Stop() }
	}
	unused := p.config.Use(r, func(why error) { cancel(why) })
	stopEnds := context.AfterFunc(ends, func() { cancel(context.Cause(ends)) })
	ended := make(chan struct{})
	stopInterrupt := context.AfterFunc(ctx, func() {
		delay := time.NewTimer(interruptDelay)
		defer delay.Stop()
		select {
		case <-ended:
		case <-delay.C:
			httpstall.Interrupt(ctx)
		}
	})
	return ctx, func() {
		stopInterrupt()
		close(ended)
		stopEnds()
		release()
		unused()
		cancel(nil)
		p.leave(to)
	}, nil
}

// enter counts a request in progress.
func (p *Previews) enter(to target) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	limits := p.config.Limits
	switch {
	case p.closed:
		return rendezvous.ShuttingDown()
	case p.byPort[to] >= limits.ConnectionsPerPort:
		return rendezvous.LimitReached(rendezvous.CodeConnectionLimit, "preview_connections_per_port", limits.ConnectionsPerPort, time.Second)
	case p.byExecutor[to.executor] >= limits.ConnectionsPerExecutor:
		return rendezvous.LimitReached(rendezvous.CodeConnectionLimit, "preview_connections_per_executor", limits.ConnectionsPerExecutor, time.Second)
	}
	p.byPort[to]++
	p.byExecutor[to.executor]++
	p.requests++
	p.serving.Add(1)
	return nil
}

// leave undoes enter.
func (p *Previews) leave(to target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byPort[to]--; p.byPort[to] == 0 {
		delete(p.byPort, to)
	}
	if p.byExecutor[to.executor]--; p.byExecutor[to.executor] == 0 {
		delete(p.byExecutor, to.executor)
	}
	p.serving.Done()
}

// Stats are what previews have, and the requests since they started.
type Stats struct {
	// Links are the valid links, and Connections the requests and websockets in progress.
	Links, Connections int
	// Requests were passed to ports.
	Requests int64
}

// Stats returns the present figures. It does not block.
func (p *Previews) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{Requests: p.requests}
	for _, l := range p.links {
		if !l.expired() {
			s.Links++
		}
	}
	for _, n := range p.byExecutor {
		s.Connections += n
	}
	return s
}
