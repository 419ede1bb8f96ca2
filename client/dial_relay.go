package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/execwire/execwire/internal/sockowner"
	"github.com/execwire/execwire/internal/syserr"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay/harness"
)

// URL schemes of executors behind a relay.
const (
	schemeRelay    = "relay+ws"
	schemeRelayTLS = "relay+wss"
)

// relayHeartbeat is how often the client asks an executor that sends nothing for a sign
// of life. Two without an answer count as silence, see silentAfter.
const relayHeartbeat = 4 * time.Second

// RelayURL returns the URL for [Dial] of an executor of the relay at hubURL:
// https://HOST or, on loopback, http://HOST:PORT, with a path if the hub has one. The
// error is a [*URLError].
func RelayURL(hubURL, executorID string) (string, error) {
	u, err := parseHub(hubURL)
	if err != nil {
		return "", err
	}
	if executorID == "" || url.PathEscape(executorID) != executorID {
		return "", &URLError{URL: hubURL, Problem: fmt.Sprintf("%.100q is not an executor id: it has letters, digits, - and _", executorID)}
	}
	u.Scheme = map[string]string{"http": schemeRelay, "https": schemeRelayTLS}[u.Scheme]
	u.Path += "/executor/" + executorID
	u.RawQuery = "role=harness"
	return u.String(), nil
}

// parseHub parses the URL of a hub, without a trailing slash.
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
		return endpoint{}, &URLError{URL: redactURL(u), Problem: "write it as " + u.Scheme + "://HOST/executor/ID?role=harness"}
	case u.Query().Get("role") != "harness":
		return endpoint{}, &URLError{URL: redactURL(u), Problem: "role=harness is required: " + u.Scheme + "://HOST/executor/ID?role=harness"}
	}
	return endpoint{
		network: "relay", address: u.Host, authority: u.Host, tls: u.Scheme == schemeRelayTLS,
		relay: strings.TrimPrefix(rawURL, "relay+"),
	}, nil
}

// redactURL returns u for messages, without a signature in its query.
func redactURL(u *url.URL) string {
	shown := *u
	if u.Query().Has("sig") {
		query := u.Query()
		query.Set("sig", "…")
		shown.RawQuery = query.Encode()
	}
	shown.User = nil
	return shown.String()
}

// displayURL returns the URL of the endpoint for messages.
func (e endpoint) displayURL(rawURL string) string {
	if u, err := url.Parse(rawURL); err == nil && e.relay != "" {
		return redactURL(u)
	}
	return rawURL
}

// relayOptions sets the credentials and TLS configuration for the rendezvous.
func (c *dialConfig) relayOptions(dialer *recordingDialer) error {
	trust, err := c.tls.config()
	if err != nil {
		return err
	}
	dialer.relay = harness.Options{URL: dialer.endpoint.relay, TLS: trust}
	dialer.relay.Relay.HeartbeatInterval = relayHeartbeat
	if u, err := url.Parse(dialer.endpoint.relay); err == nil && !u.Query().Has("sig") {
		dialer.relay.Locate = func(ctx context.Context) (string, error) { return c.locate(ctx, u) }
	} // else who has the URL got it from the hub, and can ask for another
	if c.hasToken() {
		token, err := c.bearer()
		if err != nil {
			return err
		}
		dialer.relay.Token = token.token
	}
	return nil
}

// locate asks a hub for the URL of an executor's websocket at the node that has the executor.
func (c *dialConfig) locate(ctx context.Context, u *url.URL) (string, error) {
	base, id, found := strings.Cut(u.Path, "/executor/")
	if !found {
		return "", &URLError{URL: redactURL(u), Problem: "it is not that of an executor at a hub"}
	}
	hub := url.URL{Scheme: map[string]string{"ws": "http", "wss": "https"}[u.Scheme], Host: u.Host, Path: base}
	var answer struct{ URL string }
	err := c.callHub(ctx, hub.String(), http.MethodPost, "/cloud/executor/"+id+"/connect", nil, &answer)
	return answer.URL, err
}

// connectRelay opens a connection to the executor over a websocket of its own, which is
// re-opened whenever it is lost, as long as the connection exists.
func (d *recordingDialer) connectRelay(ctx context.Context) (net.Conn, error) {
	h, err := harness.Dial(ctx, d.relay)
	if err != nil {
		return nil, err
	}
	conn, err := h.Connect(ctx)
	if err != nil {
		_ = h.Close() // nothing was sent
		return nil, err
	}
	d.mu.Lock()
	d.current = conn
	d.mu.Unlock()
	return &relayConn{Conn: conn, harness: h, record: d.record}, nil
}

// lastReceived returns when data from the executor last arrived over the latest connection
// through a relay; zero without one.
func (d *recordingDialer) lastReceived() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current == nil {
		return time.Time{}
	}
	return d.current.LastReceived()
}

// setRejected records whether the last attempt, with result err, was rejected
// permanently: the hub does not know the client, or does not allow it.
func (d *recordingDialer) setRejected(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var refused *harness.RefusedError
	if d.rejected = nil; errors.As(err, &refused) && (refused.Status == http.StatusUnauthorized || refused.Status == http.StatusForbidden) {
		d.rejected = err
	}
}

// rejection returns why waiting for a connection is useless, or nil.
func (d *recordingDialer) rejection() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rejected
}

