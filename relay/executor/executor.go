// Package executor makes this program reachable through a rendezvous: it
// registers with a registry over HTTP, connects to the websocket that the
// registry names, has it served, and begins anew when it ends. What is said on
// the websocket is the business of whoever serves it.
package executor

import (
	"context"
	"crypto/tls"
	"errors"
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
	DefaultRetryFirst   = time.Second
	DefaultRetryMost    = 30 * time.Second
	DefaultPingInterval = 15 * time.Second
	DefaultPongTimeout  = 60 * time.Second
	DefaultDeadAfter    = 10 * time.Second
)

// Options say where an executor is registered, as what, and who serves its
// websocket. BaseURL, ExecutorID and Serve are needed.
type Options struct {
	// BaseURL is where the registry is, https:// or, on loopback, http://. White
	// space around it and slashes at its end do not count.
	BaseURL string
	// ExecutorID is the name under which harnesses find the executor: at most
	// [MaxIDBytes] ASCII letters, digits, - and _. White space around it does not
	// count.
	ExecutorID string
	// Credentials are shown to the registry at each registration. nil shows none,
	// and is refused unless the registry is on loopback.
	Credentials Credentials
	// AllowPlainText sends credentials, and all that is said, in plain text to
	// other hosts: http:// and ws:// beyond loopback.
	AllowPlainText bool
	// TLS is for https:// and wss://; nil is the default of crypto/tls. It is
	// cloned.
	TLS *tls.Config

	// Name is for people, at most [MaxNameBytes] bytes. Empty tells none.
	Name string
	// Version is that of this program. Empty tells none.
	Version string
	// Labels are for finding executors: at most [MaxLabels] of them.
	Labels map[string]string
	// Instance tells this program from another one that registers the same id: it
	// has to be the same at each registration and differ from every other
	// program's. Empty is a random UUID.
	Instance string

	// Streams is how many streams Serve takes at once, so that the hub shares them
	// among the harnesses. 0 tells none.
	Streams int
	// Serve serves a websocket until it or ctx is over, closes it, and returns
	// why, as [relay.Endpoint.Run] does: with [relay.ErrClosed] if there is nobody
	// to serve it any more. One is served at a time.
	Serve func(ctx context.Context, websocket *wsconn.Conn) error
	// Websocket are the limits of the websockets. Binary is always set, PingInterval
	// never used; DeadAfter 0 is DefaultDeadAfter.
	Websocket wsconn.Options
	// PingInterval is the time between two pings, and PongTimeout how long the
	// answer to one may take before the connection counts as lost. 0 are the
	// defaults.
	PingInterval, PongTimeout time.Duration
	// Timeout bounds each request to the registry, from the dial to the last byte
	// of the answer, and the opening of a websocket. 0 is DefaultTimeout.
	Timeout time.Duration
	// RetryFirst is the wait after a connection that worked was lost, which
	// doubles with each failure up to RetryMost. Each is cut at random to between
	// a half and all. 0 are the defaults.
	RetryFirst, RetryMost time.Duration

	// Notify is told what happens, in order. It must not block. May be nil.
	Notify func(Event)
	// Logger gets what happens. nil is silent.
	Logger *slog.Logger
}

// EventKind says what an [Event] is about.
type EventKind int

// What there is to tell.
const (
	EventRegistered EventKind = iota + 1 // the registry answered; ExecutorID is set
	EventConnected                       // the websocket is open; Host is set
	EventRetrying                        // something failed; Err and Wait are set
)

// Event is something that happened to an executor.
type Event struct {
	Kind       EventKind     // which of the others are set depends on it
	ExecutorID string        // as the registry names it
	Host       string        // of the rendezvous
	Err        error         // why it has to be tried again
	Wait       time.Duration // until it is
}

