package main

import (
	"strings"
	"testing"
)

// Commands for processes of other commands reject servers whose processes end with the
// command.
func TestCommands_EphemeralServer_IsRejected(t *testing.T) {
	core := startServer(t, "ws://127.0.0.1:0")
	for name, arguments := range map[string][]string{
		"run --detach": {"run", "--detach", "--id", "p", "--", "sleep", "1000"},
		"ps":           {"ps"},
		"logs":         {"logs", "p"},
		"attach":       {"attach", "p"},
		"wait":         {"wait", "p"},
		"kill":         {"kill", "p"},
		"sessions":     {"sessions"},
	} {
		for _, server := range []string{core.urls[0], "stdio:execwire serve --listen stdio", "local:"} {
			t.Run(name+" "+server, func(t *testing.T) {
				c := command(t, arguments...)
				c.Env = append(c.Env, "EXECWIRE_SERVER="+server)
				got := runCommand(t, c)
				if got.code != codeUsage || got.out != "" || !strings.Contains(got.errOut, "tcp://") && !strings.Contains(got.errOut, "goes on when this program ends") {
					t.Errorf("%+v", got)
				}
			})
		}
	}
}

// Errors of servers with another protocol, and of missing commands.
func TestCommands_WrongProtocol_Fail(t *testing.T) {
	core := startServer(t, "grpc://127.0.0.1:0", "ws://127.0.0.1:0")
	for server, wantText := range map[string]string{
		"ws" + strings.TrimPrefix(core.urls[0], "grpc"): "tcp://",
		"wss" + strings.TrimPrefix(core.urls[1], "ws"):  "ws://",
		"stdio:/nonexistent/server":                     "stdio:execwire serve --listen stdio",
	} {
		got := runCommand(t, command(t, "run", "--server", server, "true"))
		if got.code != codeFailed || !strings.Contains(got.errOut, "cannot reach "+server+": ") || !strings.Contains(strings.ReplaceAll(got.errOut, server, ""), wantText) {
			t.Errorf("%s: %+v", server, got)
		}
	}
}
