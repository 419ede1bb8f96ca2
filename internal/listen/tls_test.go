package listen_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/secretfile"
	"github.com/execwire/execwire/internal/testcert"
)

// locked is a directory with the certificate files of a grpcs listener.
type locked struct {
	dir     string
	ca      *testcert.Authority
	files   listen.TLSFiles
	lock    *listen.TLS
	broken  chan error
	failed  chan error // failed handshakes
	clients *testcert.Authority
}

func newLocked(t *testing.T) *locked {
	t.Helper()
	l := &locked{dir: t.TempDir(), ca: testcert.NewAuthority(t), clients: testcert.NewAuthority(t),
		broken: make(chan error, 100), failed: make(chan error, 100)}
	l.files.Certificate, l.files.Key = l.ca.Issue("server").Write(t, l.dir, "server")
	l.files.ClientCA = testcert.WriteFile(t, filepath.Join(l.dir, "clients.pem"), l.clients.PEM)
	lock, err := listen.LoadTLS(l.files, func(err error) { l.broken <- err })
	if err != nil {
		t.Fatal(err)
	}
	l.lock = lock
	return l
}

// unauthenticatedBytes is the limit before authentication.
const unauthenticatedBytes = 64 << 10

// open opens a listener that sends clients the name in their certificate after the handshake.
func (l *locked) open(t *testing.T, raw string) *dispatched {
	t.Helper()
	u, err := listen.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := listen.Listen(t.Context(), u, listen.Options{TLS: l.lock, Authenticated: true, UnauthenticatedBytes: unauthenticatedBytes,
		HandshakeFailed: func(_ net.Addr, err error) { l.failed <- err }})
	if err != nil {
		t.Fatal(err)
	}
	lis := dispatch(opened)
	creds := listen.PeerCredentials()
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { sendName(conn, creds) })
		}
	})
	t.Cleanup(func() { _ = lis.Close(); serving.Wait() })
	return lis
}

func sendName(raw net.Conn, creds credentials.TransportCredentials) {
	defer func() { _ = raw.Close() }()
	_ = raw.SetDeadline(time.Now().Add(hangGuard))
	conn, info, err := creds.ServerHandshake(raw)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	name := "nobody"
	if peers := info.(listen.AuthInfo).State.PeerCertificates; len(peers) > 0 {
		name = peers[0].Subject.CommonName
	}
	_, _ = io.WriteString(conn, name)
}

// dial connects and returns what the listener sends.
func (l *locked) dial(t *testing.T, lis *dispatched, change func(*tls.Config)) (string, error) {
	t.Helper()
	config := &tls.Config{RootCAs: l.ca.Pool(), ServerName: "localhost", NextProtos: []string{"h2"}}
	change(config)
	dialer := tls.Dialer{Config: config}
	ctx, cancel := context.WithTimeout(t.Context(), hangGuard)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", lis.Addr().String())
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	reply, err := io.ReadAll(conn)
	if len(reply) > 0 {
		err = nil // the connection is closed without a TLS alert
	}
	return string(reply), err
}

func with(pair testcert.Pair, t *testing.T) func(*tls.Config) {
	c := pair.TLS(t)
	return func(config *tls.Config) {
		// Sends the certificate whatever the server requests.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c, nil }
	}
}

func TestTLS_Handshakes(t *testing.T) {
	l := newLocked(t)
	lis := l.open(t, "grpcs://127.0.0.1:0")
	usage := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }
	for name, tc := range map[string]struct {
		change    func(*tls.Config)
		wantReply string
		failed    string // the server's error
	}{
		"right certificate": {with(l.clients.Issue("ci"), t), "ci", ""},
		"no certificate":    {func(*tls.Config) {}, "nobody", ""},
		"other authority":   {with(testcert.NewAuthority(t).Issue("ci"), t), "", "unknown authority"},
		"server's own":      {with(l.ca.Issue("ci"), t), "", "unknown authority"},
		"expired":           {with(l.clients.Issue("ci", testcert.Expired), t), "", "expired"},
		"not for clients":   {with(l.clients.Issue("ci", usage), t), "", "incompatible key usage"},
		"TLS 1.2":           {func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, "", "version"},
		"distrusts us":      {func(c *tls.Config) { c.RootCAs = l.clients.Pool() }, "", "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			reply, err := l.dial(t, lis, tc.change)
			if reply != tc.wantReply || (err == nil) != (tc.wantReply != "") {
				t.Errorf("the client received %q, %v, want %q", reply, err, tc.wantReply)
			}
			if tc.failed == "" {
				return
			}
			select {
			case err := <-l.failed:
				if !strings.Contains(err.Error(), tc.failed) {
					t.Errorf("the handshake failed with %v, want %q", err, tc.failed)
				}
			case <-time.After(hangGuard):
				t.Error("the server did not report the handshake")
			}
		})
	}
	if len(l.failed) > 0 {
		t.Errorf("one handshake more failed: %v", <-l.failed)
	}
}

