package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// startForward runs a forward whose stdin stays open until the returned function is
// called.
func startForward(t *testing.T, arguments ...string) (url string, s *server, closeStdin func()) {
	t.Helper()
	s, in := startWithStdin(t, command(t, append([]string{"forward"}, arguments...)...))
	return s.urls[0], s, func() { _ = in.Close() }
}

// expectHello runs a command through a forward.
func expectHello(t *testing.T, url string, arguments ...string) {
	t.Helper()
	got := runCommand(t, command(t, append(append([]string{"run", "--server", url}, arguments...), "--", "sh", "-c", "echo hello; exit 3")...))
	if got.code != 3 || got.out != "hello\n" {
		t.Errorf("through %s: %+v", url, got)
	}
}

func TestForward_ConnectsToServer(t *testing.T) {
	core := startServer(t, "unix://"+filepath.Join(t.TempDir(), "s"), "grpc://127.0.0.1:0")
	socket := filepath.Join(t.TempDir(), "s")
	viaUnix, byUnix, closeStdin := startForward(t, "--server", core.urls[1], "--listen", "unix://"+socket, "--until-stdin-closes")
	viaTCP, _, closeOther := startForward(t, "--server", core.urls[0], "--listen", "grpc://127.0.0.1:0")
	if viaUnix != "unix://"+socket || !strings.HasPrefix(viaTCP, "grpc://127.0.0.1:") || strings.HasSuffix(viaTCP, ":0") {
		t.Errorf("they listen on %s and %s", viaUnix, viaTCP)
	}
	expectHello(t, viaUnix)
	expectHello(t, viaTCP)
	closeOther() // the forward ignores it
	closeStdin()
	byUnix.stop(t)
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket still exists: %v", err)
	}
	expectHello(t, viaTCP)
}

// Stdin is discarded; a stdin at its end is not reported if another error is.
func TestForward_DiscardsStdin(t *testing.T) {
	core := startServer(t, "grpc://127.0.0.1:0")
	c := command(t, "forward", "--server", core.urls[0], "--listen", "grpc://127.0.0.1:0", "--until-stdin-closes")
	c.Stdin = strings.NewReader(strings.Repeat("x", 1<<20))
	if got := runCommand(t, c); got.code != 0 || strings.Contains(got.errOut, "execwire:") {
		t.Errorf("at the end of stdin: %+v", got)
	}
}

// The token of a client is forwarded, and the forward verifies the certificate of the
// server.
func TestForward_SecureServer(t *testing.T) {
	s := newSecureServer(t, os.Getuid())
	url, _, _ := startForward(t, "--server", s.tls, "--tls-ca", s.ca, "--listen", "grpc://127.0.0.1:0")
	expectHello(t, url, "--token-file", s.good)
	if got := runCommand(t, command(t, "run", "--server", url, "--token-file", s.wrong, "--", "true")); got.code != codeFailed || !strings.Contains(got.errOut, "--token-file") {
		t.Errorf("a wrong token: %+v", got)
	}
}

