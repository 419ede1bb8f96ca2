package gateway

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

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

// Config has the limits of each connection and of all together. The zero value has the
// defaults.
type Config struct {
	// Requests is the largest number of requests in flight on one connection. Further
	// requests fail with [jsonrpc.CodeLimitReached]. 0 is DefaultRequests.
	Requests int
	// ControlRequests is the number of additional requests that end, signal or query.
	// They get through when all others wait. 0 is DefaultControlRequests.
	ControlRequests int
	// Incoming is the largest total size in bytes of the messages of requests in
	// flight; a single request may exceed it. 0 is DefaultIncoming.
	Incoming int
	// Budget bounds the memory of requests in flight across all connections that share
	// it, beyond [wsconn.OwnBytes] of each connection. It is the budget of the
	// websockets, so it bounds a message from its first byte to its answer. nil is no
	// bound.
	Budget *wsconn.Budget
	// Processes is the largest number of processes of the session that have not
	// closed, whichever connection started them. 0 is the server's limit.
	Processes int
	// Outgoing is the largest size in bytes of queued errors and of answers before
	// initialized while the client does not read. A client that continues to send is
	// disconnected, and its session enters the grace period. Other answers wait with
	// their requests. 0 is DefaultOutgoing.
	Outgoing int
	// Answers is the largest size in bytes of large answers (files, directories,
	// output) in memory across connections. Each connection may always have one of
	// each kind. 0 is DefaultAnswers.
	Answers int
	// NoHTTP disables http/request.
	NoHTTP bool
	// HTTPRequests is the largest number of http/request in flight on one connection,
	// streamed responses included. 0 is DefaultHTTPRequests.
	HTTPRequests int
	// HTTPBuffered is the largest total size in bytes of response bodies that one
	// connection buffers; across connections they count in Budget. 0 is
	// DefaultHTTPBuffered.
	HTTPBuffered int
	// Watches is the largest number of watches of one connection. 0 is DefaultWatches.
	Watches int
	// Grace is the grace period of the session of a lost connection. nil is the
	// server's default; 0 ends the session with the connection.
	Grace *time.Duration
	// OnLimit is called with the setting of a limit of the gateway for which a request is
	// refused. It must not block, and is called concurrently. nil calls nothing.
	OnLimit func(setting string)
	// Logger receives a line for every connection that does not end normally. nil
	// discards.
	Logger *slog.Logger
}

// withDefaults returns the configuration with the defaults set. A negative limit is a
// [*ConfigError].
func (config Config) withDefaults() (Config, error) {
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
			return config, &ConfigError{Field: limit.name, Value: *limit.value}
		}
		if *limit.value == 0 {
			*limit.value = limit.standard
		}
	}
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	if config.OnLimit == nil {
		config.OnLimit = func(string) {}
	}
	return config, nil
}

// ConfigError is a limit of [Config] that is out of range.
type ConfigError struct {
	Field string // of Config
	Value int    // the value given
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("gateway setting %s is %d: use 1 or more, or 0 for the default", e.Field, e.Value)
}
