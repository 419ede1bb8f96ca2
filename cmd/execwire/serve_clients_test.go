package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/testcert"
	"github.com/execwire/execwire/internal/wsconn"
)

// greeting has the first messages of every client.
const greeting = `{"id":1,"method":"initialize","params":{"clientName":"test"}}` + "\n" + `{"method":"initialized"}` + "\n"

// startRequest returns a request to start a shell command.
func startRequest(id int, process, script string) string {
	return fmt.Sprintf(`{"id":%d,"method":"process/start","params":{"processId":%q,"argv":["/bin/sh","-c",%q],"cwd":"/","env":{},"tty":false}}`+"\n", id, process, script)
}

// stdioServer is execwire serve on stdio.
type stdioServer struct {
	t      *testing.T
	in     io.WriteCloser
	out    *bufio.Reader
	errOut *bytes.Buffer
	cmd    *exec.Cmd
}

func serveStdio(t *testing.T, environment string, arguments ...string) *stdioServer {
	t.Helper()
	s := &stdioServer{t: t, errOut: &bytes.Buffer{}, cmd: command(t, append([]string{"serve", "--listen", "stdio"}, arguments...)...)}
	s.cmd.Env = append(s.cmd.Env, environment)
	s.cmd.Stderr = s.errOut
	in, err := s.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.in, s.out = in, bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.in.Close()
		if s.cmd.ProcessState == nil {
			_ = s.cmd.Process.Signal(syscall.SIGTERM)
			_ = s.cmd.Wait()
		}
	})
	return s
}

// expect reads lines until one contains all pieces, and returns it.
func (s *stdioServer) expect(pieces ...string) string {
	s.t.Helper()
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			s.t.Fatalf("want %q, received %q, %v: %s", pieces, line, err, s.errOut)
		}
		if !json.Valid([]byte(line)) {
			s.t.Errorf("stdout has %q", line)
		}
		has := true
		for _, piece := range pieces {
			has = has && strings.Contains(line, piece)
		}
		if has {
			return line
		}
	}
}

func (s *stdioServer) send(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.in, text); err != nil {
		s.t.Fatal(err)
	}
}

