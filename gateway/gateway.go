package gateway

import (
	"log/slog"

	"github.com/execwire/execwire/gateway/call"
)

// Gateway serves connections of JSON-RPC clients. All methods may be called
// concurrently.
type Gateway struct {
	config     Config
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
	return &Gateway{config: config, log: config.Logger, decoding: newDecodeLimiter(), answers: call.NewShared(config.Answers), gateLimits: gateLimits{gateOutputLimit, gateEndLimit}}, nil
}
