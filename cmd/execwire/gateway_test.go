package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/testcert"
	"github.com/execwire/execwire/internal/wsconn"
)

// startGateway runs a gateway with one listener and returns its URL.
func startGateway(t *testing.T, environment []string, arguments ...string) (url string, s *server) {
	t.Helper()
	c := command(t, append([]string{"gateway", "--listen", "ws://127.0.0.1:0"}, arguments...)...)
	c.Env = append(c.Env, environment...)
	s = startListening(t, c, 1)
	return s.urls[0], s
}

// A process started through a gateway runs on its server, and survives the gateway for
// the grace period.
func TestGateway_RunsProcessesOnServer(t *testing.T) {
	core := startServer(t, "unix://"+publicDir(t)+"/s")
	url, gateway := startGateway(t, nil, "--upstream", core.urls[0])
	conn, err := websocket(t, url, "")
	if err != nil {
		t.Fatal(err)
	}
	message := converse(t, conn, greeting+startRequest(2, "p", "echo $PPID; exec sleep 1000"), "process/output")
	server := childServer(t, core.command.Process.Pid)
	if !strings.Contains(message, chunkOf(fmt.Sprintln(server))) {
		t.Errorf("%s is not from a child of the server %d", message, server)
	}
	list := func() string {
		got := runCommand(t, command(t, "sessions", "--json", "--server", core.urls[0]))
		if got.code != 0 {
			t.Fatalf("%+v", got)
		}
		return got.out
	}
	if got := list(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `"attached":true`) {
		t.Errorf("the server has the sessions %s", got)
	}
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := conn.Receive(); err != nil {
				ended <- err
				_ = conn.Close(wsconn.CodeNormal, "")
				return
			}
		}
	}()
	gateway.stop(t, syscall.SIGTERM)
	if err := <-ended; !strings.Contains(err.Error(), "1001") {
		t.Errorf("the websocket ended with %v", err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if got := list(); strings.Contains(got, `"attached":false`) {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the session is not left to its grace: %s", got)
		}
	}
	core.stop(t, syscall.SIGTERM, syscall.SIGINT) // the second signal ends the wait for the process
}

// A gateway with a principals table calls on behalf of its clients, if the server
// permits it.
func TestGateway_CallsOnBehalfOfClients(t *testing.T) {
	dir := publicDir(t)
	file := func(name, content string) string {
		return testcert.WriteFile(t, filepath.Join(dir, name), []byte(content))
	}
	own, ann, eve := file("own", goodToken), file("ann", viewToken), file("eve", wrongToken)
	entry := func(name, token, more string) string {
		return fmt.Sprintf("[[principal]]\nname=%q\ntoken_file=%q\nallow=['all']\n%s\n", name, token, more)
	}
	core := command(t, "serve", "--listen", "unix://"+dir+"/s")
	core.Env = append(core.Env, "EXECWIRE_PRINCIPALS_FILE="+file("core.toml", entry("front", own, "on_behalf_of=['user:*']")))
	upstream := startListening(t, core, 1).urls[0]
	for _, arguments := range [][]string{nil, {"--token-file", eve}} {
		got := runCommand(t, command(t, append([]string{"gateway", "--listen", "ws://127.0.0.1:0", "--upstream", upstream}, arguments...)...))
		if got.code != codeFailed || got.out != "" || !strings.Contains(got.errOut, "--token-file") {
			t.Errorf("a gateway unknown to the server with %q: %+v", arguments, got)
		}
	}
	url, _ := startGateway(t, []string{"EXECWIRE_PRINCIPALS_FILE=" + file("front.toml", entry("user:ann", ann, "")+entry("eve", eve, ""))},
		"--upstream", upstream, "--token-file", own)
	if _, err := websocket(t, url, goodToken); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("the gateway's own token: %v", err)
	}
	conn, err := websocket(t, url, viewToken)
	if err != nil {
		t.Fatal(err)
	}
	converse(t, conn, greeting+startRequest(2, "p", "exit 5"), "process/exited", `"exitCode":5`)
	refused, err := websocket(t, url, wrongToken)
	if err != nil {
		t.Fatal(err)
	}
	converse(t, refused, greeting, `"id":1`, "error", "may not act on behalf of")

	// Calls by HTTP are made in the same way: ann sees the session of her websocket.
	for token, want := range map[string]struct {
		status int
		text   string
	}{
		viewToken: {http.StatusOK, `"attached":true`}, wrongToken: {http.StatusForbidden, "may not act on behalf of"},
		goodToken: {http.StatusUnauthorized, `"UNAUTHENTICATED"`}, "": {http.StatusUnauthorized, `"UNAUTHENTICATED"`},
	} {
		header := http.Header{"Content-Type": {"application/json"}}
		if token != "" {
			header.Set("Authorization", "Bearer "+token)
		}
		if status, text := request(t, http.MethodPost, url, "/execwire.v1.SessionService/ListSessions", header, "{}"); status != want.status || !strings.Contains(text, want.text) {
			t.Errorf("the sessions of the bearer of %q: %d: %s", token, status, text)
		}
	}
	if status, text := request(t, http.MethodPost, url, "/grpc.health.v1.Health/Check", http.Header{"Content-Type": {"application/json"}}, "{}"); status != http.StatusOK {
		t.Errorf("health, which needs no token: %d: %s", status, text)
	}
}

