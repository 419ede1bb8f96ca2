package listen

import (
	"crypto/tls"
	"crypto/x509"
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/execwire/execwire/internal/secretfile"
)

// TLSFiles are where the keys of grpcs doors are, as PEM.
type TLSFiles struct {
	// Certificate is the server's chain, and Key its key, which nobody else may
	// be able to read. Both are required.
	Certificate, Key string
	// ClientCA are the authorities whose client certificates are accepted.
	// Empty accepts none, and asks for none.
	ClientCA string
}

// TLS is what a grpcs door is locked with. It may be used by several doors.
type TLS struct {
	config *secretfile.Watched[*tls.Config]
}

// LoadTLS reads the files, and again when connections come after they changed.
// If the new version is wrong, broken is told why and the old one stays. What is
// connected stays connected. The error is a [*secretfile.Error].
func LoadTLS(files TLSFiles, broken func(error)) (*TLS, error) {
	load := func() (*tls.Config, []string, error) {
		paths := []string{files.Certificate, files.Key}
		if files.ClientCA != "" {
			paths = append(paths, files.ClientCA)
		}
		config, err := files.read()
		return config, paths, err
	}
	config, err := secretfile.Watch(load, broken, nil)
	if err != nil {
		return nil, err
	}
	return &TLS{config: config}, nil
}

func (f TLSFiles) read() (*tls.Config, error) {
	chain, err := secretfile.Public(f.Certificate)
	if err != nil {
		return nil, err
	}
	key, err := secretfile.Secret(f.Key)
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, &secretfile.Error{File: f.Certificate, Problem: "is no certificate for the key in " + f.Key, Err: err}
	}
	config := &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{certificate},
		// A session that is resumed would bring back a client certificate that
		// was accepted under authorities that have changed since.
		SessionTicketsDisabled: true,
	}
	if f.ClientCA == "" {
		return config, nil
	}
	authorities, err := secretfile.Public(f.ClientCA)
	if err != nil {
		return nil, err
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(authorities) {
		return nil, &secretfile.Error{File: f.ClientCA, Problem: "holds no certificate in PEM"}
	}
	config.ClientAuth = tls.VerifyClientCertIfGiven
	return config, nil
}

// TLSAuthInfo is the AuthInfo of a caller that came by a grpcs door.
type TLSAuthInfo struct {
	credentials.TLSInfo
	HostPeer
	Admission
}

// tlsListener accepts connections that have yet to shake hands, which is left to
// the credentials so that a slow client keeps only itself waiting.
type tlsListener struct {
	net.Listener
	url     URL
	locks   Locks
	limiter *limiter
}

func (l *tlsListener) URL() URL { return l.url }

// Close stops accepting, and closes the connections on which no request has come.
func (l *tlsListener) Close() error {
	err := l.Listener.Close()
	l.limiter.close()
	return err
}

// Accept waits for the next connection that has a place.
func (l *tlsListener) Accept() (net.Conn, error) {
	conn, err := l.limiter.accept(l.Listener.Accept)
	if err != nil {
		return nil, err
	}
	return &tlsConn{strangerConn: &strangerConn{limitedConn: conn, most: l.locks.Unadmitted}, tls: l.locks.TLS}, nil
}

// tlsConn is a connection that came by a grpcs door and has yet to shake hands.
type tlsConn struct {
	*strangerConn
	tls *TLS
}

// shakeHands makes the connection one with TLS.
func (c *tlsConn) shakeHands() (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := credentials.NewTLS(c.tls.config.Get()).ServerHandshake(c.strangerConn)
	if err != nil {
		return nil, nil, err
	}
	return conn, TLSAuthInfo{TLSInfo: info.(credentials.TLSInfo), HostPeer: c.hostPeer(), Admission: c.admission()}, nil
}
