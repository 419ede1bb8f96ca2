// Package harness connects to an executor through a rendezvous. It keeps a
// websocket, reopened when it is lost, and opens streams that survive that.
package harness

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/backoff"
	"github.com/execwire/execwire/internal/notify"
	"github.com/execwire/execwire/internal/tracecontext"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
)

// Defaults of [Options].
const (
	DefaultTimeout      = 10 * time.Second
	DefaultPingInterval = 10 * time.Second
	DefaultDeadAfter    = 10 * time.Second
	DefaultCloseTimeout = time.Second
)

// ConnectTimeout is long enough for [Dial] and [Harness.Connect] with the
// defaults to report which of the two ends did not answer.
const ConnectTimeout = DefaultTimeout + relay.DefaultProbeTimeout + 5*time.Second

// resumableHeader tells a rendezvous that this harness retransmits, so that its
// streams survive the websocket.
const resumableHeader = "Execwire-Resumable"

// Options configure a harness. URL is required.
type Options struct {
	// URL is the executor's websocket at the rendezvous:
	// wss://HOST/executor/ID?role=harness, or ws:// on loopback. The query may
	// have further parameters for the rendezvous.
	URL string
	// Token returns the bearer token, or an empty string, each time a websocket
	// is opened. nil means none.
	Token func() string
	// Locate returns the URL of the executor's websocket at the node of the hub to which
	// the executor is connected. It is called each time a websocket is opened and the
	// rendezvous answers that this is another node; the token is not sent to that URL,
	// which has a signature. nil means that this is an error.
	Locate func(ctx context.Context) (string, error)
	// TLS is for wss://; nil means the defaults of crypto/tls. It is cloned.
	TLS *tls.Config
	// Timeout bounds the opening of a websocket. 0 is DefaultTimeout.
	Timeout time.Duration
	// RetryMin is the delay before a lost websocket is reopened. It doubles with
	// each failure up to RetryMax. Delays are randomized between a half and all.
	// 0 means those of package backoff.
	RetryMin, RetryMax time.Duration
	// Websocket has the limits of the websockets. Binary is always set; for
	// PingInterval, DeadAfter and CloseTimeout 0 means the default of this
	// package.
	Websocket wsconn.Options
	// Trace is the trace that the connection belongs to, for the rendezvous. It may be zero.
	Trace tracecontext.Context
	// Relay has the limits of the streams. Role is ignored.
	Relay relay.Config
	// Logger receives the log. nil discards.
	Logger *slog.Logger
}

// Harness is a connection to one executor. All methods may be called
// concurrently. It must be closed.
type Harness struct {
	options  Options
	endpoint *relay.Endpoint
	log      *slog.Logger
	stop     context.CancelCauseFunc
	wg       sync.WaitGroup

	mu       sync.Mutex
	changed  notify.Broadcast // guarded by mu; the fields below changed
	online   bool             // guarded by mu; there is a websocket
	failed   error            // guarded by mu; why the last attempt to open one failed
	failures int              // guarded by mu; number of failed attempts
}

// errClosed is the cause of the end of a closed harness.
var errClosed = errors.New("the harness is closed")

// Dial connects to a rendezvous. It blocks until the websocket is open, the first
// attempt has failed, or ctx ends. Later the websocket is reopened until Close.
// The error is an [*OptionsError], a [*RefusedError] if the rendezvous rejected
// the request, or says why it did not respond.
func Dial(ctx context.Context, options Options) (*Harness, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	endpoint := relay.NewEndpoint(options.Relay)
	h := &Harness{options: options, endpoint: endpoint, log: options.Logger}
	conn, err := h.open(ctx)
	if err != nil {
		return nil, errors.Join(err, endpoint.Close(relay.ReasonClosed))
	}
	h.setState(true, nil)
	running, end := context.WithCancelCause(context.Background())
	h.stop = end
	h.wg.Go(func() { h.run(running, conn) })
	return h, nil
}

// Close resets the streams and returns when no goroutine of the harness is left.
func (h *Harness) Close() error {
	err := h.endpoint.Close(relay.ReasonClosed)
	h.stop(errClosed)
	h.wg.Wait()
	return err
}

// run keeps a websocket open until ctx ends. conn is the first one.
func (h *Harness) run(ctx context.Context, conn *wsconn.Conn) {
	retry := backoff.Backoff{Min: h.options.RetryMin, Max: h.options.RetryMax}
	for {
		if conn != nil {
			err := h.endpoint.Run(ctx, conn)
			if errors.Is(err, relay.ErrClosed) || ctx.Err() != nil {
				return
			}
			h.setState(false, nil)
			retry.Reset()
			h.log.Info("lost the connection to the rendezvous; reconnecting", slog.Any("error", err))
		}
		if !retry.Wait(ctx, 0) {
			return
		}
		var err error
		if conn, err = h.open(ctx); err != nil {
			h.log.Debug("the rendezvous cannot be reached", slog.Any("error", err))
			h.setState(false, err)
			continue
		}
		h.log.Info("reconnected to the rendezvous")
		h.setState(true, nil)
	}
}

