package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testcert"
)

// serveTLS serves a fake over TLS whose calls send their authorization header to
// headers. A nil configuration serves plain text.
func serveTLS(t *testing.T, config *tls.Config) (address string, headers <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	shown := make(chan string, 100)
	options := []grpc.ServerOption{grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		shown <- strings.Join(metadata.ValueFromIncomingContext(stream.Context(), "authorization"), ", ")
		return handler(srv, stream)
	})}
	if config != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	server := grpc.NewServer(options...)
	play := sends(nil, started(0), events(exited(1, 3), closed(2, 0)))
	execwirev1.RegisterProcessServiceServer(server, &fakeServer{beyond: play})
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return listener.Addr().String(), shown
}

// dialAndRun dials and runs a process.
func dialAndRun(t *testing.T, url string, options ...Option) error {
	t.Helper()
	c, err := Dial(t.Context(), url, options...)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	exit, err := c.Run(t.Context(), RunOptions{Process: direct("x")})
	if err == nil && exit.Code != 3 {
		t.Errorf("the process ended with %+v", exit)
	}
	return err
}

func TestDial_TLS(t *testing.T) {
	ca, other := testcert.NewAuthority(t), testcert.NewAuthority(t)
	dir := t.TempDir()
	trust := TLSFiles{CA: testcert.WriteFile(t, filepath.Join(dir, "ca.pem"), ca.PEM)}
	showing := func(name string, pair testcert.Pair) TLSFiles {
		files := trust
		files.Certificate, files.Key = pair.Write(t, dir, name)
		return files
	}
	server := func(change ...func(*x509.Certificate)) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{ca.Issue("server", change...).TLS(t)}}
	}
	asking := server()
	asking.ClientAuth, asking.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool()
	old := server()
	old.MaxVersion = tls.VersionTLS12
	elsewhere := func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"elsewhere.example"} }
	for name, tc := range map[string]struct {
		config   *tls.Config
		scheme   string
		files    TLSFiles
		wantText string // empty: it succeeds
	}{
		"trusted":               {server(), "grpcs", trust, ""},
		"with a certificate":    {asking, "grpcs", showing("me", ca.Issue("me")), ""},
		"files for nothing":     {nil, "grpc", trust, ""},
		"unknown authority":     {server(), "grpcs", TLSFiles{}, "name the authority"},
		"another name":          {server(elsewhere), "grpcs", trust, "by a name or address that its certificate has"},
		"expired":               {server(testcert.Expired), "grpcs", trust, "certificate replaced"},
		"plain text there":      {nil, "grpcs", trust, "does not use TLS"},
		"no certificate":        {asking, "grpcs", trust, "refused the certificate"},
		"other certificate":     {asking, "grpcs", showing("other", other.Issue("me")), "refused the certificate"},
		"expired certificate":   {asking, "grpcs", showing("expired", ca.Issue("me", testcert.Expired)), "refused the certificate"},
		"only TLS 1.2":          {old, "grpcs", trust, "TLS 1.3"},
		"TLS where plain is":    {server(), "grpc", trust, "tls://"},
		"host and port missing": {server(), "grpcs", trust, "grpcs://HOST:PORT"},
	} {
		t.Run(name, func(t *testing.T) {
			address, _ := serveTLS(t, tc.config)
			if name == "host and port missing" {
				address = "localhost"
			}
			err := dialAndRun(t, tc.scheme+"://"+address, WithTLS(tc.files))
			if (err == nil) != (tc.wantText == "") || err != nil && !strings.Contains(err.Error(), tc.wantText) {
				t.Errorf("got %v, want %q", err, tc.wantText)
			}
			var typed *TLSError
			if tc.scheme == "grpcs" && address != "localhost" && err != nil && !errors.As(err, &typed) {
				t.Errorf("%v is no TLSError", err)
			}
		})
	}
	address, _ := serveTLS(t, server())
	var unknown x509.UnknownAuthorityError
	if err := dialAndRun(t, "grpcs://"+address); !errors.As(err, &unknown) {
		t.Errorf("got %v, want it to wrap the x509 error", err)
	}
}

