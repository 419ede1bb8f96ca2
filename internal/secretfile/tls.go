package secretfile

import (
	"crypto/tls"
	"crypto/x509"
)

// KeyPair returns the certificate chain in a file and its key in another, both as
// PEM. The error is an *[Error].
func KeyPair(certificate, key string) (tls.Certificate, error) {
	chain, err := Public(certificate)
	if err != nil {
		return tls.Certificate{}, err
	}
	secret, err := Secret(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(chain, secret)
	if err != nil {
		return tls.Certificate{}, &Error{File: certificate, Problem: "is not a certificate for the key in " + key, Err: err}
	}
	return pair, nil
}

// Authorities returns the certificates in a PEM file. The error is an *[Error].
func Authorities(path string) (*x509.CertPool, error) {
	text, err := Public(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, &Error{File: path, Problem: "has no certificate in PEM"}
	}
	return pool, nil
}