// Run registers, connects and has the websocket served, again and again. It
// returns nil when ctx is over or Serve says that nobody is served any more, and
// otherwise what makes no sense to try again: an [*OptionsError], or what [Final]
// reports. It blocks until all that it began is over.
func Run(ctx context.Context, o Options) error {
	e, err := newExecutor(o)
	if err != nil {
		return err
	}
	for {
		err := e.once(ctx)
		if ctx.Err() != nil || errors.Is(err, relay.ErrClosed) {
			return nil
		}
		if Final(err, e.registered) {
			return err
		}
		wait := e.backoff.Next(retryAfter(err))
		e.log.Warn("the executor is not connected and will try again", slog.Any("error", err), slog.Duration("wait", wait))
		e.notify(Event{Kind: EventRetrying, Err: err, Wait: wait})
		if !backoff.Pause(ctx, wait) {
			return nil
		}
	}
}

// executor is one that runs. It is for one goroutine.
type executor struct {
	options    Options
	registry   *registry
	log        *slog.Logger
	backoff    backoff.Backoff
	registered bool // the registry has answered once
}

func newExecutor(o Options) (*executor, error) {
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	return &executor{
		options: o, registry: newRegistry(o), log: o.Logger,
		backoff: backoff.Backoff{First: o.RetryFirst, Most: o.RetryMost},
	}, nil
}

func (e *executor) notify(event Event) {
	if e.options.Notify != nil {
		e.options.Notify(event)
	}
}

// once registers, connects, and returns why that failed or the websocket ended.
func (e *executor) once(ctx context.Context) error {
	answer, err := e.registry.register(ctx)
	if err != nil {
		return err
	}
	e.registered = true
	shown := "none"
	if e.options.Credentials != nil {
		shown = e.options.Credentials.String()
	}
	e.log.Info("the executor is registered", slog.String("executor_id", answer.executorID), slog.String("credentials", shown),
		slog.String("rendezvous", answer.url.Host), slog.Int64("epoch", answer.epoch))
	e.notify(Event{Kind: EventRegistered, ExecutorID: answer.executorID})
	conn, err := e.connect(ctx, answer.url.String())
	if err != nil {
		return connectError(answer.url, err)
	}
	e.backoff.Reset()
	e.log.Info("the executor is connected", slog.String("rendezvous", answer.url.Host))
	e.notify(Event{Kind: EventConnected, Host: answer.url.Host})
	return e.serve(ctx, conn, answer.url.Host)
}

func (e *executor) connect(ctx context.Context, url string) (*wsconn.Conn, error) {
	ctx, stop := context.WithTimeoutCause(ctx, e.options.Timeout, &timeoutError{e.options.Timeout})
	defer stop()
	conn, err := wsconn.Dial(ctx, url, wsconn.DialOptions{Options: e.options.Websocket, TLS: e.options.TLS})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return conn, err
}

// serve has a websocket served and returns why it ended.
func (e *executor) serve(ctx context.Context, conn *wsconn.Conn, host string) error {
	serving, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := e.watch(serving, conn); err != nil {
			end(err)
		}
	})
	err := e.options.Serve(serving, conn)
	if silent, ok := errors.AsType[*SilentError](context.Cause(serving)); ok {
		err = silent
	}
	end(nil)
	watching.Wait()
	_ = conn.Close(wsconn.CodeGoingAway, "") // Serve has, with what it had to say
	if errors.Is(err, relay.ErrClosed) {
		return err
	}
	if err == nil || err == io.EOF {
		err = errClosed
	}
	if closed, ok := errors.AsType[*wsconn.ClosedError](err); ok && closed.Code == codeSuperseded {
		return &SupersededError{ExecutorID: e.options.ExecutorID, Reason: closed.Reason}
	}
	return &LostError{Host: host, Err: err}
}

// watch pings the peer until ctx is over, for which it returns nil, or the peer
// does not answer. An error of the connection is for the one that serves it.
func (e *executor) watch(ctx context.Context, conn *wsconn.Conn) error {
	ticker := time.NewTicker(e.options.PingInterval)
	defer ticker.Stop()
	silent := &SilentError{For: e.options.PongTimeout}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		waiting, stop := context.WithTimeoutCause(ctx, e.options.PongTimeout, silent)
		err := conn.Prove(waiting)
		stop()
		if errors.Is(err, silent) {
			return silent
		}
		if err != nil {
			return nil
		}
	}
}
