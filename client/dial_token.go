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
// rejects grpc:// and relay+ws:// beyond loopback. An unusable file makes Dial return a
// [*CredentialError].
func WithTokenFile(path string) Option {
	return func(c *dialConfig) { c.tokenFile = path }
}

// tokenFile implements per-call credentials.
type tokenFile struct {
	header *secretfile.Watched[string]
}

func newTokenFile(path string) (tokenFile, error) {
	load := func() (string, []string, error) {
		token, err := secretfile.Token(path, 1)
		if err == nil && bytes.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			err = &secretfile.Error{File: path, Problem: "holds more than one token", Fix: "leave nothing but the token in it"}
		}
		return "Bearer " + string(token), []string{path}, err
	}
	header, err := secretfile.Watch(load, nil, nil)
	if err != nil {
		return tokenFile{}, &CredentialError{Err: err}
	}
	return tokenFile{header: header}, nil
}

// token returns the token alone.
func (t tokenFile) token() string { return strings.TrimPrefix(t.header.Get(), "Bearer ") }

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t tokenFile) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": t.header.Get()}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. Without TLS, the
// dialer restricts connections to this host.
func (t tokenFile) RequireTransportSecurity() bool { return false }

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
	if c.tokenFile != "" {
		token, err := newTokenFile(c.tokenFile)
		if err != nil {
			return nil, err
		}
		dialer.loopbackOnly = dialer.endpoint.network == "tcp" && !dialer.endpoint.tls
		options = append(options, grpc.WithPerRPCCredentials(token))
	}
	return append(options, c.grpc...), nil
}

// errPlainText reports that a token was not sent.
var errPlainText = errors.New("a token would be sent in plain text to another host: use grpcs:// or https://, or a tunnel to this host")

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
