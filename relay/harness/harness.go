// Package harness reaches an executor through a rendezvous: it keeps a websocket
// to it, opened again whenever it is lost, and opens streams that survive that.
package harness

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/backoff"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
)

// Defaults of [Options].
const (
	DefaultTimeout      = 10 * time.Second
	DefaultRetryFirst   = 100 * time.Millisecond
	DefaultRetryMost    = 2 * time.Second
	DefaultPingInterval = 10 * time.Second
	DefaultDeadAfter    = 10 * time.Second
	DefaultCloseTimeout = time.Second
)

// ConnectTimeout is time enough for [Dial] and [Harness.Connect] with the defaults:
// whoever waits for less does not learn which of the two ends did not answer.
const ConnectTimeout = DefaultTimeout + relay.DefaultProbeTimeout + 5*time.Second

// resumableHeader tells a rendezvous that streams of this harness survive its
// websocket, for as long as the rendezvous keeps them.
const resumableHeader = "Execwire-Resumable"

// Options say where a rendezvous is and what to show it. URL is needed.
type Options struct {
	// URL is the websocket of the executor at the rendezvous:
	// wss://HOST/executor/ID?role=harness, or ws:// on loopback, with whatever else
	// the rendezvous wants in the query.
	URL string
	// Token returns the bearer token to show, empty for none, whenever a websocket
	// is opened. nil shows none.
	Token func() string
	// AllowPlainText sends the token, and all that is said, in plain text to other
	// hosts: ws:// beyond loopback.
	AllowPlainText bool
	// TLS is for wss://; nil is the default of crypto/tls. It is cloned.
	TLS *tls.Config
	// Timeout bounds the opening of a websocket. 0 is DefaultTimeout.
	Timeout time.Duration
	// RetryFirst is the wait before a websocket that was lost is opened again,
	// which doubles with each failure up to RetryMost. Each is cut at random to
	// between a half and all. 0 are the defaults.
	RetryFirst, RetryMost time.Duration
	// Websocket are the limits of the websockets. Binary is always set; a
	// PingInterval, DeadAfter or CloseTimeout of 0 is the default of this package.
	Websocket wsconn.Options
	// Relay are the limits of the streams. Role is always that of a harness.
	Relay relay.Config
	// Logger gets what happens. nil discards.
	Logger *slog.Logger
}

// Harness is connected to one executor. All methods may be called concurrently.
// It has to be closed.
type Harness struct {
	options  Options
	endpoint *relay.Endpoint
	log      *slog.Logger
	end      context.CancelCauseFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // guarded by mu; closed when what follows changes
	online  bool          // guarded by mu; there is a websocket
	failed  error         // guarded by mu; why the last one could not be opened
	tries   int           // guarded by mu; how many ended so
}

// errClosed is why everything of a closed harness ends.
var errClosed = errors.New("the connection to the relay is closed")

// Dial connects to a rendezvous. It blocks until there is a websocket, the first
// attempt has failed, or ctx is done; later ones are made again and again until
// Close. The error is a [*OptionsError], a [*RefusedError] of a rendezvous that
// answered, or says why it did not.
func Dial(ctx context.Context, options Options) (*Harness, error) {
	options, err := options.checked()
	if err != nil {
		return nil, err
	}
	endpoint, err := relay.NewEndpoint(options.Relay)
	if err != nil {
		return nil, err
	}
	h := &Harness{options: options, endpoint: endpoint, log: options.Logger, changed: make(chan struct{})}
	conn, err := h.open(ctx)
	if err != nil {
		return nil, errors.Join(err, endpoint.Close(relay.ReasonClosed))
	}
	h.set(true, nil)
	running, end := context.WithCancelCause(context.Background())
	h.end = end
	h.running.Go(func() { h.run(running, conn) })
	return h, nil
}

// Close resets the streams, whose executor is told that they are done, and
// returns when nothing of the harness is left.
func (h *Harness) Close() error {
	err := h.endpoint.Close(relay.ReasonClosed)
	h.end(errClosed)
	h.running.Wait()
	return err
}

