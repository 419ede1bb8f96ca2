package listen

import (
	"crypto/tls"
	"crypto/x509"
	"sync/atomic"

	"google.golang.org/grpc/credentials"

	"github.com/execwire/execwire/internal/secretfile"
)

// TLSFiles are the PEM files of a listener with TLS.
type TLSFiles struct {
	// Certificate is the server's chain, and Key its key, which only the server's
	// user may be able to read. Both are required.
	Certificate, Key string
	// ClientCA has the authorities of accepted client certificates. If empty,
	// none are requested.
	ClientCA string
}

// TLS is the TLS configuration of listeners. Several may share it. It may be used
// concurrently.
type TLS struct {
	config atomic.Pointer[secretfile.Watched[*tls.Config]]
}

// Replace makes t use the files of another. Existing connections are not affected.
func (t *TLS) Replace(by *TLS) { t.config.Store(by.config.Load()) }

// LoadTLS loads the files, and reloads them on connections after they changed. If
// the new version is invalid, onError is called and the previous one stays in
// use. Existing connections are not affected. The error is a [*secretfile.Error].
func LoadTLS(files TLSFiles, onError func(error)) (*TLS, error) {
	load := func() (*tls.Config, []string, error) {
		paths := []string{files.Certificate, files.Key}
		if files.ClientCA != "" {
			paths = append(paths, files.ClientCA)
		}
		config, err := files.read()
		return config, paths, err
	}
	config, err := secretfile.Watch(load, onError, nil)
	if err != nil {
		return nil, err
	}
	t := &TLS{}
	t.config.Store(config)
	return t, nil
}

func (f TLSFiles) read() (*tls.Config, error) {
	certificate, err := secretfile.KeyPair(f.Certificate, f.Key)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{certificate},
		// Resuming a session would restore a client certificate that was accepted
		// under previous authorities.
		SessionTicketsDisabled: true,
	}
	if f.ClientCA == "" {
		return config, nil
	}
	config.ClientAuth = tls.VerifyClientCertIfGiven
	config.ClientCAs, err = secretfile.Authorities(f.ClientCA)
	return config, err
}

// tlsConn is a connection with TLS.
type tlsConn struct {
	*tls.Conn
	counted     *limitedConn      // below TLS
	certificate *x509.Certificate // the server's
}

// authInfo returns the AuthInfo of the connection, after its handshake.
func (c *tlsConn) authInfo() AuthInfo {
	return AuthInfo{
		TLSInfo: credentials.TLSInfo{
			State: c.ConnectionState(), CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		},
		Admission: Admission{c.counted}, certificate: c.certificate,
	}
}
