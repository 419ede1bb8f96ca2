// Package testcert makes authorities and certificates for tests.
package testcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// PEM is its own certificate.
	PEM []byte
}

// NewAuthority makes an authority of its own.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t)}
	a.cert = template("authority")
	a.cert.IsCA, a.cert.BasicConstraintsValid = true, true
	a.cert.KeyUsage = x509.KeyUsageCertSign
	der := sign(t, a.cert, a.cert, &a.key.PublicKey, a.key)
	a.PEM = encode("CERTIFICATE", der)
	return a
}

// Pair is a certificate with its key.
type Pair struct {
	// Certificate and Key are in PEM.
	Certificate, Key []byte
}

// Issue makes a certificate for both ends of connections to this host, which
// change may change first.
func (a *Authority) Issue(name string, change ...func(*x509.Certificate)) Pair {
	a.t.Helper()
	cert := template(name)
	cert.KeyUsage = x509.KeyUsageDigitalSignature
	cert.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	cert.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	cert.DNSNames = []string{"localhost"}
	for _, f := range change {
		f(cert)
	}
	key := newKey(a.t)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return Pair{
		Certificate: encode("CERTIFICATE", sign(a.t, cert, a.cert, &key.PublicKey, a.key)),
		Key:         encode("PRIVATE KEY", der),
	}
}

// Expired is a change for [Authority.Issue].
func Expired(cert *x509.Certificate) {
	cert.NotBefore, cert.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
}

// Pool returns the authority as what is trusted.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.PEM)
	return pool
}

// TLS returns the pair for a TLS configuration.
func (p Pair) TLS(t testing.TB) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Write puts the pair into a directory, in place of what is there, and returns
// the paths.
func (p Pair) Write(t testing.TB, dir, name string) (certificate, key string) {
	t.Helper()
	return WriteFile(t, filepath.Join(dir, name+".crt"), p.Certificate), WriteFile(t, filepath.Join(dir, name+".key"), p.Key)
}

// WriteFile puts content at path, that only this user may read, by renaming, and
// returns the path.
func WriteFile(t testing.TB, path string, content []byte) string {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

func template(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		panic(err)
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, cert, by *x509.Certificate, public *ecdsa.PublicKey, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, by, public, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
