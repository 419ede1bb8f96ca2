package hub

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/console"
	"github.com/execwire/execwire/internal/secretfile"
	"github.com/execwire/execwire/relay/rendezvous"
)

// Bounds of requests to an OpenID provider.
const (
	// providerTimeout is for one, and signInTimeout for all of a sign-in: less than
	// requestTimeout, so that the browser gets an answer.
	providerTimeout = 4 * time.Second
	signInTimeout   = 8 * time.Second
	maxProviderBody = 1 << 20
	// providerConnections is how many there are at a time.
	providerConnections = 16
	// metadataLifetime is how long the addresses and keys of the provider are used.
	metadataLifetime = time.Hour
	// minCookie is the length of a secret in a cookie, from which too much derives to take
	// anything else.
	minCookie = 32
)

// openID signs people in by the authorization code flow with PKCE. It keeps nothing of a sign-in
// that has begun: state, nonce and verifier derive from the secret in the cookie of the browser.
type openID struct {
	cfg      config.Hub
	name     string
	page     func(r *http.Request) string // the URL of the console, to which the provider sends browsers back
	client   *http.Client
	metadata atomic.Pointer[openIDMetadata] // nil until the provider has answered
}

// openIDMetadata is what a provider says about itself.
type openIDMetadata struct {
	*oidc.Provider
	endpoint oauth2.Endpoint
	until    time.Time
}

// openProvider returns the OpenID provider of the console; nil if there is none. It is asked for
// its metadata when it is needed first.
func (h *Hub) openProvider(baseURL func(r *http.Request) string) *console.Provider {
	if h.cfg.ConsoleOIDCIssuer == "" {
		return nil
	}
	issuer, _ := url.Parse(h.cfg.ConsoleOIDCIssuer) // validated
	o := &openID{cfg: h.cfg, name: issuer.Host, client: newProviderClient(), page: func(r *http.Request) string {
		return strings.TrimRight(baseURL(r), "/") + console.HubPrefix
	}}
	return &console.Provider{
		Name: o.name,
		Begin: func(r *http.Request, secret string) (to string, err error) {
			err = h.askProvider(r, func(ctx context.Context) (err error) {
				to, err = o.begin(ctx, r, secret)
				return err
			})
			return to, err
		},
		Login: func(r *http.Request, secret string, answer url.Values) (string, error) {
			member, err := h.authenticator.authenticateIdentity(r, func() (identities []string, err error) {
				err = h.askProvider(r, func(ctx context.Context) (err error) {
					identities, err = o.identify(ctx, r, secret, answer)
					return err
				})
				return identities, err
			})
			if err != nil {
				return "", err
			}
			return h.signIn(r, member)
		},
	}
}

// askProvider bounds a sign-in in time. An error that is not about the caller is logged, and
// becomes a refusal.
func (h *Hub) askProvider(r *http.Request, ask func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(r.Context(), signInTimeout)
	defer cancel()
	err := ask(ctx)
	if _, refused := errors.AsType[*auth.Error](err); err == nil || refused {
		return err
	}
	h.logger.Error("the OpenID provider of the console does not work", "issuer", h.cfg.ConsoleOIDCIssuer, "error", fmt.Sprintf("%.500s", err))
	return &rendezvous.Refusal{Status: http.StatusBadGateway, Code: rendezvous.CodeProviderFailed,
		Message: "the OpenID provider of the console does not work: try again later, or sign in by a token; the hub's log says why"}
}

// discover returns the metadata of the provider, and asks for it if it is unknown or old.
func (o *openID) discover(ctx context.Context) (*openIDMetadata, error) {
	if known := o.metadata.Load(); known != nil && time.Now().Before(known.until) {
		return known, nil
	}
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, o.client), o.cfg.ConsoleOIDCIssuer)
	if err != nil {
		return nil, err
	}
	found := &openIDMetadata{Provider: provider, endpoint: provider.Endpoint(), until: time.Now().Add(metadataLifetime)}
	var more struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := provider.Claims(&more); err != nil {
		return nil, err
	}
	found.endpoint.AuthStyle = oauth2.AuthStyleInParams
	if o.cfg.ConsoleOIDCSecret != "" && (more.Methods == nil || slices.Contains(more.Methods, "client_secret_basic")) {
		found.endpoint.AuthStyle = oauth2.AuthStyleInHeader
	}
	if at, err := url.Parse(found.endpoint.AuthURL); err != nil || !config.IsConfidential(at) {
		return nil, fmt.Errorf("its authorization_endpoint is %.200q", found.endpoint.AuthURL)
	}
	o.metadata.Store(found)
	return found, nil
}

