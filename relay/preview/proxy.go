package preview

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/tracecontext"
	"github.com/execwire/execwire/internal/tracing"
	"github.com/execwire/execwire/relay/rendezvous"
)

const (
	// portIdleTimeout is how long an unused connection to a port is kept, and
	// maxIdlePerPort how many of them for one port, and maxIdle for all.
	portIdleTimeout = 30 * time.Second
	maxIdlePerPort  = 16
	maxIdle         = 256
	// maxResponseHeader limits the header of a response of a port.
	maxResponseHeader = 256 << 10
)

// request is a request that is passed to a port.
type request struct {
	to     target
	access access
	host   string // of the client
	secure bool   // the client uses TLS
}

// requestKey is the context key of the request.
type requestKey struct{}

func requestOf(ctx context.Context) *request { return ctx.Value(requestKey{}).(*request) }

// localHost is the Host that the port receives: servers for development refuse names
// that they do not know.
func (t target) localHost() string { return fmt.Sprintf("localhost:%d", t.port) }

// newPool returns the connections to ports.
func (p *Previews) newPool() *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return p.dial(ctx, requestOf(ctx)) },
		// A connection attempt goes on after its request: without a limit, requests to a
		// port that does not accept would use up those of the whole executor.
		MaxConnsPerHost: p.config.Limits.ConnectionsPerPort,
		MaxIdleConns:    maxIdle, MaxIdleConnsPerHost: maxIdlePerPort, IdleConnTimeout: portIdleTimeout,
		DisableCompression: true, ExpectContinueTimeout: time.Second, MaxResponseHeaderBytes: maxResponseHeader,
	}
}

func (p *Previews) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: rewrite, ModifyResponse: modifyResponse, ErrorHandler: p.failed, Transport: p.pool,
		FlushInterval: -1, // at once
		ErrorLog:      slog.NewLogLogger(p.config.Logger.Handler(), slog.LevelDebug),
	}
}

// rewrite makes the request for the port of that of the client. What authorizes it at
// the hub is removed.
func rewrite(pr *httputil.ProxyRequest) {
	of, out := requestOf(pr.In.Context()), pr.Out
	// Requests share connections if port and principal are the same.
	out.URL.Scheme, out.URL.Host = "http", fmt.Sprintf("%d.%s.%x", of.to.port, of.to.executor, sha256.Sum256([]byte(of.access.principal)))
	out.URL.RawQuery = pr.In.URL.RawQuery // with parameters that net/url cannot parse
	out.Host = of.to.localHost()
	pr.SetXForwarded()
	scheme := schemeOf(of.secure)
	out.Header.Set("X-Forwarded-Proto", scheme)
	if out.Header.Get("Origin") == scheme+"://"+of.host {
		out.Header.Set("Origin", "http://"+out.Host)
	}
	if of.access.link == nil {
		out.Header.Del("Authorization")
	}
	if trace := tracing.FromContext(pr.In.Context()).Context(); !trace.IsZero() {
		out.Header.Set(tracecontext.ParentKey, trace.Parent())
	}
	cookies := out.Header["Cookie"]
	out.Header.Del("Cookie")
	for _, line := range cookies {
		if line = withoutCookie(line); line != "" {
			out.Header.Add("Cookie", line)
		}
	}
}

// withoutCookie removes the cookies of this package from a Cookie header.
func withoutCookie(line string) string {
	var kept []string
	for pair := range strings.SplitSeq(line, ";") {
		pair = strings.TrimSpace(pair)
		if name, _, _ := strings.Cut(pair, "="); name != secureCookie && name != plainCookie && pair != "" {
			kept = append(kept, pair)
		}
	}
	return strings.Join(kept, "; ")
}

// modifyResponse makes redirects to the port's own host redirects to that of the client.
func modifyResponse(response *http.Response) error {
	of := requestOf(response.Request.Context())
	to, err := url.Parse(response.Header.Get("Location"))
	if err == nil && to.Scheme == "http" && strings.EqualFold(to.Host, of.to.localHost()) {
		to.Scheme, to.Host = schemeOf(of.secure), of.host
		response.Header.Set("Location", to.String())
	}
	return nil
}

// failed responds to a request that the port has not answered.
func (p *Previews) failed(w http.ResponseWriter, r *http.Request, err error) {
	of := requestOf(r.Context())
	switch cause := context.Cause(r.Context()); {
	case errors.Is(cause, errClosing):
		err = rendezvous.ShuttingDown()
	case errors.Is(cause, errRevoked), errors.Is(cause, errExpired):
		err = unauthorized(cause.Error())
	case errors.As(err, new(*rendezvous.Refusal)), errors.As(err, new(*auth.Error)):
	default:
		status := http.StatusBadGateway
		if errors.Is(err, context.DeadlineExceeded) {
			status = http.StatusGatewayTimeout
		}
		err = &rendezvous.Refusal{Status: status, Code: "port_unreachable",
			Message: fmt.Sprintf("port %d of executor %s does not answer: %v", of.to.port, of.to.executor, err)}
	}
	p.config.Reject(w, r, of.to.executor, err)
}