// request sends an HTTP request to the server with a websocket URL, and returns the status
// and the body without the blanks of JSON.
func request(t *testing.T, method, url, path string, header http.Header, body string) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, strings.Replace(url, "ws:", "http:", 1)+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Errorf("%s: the response ends with %v", path, err)
	}
	return response.StatusCode, strings.ReplaceAll(string(content), `": `, `":`)
}

// The contract and files are served over HTTP, as on the server itself.
func TestGateway_ServesHTTP(t *testing.T) {
	dir := publicDir(t)
	core := startServer(t, "unix://"+dir+"/s")
	url, _ := startGateway(t, nil, "--upstream", core.urls[0])
	call := func(method, body string, want ...string) {
		t.Helper()
		status, text := request(t, http.MethodPost, url, "/execwire.v1.ProcessService/"+method, http.Header{"Content-Type": {"application/json"}}, body)
		for _, piece := range want {
			if status != http.StatusOK || !strings.Contains(text, piece) {
				t.Errorf("%s: %d: %s, want %s", method, status, text, piece)
			}
		}
	}
	call("StartProcess", `{"processId":"p","command":{"direct":{"argv":["sh","-c","echo hello; exit 3"],"workingDirectory":"/","env":{"PATH":"/usr/bin:/bin"}}}}`, `"processId":"p"`)
	call("WaitProcess", `{"processId":"p","wait":"60s"}`, `"exitCode":3`)
	envelope := "\x00\x00\x00\x00\x11" + `{"processId":"p"}`
	_, stream := request(t, http.MethodPost, url, "/execwire.v1.ProcessService/WatchProcess", http.Header{"Content-Type": {"application/connect+json"}}, envelope)
	for _, piece := range []string{`"data":"` + base64.StdEncoding.EncodeToString([]byte("hello\n")) + `"`, `"exited"`, `"closed"`, "\x02\x00\x00\x00\x02{}"} {
		if !strings.Contains(stream, piece) {
			t.Errorf("the stream lacks %q: %q", piece, stream)
		}
	}
	status, text := request(t, http.MethodPost, url, "/execwire.v1.ProcessService/GetProcess", http.Header{"Content-Type": {"application/json"}}, `{"processId":"q"}`)
	if status != http.StatusNotFound || !strings.Contains(text, `"PROCESS_NOT_FOUND"`) {
		t.Errorf("a process that does not exist: %d: %s", status, text)
	}
	path := filepath.Join(dir, "f")
	if status, text := request(t, http.MethodPut, url, "/v1/files"+path, nil, "content"); status/100 != 2 {
		t.Errorf("PUT: %d: %s", status, text)
	}
	if status, text := request(t, http.MethodGet, url, "/v1/files"+path, nil, ""); status != http.StatusOK || text != "content" {
		t.Errorf("GET: %d: %s", status, text)
	}
}