// open opens a websocket.
func (h *Harness) open(ctx context.Context) (*wsconn.Conn, error) {
	header := http.Header{resumableHeader: {"1"}}
	if trace := h.options.Trace; !trace.IsZero() {
		header.Set(tracecontext.ParentKey, trace.Parent())
		header.Set(tracecontext.StateKey, trace.State())
	}
	if h.options.Token != nil {
		if token := h.options.Token(); token != "" {
			header.Set("Authorization", "Bearer "+token)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, h.options.Timeout, fmt.Errorf("the rendezvous did not answer within %v", h.options.Timeout))
	defer cancel()
	conn, err := h.dial(ctx, h.options.URL, header)
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok || refused.Code != codeExecutorElsewhere || h.options.Locate == nil {
		return conn, err
	}
	located, err := h.options.Locate(ctx)
	if err != nil {
		return nil, err
	}
	if hasTLS(h.options.URL) && !hasTLS(located) {
		return nil, fmt.Errorf("%w, and its URL of that node has no TLS", refused)
	}
	header.Del("Authorization")
	return h.dial(ctx, located, header)
}

// codeExecutorElsewhere is the code with which a rendezvous answers that the executor is
// connected to another node.
const codeExecutorElsewhere = "executor_elsewhere"

// hasTLS reports whether the websocket of a URL has TLS. Schemes may have capitals.
func hasTLS(url string) bool {
	scheme, _, _ := strings.Cut(url, ":")
	return strings.EqualFold(scheme, "wss")
}

// dial opens a websocket to a URL.
func (h *Harness) dial(ctx context.Context, url string, header http.Header) (*wsconn.Conn, error) {
	conn, err := wsconn.Dial(ctx, url, wsconn.DialOptions{Options: h.options.Websocket, Header: header, TLS: h.options.TLS})
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return nil, dialError(url, err)
}

// setState records the state of the websocket.
func (h *Harness) setState(online bool, failed error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.online, h.failed = online, failed
	if failed != nil {
		h.failures++
	}
	h.changed.Notify()
}

// await blocks until condition holds, which it evaluates with mu held, and fails
// if an attempt to open a websocket fails meanwhile.
func (h *Harness) await(ctx context.Context, condition func() bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for failures := h.failures; !condition(); {
		if h.failures > failures {
			return h.failed
		}
		changed := h.changed.Wait()
		h.mu.Unlock()
		select {
		case <-changed:
			h.mu.Lock()
		case <-ctx.Done():
			h.mu.Lock()
			return context.Cause(ctx)
		}
	}
	return nil
}

// Open opens a stream of messages. It blocks until there is a websocket.
func (h *Harness) Open(ctx context.Context) (*relay.Stream, error) {
	if err := h.await(ctx, func() bool { return h.online }); err != nil {
		return nil, err
	}
	return h.endpoint.Open("")
}

// Connect opens a stream of bytes, for gRPC. It blocks until the executor has
// acknowledged. It fails with [ErrPlainExecutor] if that does not happen in time,
// and with [ErrStreamLimit] at a stream limit. Reads and writes may fail with
// these errors, too.
func (h *Harness) Connect(ctx context.Context) (*Conn, error) {
	stream, err := h.Open(ctx)
	if err != nil {
		return nil, err
	}
	if err := h.awaitReliable(ctx, stream); err != nil {
		stream.Reset(relay.ReasonClosed)
		if errors.Is(err, relay.ErrPlainPeer) {
			return nil, ErrPlainExecutor
		}
		return nil, translateError(err)
	}
	return &Conn{Conn: relay.NewConn(stream), stream: stream}, nil
}

// Conn is a connection to an executor. Its errors are those of this package.
type Conn struct {
	net.Conn
	stream *relay.Stream
}

// LastReceived returns when the last frame from the executor arrived. A live executor
// sends a frame at least every HeartbeatInterval of Options.Relay. LastReceived does
// not block.
func (c *Conn) LastReceived() time.Time { return c.stream.LastReceived() }

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, translateError(err)
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, translateError(err)
}

// awaitReliable blocks until the executor has acknowledged, and fails if the
// websocket is lost meanwhile and cannot be reopened.
func (h *Harness) awaitReliable(ctx context.Context, stream *relay.Stream) error {
	waitCtx, stop := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := h.await(waitCtx, func() bool { return false }); waitCtx.Err() == nil {
			stop(err)
		}
	})
	err := stream.WaitReliable(waitCtx)
	stop(nil)
	wg.Wait()
	return err
}
