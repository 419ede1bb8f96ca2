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

// TLSFiles are files for connections with TLS, as PEM.
type TLSFiles struct {
	// CA are the authorities that the server's certificate has to be from. Empty
	// means those that this machine trusts.
	CA string
	// Certificate is the chain that the client shows, and Key its key, which
	// nobody else may be able to read: both or neither. They are read again when
	// a connection is made after they changed.
	Certificate, Key string
}

// WithTLS says what to trust and to show with TLS: on grpcs:// connections, and to
// the hub of a relay. Others take no notice of it. Files that cannot be used make Dial return a
// [*CredentialError].
func WithTLS(files TLSFiles) Option {
	return func(c *dialConfig) { c.tls = files }
}

// CredentialError says that a file with a key, a certificate or a token cannot
// be used. It holds nothing of what is in it.
type CredentialError struct {
	// Err says which file, why not, and what to do.
	Err error
}

func (e *CredentialError) Error() string { return fmt.Sprintf("failed to use credentials: %v", e.Err) }

func (e *CredentialError) Unwrap() error { return e.Err }

// TLSError says why the two ends could not agree on a connection with TLS.
type TLSError struct {
	// Fix is what to do about it.
	Fix string
	// Err is what was wrong, of package crypto/tls or crypto/x509.
	Err error
}

func (e *TLSError) Error() string { return e.Err.Error() + ": " + e.Fix }

func (e *TLSError) Unwrap() error { return e.Err }

// credentials are those for a dialer's connections.
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
		authorities, err := secretfile.Public(f.CA)
		if err != nil {
			return nil, &CredentialError{Err: err}
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, &CredentialError{Err: &secretfile.Error{File: f.CA, Problem: "holds no certificate in PEM"}}
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
	// Shown whatever authorities the server names: it says what is wrong with
	// it better than silence would.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return watched.Get(), nil }
	return config, nil
}

func (f TLSFiles) pair() (*tls.Certificate, []string, error) {
	files := []string{f.Certificate, f.Key}
	chain, err := secretfile.Public(f.Certificate)
	if err != nil {
		return nil, files, err
	}
	key, err := secretfile.Secret(f.Key)
	if err != nil {
		return nil, files, err
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, files, &secretfile.Error{File: f.Certificate, Problem: "is no certificate for the key in " + f.Key, Err: err}
	}
	return &pair, files, nil
}

// recordingTLS tells the dialer why a handshake failed, which a channel keeps
// to itself.
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

// firstRead is a connection whose server may yet refuse the client's
// certificate: in TLS 1.3 a client is through its handshake before the server
// has looked at it.
type firstRead struct {
	net.Conn
	dialer *recordingDialer
	read   bool // only the one that reads uses it
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

// unansweredError is the end of a connection on which the server said nothing
// after the handshake. The alert that says why may be lost: a server that closes
// a connection on which something is left to read resets it.
type unansweredError struct{ err error }

func (e *unansweredError) Error() string { return e.err.Error() }
func (e *unansweredError) Unwrap() error { return e.err }

// explainTLS makes a [*TLSError] of an error of a handshake, and leaves others
// as they are. Without TLS the server's URL begins with the scheme unlocked.
func explainTLS(err error, unlocked string) error {
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
		fix = "what listens there does not speak TLS: if it is on this host, dial " + unlocked + "://"
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
