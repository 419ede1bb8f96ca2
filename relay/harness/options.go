package harness

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
)

// checked returns o with its defaults, or an [*OptionsError]. What is wrong with
// the URL is said without repeating it: it may hold a signature.
func (o Options) checked() (Options, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Hostname() == "":
		return o, &OptionsError{Name: "URL", Problem: "is no address of a rendezvous", Fix: "write wss://HOST/executor/ID?role=harness"}
	case u.User != nil || u.Fragment != "":
		return o, &OptionsError{Name: "URL", Problem: "has a user or a fragment", Fix: "show credentials by a token"}
	case u.Query().Get("role") != "harness":
		return o, &OptionsError{Name: "URL", Problem: "is not for harnesses", Fix: "write role=harness into the query"}
	case u.Scheme == "ws" && !o.AllowPlainText && o.Token != nil && !wsconn.IsLoopback(u.Hostname()):
		return o, &OptionsError{Name: "Token", Problem: "would be sent in plain text to another host", Fix: "use wss://, or a tunnel to this host"}
	}
	for _, d := range []struct {
		name     string
		value    *time.Duration
		standard time.Duration
	}{
		{"Timeout", &o.Timeout, DefaultTimeout}, {"RetryFirst", &o.RetryFirst, DefaultRetryFirst}, {"RetryMost", &o.RetryMost, DefaultRetryMost},
		{"Websocket.PingInterval", &o.Websocket.PingInterval, DefaultPingInterval}, {"Websocket.DeadAfter", &o.Websocket.DeadAfter, DefaultDeadAfter},
		{"Websocket.CloseTimeout", &o.Websocket.CloseTimeout, DefaultCloseTimeout},
	} {
		if *d.value < 0 {
			return o, &OptionsError{Name: d.name, Problem: fmt.Sprintf("is %v", *d.value), Fix: "it must not be negative"}
		}
		*d.value = cmp.Or(*d.value, d.standard)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Websocket.Binary = true
	o.Websocket.Label = cmp.Or(o.Websocket.Label, "rendezvous")
	o.Relay.Role = relay.Harness
	if o.Relay.Logger == nil {
		o.Relay.Logger = o.Logger
	}
	return o, nil
}
