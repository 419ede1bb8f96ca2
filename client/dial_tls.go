package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc/credentials"

	"github.com/execwire/execwire/internal/secretfile"
)

// TLSFiles are PEM files for TLS connections.
type TLSFiles struct {
	// CA has the CAs for the certificate of the server. Empty means the CAs of this
	// machine.
	CA string
	// Certificate is the certificate chain of the client and Key its private key, which
	// only the user may be able to read: both or neither. They are read again for a new
	// connection after they change.
	Certificate, Key string
}

// WithTLS sets the CAs and the client certificate for tls:// connections and for the
// hub of a relay. It has no effect on others. Unusable files make Dial return a
// [*CredentialError].
func WithTLS(files TLSFiles) Option {
	return func(c *dialConfig) { c.tls = files }
}

// CredentialError reports that a key, certificate or token file cannot be used. It
// contains none of its content.
type CredentialError struct {
	// Err names the file, the problem and the fix.
	Err error
}

func (e *CredentialError) Error() string { return fmt.Sprintf("failed to use credentials: %v", e.Err) }

func (e *CredentialError) Unwrap() error { return e.Err }

// TLSError reports why a TLS handshake failed.
type TLSError struct {
	// Fix describes how to fix it.
	Fix string
	// Err is the error of crypto/tls or crypto/x509.
	Err error
}

func (e *TLSError) Error() string { return e.Err.Error() + ": " + e.Fix }

func (e *TLSError) Unwrap() error { return e.Err }

// credentials returns the credentials for connections of a dialer.
func (f TLSFiles) credentials(dialer *recordingDialer) (credentials.TransportCredentials, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	return recordingTLS{TransportCredentials: credentials.NewTLS(config), dialer: dialer}, nil
}

// config reads the files.
func (f TLSFiles) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if f.CA != "" {
		var err error
		if config.RootCAs, err = secretfile.Authorities(f.CA); err != nil {
			return nil, &CredentialError{Err: err}
		}
	}
	if f.Certificate == "" && f.Key == "" {
		return config, nil
	}
	if f.Certificate == "" || f.Key == "" {
		return nil, &CredentialError{Err: errors.New("a client certificate and its key are needed together: name both files or neither")}
	}
	watched, err := secretfile.Watch(f.pair, nil, nil)
	if err != nil {
		return nil, &CredentialError{Err: err}
	}
	// The certificate is sent whatever CAs the server accepts: the rejection of the
	// server is a better error than none.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return watched.Get(), nil }
	return config, nil
}

func (f TLSFiles) pair() (*tls.Certificate, []string, error) {
	pair, err := secretfile.KeyPair(f.Certificate, f.Key)
	return &pair, []string{f.Certificate, f.Key}, err
}

// recordingTLS records in the dialer why a handshake failed, which a channel does not
// expose.
type recordingTLS struct {
	credentials.TransportCredentials
	dialer *recordingDialer
}

// ClientHandshake implements credentials.TransportCredentials.
func (r recordingTLS) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := r.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		r.dialer.record(err)
		return nil, nil, err
	}
	return &firstRead{Conn: conn, dialer: r.dialer}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (r recordingTLS) Clone() credentials.TransportCredentials {
	return recordingTLS{TransportCredentials: r.TransportCredentials.Clone(), dialer: r.dialer}
}

// firstRead is a connection whose server may still reject the client certificate: in
// TLS 1.3 the handshake of the client ends before the server has verified it.
type firstRead struct {
	net.Conn
	dialer *recordingDialer
	read   bool // used by the reading goroutine only
}

// Read implements net.Conn.
func (f *firstRead) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if !f.read && n == 0 && err != nil {
		f.dialer.record(&unansweredError{err})
	}
	f.read = true
	return n, err
}

// unansweredError is the end of a connection on which the server sent nothing after the
// handshake. The alert with the reason may be lost: closing a connection with unread
// data resets it.
type unansweredError struct{ err error }

func (e *unansweredError) Error() string { return e.err.Error() }
func (e *unansweredError) Unwrap() error { return e.err }

// explainTLS turns a handshake error into a [*TLSError] and returns others unchanged.
// plainScheme is the URL scheme without TLS.
func explainTLS(err error, plainScheme string) error {
	var (
		authority  x509.UnknownAuthorityError
		hostname   x509.HostnameError
		invalid    x509.CertificateInvalidError
		plain      tls.RecordHeaderError
		remote     *net.OpError
		unanswered *unansweredError
		fix        string
	)
	switch {
	case errors.As(err, &authority):
		fix = "name the authority that signed the server's certificate, if it is to be trusted"
	case errors.As(err, &hostname):
		fix = "reach the server by a name or address that its certificate has"
	case errors.As(err, &invalid):
		fix = "have the server's certificate replaced"
	case errors.As(err, &plain):
		fix = "the server does not use TLS: if it is on this host, dial " + plainScheme + "://"
	case errors.As(err, &remote) && remote.Op == "remote error" && strings.Contains(err.Error(), "certificate"):
		fix = "the server refused the certificate that it was shown: show one of an authority that it accepts, and that has not expired"
	case errors.As(err, &unanswered) && !(errors.As(err, &remote) && remote.Op == "remote error"):
		fix = "the server ended the connection right after the handshake, as one does that refused the certificate that it was shown, or wants one"
	case errors.As(err, &remote) && remote.Op == "remote error", strings.Contains(err.Error(), "tls: "):
		fix = "execwire needs TLS 1.3 at both ends"
	default:
		return err
	}
	return &TLSError{Fix: fix, Err: err}
}