// A port check or a lost connection is not a failed attempt; garbage is.
func TestHandshake_LostConnection_IsNotReported(t *testing.T) {
	l := newLocked(t)
	lis := l.open(t, "grpcs://127.0.0.1:0")
	for _, data := range []string{"", "\x16\x03", "\x16\x03\x01\x01\x00\x01\x00", "GET / HTTP/1.1\r\n\r\n"} {
		conn, err := net.Dial("tcp", lis.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, data); err != nil {
			t.Fatal(err)
		}
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.ReadAll(conn)
		_ = conn.Close()
	}
	select {
	case err := <-l.failed:
		if !strings.Contains(err.Error(), "does not look like a TLS handshake") {
			t.Errorf("the reported error is %v", err)
		}
	case <-time.After(hangGuard):
		t.Error("garbage was not reported")
	}
	if len(l.failed) > 0 {
		t.Errorf("%v was reported too", <-l.failed)
	}
}

func TestTLS_BeyondLoopback(t *testing.T) {
	l := newLocked(t)
	for raw, want := range map[string]listen.Kind{
		"grpcs://0.0.0.0:0": listen.KindUnauthenticated, "grpcs://[::]:0": listen.KindUnauthenticated, "grpcs://127.0.0.1:0": 0,
	} {
		u, err := listen.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		lis, err := listen.Listen(t.Context(), u, listen.Options{TLS: l.lock})
		var typed *listen.Error
		switch {
		case want == 0 && err != nil:
			t.Errorf("%s: %v", raw, err)
		case want != 0 && (!errors.As(err, &typed) || typed.Kind != want || !strings.Contains(err.Error(), "principals_file")):
			t.Errorf("%s: %v, want kind %v that names principals_file", raw, err, want)
		}
		if err == nil {
			_ = lis.Close()
		}
	}
	lis := l.open(t, "grpcs://0.0.0.0:0")
	if addr := lis.URL().Addr; addr.Addr().String() != "0.0.0.0" || addr.Port() == 0 {
		t.Errorf("listens on %v", lis.URL())
	}
	if reply, err := l.dial(t, lis, func(*tls.Config) {}); reply != "nobody" {
		t.Errorf("received %q, %v", reply, err)
	}
}

