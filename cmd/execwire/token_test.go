package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTokenVariable_FollowsFlagAndPrecedesFile(t *testing.T) {
	t.Parallel()
	s := newSecureServer(t, os.Getuid())
	for name, test := range map[string]struct {
		variables, flags []string
		want             string // an error; empty for success
	}{
		"alone":                   {[]string{"EXECWIRE_TOKEN=" + goodToken}, nil, ""},
		"with white space around": {[]string{"EXECWIRE_TOKEN= " + goodToken + "\n"}, nil, ""},
		"precedes that of a file": {[]string{"EXECWIRE_TOKEN=" + goodToken, "EXECWIRE_TOKEN_FILE=" + s.wrong}, nil, ""},
		"follows the flag":        {[]string{"EXECWIRE_TOKEN=" + wrongToken}, []string{"--token-file", s.good}, ""},
		"a wrong one":             {[]string{"EXECWIRE_TOKEN=" + wrongToken, "EXECWIRE_TOKEN_FILE=" + s.good}, nil, "the caller is not known here"},
		"the flag is wrong":       {[]string{"EXECWIRE_TOKEN=" + goodToken}, []string{"--token-file", s.wrong}, "the caller is not known here"},
		"empty is none":           {[]string{"EXECWIRE_TOKEN=", "EXECWIRE_TOKEN_FILE=" + s.good}, nil, ""},
		"more than one":           {[]string{"EXECWIRE_TOKEN=" + goodToken + " " + goodToken}, nil, "white space or other characters"},
		"in plain text":           {[]string{"EXECWIRE_TOKEN=" + goodToken}, []string{"--server", "tcp://192.0.2.1:1"}, "plain text"},
	} {
		c := s.commandAs(os.Getuid(), append([]string{"ps"}, test.flags...)...)
		c.Env = append(append(c.Env, "EXECWIRE_SERVER="+s.socket), test.variables...)
		got := runCommand(t, c)
		if (got.code == 0) != (test.want == "") || (got.errOut == "") != (got.code == 0) || !strings.Contains(got.errOut, test.want) || strings.Contains(got.errOut, goodToken[:10]) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// No process gets the token: not of a server inside the command, not of one that it starts,
// not that server itself, and not those of execwire serve.
func TestTokenVariable_IsNotPassedOn(t *testing.T) {
	t.Parallel()
	const variable = "EXECWIRE_TOKEN=" + goodToken
	const warning = "execwire: warning: EXECWIRE_TOKEN is not passed to processes"
	self := command(t).Path
	dump := filepath.Join(t.TempDir(), "environment")
	for name, test := range map[string]struct {
		flags []string
		warns bool
	}{
		"local server":          {nil, true},
		"local server, by name": {[]string{"--server", "local:"}, true},
		"without a guardian":    {[]string{"--server", "local:", "--env", "NO_GUARDIAN=1"}, true},
		"started server":        {[]string{"--server", "stdio:sh -c 'env >" + dump + "; exec " + self + " serve --listen stdio'"}, true},
	} {
		c := command(t, append(append([]string{"run"}, test.flags...), "--env-inherit", "all", "--env", "MARK=1", "--", "sh", "-c", "env; tr '\\0' '\\n' </proc/$PPID/environ 2>/dev/null; true")...)
		c.Env = append(c.Env, variable)
		if name == "without a guardian" {
			c.Env = append(c.Env, "EXECWIRE_GUARDIAN=off")
		}
		got := runCommand(t, c)
		if got.code != 0 || !strings.Contains(got.out, "MARK=1") || strings.Count(got.errOut, warning) != 1 {
			t.Errorf("%s: %+v", name, got)
		}
		// Without a guardian the command itself is the parent, which /proc shows: the warning is about that.
		environment, _, _ := strings.Cut(got.out, "\nMARK=1")
		seen := environment
		if name != "without a guardian" {
			seen = got.out
		}
		if strings.Contains(seen, goodToken[:10]) {
			t.Errorf("%s: a process has the token: %s", name, got.out)
		}
	}
	if environment, err := os.ReadFile(dump); err != nil || !strings.Contains(string(environment), "PATH=") || strings.Contains(string(environment), goodToken[:10]) {
		t.Errorf("the command of stdio: has the environment %q, %v", environment, err)
	}
	s := startServerWith(t, []string{variable}, "unix://"+t.TempDir()+"/s")
	got := runCommand(t, command(t, "run", "--server", s.urls[0], "--env-inherit", "all", "--", "sh", "-c", "env; tr '\\0' '\\n' </proc/$PPID/environ"))
	if got.code != 0 || !strings.Contains(got.out, "PATH=") || strings.Contains(got.out, goodToken[:10]) {
		t.Errorf("of execwire serve: %+v", got)
	}
}
