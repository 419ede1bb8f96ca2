package daemon

import (
	"log/slog"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/httpclient"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/server"
)

// newHTTPClient returns what makes requests over HTTP for clients, and nil where
// those are switched off, as they are where the required sandbox restricts the
// network: they would be a way around it.
func newHTTPClient(cfg config.Config, required *execwirev1.SandboxPolicy, logger *slog.Logger) *httpclient.Client {
	if !cfg.HasHTTP() {
		return nil
	}
	if server.RestrictsNetwork(required) {
		logger.Info("requests over HTTP are switched off: require_sandbox restricts the network")
		return nil
	}
	return httpclient.New(httpclient.Options{HeadBytes: int(cfg.HTTPHead), PerOwner: int(cfg.HTTPRequests)})
}

// refuseListeners has no request be made to our own doors: it would come from
// loopback, where callers may be let in without showing anything.
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
