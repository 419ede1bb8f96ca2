package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// commandTimings are what differs between two runs of the same command.
var commandTimings = regexp.MustCompile(`[\d.]+ms`)

// The command does over a websocket what it does over gRPC: the same output, the
// same codes, and what it says to people.
func TestCommandsOverAWebsocket(t *testing.T) {
	server := serve(t)
	for _, tt := range []struct {
		name  string
		args  []string
		input string
	}{
		{"run", []string{"-i", "--", "/bin/sh", "-c", "tr a-z A-Z; echo apart >&2; exit 6"}, "hello"},
		{"run", []string{"--", "/bin/sh", "-c", "kill -TERM $$"}, ""},
		{"run", []string{"--", "no-such-program"}, ""},
		{"run", []string{"--cwd", "/no/such", "--", "true"}, ""},
		{"run", []string{"--timeout", "100ms", "--", "sleep", "100"}, ""},
		{"run", []string{"--env", "NAME=value", "--env-inherit", "none", "--", "/usr/bin/env"}, ""},
		{"mkdir", []string{"-p", "DIR/a/b"}, ""},
		{"put", []string{"DIR/a/file"}, "content"},
		{"cat", []string{"DIR/a/file"}, ""},
		{"cat", []string{"DIR/none"}, ""},
		{"mv", []string{"DIR/a/file", "DIR/a/other"}, ""},
		{"ls", []string{"DIR/a"}, ""},
		{"ls", []string{"DIR/none"}, ""},
		{"find", []string{"DIR"}, ""},
		{"rm", []string{"DIR/a"}, ""},
		{"rm", []string{"-r", "DIR/a"}, ""},
	} {
		var got [2]result
		for i, d := range []door{unixDoor, websocketDoor} {
			dir := filepath.Join(os.TempDir(), "commands-"+string(d))
			args := []string{tt.name, "--server", server.urls[d]}
			for _, arg := range tt.args {
				args = append(args, strings.ReplaceAll(arg, "DIR", dir))
			}
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = os.RemoveAll(dir) }()
			got[i] = run(t, strings.NewReader(tt.input), args...)
			got[i].stdout, got[i].stderr = strings.ReplaceAll(got[i].stdout, dir, "DIR"), strings.ReplaceAll(got[i].stderr, dir, "DIR")
		}
		for i := range got {
			got[i].stderr = commandTimings.ReplaceAllString(got[i].stderr, "T")
		}
		if got[0] != got[1] {
			t.Errorf("%s %q over a websocket: %+v\nover gRPC: %+v", tt.name, tt.args, got[1], got[0])
		}
	}
	refused := run(t, nil, "run", "--server", server.urls[websocketDoor], "--detach", "--", "true")
	if refused.code != 2 || refused.stdout != "" || !strings.Contains(refused.stderr, "grpc://") {
		t.Errorf("run --detach over a websocket: %+v", refused)
	}
}