// end waits for the server; its remaining output must be JSON.
func (s *stdioServer) end() int {
	s.t.Helper()
	for {
		line, err := s.out.ReadString('\n')
		if err == io.EOF && line == "" {
			break
		}
		if !json.Valid([]byte(line)) {
			s.t.Errorf("stdout has %q, %v", line, err)
		}
	}
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

// The end of stdin ends the session, after pending requests were answered, with its
// processes, and a server without other clients.
func TestServe_StdioEnd_EndsServer(t *testing.T) {
	for _, guardian := range []string{"on", "off"} {
		t.Run("guardian="+guardian, func(t *testing.T) {
			s := serveStdio(t, "EXECWIRE_GUARDIAN="+guardian)
			s.send(greeting + startRequest(2, "p", "echo $$; exec sleep 1000"))
			s.expect(`"id":2`, `"sandboxType"`)
			var output struct {
				Params struct{ Chunk []byte }
			}
			if err := json.Unmarshal([]byte(s.expect("process/output")), &output); err != nil {
				t.Fatal(err)
			}
			// The last line has no line end.
			s.send(`{"id":3,"method":"process/read","params":{"processId":"missing"}}`)
			_ = s.in.Close()
			s.expect(`"id":3`, "unknown process id missing")
			if code := s.end(); code != 0 || strings.Contains(s.errOut.String(), "level=ERROR") {
				t.Errorf("the server ended with %d: %s", code, s.errOut)
			}
			if pid := strings.TrimSpace(string(output.Params.Chunk)); pid == "" || exists("/proc/"+pid) {
				t.Errorf("the process %q is alive", pid)
			}
		})
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// stdout belongs to the client: URLs of other listeners are logged, and these stay
// open.
func TestServe_StdioWithOtherListener(t *testing.T) {
	url := "unix://" + publicDir(t) + "/s"
	s := serveStdio(t, "EXECWIRE_GUARDIAN=on", "--listen", url, "--log-format", "json")
	s.send(greeting + startRequest(2, "p", "exec sleep 1000"))
	s.expect(`"id":2`)
	_ = s.in.Close()
	if got := runCommand(t, command(t, "run", "--server", url, "--", "true")); got.code != 0 {
		t.Errorf("the other listener: %+v", got)
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	if code := s.end(); code != 0 || !strings.Contains(s.errOut.String(), `"url":"`+url+`"`) {
		t.Errorf("the server ended with %d: %s", code, s.errOut)
	}
}

// Launchers of such servers know the exit code, and read one line.
func TestServe_WebsocketCredentials_AreValidated(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		return testcert.WriteFile(t, filepath.Join(dir, name), []byte(content))
	}
	token, empty, short := file("token", goodToken), file("empty", ""), file("short", "short")
	capability := []string{"--ws-auth", "capability-token"}
	signed := []string{"--ws-auth", "signed-bearer-token"}
	for name, tc := range map[string]struct {
		flags    []string
		wantText string
	}{
		"no token":                 {capability, "--ws-token-file or --ws-token-sha256 is needed when --ws-auth is capability-token"},
		"no secret":                {signed, "--ws-shared-secret-file is needed when --ws-auth is signed-bearer-token"},
		"no authentication":        {[]string{"--ws-token-file", token}, "--ws-auth has to be capability-token or signed-bearer-token"},
		"no file":                  {append(capability, "--ws-token-file", "none"), "/none cannot be opened: no such file or directory"},
		"empty file":               {append(capability, "--ws-token-file", empty), empty + " has 0 bytes"},
		"no hash":                  {append(capability, "--ws-token-sha256", "zz"), "--ws-token-sha256 is not a SHA-256"},
		"two tokens":               {append(capability, "--ws-token-file", token, "--ws-token-sha256", strings.Repeat("a", 64)), "--ws-token-file and --ws-token-sha256 exclude each other"},
		"short secret":             {append(signed, "--ws-shared-secret-file", short), short + " has 5 bytes; a secret needs at least 32"},
		"secret of another kind":   {append(capability, "--ws-shared-secret-file", token), "need --ws-auth to be signed-bearer-token"},
		"skew of another kind":     {append(capability, "--ws-token-file", token, "--ws-max-clock-skew-seconds", "1"), "--ws-max-clock-skew need"},
		"beyond loopback, unknown": {[]string{"--listen", "ws://0.0.0.0:0"}, "--ws-auth"},
	} {
		t.Run(name, func(t *testing.T) {
			code := codeWebsocketAuth
			if name == "beyond loopback, unknown" {
				code = codeFailed
			}
			got := runCommand(t, command(t, append([]string{"serve", "--listen", "ws://127.0.0.1:0"}, tc.flags...)...))
			if got.code != code || strings.Count(got.errOut, "\n") != 1 || !strings.Contains(got.errOut, tc.wantText) || strings.HasPrefix(got.out, "ws://0") {
				t.Errorf("%+v, want code %d and %q", got, code, tc.wantText)
			}
		})
	}
}

// websocket requests a websocket from a server.
func websocket(t *testing.T, url, token string) (*wsconn.Conn, error) {
	t.Helper()
	options := wsconn.DialOptions{}
	if token != "" {
		options.Header = map[string][]string{"Authorization": {"Bearer " + token}}
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errHangs)
	defer cancel()
	conn, err := wsconn.Dial(ctx, url, options)
	if err == nil {
		t.Cleanup(func() { _ = conn.Close(wsconn.CodeNormal, "") })
	}
	return conn, err
}

var errHangs = fmt.Errorf("the test hangs")

// converse sends lines and reads messages until one contains all pieces.
func converse(t *testing.T, conn *wsconn.Conn, lines string, pieces ...string) string {
	t.Helper()
	for line := range strings.Lines(lines) {
		if err := conn.Send([]byte(strings.TrimSpace(line))); err != nil {
			t.Fatal(err)
		}
	}
	for {
		message, err := conn.Receive()
		if err != nil {
			t.Fatalf("want %q, received %v", pieces, err)
		}
		has := true
		for _, piece := range pieces {
			has = has && strings.Contains(string(message), piece)
		}
		if has {
			return string(message)
		}
	}
}

func TestServe_WebsocketToken(t *testing.T) {
	token := testcert.WriteFile(t, filepath.Join(t.TempDir(), "token"), []byte(goodToken))
	c := command(t, "serve", "--listen", "ws://127.0.0.1:0", "--ws-auth", "capability-token", "--ws-token-file", token)
	s := startListening(t, c, 1)
	url := s.urls[0]
	if !strings.HasPrefix(url, "ws://127.0.0.1:") || strings.HasSuffix(url, ":0") {
		t.Fatalf("the URL is %q", url)
	}
	if _, err := websocket(t, url, ""); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("without a token: %v", err)
	}
	conn, err := websocket(t, url, goodToken)
	if err != nil {
		t.Fatal(err)
	}
	converse(t, conn, greeting+startRequest(2, "p", "exit 7"), "process/exited", `"exitCode":7`)

	// A server that is stopped reports to its clients how their processes ended.
	converse(t, conn, startRequest(3, "q", "echo ready; exec sleep 1000"), "process/output", `"q"`)
	closed := make(chan string, 1)
	go func() {
		var all strings.Builder
		for {
			message, err := conn.Receive()
			if err != nil {
				closed <- all.String() + err.Error()
				_ = conn.Close(wsconn.CodeNormal, "")
				return
			}
			all.Write(message)
		}
	}()
	s.stop(t, syscall.SIGTERM, syscall.SIGINT)
	received := <-closed
	for _, piece := range []string{"process/exited", `"exitCode":137`, "process/closed", "1001"} {
		if !strings.Contains(received, piece) {
			t.Errorf("the client received %s, without %s", received, piece)
		}
	}
}