func TestForward_UsageErrors(t *testing.T) {
	nowhere := "unix://" + filepath.Join(t.TempDir(), "missing")
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(goodToken), 0o600); err != nil {
		t.Fatal(err)
	}
	core := startServer(t, "grpc://127.0.0.1:0", "ws://127.0.0.1:0")
	here := "unix://" + filepath.Join(t.TempDir(), "s")
	for name, tc := range map[string]struct {
		arguments []string
		code      int
		wantText  []string
	}{
		"no server":      {[]string{"--listen", here}, codeUsage, []string{"--server", "--executor"}},
		"a server here":  {[]string{"--server", "local:", "--listen", here}, codeUsage, []string{"--server", "--executor"}},
		"no listener":    {[]string{"--server", core.urls[0]}, codeUsage, []string{"--listen"}},
		"hub alone":      {[]string{"--hub", "http://127.0.0.1:1", "--listen", here}, codeUsage, []string{"--executor"}},
		"no server yet":  {[]string{"--server", nowhere, "--listen", here}, codeFailed, []string{"cannot reach " + nowhere, "execwire serve --listen " + nowhere}},
		"not gRPC":       {[]string{"--server", "grpc" + strings.TrimPrefix(core.urls[1], "ws"), "--listen", here}, codeFailed, []string{"does not speak gRPC"}},
		"JSON-RPC":       {[]string{"--server", core.urls[1], "--listen", here}, codeFailed, []string{"JSON-RPC", "execwire gateway"}},
		"no hub":         {[]string{"--hub", "http://127.0.0.1:1", "--executor", "a", "--listen", here}, codeFailed, []string{"refused", "execwire-hub"}},
		"a token":        {[]string{"--server", core.urls[0], "--token-file", token, "--listen", here}, codeFailed, []string{"send their own token"}},
		"no such token":  {[]string{"--hub", "http://127.0.0.1:1", "--executor", "a", "--token-file", "/nonexistent", "--listen", here}, codeFailed, []string{"/nonexistent"}},
		"in the open":    {[]string{"--server", core.urls[0], "--listen", "grpc://192.0.2.1:1"}, codeFailed, []string{"not a loopback address"}},
		"bad listener":   {[]string{"--server", core.urls[0], "--listen", "ws://127.0.0.1:0"}, codeFailed, []string{"unix:///PATH"}},
		"unexpected":     {[]string{"x"}, codeUsage, []string{`"x"`}},
		"bad log format": {[]string{"--server", core.urls[0], "--listen", here, "--log-format", "xml"}, codeUsage, []string{"text or json"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := runCommand(t, command(t, append([]string{"forward"}, tc.arguments...)...))
			if got.code != tc.code || got.out != "" {
				t.Errorf("%+v, want code %d", got, tc.code)
			}
			for _, piece := range tc.wantText {
				if !strings.Contains(got.errOut, piece) {
					t.Errorf("stderr %q does not contain %q", got.errOut, piece)
				}
			}
		})
	}
}

// A forward that waits for its server ends on a signal.
func TestForward_Signal_EndsWhileConnecting(t *testing.T) {
	silent := silentServer(t)
	c := command(t, "forward", "--server", silent, "--listen", "grpc://127.0.0.1:0", "--until-stdin-closes")
	c.Stdin = strings.NewReader("")
	if got := runCommand(t, c); got.code != 0 || got.out != "" {
		t.Errorf("%+v", got)
	}
}

// A forward at its limit of open files recovers when clients leave.
func TestForward_FileLimit_Recovers(t *testing.T) {
	core := startServer(t, "grpc://127.0.0.1:0")
	c := command(t, "forward", "--server", core.urls[0], "--listen", "grpc://127.0.0.1:0")
	c.Args = append([]string{"sh", "-c", `ulimit -n 40; exec "$@"`, "sh", c.Path}, c.Args[1:]...)
	c.Path = "/bin/sh"
	s, _ := startWithStdin(t, c)
	var crowd []net.Conn
	for range 60 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.urls[0], "grpc://"))
		if err != nil {
			t.Fatal(err)
		}
		crowd = append(crowd, conn)
	}
	for _, conn := range crowd {
		_ = conn.Close()
	}
	// New clients may fail while the others leave.
	for deadline := time.Now().Add(2 * time.Minute); ; {
		got := runCommand(t, command(t, "run", "--server", s.urls[0], "--", "echo", "hello"))
		if got.code == 0 && got.out == "hello\n" {
			return
		}
		if strings.Contains(got.errOut, "refused") || time.Now().After(deadline) {
			t.Fatalf("%+v", got)
		}
	}
}

// silentServer accepts a connection and sends nothing.
func silentServer(t *testing.T) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return "grpc://" + l.Addr().String()
}
