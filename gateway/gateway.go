package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/jsonrpc"
	"github.com/execwire/execwire/internal/wsconn"
)

// Defaults of [Config].
const (
	DefaultRequests        = 1024
	DefaultControlRequests = 64
	DefaultIncoming        = 256 << 20
	DefaultOutgoing        = 1 << 20
	DefaultAnswers         = 256 << 20
	DefaultHTTPRequests    = 64
	DefaultHTTPBuffered    = 64 << 20
	DefaultWatches         = 64
)

// Config are the limits of each connection, and of all together. The zero value has the defaults.
type Config struct {
	// Requests is how many requests of one connection may be in flight; more are
	// refused with [jsonrpc.CodeLimitReached]. 0 is DefaultRequests.
	Requests int
	// ControlRequests is how many of those that end, signal or ask may be in
	// flight besides: they get through when all others wait. 0 is
	// DefaultControlRequests.
	ControlRequests int
	// Incoming is how many bytes of messages the requests in flight may have
	// together, one request excepted. 0 is DefaultIncoming.
	Incoming int
	// Budget bounds what the requests in flight on all connections that have it
	// take together, beside what each connection may have in any case
	// ([wsconn.OwnBytes]). It is for that of the websockets, so that it bounds
	// messages from their first byte to their answer. nil is no bound.
	Budget *wsconn.Budget
	// Processes is how many processes of the session of a connection may run: that
	// have not closed, whichever connection started them. 0 leaves it to the core.
	Processes int
	// Outgoing is how many bytes of refusals and of answers to what comes before
	// initialized may wait behind a client that does not read. A client that goes
	// on asking beyond it is disconnected, as if its connection was lost. Other
	// answers wait with their requests. 0 is DefaultOutgoing.
	Outgoing int
	// Answers is how many bytes of large answers, those with files, directories and
	// output, may wait in memory for the clients of all connections together. One
	// of each kind may always wait for each connection; further ones are prepared
	// when those before them were read. 0 is DefaultAnswers.
	Answers int
	// NoHTTP has http/request not be there, whatever the core does.
	NoHTTP bool
	// HTTPRequests is how many http/request of one connection may be under way,
	// streamed responses up to their end. 0 is DefaultHTTPRequests.
	HTTPRequests int
	// HTTPBuffered is how many bytes the bodies may have together that are answered
	// whole, of all http/request of one connection; across connections they count
	// for Budget. 0 is DefaultHTTPBuffered.
	HTTPBuffered int
	// Watches is how many watches of directories and of missing paths one
	// connection may have. 0 is DefaultWatches.
	Watches int
	// Grace is how long the core keeps the session of a connection that was lost;
	// nil leaves it to the core, 0 ends the session with the connection.
	Grace *time.Duration
	// Logger gets a line when a connection ends otherwise than its client wanted.
	// Nil discards.
	Logger *slog.Logger
}

// Gateway serves connections of JSON-RPC clients. All methods may be called
// concurrently.
type Gateway struct {
	config  Config
	log     *slog.Logger
	reading turnstile
	answers *wsconn.Budget // for large ones, of all connections
	holds   holdLimits
}

// New returns a gateway. It has nothing to be closed. A limit below 0 is a
// [*ConfigError].
func New(config Config) (*Gateway, error) {
	for _, limit := range []struct {
		name     string
		value    *int
		standard int
	}{
		{"Requests", &config.Requests, DefaultRequests},
		{"ControlRequests", &config.ControlRequests, DefaultControlRequests},
		{"Incoming", &config.Incoming, DefaultIncoming},
		{"Outgoing", &config.Outgoing, DefaultOutgoing},
		{"Answers", &config.Answers, DefaultAnswers},
		{"Processes", &config.Processes, 0},
		{"HTTPRequests", &config.HTTPRequests, DefaultHTTPRequests},
		{"HTTPBuffered", &config.HTTPBuffered, DefaultHTTPBuffered},
		{"Watches", &config.Watches, DefaultWatches},
	} {
		if *limit.value < 0 {
			return nil, &ConfigError{Field: limit.name, Value: *limit.value}
		}
		if *limit.value == 0 {
			*limit.value = limit.standard
		}
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &Gateway{config: config, log: config.Logger, reading: newTurnstile(), answers: wsconn.NewBudget(int64(config.Answers)), holds: holdLimits{holdForOutput, holdForEnd}}, nil
}

// ConfigError is a limit of [Config] that is out of its range.
type ConfigError struct {
	Field string // the field
	Value int    // what it was
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("gateway setting %s is %d: use 1 or more, or 0 for the default", e.Field, e.Value)
}

// Serve serves one connection of a principal, for whom [Config.Budget] counts, to
// its end: it answers requests by calls of the
// upstream, as whoever the upstream takes them to come from, and returns when
// nothing of the connection is left. It closes conn. The upstream must outlive
// it.
//
// When the client ends the connection normally, what it has asked is answered
// and its session is ended; when the connection is lost otherwise, or ctx ends,
// the session is left to its grace. The error is nil after a normal end, the
// cause of ctx when that ended, and else says why the connection ended.
func (g *Gateway) Serve(ctx context.Context, principal string, upstream grpc.ClientConnInterface, conn jsonrpc.Transport) error {
	c := newConnection(g, ctx, principal, upstream, conn)
	err := c.serve()
	if err != nil && !errors.Is(err, context.Cause(ctx)) {
		g.log.Info("a JSON-RPC connection has ended", slog.String("peer", conn.Peer()), slog.String("error", err.Error()))
	}
	return err
}