// Connections survive a change of the files; new ones use the new files, or the
// previous ones while the new ones are invalid.
func TestTLS_ChangedFiles_AreReloaded(t *testing.T) {
	t.Parallel() // it waits
	l := newLocked(t)
	lis := l.open(t, "grpcs://127.0.0.1:0")
	client := with(l.clients.Issue("ci"), t)
	if reply, err := l.dial(t, lis, client); reply != "ci" {
		t.Fatalf("received %q, %v", reply, err)
	}
	if err := os.Chmod(l.files.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a broken key is reported", func() bool {
		if reply, err := l.dial(t, lis, client); reply != "ci" {
			t.Fatalf("while the key is broken: %q, %v", reply, err)
		}
		return len(l.broken) > 0
	})
	if err := <-l.broken; !strings.Contains(err.Error(), "chmod 600 "+l.files.Key) {
		t.Errorf("the reported error is %v", err)
	}
	next := testcert.NewAuthority(t)
	next.Issue("server").Write(t, l.dir, "server")
	testcert.WriteFile(t, l.files.ClientCA, next.PEM)
	trusting := func(c *tls.Config) { c.RootCAs = next.Pool() }
	eventually(t, "the new keys are used", func() bool {
		reply, _ := l.dial(t, lis, trusting)
		return reply == "nobody"
	})
	reply, err := l.dial(t, lis, func(c *tls.Config) { trusting(c); client(c) })
	if err == nil {
		t.Errorf("a certificate of the removed authority: received %q", reply)
	}
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hangGuard); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestTLS_InvalidFiles_Fail(t *testing.T) {
	ca := testcert.NewAuthority(t)
	for name, tc := range map[string]struct {
		spoil    func(dir string, f *listen.TLSFiles)
		wantText string
	}{
		"no certificate": {func(_ string, f *listen.TLSFiles) { f.Certificate += ".none" }, "no such file"},
		"no key":         {func(_ string, f *listen.TLSFiles) { f.Key += ".none" }, "no such file"},
		"open key":       {func(_ string, f *listen.TLSFiles) { _ = os.Chmod(f.Key, 0o640) }, "chmod 600"},
		"loose authority": {func(dir string, f *listen.TLSFiles) {
			f.ClientCA = testcert.WriteFile(t, filepath.Join(dir, "ca"), ca.PEM)
			_ = os.Chmod(f.ClientCA, 0o666)
		}, "chmod go-w"},
		"other key": {func(dir string, f *listen.TLSFiles) { _, f.Key = ca.Issue("x").Write(t, dir, "x") }, "not a certificate for the key"},
		"junk":      {func(dir string, f *listen.TLSFiles) { testcert.WriteFile(t, f.Certificate, []byte("junk")) }, "not a certificate for the key"},
		"no authority": {func(dir string, f *listen.TLSFiles) {
			f.ClientCA = testcert.WriteFile(t, filepath.Join(dir, "ca"), []byte("junk"))
		}, "no certificate in PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var files listen.TLSFiles
			files.Certificate, files.Key = ca.Issue("server").Write(t, dir, "server")
			tc.spoil(dir, &files)
			_, err := listen.LoadTLS(files, nil)
			var typed *secretfile.Error
			if !errors.As(err, &typed) || !strings.Contains(err.Error(), tc.wantText) {
				t.Errorf("LoadTLS = %v, want %q", err, tc.wantText)
			}
		})
	}
}

// A client that is not authenticated cannot make the server read without limit.
func TestTLS_UnauthenticatedBytes_AreBounded(t *testing.T) {
	l := newLocked(t)
	u, err := listen.Parse("grpcs://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	opened, err := listen.Listen(t.Context(), u, listen.Options{TLS: l.lock, UnauthenticatedBytes: unauthenticatedBytes})
	if err != nil {
		t.Fatal(err)
	}
	lis := dispatch(opened)
	defer func() { _ = lis.Close() }()
	const size = 4 * unauthenticatedBytes
	for _, admit := range []bool{false, true} {
		var serving sync.WaitGroup
		var read int64
		var readErr error
		serving.Go(func() {
			raw, err := lis.Accept()
			if err != nil {
				readErr = err
				return
			}
			defer func() { _ = raw.Close() }()
			_ = raw.SetDeadline(time.Now().Add(hangGuard))
			conn, info, err := listen.PeerCredentials().ServerHandshake(raw)
			if err != nil {
				readErr = err
				return
			}
			if admit {
				_ = info.(listen.AuthInfo).Admit("principal")
			}
			read, readErr = io.Copy(io.Discard, conn)
		})
		conn, err := tls.Dial("tcp", lis.Addr().String(), &tls.Config{RootCAs: l.ca.Pool(), ServerName: "localhost", NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(make([]byte, size)) // may be cut short by the server
		_ = conn.Close()
		serving.Wait()
		switch {
		case admit && (read != size || readErr != nil):
			t.Errorf("authenticated: %d of %d bytes were read: %v", read, size, readErr)
		case !admit && (read > unauthenticatedBytes+32<<10 || readErr == nil || !strings.Contains(readErr.Error(), "before authentication")):
			t.Errorf("not authenticated: %d bytes were read, then %v; want %d at most", read, readErr, unauthenticatedBytes)
		}
	}
}