func TestDial_UnusableFiles_ReturnsCredentialError(t *testing.T) {
	dir := t.TempDir()
	good := TLSFiles{}
	good.Certificate, good.Key = testcert.NewAuthority(t).Issue("me").Write(t, dir, "me")
	_, otherKey := testcert.NewAuthority(t).Issue("me").Write(t, dir, "other")
	junk := testcert.WriteFile(t, filepath.Join(dir, "junk"), []byte("junk"))
	open := testcert.WriteFile(t, filepath.Join(dir, "open"), []byte(strings.Repeat("x", 32)))
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	two := testcert.WriteFile(t, filepath.Join(dir, "two"), []byte("one two"))
	empty := testcert.WriteFile(t, filepath.Join(dir, "empty"), []byte(" \n"))
	for name, tc := range map[string]struct {
		option   Option
		wantText []string
	}{
		"no authority":      {WithTLS(TLSFiles{CA: dir + "/none"}), []string{dir + "/none", "no such file"}},
		"junk authority":    {WithTLS(TLSFiles{CA: junk}), []string{junk, "no certificate in PEM"}},
		"key missing":       {WithTLS(TLSFiles{Certificate: good.Certificate}), []string{"needed together"}},
		"certificate alone": {WithTLS(TLSFiles{Key: good.Key}), []string{"needed together"}},
		"other key":         {WithTLS(TLSFiles{Certificate: good.Certificate, Key: otherKey}), []string{otherKey}},
		"open key":          {WithTLS(TLSFiles{Certificate: good.Certificate, Key: open}), []string{"chmod 600 " + open}},
		"no token":          {WithTokenFile(dir + "/none"), []string{dir + "/none", "no such file"}},
		"open token":        {WithTokenFile(open), []string{"chmod 600 " + open}},
		"two tokens":        {WithTokenFile(two), []string{two, "more than one"}},
		"empty token":       {WithTokenFile(empty), []string{empty, "0 bytes"}},
	} {
		_, err := Dial(t.Context(), "grpcs://127.0.0.1:1", tc.option)
		var typed *CredentialError
		if !errors.As(err, &typed) {
			t.Errorf("%s: got %v, want a CredentialError", name, err)
			continue
		}
		for _, text := range tc.wantText {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q does not say %q", name, err, text)
			}
		}
	}
}

func TestWithTokenFile_SendsTokenWithEveryCall(t *testing.T) {
	ca := testcert.NewAuthority(t)
	dir := t.TempDir()
	trust := WithTLS(TLSFiles{CA: testcert.WriteFile(t, filepath.Join(dir, "ca.pem"), ca.PEM)})
	path := testcert.WriteFile(t, filepath.Join(dir, "token"), []byte("first\n"))
	plain, plainHeaders := serveTLS(t, nil)
	if err := dialAndRun(t, "grpc://"+plain, WithTokenFile(path)); err != nil {
		t.Fatal(err)
	}
	if got := <-plainHeaders; got != "Bearer first" {
		t.Errorf("on loopback it shows %q", got)
	}
	address, headers := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.Issue("server").TLS(t)}})
	c, err := Dial(t.Context(), "grpcs://"+address, trust, WithTokenFile(path))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	run := func() string {
		if _, err := c.Run(t.Context(), RunOptions{Process: direct("x")}); err != nil {
			t.Fatal(err)
		}
		return <-headers
	}
	if got := run(); got != "Bearer first" {
		t.Errorf("through TLS it shows %q", got)
	}
	testcert.WriteFile(t, path, []byte("second"))
	for deadline := time.Now().Add(30 * time.Second); run() != "Bearer second"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the new token is not shown")
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := run(); got != "Bearer second" {
		t.Errorf("without the file it shows %q", got)
	}
}

func TestWithTokenFile_PlainText_Fails(t *testing.T) {
	path := testcert.WriteFile(t, filepath.Join(t.TempDir(), "token"), []byte("token"))
	if _, err := Dial(t.Context(), "grpc://192.0.2.1:7420", WithTokenFile(path)); !errors.Is(err, errPlainText) || !strings.Contains(err.Error(), "tls://") {
		t.Errorf("got %v", err)
	}
	for address, private := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true,
		"192.0.2.1:1": false, "0.0.0.0:1": false, "[::]:1": false, "[2001:db8::1]:1": false, "[::ffff:192.0.2.1]:1": false, "[fe80::1%eth0]:1": false,
		"localhost:1": true, "server.example:1": true, // checked after resolution
	} {
		if err := requireLoopback(address); (err == nil) != private {
			t.Errorf("%s: %v, want private: %v", address, err, private)
		}
	}
}
