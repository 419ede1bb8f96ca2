package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeHub answers requests for the list of a hub, and sends the header of the first one.
func fakeHub(t *testing.T, status int, body string) (url string, headers <-chan http.Header) {
	t.Helper()
	first := make(chan http.Header, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/base/v1/executors" {
			t.Errorf("the request is for %s", r.URL.Path)
		}
		select {
		case first <- r.Header.Clone():
		default:
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/base/", first
}

func TestExecutors_ListsHub(t *testing.T) {
	url, headers := fakeHub(t, http.StatusOK, `{"executors":[
		{"id":"a","name":"Build \u001b[2J","version":"1.2","labels":{"zone":"b","arch":"arm64"},"connected":true,"last_seen":"2026-11-22T05:00:00Z","epoch":3,"streams":2},
		{"id":"b","last_seen":"2020-01-01T00:00:00Z"}]}`)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("hub-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := runCommand(t, command(t, "executors", "--hub", url, "--token-file", token))
	lines := strings.Split(got.out, "\n")
	if got.code != 0 || len(lines) != 4 || lines[1] != "a\tconnected\t\"Build \\x1b[2J\"\t1.2\t2\tarch=arm64,zone=b" || !strings.HasPrefix(lines[2], "b\tseen ") {
		t.Errorf("got %+v", got)
	}
	if header := <-headers; header.Get("Authorization") != "Bearer hub-token" {
		t.Errorf("the credentials are %v", header)
	}
	c := command(t, "executors", "--json")
	c.Env = append(c.Env, hubVariable+"="+url)
	if got := runCommand(t, c); got.code != 0 || !strings.HasPrefix(got.out, `{"id":"a","name":"Build`) || !strings.Contains(got.out, `"labels":{"arch":"arm64","zone":"b"},"connected":true,"last_seen":"2026-11-22T05:00:00Z","epoch":3,"streams":2}`+"\n") {
		t.Errorf("got %+v", got)
	}
}

func TestExecutors_HubRejects_Fails(t *testing.T) {
	for status, wants := range map[int][]string{
		http.StatusUnauthorized: {"no such token", "--token-file"},
		http.StatusForbidden:    {"no such token", "table of principals"},
		http.StatusFound:        {"302", "no such token"},
	} {
		url, _ := fakeHub(t, status, `{"error":{"code":"x","message":"no such token"}}`)
		got := runCommand(t, command(t, "executors", "--hub", url))
		for _, want := range wants {
			if got.code != codeFailed || !strings.Contains(got.errOut, want) {
				t.Errorf("%d: %+v, want %q", status, got, want)
			}
		}
	}
	url, _ := fakeHub(t, http.StatusOK, "hello")
	if got := runCommand(t, command(t, "executors", "--hub", url)); got.code != codeFailed || !strings.Contains(got.errOut, "not the answer of a hub") {
		t.Errorf("got %+v", got)
	}
}

// A variable selects the executor unless a flag selects another server.
func TestExecutorVariables_SelectExecutor(t *testing.T) {
	for _, tt := range []struct {
		variables, arguments []string
		code                 int
		want                 string
	}{
		{[]string{"EXECWIRE_HUB=http://127.0.0.1:1", "EXECWIRE_EXECUTOR=a"}, nil, codeFailed, "relay+ws://127.0.0.1:1/executor/a?role=harness"},
		{[]string{"EXECWIRE_HUB=http://127.0.0.1:1", "EXECWIRE_EXECUTOR=a"}, []string{"--executor", "b"}, codeFailed, "/executor/b?"},
		{[]string{"EXECWIRE_HUB=http://127.0.0.1:1", "EXECWIRE_EXECUTOR=a"}, []string{"--server", "unix:///nowhere"}, codeFailed, "unix:///nowhere"},
		{[]string{"EXECWIRE_HUB=http://127.0.0.1:1", "EXECWIRE_SERVER=unix:///nowhere"}, nil, codeFailed, "unix:///nowhere"},
		{[]string{"EXECWIRE_HUB=http://127.0.0.1:1", "EXECWIRE_EXECUTOR=a", "EXECWIRE_SERVER=unix:///x"}, nil, codeUsage, "EXECWIRE_SERVER and EXECWIRE_EXECUTOR name two servers"},
		{[]string{"EXECWIRE_EXECUTOR=a"}, nil, codeUsage, "--hub, EXECWIRE_HUB or a context"},
	} {
		c := command(t, append([]string{"ps"}, tt.arguments...)...)
		c.Env = append(c.Env, tt.variables...)
		if got := runCommand(t, c); got.code != tt.code || !strings.Contains(got.errOut, tt.want) {
			t.Errorf("%q %q: %+v, want %d and %q", tt.variables, tt.arguments, got, tt.code, tt.want)
		}
	}
}

func TestPreview_InvalidCommandLine_NamesFix(t *testing.T) {
	const hub, executor = "--hub=http://127.0.0.1:1", "--executor=a"
	for _, tt := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"80", executor}, "name the hub with --hub, EXECWIRE_HUB or a context"},
		{[]string{"80", hub}, "name the executor with --executor, EXECWIRE_EXECUTOR or a context"},
		{[]string{hub, executor}, "name a PORT"},
		{[]string{"65536", hub, executor}, "PORT is \"65536\": it is a number from 1 to 65535"},
		{[]string{"0", hub, executor}, "PORT is \"0\""},
		{[]string{"80", "81", hub, executor}, "81"},
		{[]string{"80", hub, executor, "--expires", "-1s"}, "--expires is -1s: it must be positive"},
		{[]string{"80", hub, "--revoke", "x"}, "--revoke takes neither PORT nor --expires"},
		{[]string{"80", hub, "--list"}, "--list takes neither PORT nor --revoke nor --expires"},
	} {
		if got := runCommand(t, command(t, append([]string{"preview"}, tt.arguments...)...)); got.code != codeUsage || !strings.Contains(got.errOut, tt.want) {
			t.Errorf("%q: %+v, want %q", tt.arguments, got, tt.want)
		}
	}
	got := runCommand(t, command(t, "preview", "80", hub, executor))
	if got.code != codeFailed || !strings.Contains(got.errOut, "cannot reach http://127.0.0.1:1: connection refused\n  start a hub with: execwire-hub") {
		t.Errorf("without a hub: %+v", got)
	}
}