// /readyz reports whether the server answers. A gateway waits for the server at its
// start, and reconnects later.
func TestGateway_ServerUnavailable_IsNotReady(t *testing.T) {
	t.Parallel() // it waits
	upstream := "unix://" + publicDir(t) + "/s"
	got := runCommand(t, command(t, "gateway", "--listen", "ws://127.0.0.1:0", "--upstream", upstream))
	if got.code != codeFailed || got.out != "" || !strings.Contains(got.errOut, "cannot reach "+upstream) {
		t.Errorf("without a server: %+v", got)
	}
	core := startServer(t, upstream)
	url, _ := startGateway(t, nil, "--upstream", upstream)
	ready := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			response, err := http.Get("http" + strings.TrimPrefix(url, "ws") + "/readyz")
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("/readyz = %d, want %d", response.StatusCode, want)
			}
		}
	}
	ready(http.StatusOK)
	core.stop(t, syscall.SIGTERM)
	ready(http.StatusServiceUnavailable)
	if _, err := websocket(t, url, ""); err == nil {
		t.Error("the gateway accepted a client without a server")
	}
	startServer(t, upstream)
	ready(http.StatusOK)
	http.DefaultClient.CloseIdleConnections()
}

func TestGateway_UsageErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		arguments []string
		code      int
		wantText  string
	}{
		"no upstream":    {nil, codeUsage, "--upstream"},
		"bad upstream":   {[]string{"--upstream", "http://x"}, codeFailed, "tcp://HOST:PORT"},
		"no such token":  {[]string{"--upstream", "unix:///nowhere", "--token-file", "/nonexistent"}, codeFailed, "/nonexistent"},
		"ws auth of two": {[]string{"--upstream", "unix:///nowhere", "--ws-auth", "capability-token"}, codeWebsocketAuth, "--ws-token-file"},
		"unexpected":     {[]string{"x"}, codeUsage, `"x"`},
		"bad log format": {[]string{"--upstream", "unix:///nowhere", "--log-format", "xml"}, codeUsage, "text or json"},
		"bad log lines":  {[]string{"--upstream", "unix:///nowhere", "--log-lines", "-1"}, codeUsage, "0 for all"},
		"no such config": {[]string{"--upstream", "unix:///nowhere", "--config", "/nonexistent"}, codeFailed, "/nonexistent"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runCommand(t, command(t, append([]string{"gateway"}, tc.arguments...)...))
			if got.code != tc.code || !strings.Contains(got.errOut, tc.wantText) {
				t.Errorf("%+v, want code %d and %q", got, tc.code, tc.wantText)
			}
		})
	}
	core := startServer(t, "unix://"+publicDir(t)+"/s")
	got := runCommand(t, command(t, "gateway", "--upstream", core.urls[0], "--listen", "grpc://127.0.0.1:0"))
	if got.code != codeFailed || !strings.Contains(got.errOut, "clients of gRPC") {
		t.Errorf("a gRPC listener: %+v", got)
	}
}

// A gateway on stdio ends with its client.
func TestGateway_Stdio(t *testing.T) {
	core := startServer(t, "unix://"+publicDir(t)+"/s")
	c := command(t, "gateway", "--upstream", core.urls[0], "--listen", "stdio")
	c.Stdin = strings.NewReader(greeting + startRequest(2, "p", "exec sleep 1000"))
	got := runCommand(t, c)
	if got.code != 0 || !strings.Contains(got.out, `"id":2,"result"`) {
		t.Errorf("%+v", got)
	}
	if left := runCommand(t, command(t, "sessions", "--server", core.urls[0], "--json")); left.code != 0 || left.out != "" {
		t.Errorf("the server still has %+v", left)
	}
}

// childServer returns the child of a process, or itself without one: the server of a
// guardian.
func childServer(t *testing.T, pid int) int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		stat, _ := os.ReadFile(name) // missing for an ended process
		var child, parent int
		_, _ = fmt.Sscan(string(stat), &child)
		_, _ = fmt.Sscanf(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " %1s %d", new(string), &parent)
		if parent == pid {
			return child
		}
	}
	return pid
}

// chunkOf encodes text as in a notification.
func chunkOf(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
