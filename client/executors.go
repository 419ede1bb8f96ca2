package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay/harness"
)

// Executor is a server that a hub knows.
type Executor struct {
	ID      string            `json:"id"`      // what clients find it by
	Name    string            `json:"name"`    // for people; may be empty
	Version string            `json:"version"` // of the server; may be empty
	Labels  map[string]string `json:"labels"`
	// Connected is whether it can be reached now.
	Connected bool `json:"connected"`
	// LastSeen is when it was there last.
	LastSeen time.Time `json:"last_seen"`
	// Epoch counts its registrations, and Streams are the connections to it
	// through the hub.
	Epoch   uint64 `json:"epoch"`
	Streams int    `json:"streams"`
}

const (
	// hubTimeout bounds a request to a hub.
	hubTimeout = 30 * time.Second
	// maxHubAnswer is the largest answer of a hub that is read, in bytes.
	maxHubAnswer = 64 << 20
	// maxHubError is what is read of an answer that is an error.
	maxHubError = 64 << 10
)

// Executors lists the servers that the hub at hubURL knows, as far as whoever
// bears the token may use them. It blocks for at most 30 s. Options are those of
// [Dial]; redirects are not followed. The error is a [*URLError], a
// [*CredentialError], a [*harness.RefusedError] of a hub that answered, or a
// [*DialError].
func Executors(ctx context.Context, hubURL string, options ...Option) ([]Executor, error) {
	u, err := parseHub(hubURL)
	if err != nil {
		return nil, err
	}
	var config dialConfig
	for _, option := range options {
		option(&config)
	}
	request, transport, err := config.hubRequest(ctx, u)
	if err != nil {
		return nil, err
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
		return nil, &DialError{URL: u.String(), Err: explainHubTLS(err, u.Scheme == "https")}
	}
	defer func() { _ = response.Body.Close() }() // read or not wanted
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxHubError)) // what there is
		return nil, harness.NewRefusedError(u.Host, response.StatusCode, string(text))
	}
	var answer struct {
		Executors []Executor `json:"executors"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxHubAnswer)).Decode(&answer); err != nil {
		return nil, &DialError{URL: u.String(), Err: fmt.Errorf("the answer is not that of a hub: %w", err)}
	}
	return answer.Executors, nil
}

// hubRequest is the request for the list, and what it is made by.
func (c *dialConfig) hubRequest(ctx context.Context, u *url.URL) (*http.Request, *http.Transport, error) {
	list := *u
	list.Path += "/v1/executors"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, list.String(), nil)
	if err != nil {
		return nil, nil, &URLError{URL: u.String(), Problem: err.Error()}
	}
	if c.tokenFile != "" {
		if u.Scheme == "http" && !wsconn.IsLoopback(u.Hostname()) {
			return nil, nil, &DialError{URL: u.String(), Err: errPlainText}
		}
		token, err := newTokenFile(c.tokenFile)
		if err != nil {
			return nil, nil, err
		}
		request.Header.Set("Authorization", token.header.Get())
	}
	trust, err := c.tls.config()
	if err != nil {
		return nil, nil, err
	}
	return request, &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust, ForceAttemptHTTP2: true}, nil
}

// explainHubTLS is [explainTLS] for a hub, which also tells when it was one with
// TLS that was spoken to without.
func explainHubTLS(err error, locked bool) error {
	if !locked && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) {
		return &TLSError{Fix: "it may speak TLS alone: write its address as https://", Err: err}
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return &TLSError{Fix: "if it is on this host, write its address as http://", Err: err}
	}
	return explainTLS(err, "http")
}