// flow returns the provider, and the flow of a request. Its secret is that of the file now.
func (o *openID) flow(ctx context.Context, r *http.Request) (*openIDMetadata, *oauth2.Config, error) {
	provider, err := o.discover(ctx)
	if err != nil {
		return nil, nil, err
	}
	secret, err := readClientSecret(o.cfg)
	return provider, &oauth2.Config{ClientID: o.cfg.ConsoleOIDCClient, ClientSecret: secret, Endpoint: provider.endpoint,
		RedirectURL: o.page(r), Scopes: []string{oidc.ScopeOpenID, "email"}}, err
}

// readClientSecret returns the secret of the client at the provider; empty if it has none.
func readClientSecret(cfg config.Hub) (string, error) {
	if cfg.ConsoleOIDCSecret == "" {
		return "", nil
	}
	secret, err := secretfile.Token(cfg.ConsoleOIDCSecret, 1)
	if err != nil {
		return "", fmt.Errorf("failed to read console_oidc_client_secret_file: %w", err)
	}
	return string(secret), nil
}

// derive returns what a sign-in with a secret has for a purpose.
func derive(secret, purpose string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(purpose))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func (o *openID) begin(ctx context.Context, r *http.Request, secret string) (string, error) {
	_, flow, err := o.flow(ctx, r)
	if err != nil {
		return "", err
	}
	return flow.AuthCodeURL(derive(secret, "state"), oidc.Nonce(derive(secret, "nonce")), oauth2.S256ChallengeOption(derive(secret, "verifier"))), nil
}

// identify returns the identities of the person whom an answer of the provider is about.
func (o *openID) identify(ctx context.Context, r *http.Request, secret string, answer url.Values) ([]string, error) {
	if len(secret) < minCookie || !hmac.Equal([]byte(answer.Get("state")), []byte(derive(secret, "state"))) {
		return nil, refuse(errors.New("state is wrong"), "this browser has not begun to sign in, has done so at another address of the hub, or took too long: sign in again")
	}
	code := answer.Get("code")
	if code == "" {
		return nil, refuse(fmt.Errorf("the provider answers with error %.100q", answer.Get("error")), fmt.Sprintf("%s does not sign you in: %.100q", o.name, answer.Get("error")))
	}
	provider, flow, err := o.flow(ctx, r)
	if err != nil {
		return nil, err
	}
	token, err := flow.Exchange(oidc.ClientContext(ctx, o.client), code, oauth2.VerifierOption(derive(secret, "verifier")))
	if failed, ok := errors.AsType[*oauth2.RetrieveError](err); ok { // its text has the whole body
		err = fmt.Errorf("its token_endpoint answers %s, error %.100q", failed.Response.Status, failed.ErrorCode)
		if failed.ErrorCode == "invalid_grant" {
			return nil, refuse(err, "the code of the provider is used or too old: sign in again")
		}
	}
	if err != nil {
		return nil, err
	}
	signed, _ := token.Extra("id_token").(string)
	checked, err := provider.Verifier(&oidc.Config{ClientID: o.cfg.ConsoleOIDCClient}).Verify(ctx, signed)
	if err == nil && !hmac.Equal([]byte(checked.Nonce), []byte(derive(secret, "nonce"))) {
		err = errors.New("nonce is wrong")
	}
	var claims struct {
		Email    string `json:"email"`
		Verified any    `json:"email_verified"`
	}
	if err == nil {
		err = checked.Claims(&claims)
	}
	if err != nil {
		return nil, refuse(fmt.Errorf("its ID token: %.300s", err.Error()), "what the provider says about you is not valid: sign in again, or see the hub's log")
	}
	identities := []string{"sub:" + checked.Subject}
	if claims.Email != "" && (claims.Verified == true || claims.Verified == "true") { // the text is that of some providers
		identities = append(identities, "email:"+claims.Email)
	}
	return identities, nil
}

// refuse returns the error of a failed attempt to sign in.
func refuse(err error, forCaller string) error {
	return &auth.Error{Kind: auth.KindTokenInvalid, Subject: "person at the OpenID provider", Err: err, ForCaller: forCaller}
}

// newProviderClient returns a client that does not follow redirects, sends nothing in plain text
// beyond this host, and bounds what it waits for and reads.
func newProviderClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxConnsPerHost, transport.MaxResponseHeaderBytes, transport.DisableKeepAlives = providerConnections, maxRequestHeader, true
	return &http.Client{Transport: boundedTransport{transport}, Timeout: providerTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

type boundedTransport struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !config.IsConfidential(r.URL) {
		return nil, fmt.Errorf("%.200q is neither https:// nor on loopback", r.URL)
	}
	response, err := t.Transport.RoundTrip(r)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxProviderBody)
	}
	return response, err
}
