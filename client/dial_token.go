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

// WithTokenFile has every call show the token in the file at path, which nobody
// else may be able to read. A relay is shown it instead, and the server behind it
// is not. It is read again when it changes; a version that
// cannot be used leaves the one before in use. A token is not sent to another
// host in plain text: Dial refuses grpc:// and relay+ws:// beyond loopback. A file that cannot be
// used makes Dial return a [*CredentialError].
func WithTokenFile(path string) Option {
	return func(c *dialConfig) { c.tokenFile = path }
}

// tokenFile are credentials for every call.
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

// RequireTransportSecurity implements credentials.PerRPCCredentials. Where there
// is none the dialer sees to it that nobody listens in.
func (t tokenFile) RequireTransportSecurity() bool { return false }

// dialOptions makes what the configuration asks for beyond the options of every
// connection.
func (c *dialConfig) dialOptions(dialer *recordingDialer) ([]grpc.DialOption, error) {
	options := append(dialOptions(dialer), c.nameOptions()...)
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
		dialer.private = dialer.endpoint.network == "tcp" && !dialer.endpoint.tls
		options = append(options, grpc.WithPerRPCCredentials(token))
	}
	return append(options, c.grpc...), nil
}

// errPlainText is why a token is not sent.
var errPlainText = errors.New("a token would be sent in plain text to another host: use grpcs:// or https://, or a tunnel to this host")

// checkPrivate returns errPlainText if what is said to address could be heard
// elsewhere. It knows nothing of names: those are checked when they have become
// addresses.
func checkPrivate(address string) error {
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
