package main

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// One server is reached by a flag, a variable, the context of a flag or variable, and the
// current one; and an error says which of them named a server that is not there.
func TestContext_SelectsTheServer(t *testing.T) {
	t.Parallel()
	s := startServer(t, "unix://"+t.TempDir()+"/s")
	home := t.TempDir()
	xdg := "XDG_CONFIG_HOME=" + home
	file := filepath.Join(home, "execwire", "contexts.toml")
	run := func(variables []string, arguments ...string) result {
		c := command(t, arguments...)
		c.Env = append(append(c.Env, xdg), variables...)
		return runCommand(t, c)
	}
	for _, arguments := range [][]string{
		{"context", "ls"}, // without a file
		{"context", "add", "here", "--server", s.urls[0]},
		{"context", "add", "gone", "--server", "unix:///gone", "--use"},
		{"context", "add", "farm", "--hub", "http://127.0.0.1:1", "--executor", "e"},
	} {
		if got := run(nil, arguments...); got.code != 0 || got.errOut != "" {
			t.Fatalf("%q: %+v", arguments, got)
		}
	}
	const here, gone, farm = "EXECWIRE_CONTEXT=here", "EXECWIRE_CONTEXT=gone", "EXECWIRE_CONTEXT=farm"
	for _, test := range []struct {
		name      string
		variables []string
		arguments []string
		code      int
		want      string // in stderr; empty for an empty one
	}{
		{"the current one", nil, []string{"ps"}, 125, "(context gone, " + file + ":9)"},
		{"of a variable", []string{here}, []string{"ps"}, 0, ""},
		{"of a flag", []string{gone}, []string{"ps", "--context", "here"}, 0, ""},
		{"a flag before variables", []string{"EXECWIRE_SERVER=unix:///x", gone}, []string{"ps", "--context", "here"}, 0, ""},
		{"--server before all", []string{"EXECWIRE_SERVER=unix:///x", gone}, []string{"ps", "--server", s.urls[0]}, 0, ""},
		{"a variable before the current one", []string{"EXECWIRE_SERVER=" + s.urls[0]}, []string{"ps"}, 0, ""},
		{"run uses it, too", []string{here}, []string{"run", "true"}, 0, ""},
		{"run --detach uses it, too", []string{here}, []string{"run", "--detach", "true"}, 0, ""},
		{"two variables", []string{"EXECWIRE_SERVER=" + s.urls[0], here}, []string{"ps"}, 2, "EXECWIRE_SERVER and EXECWIRE_CONTEXT name two servers"},
		{"two flags", nil, []string{"ps", "--server", s.urls[0], "--context", "here"}, 2, "--server and --context exclude each other"},
		{"source: flag", nil, []string{"ps", "--server", "unix:///x"}, 125, "no such file or directory (--server)"},
		{"source: variable", []string{"EXECWIRE_SERVER=unix:///x"}, []string{"ps"}, 125, "no such file or directory ($EXECWIRE_SERVER)"},
		{"source: context with a hub", []string{farm}, []string{"ps"}, 125, "(context farm, " + file + ":7)"},
		{"executor of the hub of a context", []string{farm}, []string{"ps", "--executor", "other"}, 125, "executor/other?"},
		{"executor of a context with a server", []string{here}, []string{"ps", "--executor", "other"}, 2, "--executor is for a hub"},
		{"variable against context", []string{farm, "EXECWIRE_EXECUTOR=other"}, []string{"ps"}, 2, "EXECWIRE_EXECUTOR and the context farm name two servers"},
		{"unknown", nil, []string{"ps", "--context", "hree"}, 2, "did you mean here?\n  list contexts with: execwire context ls"},
		{"no hub", []string{here}, []string{"executors"}, 2, "name the hub with --hub, EXECWIRE_HUB or a context"},
		{"exists", nil, []string{"context", "add", "here", "--server", "unix:///x"}, 2, "add --replace"},
		{"no URL", nil, []string{"context", "add", "new", "--server", "x"}, 2, "write it as tcp://HOST:PORT"},
		{"nothing", nil, []string{"context", "add", "new"}, 2, "with --server, or its hub with --hub"},
		{"use warns", []string{"EXECWIRE_SERVER=x"}, []string{"context", "use", "here"}, 0, "EXECWIRE_SERVER is set and overrides the current context"},
		{"then current", nil, []string{"ps"}, 0, ""},
		{"rm of another", nil, []string{"context", "rm", "gone", "nothing"}, 2, "there is no context"},
		{"rm of the current one", nil, []string{"context", "rm", "here", "gone"}, 0, ""},
		{"then none: run is here", nil, []string{"run", "true"}, 0, ""},
		{"and says so", nil, []string{"run", "--id", "a", "true"}, 0, "execwire: nothing names a server: the process runs on this machine and ends with this command\n"},
		{"unless that is meant", nil, []string{"run", "--server", "local:", "--id", "a", "true"}, 0, ""},
		{"detach needs one", nil, []string{"run", "--detach", "true"}, 2, "or a context\n  start one with: execwire serve"},
	} {
		got := run(test.variables, test.arguments...)
		if got.code != test.code || !strings.Contains(got.errOut, test.want) || (got.errOut == "") != (test.want == "") {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
	want := `{"name":"farm","current":false,"hub":"http://127.0.0.1:1","executor":"e"}` + "\n"
	if got := run(nil, "context", "ls", "--json"); got.out != want {
		t.Errorf("the list is %+v", got)
	}
	for _, line := range [][]string{{"ps", "--context", "f"}, {"context", "use", ""}} {
		if got := completion(t, []string{xdg}, line...); got != "farm\te of http://127.0.0.1:1\n:4\n" {
			t.Errorf("%q is completed with %q", line, got)
		}
	}
	// A file that is not used does not matter.
	if err := os.WriteFile(file, []byte("current = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run(nil, "ps"); got.code != 125 || !strings.Contains(got.errOut, file+":1:1: current does not belong here") {
		t.Errorf("with a bad file: %+v", got)
	}
	if got := run(nil, "ps", "--server", s.urls[0]); got.code != 0 || got.errOut != "" {
		t.Errorf("with a bad file that is not used: %+v", got)
	}
}

// The server of a context gets the token of the context, of a flag, or of variables if the
// context has none; another server does not get that of the context.
func TestContext_TokensStayWithTheirServer(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(home, name), []byte("token-"+name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		context, variables, flags []string
		elsewhere                 bool
		want                      string
	}{
		{[]string{"--token-file", "a"}, nil, nil, false, "Bearer token-a"},
		{[]string{"--token-file", "a"}, []string{"EXECWIRE_TOKEN=variable"}, nil, false, "Bearer token-a"},
		{[]string{"--token-file", "a"}, []string{"EXECWIRE_TOKEN_FILE=" + home + "/b"}, nil, false, "Bearer token-a"},
		{[]string{"--token-file", "a"}, []string{"EXECWIRE_TOKEN=variable"}, []string{"--token-file", home + "/b"}, false, "Bearer token-b"},
		{nil, []string{"EXECWIRE_TOKEN=variable"}, nil, false, "Bearer variable"},
		{[]string{"--token-file", "a"}, nil, nil, true, ""},
		{[]string{"--token-file", "a"}, []string{"EXECWIRE_TOKEN=variable"}, nil, true, "Bearer variable"},
	} {
		url, headers := fakeHub(t, http.StatusOK, `{"executors":[]}`)
		run := func(variables []string, arguments ...string) {
			c := command(t, arguments...)
			c.Dir, c.Env = home, slices.Concat(c.Env, []string{"XDG_CONFIG_HOME=" + home}, variables)
			if got := runCommand(t, c); got.code != 0 || got.errOut != "" {
				t.Errorf("%+v: %q: %+v", test, arguments, got)
			}
		}
		named, use := url, []string{"executors"}
		if test.elsewhere {
			named, use = "http://127.0.0.1:1", []string{"executors", "--hub", url}
		}
		run(nil, append([]string{"context", "add", "hub", "--replace", "--use", "--hub", named}, test.context...)...)
		run(test.variables, append(use, test.flags...)...)
		select {
		case header := <-headers:
			if got := header.Get("Authorization"); got != test.want {
				t.Errorf("%+v: the hub got %q", test, got)
			}
		default:
			t.Errorf("%+v: the hub got no request", test)
		}
	}
}
