package daemon

import (
	"log/slog"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/destination"
	"github.com/execwire/execwire/internal/httpclient"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/ports"
	"github.com/execwire/execwire/server"
)

// newHTTPClient returns the client for HttpService, or nil if that is disabled. It is
// disabled if the required sandbox restricts the network, which it would circumvent.
func newHTTPClient(cfg config.Config, rules *destination.Rules, required *execwirev1.SandboxPolicy, logger *slog.Logger) *httpclient.Client {
	if !cfg.HasHTTP() {
		return nil
	}
	if server.RestrictsNetwork(required) {
		logger.Info("HttpService is disabled: require_sandbox restricts the network")
		return nil
	}
	return httpclient.New(httpOptions(cfg, rules))
}

func httpOptions(cfg config.Config, rules *destination.Rules) httpclient.Options {
	return httpclient.Options{Rules: rules, HeadBytes: int(cfg.HTTPHead), PerOwner: int(cfg.HTTPRequests)}
}

// listenAddresses are the values of the setting ports_listen.
var listenAddresses = map[string]ports.Addresses{"off": ports.NoAddress, "loopback": ports.LoopbackAddresses, "any": ports.AnyAddress}

// newPortNetwork returns the network for ConnectPort and ListenPort. It connects to nothing and listens
// nowhere if the required sandbox restricts the network, which it would circumvent.
func newPortNetwork(cfg config.Config, rules *destination.Rules, required *execwirev1.SandboxPolicy, logger *slog.Logger) (*ports.Network, error) {
	options, err := portOptions(cfg, rules, required)
	if err != nil {
		return nil, err
	}
	if server.RestrictsNetwork(required) {
		logger.Info("ConnectPort and ListenPort are disabled: require_sandbox restricts the network")
	}
	return ports.NewNetwork(options), nil
}

func portOptions(cfg config.Config, rules *destination.Rules, required *execwirev1.SandboxPolicy) (ports.Options, error) {
	allowed, err := ports.ParseAllowed(cfg.PortsAllow)
	if err != nil {
		return ports.Options{}, &ConfigError{Setting: "ports_allow", Problem: "is invalid: " + err.Error(), Fix: "write for example own, 127.0.0.1:8000"}
	}
	listening := listenAddresses[cfg.PortsListen]
	if server.RestrictsNetwork(required) {
		allowed, listening = ports.Allowed{}, ports.NoAddress
	}
	return ports.Options{
		Allowed: allowed, Rules: rules, PerOwner: int(cfg.PortConnections), Timeout: time.Duration(cfg.PortConnectTimeout),
		Listen: ports.ListenOptions{Addresses: listening, PerOwner: int(cfg.PortListeners),
			Backlog: int(cfg.PortBacklog), AcceptTimeout: time.Duration(cfg.PortAcceptTimeout)},
	}, nil
}

// refuseListeners blocks connections to our own listeners: they would come from
// loopback, where clients may be accepted without credentials.
func refuseListeners(rules *destination.Rules, listeners []listen.Listener) {
	for _, l := range listeners {
		if port := l.URL().Addr.Port(); port != 0 {
			rules.RefuseLocal(port)
		}
	}
}
