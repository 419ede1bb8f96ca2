package daemon

import (
	"log/slog"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/httpclient"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/server"
)

// newHTTPClient returns the client for HttpService, or nil if that is disabled. It is
// disabled if the required sandbox restricts the network, which it would circumvent.
func newHTTPClient(cfg config.Config, required *execwirev1.SandboxPolicy, logger *slog.Logger) *httpclient.Client {
	if !cfg.HasHTTP() {
		return nil
	}
	if server.RestrictsNetwork(required) {
		logger.Info("HttpService is disabled: require_sandbox restricts the network")
		return nil
	}
	return httpclient.New(httpclient.Options{HeadBytes: int(cfg.HTTPHead), PerOwner: int(cfg.HTTPRequests)})
}

// refuseListeners blocks requests to our own listeners: they would come from
// loopback, where clients may be accepted without credentials.
func refuseListeners(requests *httpclient.Client, listeners []listen.Listener) {
	if requests == nil {
		return
	}
	for _, l := range listeners {
		if port := l.URL().Addr.Port(); port != 0 {
			requests.RefuseLocal(port)
		}
	}
}