// run keeps a websocket until ctx ends. The first one is there.
func (h *Harness) run(ctx context.Context, conn *wsconn.Conn) {
	retry := backoff.Backoff{First: h.options.RetryFirst, Most: h.options.RetryMost}
	for {
		if conn != nil {
			err := h.endpoint.Run(ctx, conn)
			if errors.Is(err, relay.ErrClosed) || ctx.Err() != nil {
				return
			}
			h.set(false, nil)
			retry.Reset()
			h.log.Info("the connection to the rendezvous was lost and is made again", slog.Any("error", err))
		}
		if !retry.Wait(ctx, 0) {
			return
		}
		var err error
		if conn, err = h.open(ctx); err != nil {
			h.log.Debug("the rendezvous cannot be reached", slog.Any("error", err))
			h.set(false, err)
			continue
		}
		h.log.Info("connected to the rendezvous again")
		h.set(true, nil)
	}
}

// open opens a websocket.
func (h *Harness) open(ctx context.Context) (*wsconn.Conn, error) {
	header := http.Header{resumableHeader: {"1"}}
	if h.options.Token != nil {
		if token := h.options.Token(); token != "" {
			header.Set("Authorization", "Bearer "+token)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, h.options.Timeout, &TimeoutError{After: h.options.Timeout})
	defer cancel()
	conn, err := wsconn.Dial(ctx, h.options.URL, wsconn.DialOptions{Options: h.options.Websocket, Header: header, TLS: h.options.TLS})
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return nil, explain(h.options.URL, err)
}

// set notes how things stand.
func (h *Harness) set(online bool, failed error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.online, h.failed = online, failed
	if failed != nil {
		h.tries++
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// awaitOnline blocks until there is a websocket, and fails when an attempt to
// open one has failed meanwhile.
func (h *Harness) awaitOnline(ctx context.Context) error {
	return h.await(ctx, func() bool { return h.online })
}

// await blocks until so holds, which it asks with mu held, and fails when an
// attempt to open a websocket has failed meanwhile.
func (h *Harness) await(ctx context.Context, so func() bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for tries := h.tries; !so(); {
		if h.tries > tries {
			return h.failed
		}
		changed := h.changed
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

// Open begins a stream, which carries messages: what a harness of the reference
// says. It blocks until there is a websocket.
func (h *Harness) Open(ctx context.Context) (*relay.Stream, error) {
	if err := h.awaitOnline(ctx); err != nil {
		return nil, err
	}
	return h.endpoint.Open("")
}

// Connect begins a stream that carries bytes: what gRPC speaks to an executor of
// this project. It blocks until the executor has shown that it can, and fails with
// [ErrPlainExecutor] if it does not in time, and with [ErrStreamLimit] if there is no
// place for one more. What reads and writes fail with may be that, too.
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
		return nil, meaning(err)
	}
	return &Conn{Conn: relay.NewConn(stream), stream: stream}, nil
}

// Conn is a connection to an executor, whose errors are those of this package.
type Conn struct {
	net.Conn
	stream *relay.Stream
}

// HeardAt returns when something of the executor came last. One that is there is
// heard of at least every HeartbeatInterval of Options.Relay, whether it sends
// anything or not. It does not block.
func (c *Conn) HeardAt() time.Time { return c.stream.HeardAt() }

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, meaning(err)
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, meaning(err)
}

// awaitReliable blocks until the executor has shown that it acknowledges, and
// fails when the websocket was lost meanwhile and could not be opened again.
func (h *Harness) awaitReliable(ctx context.Context, stream *relay.Stream) error {
	waiting, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := h.await(waiting, func() bool { return false }); waiting.Err() == nil {
			stop(err)
		}
	})
	err := stream.WaitReliable(waiting)
	stop(nil)
	watching.Wait()
	return err
}
