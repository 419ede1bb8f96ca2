package gateway

import (
	"log/slog"
	"sync/atomic"

	"github.com/execwire/execwire/gateway/call"
)

// Gateway serves connections of JSON-RPC clients. All methods may be called
// concurrently.
type Gateway struct {
	current    atomic.Pointer[Config]
	log        *slog.Logger
	decoding   decodeLimiter
	answers    call.Shared
	gateLimits gateLimits
}

// New returns a gateway, which need not be closed. A negative limit is a
// [*ConfigError].
func New(config Config) (*Gateway, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	g := &Gateway{log: config.Logger, decoding: newDecodeLimiter(), answers: call.NewShared(config.Answers), gateLimits: gateLimits{gateOutputLimit, gateEndLimit}}
	g.current.Store(&config)
	return g, nil
}

// SetLimits changes the limits of connections that begin later to those of config; its
// Budget, Answers, OnLimit and Logger are ignored. A negative limit is a [*ConfigError].
func (g *Gateway) SetLimits(config Config) error {
	former := g.config()
	config.Budget, config.Answers, config.OnLimit, config.Logger = former.Budget, former.Answers, former.OnLimit, former.Logger
	config, err := config.withDefaults()
	if err != nil {
		return err
	}
	g.current.Store(&config)
	return nil
}

func (g *Gateway) config() *Config { return g.current.Load() }
