package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/execwire/execwire/relay/harness"
)

// The schemes of executors behind a relay.
const (
	schemeRelay    = "relay+ws"
	schemeRelayTLS = "relay+wss"
)

// relayHeartbeat is how often an executor is asked for a sign of life that would send
// none. Two that are not answered are a silence; see silentAfter.
const relayHeartbeat = 4 * time.Second

// RelayURL returns what [Dial] takes to reach an executor of the relay at hubURL,
// which is https://HOST or, on loopback, http://HOST:PORT, with a path if the hub
// has one. The error is a [*URLError].
func RelayURL(hubURL, executorID string) (string, error) {
	u, err := parseHub(hubURL)
	if err != nil {
		return "", err
	}
	if executorID == "" || url.PathEscape(executorID) != executorID {
		return "", &URLError{URL: hubURL, Problem: fmt.Sprintf("%.100q is no id of an executor: it has letters, digits, - and _", executorID)}
	}
	u.Scheme = map[string]string{"http": schemeRelay, "https": schemeRelayTLS}[u.Scheme]
	u.Path += "/executor/" + executorID
	u.RawQuery = "role=harness"
	return u.String(), nil
}

// parseHub reads the address of a hub. The path has no slash at its end.
func parseHub(hubURL string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(hubURL))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, &URLError{URL: hubURL, Problem: "write the address of a hub as https://HOST, or http://HOST:PORT on this host"}
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

func relayEndpoint(rawURL string, u *url.URL) (endpoint, error) {
	switch {
	case u.Hostname() == "" || u.Path == "" || u.User != nil || u.Fragment != "":
		return endpoint{}, &URLError{URL: masked(u), Problem: "write it as " + u.Scheme + "://HOST/executor/ID?role=harness"}
	case u.Query().Get("role") != "harness":
		return endpoint{}, &URLError{URL: masked(u), Problem: "role=harness is required: " + u.Scheme + "://HOST/executor/ID?role=harness"}
	}
	return endpoint{
		network: "relay", address: u.Host, authority: u.Host, tls: u.Scheme == schemeRelayTLS,
		relay: strings.TrimPrefix(rawURL, "relay+"),
	}, nil
}

// masked is u for people: without a signature in its query.
func masked(u *url.URL) string {
	shown := *u
	if u.Query().Has("sig") {
		query := u.Query()
		query.Set("sig", "…")
		shown.RawQuery = query.Encode()
	}
	shown.User = nil
	return shown.String()
}

// shown is the URL of the endpoint for people.
func (e endpoint) shown(rawURL string) string {
	if u, err := url.Parse(rawURL); err == nil && e.relay != "" {
		return masked(u)
	}
	return rawURL
}

// relayOptions has a dialer show the rendezvous what the configuration says.
func (c *dialConfig) relayOptions(dialer *recordingDialer) error {
	trust, err := c.tls.config()
	if err != nil {
		return err
	}
	dialer.relay = harness.Options{URL: dialer.endpoint.relay, TLS: trust}
	dialer.relay.Relay.HeartbeatInterval = relayHeartbeat
	if c.tokenFile != "" {
		token, err := newTokenFile(c.tokenFile)
		if err != nil {
			return err
		}
		dialer.relay.Token = token.token
	}
	return nil
}

// connectRelay opens a connection to the executor. It has a websocket of its own,
// which is opened again whenever it is lost, as long as the connection lives.
func (d *recordingDialer) connectRelay(ctx context.Context) (net.Conn, error) {
	h, err := harness.Dial(ctx, d.relay)
	if err != nil {
		return nil, err
	}
	conn, err := h.Connect(ctx)
	if err != nil {
		_ = h.Close() // nothing was said
		return nil, err
	}
	d.mu.Lock()
	d.current = conn
	d.mu.Unlock()
	return &relayConn{Conn: conn, harness: h, record: d.record}, nil
}

// heardAt returns when something of the executor came last over the latest connection
// through a relay; zero if there was none.
func (d *recordingDialer) heardAt() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current == nil {
		return time.Time{}
	}
	return d.current.HeardAt()
}

// setRefused notes whether the last attempt, which failed with err or did not, was
// refused for good: by a hub that does not know who asks, or does not let it.
func (d *recordingDialer) setRefused(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var refused *harness.RefusedError
	if d.refused = nil; errors.As(err, &refused) && (refused.Status == http.StatusUnauthorized || refused.Status == http.StatusForbidden) {
		d.refused = err
	}
}

// refusal returns why there is no use in waiting for a connection, or nil.
func (d *recordingDialer) refusal() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refused
}

// relayConn is a connection that ends with its websocket.
type relayConn struct {
	net.Conn
	harness *harness.Harness
	record  func(error) // keeps why the connection ended before a server answered
}

// Read implements net.Conn.
func (c *relayConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, harness.ErrStreamLimit) {
		c.record(err)
	}
	return n, err
}

// Close implements net.Conn.
func (c *relayConn) Close() error { return errors.Join(c.Conn.Close(), c.harness.Close()) }
