package cli

import (
	"github.com/execwire/execwire/integration/harness"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Over a websocket commands have the same output and exit codes as over gRPC. Error texts are
// those of the reference. What the protocol cannot do fails with the URLs that can.
func TestCommands_OverAWebsocket(t *testing.T) {
	server, root := harness.Serve(t), harness.ShortDir(t)
	for _, tt := range []struct {
		name  string
		args  []string
		input string
	}{
		{"run", []string{"-i", "--", "/bin/sh", "-c", "tr a-z A-Z; echo apart >&2; exit 6"}, "hello"},
		{"run", []string{"--", "no-such-program"}, ""},
		{"run", []string{"--cwd", "/no/such", "--", "true"}, ""},
		{"run", []string{"--env", "NAME=value", "--env-inherit", "none", "--", "/usr/bin/env"}, ""},
		{"mkdir", []string{"-p", "DIR/a/b"}, ""},
		{"put", []string{"--in-place", "DIR/a/file"}, "content"},
		{"cat", []string{"DIR/a/file"}, ""},
		{"cat", []string{"DIR/none"}, ""},
		{"ls", []string{"DIR/a"}, ""},
		{"ls", []string{"DIR/none"}, ""},
		{"find", []string{"DIR"}, ""},
		{"rm", []string{"DIR/a"}, ""},
		{"rm", []string{"-r", "DIR/a"}, ""},
	} {
		var got [2]harness.Result
		for i, d := range []harness.Transport{harness.UnixTransport, harness.WebsocketTransport} {
			dir := filepath.Join(root, string(d))
			args := []string{tt.name, "--server", server.URLs[d]}
			for _, arg := range tt.args {
				args = append(args, strings.ReplaceAll(arg, "DIR", dir))
			}
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			got[i] = harness.Run(t, strings.NewReader(tt.input), args...)
			got[i].Stdout, got[i].Stderr = strings.ReplaceAll(got[i].Stdout, dir, "DIR"), strings.ReplaceAll(got[i].Stderr, dir, "DIR")
		}
		if got[0].Code != got[1].Code || got[0].Stdout != got[1].Stdout || (got[0].Stderr == "") != (got[1].Stderr == "") {
			t.Errorf("%s %q over a websocket: %+v\nover gRPC: %+v", tt.name, tt.args, got[1], got[0])
		}
	}
	dir := t.TempDir()
	for _, tt := range []struct {
		code int
		args []string
	}{
		{2, []string{"run", "--detach", "--", "true"}},
		{125, []string{"run", "--timeout", "100ms", "--", "true"}},
		{125, []string{"put", dir + "/file"}},
		{1, []string{"mv", dir, dir + "2"}},
		{125, []string{"watch", dir}},
	} {
		args := append([]string{tt.args[0], "--server", server.URLs[harness.WebsocketTransport]}, tt.args[1:]...)
		refused := harness.Run(t, nil, args...)
		if refused.Code != tt.code || refused.Stdout != "" || !strings.Contains(refused.Stderr, "tcp://") {
			t.Errorf("%q over a websocket: %+v", tt.args, refused)
		}
	}
}
