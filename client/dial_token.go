package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/internal/secretfile"
	"github.com/execwire/execwire/relay/harness"
)

// WithTokenFile sends the token in the file at path with every call; only the user may
// be able to read the file. With a relay, the token is sent to the hub instead, and not
// to the server. The file is read again when it changes; an unusable version leaves the
// previous token in use. A token is never sent in plain text to another host: Dial
// rejects tcp:// and relay+ws:// beyond loopback. An unusable file makes Dial return a
// [*CredentialError].
func WithTokenFile(path string) Option {
	return func(c *dialConfig) { c.tokenFile, c.token = path, "" }
}

// WithToken is [WithTokenFile] with the token itself, without white space. Prefer a file
// where programs of others can see the memory or environment of this one. The last of both
// options counts; empty is no token.
func WithToken(token string) Option {
	return func(c *dialConfig) { c.token, c.tokenFile = token, "" }
}

// hasToken reports whether there is a token.
func (c *dialConfig) hasToken() bool { return c.token != "" || c.tokenFile != "" }

// bearer implements per-call credentials.
type bearer struct {
	header func() string // with "Bearer "
}

// isNotOfToken reports whether a token cannot have a character.
func isNotOfToken(r rune) bool { return r <= ' ' || r > '~' }

// bearer returns the credentials of a configuration with a token.
func (c *dialConfig) bearer() (bearer, error) {
	path := c.tokenFile
	if path == "" {
		if strings.ContainsFunc(c.token, isNotOfToken) {
			return bearer{}, &CredentialError{Err: errors.New("the token has white space or other characters that tokens do not have")}
		}
		header := "Bearer " + c.token
		return bearer{header: func() string { return header }}, nil
	}
	load := func() (string, []string, error) {
		token, err := secretfile.Token(path, 1)
		if err == nil && bytes.ContainsFunc(token, isNotOfToken) {
			err = &secretfile.Error{File: path, Problem: "holds more than one token", Fix: "leave nothing but the token in it"}
		}
		return "Bearer " + string(token), []string{path}, err
	}
	header, err := secretfile.Watch(load, nil, nil)
	if err != nil {
		return bearer{}, &CredentialError{Err: err}
	}
	return bearer{header: header.Get}, nil
}

// token returns the token alone.
func (t bearer) token() string { return strings.TrimPrefix(t.header(), "Bearer ") }

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": t.header()}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. Without TLS, the
// dialer restricts connections to this host.
func (t bearer) RequireTransportSecurity() bool { return false }

// dialOptions returns the gRPC options of the configuration.
func (c *dialConfig) dialOptions(dialer *recordingDialer) ([]grpc.DialOption, error) {
	options := dialOptions(dialer)
	if c.name != "" {
		options = append(options, grpc.WithUserAgent(c.name))
	}
	if dialer.endpoint.relay != "" {
		if err := c.relayOptions(dialer); err != nil {
			return nil, err
		}
		options = append(options, grpc.WithConnectParams(connectParams(harness.ConnectTimeout)))
		return append(options, c.grpc...), nil
	}
	if dialer.endpoint.tls {
		creds, err := c.tls.credentials(dialer)
		if err != nil {
			return nil, err
		}
		options = append(options, grpc.WithTransportCredentials(creds))
	}
	if c.hasToken() {
		token, err := c.bearer()
		if err != nil {
			return nil, err
		}
		dialer.loopbackOnly = dialer.endpoint.network == "tcp" && !dialer.endpoint.tls
		options = append(options, grpc.WithPerRPCCredentials(token))
	}
	return append(options, c.grpc...), nil
}

// errPlainText reports that a token was not sent.
var errPlainText = errors.New("a token would be sent in plain text to another host: use tls:// or https://, or a tunnel to this host")

// requireLoopback returns errPlainText if address is not loopback. It accepts host names:
// these are checked after resolution.
func requireLoopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("failed to read the address %q: %w", address, err)
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err == nil && !ip.Unmap().IsLoopback() {
		return errPlainText
	}
	return nil
}