// relayConn is a connection that closes its websocket.
type relayConn struct {
	net.Conn
	harness *harness.Harness
	record  func(error) // records why the connection ended before the server answered
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

// Executor is a server registered with a hub.
type Executor struct {
	ID      string            `json:"id"`      // the id for clients
	Name    string            `json:"name"`    // for people; may be empty
	Version string            `json:"version"` // of the server; may be empty
	Labels  map[string]string `json:"labels"`
	// Connected is whether it is reachable now.
	Connected bool `json:"connected"`
	// LastSeen is when it was last connected.
	LastSeen time.Time `json:"last_seen"`
	// Epoch counts its registrations; Streams is the number of connections to it
	// through the hub.
	Epoch   uint64 `json:"epoch"`
	Streams int    `json:"streams"`
}

const (
	// hubTimeout bounds a request to a hub.
	hubTimeout = 30 * time.Second
	// maxHubAnswer limits the size of a response of a hub, in bytes.
	maxHubAnswer = 64 << 20
	// maxHubError limits how much of an error response is read.
	maxHubError = 64 << 10
)

// Executors lists the servers registered with the hub at hubURL that the bearer of the
// token may use. It blocks for at most 30 s. Options are those of [Dial]; redirects are
// not followed. The error is a [*URLError], a [*CredentialError], a
// [*harness.RefusedError] from the hub, or a [*DialError].
func Executors(ctx context.Context, hubURL string, options ...Option) ([]Executor, error) {
	var answer struct {
		Executors []Executor `json:"executors"`
	}
	err := newDialConfig(options).callHub(ctx, hubURL, http.MethodGet, "/v1/executors", nil, &answer)
	return answer.Executors, err
}

// Preview is a port of an executor that a hub serves over HTTP, on a host of its own.
type Preview struct {
	ExecutorID string `json:"executor_id"` // the id of the executor
	Port       uint16 `json:"port"`        // the TCP port on its loopback
	// URL is a link: anyone who has it may use the port, with the permission of the
	// principal that made it. Browsers exchange it for a cookie.
	URL string `json:"url,omitempty"`
	// Expires is when the link ends.
	Expires time.Time `json:"expires,omitzero"`
}

// MakePreview makes a link to a port of an executor, that ends after lifetime, or the
// hub's default (an hour) if that is 0. Otherwise it is like [Executors].
func MakePreview(ctx context.Context, hubURL, executorID string, port uint16, lifetime time.Duration, options ...Option) (Preview, error) {
	request := map[string]any{"executor_id": executorID, "port": port}
	if lifetime != 0 {
		request["lifetime_seconds"] = lifetime.Seconds()
	}
	var made Preview
	err := newDialConfig(options).callHub(ctx, hubURL, http.MethodPost, "/v1/previews", request, &made)
	return made, err
}

// Previews lists the valid links that the bearer of the token has made at this hub, or
// node of a hub, those that expire first at the beginning. Otherwise it is like
// [Executors].
func Previews(ctx context.Context, hubURL string, options ...Option) ([]Preview, error) {
	var answer struct {
		Previews []Preview `json:"previews"`
	}
	err := newDialConfig(options).callHub(ctx, hubURL, http.MethodGet, "/v1/previews", nil, &answer)
	return answer.Previews, err
}

// RevokePreview ends a link that the bearer of the token has made, and the requests that
// use it. It returns which port it was for. Otherwise it is like [Executors].
func RevokePreview(ctx context.Context, hubURL, link string, options ...Option) (Preview, error) {
	var revoked Preview
	err := newDialConfig(options).callHub(ctx, hubURL, http.MethodPost, "/v1/previews/revoke", map[string]any{"url": link}, &revoked)
	return revoked, err
}

// callHub makes a request at a hub and decodes the answer. A nil body is none.
func (c *dialConfig) callHub(ctx context.Context, hubURL, method, path string, body, answer any) error {
	u, err := parseHub(hubURL)
	if err != nil {
		return err
	}
	request, transport, err := c.hubRequest(ctx, u, method, path, body)
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	caller := &http.Client{
		Transport: transport, Timeout: hubTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := caller.Do(request)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return &DialError{URL: u.String(), Err: explainHubTLS(err, u.Scheme == "https")}
	}
	defer func() { _ = response.Body.Close() }() // read, or not needed
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxHubError)) // best effort
		return harness.NewRefusedError(u.Host, response.StatusCode, string(text))
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxHubAnswer)).Decode(answer); err != nil {
		return &DialError{URL: u.String(), Err: fmt.Errorf("not the answer of a hub: %w", err)}
	}
	return nil
}

// hubRequest returns a request and its transport.
func (c *dialConfig) hubRequest(ctx context.Context, u *url.URL, method, path string, body any) (*http.Request, *http.Transport, error) {
	to := *u
	to.Path += path
	content := []byte(nil)
	if body != nil {
		content, _ = json.Marshal(body) // what this file sends can be encoded
	}
	request, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(content))
	if err != nil {
		return nil, nil, &URLError{URL: u.String(), Problem: err.Error()}
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.hasToken() {
		if u.Scheme == "http" && !wsconn.IsLoopback(u.Hostname()) {
			return nil, nil, &DialError{URL: u.String(), Err: errPlainText}
		}
		token, err := c.bearer()
		if err != nil {
			return nil, nil, err
		}
		request.Header.Set("Authorization", token.header())
	}
	trust, err := c.tls.config()
	if err != nil {
		return nil, nil, err
	}
	return request, &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: sockowner.Dialer().DialContext, TLSClientConfig: trust}, nil
}

// explainHubTLS is [explainTLS] for a hub; it also detects a hub with TLS that was
// contacted without.
func explainHubTLS(err error, locked bool) error {
	if !locked && (errors.Is(err, io.EOF) || syserr.IsReset(err)) {
		return &TLSError{Fix: "it may speak TLS alone: write its address as https://", Err: err}
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return &TLSError{Fix: "if it is on this host, write its address as http://", Err: err}
	}
	return explainTLS(err, "http")
}
