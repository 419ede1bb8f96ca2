package daemon

import (
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/httpclient"
	"github.com/execwire/execwire/internal/listen"
)

// newHTTPClient returns what makes requests over HTTP for clients, and nil where
// those are switched off.
func newHTTPClient(cfg config.Config) *httpclient.Client {
	if !cfg.HasHTTP() {
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
