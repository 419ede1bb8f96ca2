// Package executor connects an executor to a rendezvous: it registers with a
// registry over HTTP, connects to the websocket that the registry names, passes
// it to a function that serves it, and repeats that when the websocket ends.
package executor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/backoff"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
)

// Defaults of [Options].
const (
	DefaultTimeout      = 10 * time.Second
	DefaultRetryMin     = time.Second
	DefaultRetryMax     = 30 * time.Second
	DefaultPingInterval = 15 * time.Second
	DefaultPongTimeout  = 60 * time.Second
	DefaultDeadAfter    = 10 * time.Second
)

// Options configure an executor. BaseURL, ExecutorID and Serve are required.
type Options struct {
	// BaseURL is the base URL of the registry, https:// or, on loopback, http://.
	// Surrounding white space and trailing slashes are ignored.
	BaseURL string
	// ExecutorID is the id under which harnesses find the executor: at most
	// [MaxIDBytes] ASCII letters, digits, - and _. Surrounding white space is
	// ignored.
	ExecutorID string
	// Credentials authenticate each registration. nil is allowed only if the
	// registry is on loopback.
	Credentials Credentials
	// TLS is for https:// and wss://; nil means the defaults of crypto/tls. It is
	// cloned.
	TLS *tls.Config

	// Name is for display, at most [MaxNameBytes] bytes. May be empty.
	Name string
	// Version is the version of this program. May be empty.
	Version string
	// Labels are for finding executors, at most [MaxLabels].
	Labels map[string]string

	// Streams is the stream limit of Serve, so that the hub can share them among
	// harnesses. 0 announces none.
	Streams int
	// Serve serves a websocket until it or ctx ends, closes it, and returns why
	// it ended, as [relay.Endpoint.Run] does; [relay.ErrClosed] ends Run. It is
	// called for one websocket at a time.
	Serve func(ctx context.Context, websocket *wsconn.Conn) error
	// Websocket has the limits of the websockets. Binary is always set,
	// PingInterval is ignored, and DeadAfter 0 means DefaultDeadAfter.
	Websocket wsconn.Options
	// PingInterval is the interval between pings, and PongTimeout how long a pong
	// may take before the connection counts as lost. 0 means the default.
	PingInterval, PongTimeout time.Duration
	// Timeout bounds each request to the registry, from the dial to the last byte
	// of the response, and the opening of a websocket. 0 is DefaultTimeout.
	Timeout time.Duration
	// RetryMin is the delay before reconnecting after a connection that worked
	// was lost. It doubles with each failure up to RetryMax. Delays are
	// randomized between a half and all. 0 means the default.
	RetryMin, RetryMax time.Duration

	// Logger receives the log. nil discards.
	Logger *slog.Logger
}

// Run registers, connects and serves the websocket, repeatedly. It returns nil
// when ctx ends or Serve returns [relay.ErrClosed], otherwise an error that
// retrying cannot fix: an [*OptionsError], or one for which [Final] is true. It
// returns after all its goroutines have ended.
func Run(ctx context.Context, o Options) error {
	e, err := newExecutor(o)
	if err != nil {
		return err
	}
	for {
		err := e.runOnce(ctx)
		if ctx.Err() != nil || errors.Is(err, relay.ErrClosed) {
			return nil
		}
		if Final(err, e.registered) {
			return err
		}
		wait := e.backoff.Next(retryAfter(err))
		e.log.Warn("the executor is not connected; retrying", slog.Any("error", err), slog.Duration("wait", wait))
		if !backoff.Pause(ctx, wait) {
			return nil
		}
	}
}

// executor is a running executor. It is for one goroutine.
type executor struct {
	options    Options
	registry   *registry
	log        *slog.Logger
	backoff    backoff.Backoff
	registered bool // the registry has responded successfully once
}

func newExecutor(o Options) (*executor, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &executor{
		options: o, registry: newRegistry(o), log: o.Logger,
		backoff: backoff.Backoff{Min: o.RetryMin, Max: o.RetryMax},
	}, nil
}

// runOnce registers, connects and serves one websocket, and returns why that
// failed or ended.
func (e *executor) runOnce(ctx context.Context) error {
	reg, err := e.registry.register(ctx)
	if err != nil {
		return err
	}
	e.registered = true
	source := "none"
	if e.options.Credentials != nil {
		source = e.options.Credentials.String()
	}
	e.log.Info("the executor is registered", slog.String("executor_id", reg.executorID), slog.String("credentials", source),
		slog.String("rendezvous", reg.url.Host), slog.Int64("epoch", reg.epoch))
	conn, err := e.connect(ctx, reg.url.String())
	if err != nil {
		return connectError(reg.url, err)
	}
	e.backoff.Reset()
	e.log.Info("the executor is connected", slog.String("rendezvous", reg.url.Host))
	return e.serve(ctx, conn, reg.url.Host)
}

func (e *executor) connect(ctx context.Context, url string) (*wsconn.Conn, error) {
	ctx, stop := context.WithTimeoutCause(ctx, e.options.Timeout, timedOut(e.options.Timeout))
	defer stop()
	conn, err := wsconn.Dial(ctx, url, wsconn.DialOptions{Options: e.options.Websocket, TLS: e.options.TLS})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return conn, err
}

// serve serves a websocket and returns why it ended.
func (e *executor) serve(ctx context.Context, conn *wsconn.Conn, host string) error {
	serveCtx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := e.pingLoop(serveCtx, conn); err != nil {
			cancel(err)
		}
	})
	err := e.options.Serve(serveCtx, conn)
	if cause := context.Cause(serveCtx); cause != nil && ctx.Err() == nil {
		err = cause
	}
	cancel(nil)
	wg.Wait()
	_ = conn.Close(wsconn.CodeGoingAway, "") // a no-op after Serve
	if errors.Is(err, relay.ErrClosed) {
		return err
	}
	if err == nil || err == io.EOF {
		err = errClosed
	}
	if closed, ok := errors.AsType[*wsconn.ClosedError](err); ok && closed.Code == codeSuperseded {
		return &SupersededError{ExecutorID: e.options.ExecutorID, Reason: closed.Reason}
	}
	return fmt.Errorf("lost the connection to the rendezvous %s: %w", host, err)
}

// pingLoop pings the peer until ctx ends or the connection fails, and returns
// nil, or until a pong is overdue. Errors of the connection are reported by
// Serve.
func (e *executor) pingLoop(ctx context.Context, conn *wsconn.Conn) error {
	ticker := time.NewTicker(e.options.PingInterval)
	defer ticker.Stop()
	silent := fmt.Errorf("no pong for %v", e.options.PongTimeout)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		pingCtx, stop := context.WithTimeoutCause(ctx, e.options.PongTimeout, silent)
		err := conn.Prove(pingCtx)
		stop()
		if errors.Is(err, silent) {
			return silent
		}
		if err != nil {
			return nil
		}
	}
}
