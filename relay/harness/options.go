package harness

import (
	"cmp"
	"log/slog"
	"net/url"

	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
)

// withDefaults returns o with defaults, or an [*OptionsError]. Errors do not
// repeat the URL, which may contain a signature.
func (o Options) withDefaults() (Options, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Hostname() == "":
		return o, &OptionsError{Name: "URL", Problem: "is not the URL of a rendezvous", Fix: "write wss://HOST/executor/ID?role=harness"}
	case u.User != nil || u.Fragment != "":
		return o, &OptionsError{Name: "URL", Problem: "has a user or a fragment", Fix: "use Token for credentials"}
	case u.Query().Get("role") != "harness":
		return o, &OptionsError{Name: "URL", Problem: "has another role", Fix: "add role=harness to the query"}
	case u.Scheme == "ws" && o.Token != nil && !wsconn.IsLoopback(u.Hostname()):
		return o, &OptionsError{Name: "Token", Problem: "would be sent in plain text to another host", Fix: "use wss://, or a tunnel to this host"}
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Websocket.PingInterval = cmp.Or(o.Websocket.PingInterval, DefaultPingInterval)
	o.Websocket.DeadAfter = cmp.Or(o.Websocket.DeadAfter, DefaultDeadAfter)
	o.Websocket.CloseTimeout = cmp.Or(o.Websocket.CloseTimeout, DefaultCloseTimeout)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Websocket.Binary = true
	o.Websocket.Label = cmp.Or(o.Websocket.Label, "rendezvous")
	o.Relay.Role = relay.Harness
	o.Relay.Logger = cmp.Or(o.Relay.Logger, o.Logger)
	return o, nil
}
