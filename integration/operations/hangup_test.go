package operations

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// SIGHUP ends no server and no process. A server, a gateway and a hub read their configuration
// again; a forward, which has none, says so.
func TestServers_SIGHUP_Reloads(t *testing.T) {
	harness.Waits(t)
	server := harness.Serve(t)
	gateway := harness.NewCommand("gateway", "--listen", "ws://127.0.0.1:0", "--upstream", server.URLs[harness.UnixTransport])
	gateway.Listen(t, 1)
	forward := harness.NewCommand("forward", "--listen", "tcp://127.0.0.1:0", "--server", server.URLs[harness.UnixTransport])
	forward.Listen(t, 1)
	hub := harness.NewHub(t, nil)
	before := start(server, t, harness.Shell("exec sleep 1000")).GetProcessId()
	const reloads, ignores = "reloaded the configuration", "handshake_timeout come from flags"
	for _, tc := range []struct {
		name string
		c    *harness.Command
		pid  int
		text string
	}{
		{"the server", server, server.ServerPID(t), reloads},
		{"its guardian", server, server.Process.Pid, reloads},
		{"the gateway", gateway, gateway.Process.Pid, reloads},
		{"the forward", forward, forward.Process.Pid, ignores},
		{"the hub", hub, hub.Process.Pid, reloads},
	} {
		logged := func() int { return strings.Count(tc.c.Errors.String(), tc.text) }
		was := logged()
		if err := unix.Kill(tc.pid, unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, tc.name+" has logged the signal", func() bool { return logged() > was })
	}
	for _, args := range [][]string{
		gateway.Through(harness.WebsocketTransport, "--", "echo", "served"), forward.Through(harness.TCPTransport, "--", "echo", "served"),
	} {
		if got := harness.Run(t, nil, args...); got != (harness.Result{Stdout: "served\n"}) {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if hub.ProcessState != nil {
		t.Error("the hub has ended")
	}
	described, err := harness.Remote(t, server, harness.UnixTransport).GetProcess(harness.Context(t), &execwirev1.GetProcessRequest{ProcessId: before})
	if err != nil || described.GetProcess().GetState() != execwirev1.ProcessState_PROCESS_STATE_RUNNING {
		t.Errorf("the process of before is %v, %v", described, err)
	}
}

// A gateway applies what has changed in its file, and a bad file changes nothing.
func TestGateway_SIGHUP_AppliesSettings(t *testing.T) {
	harness.Waits(t)
	server := harness.Serve(t)
	file := filepath.Join(t.TempDir(), "c.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	gateway := harness.NewCommand("gateway", "--listen", "ws://127.0.0.1:0", "--config", file, "--upstream", server.URLs[harness.UnixTransport])
	gateway.Listen(t, 1)
	status := func() int {
		t.Helper()
		request, err := http.NewRequestWithContext(harness.Context(t), http.MethodGet, "http://"+gateway.Address(harness.WebsocketTransport)+"/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = "build.example.org"
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	for _, step := range []struct {
		text, logged string
		want         int
	}{
		{"", "reloaded the configuration", http.StatusMisdirectedRequest},
		{"allowed_hosts = [\"build.example.org\"]\nhandshake_timeout = \"7s\"\n", "a changed setting needs a restart\" setting=handshake_timeout", http.StatusOK},
		{"allowed_hosts = []\nconnections_per_listener = x\n", file + ":2:28: is not TOML", http.StatusOK},
		{"", "setting=allowed_hosts old=build.example.org", http.StatusMisdirectedRequest},
	} {
		write(step.text)
		was := strings.Count(gateway.Errors.String(), step.logged)
		gateway.Send(t, unix.SIGHUP)
		harness.Eventually(t, "the gateway has read "+step.text, func() bool { return strings.Count(gateway.Errors.String(), step.logged) > was })
		if got := status(); got != step.want {
			t.Errorf("after %q a request is answered with %d, want %d", step.text, got, step.want)
		}
	}
}

// A server of stdio does, too: its client ends it by closing stdin.
func TestStdioServer_SIGHUP_Reloads(t *testing.T) {
	harness.Waits(t)
	c := harness.NewCommand("serve", "--listen", "stdio")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Launch(t)
	if _, err := fmt.Fprintln(in, `{"id":1,"method":"initialize","params":{"clientName":"me"}}`); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(c.ServerPID(t), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the signal is logged", func() bool { return strings.Contains(c.Errors.String(), "reloaded the configuration") })
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if code := c.Await(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// execwire reload prints what has changed, and the errors of a file with their places.
func TestReload_ByCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("max_wait = \"5m\"\n")
	server := harness.NewCommand("serve", "--listen", "tcp://127.0.0.1:0", "--config", file, "--processes-per-session", "5")
	server.Listen(t, 1)
	for _, step := range []struct {
		text string
		want harness.Result
	}{
		{"max_wait = \"5m\"\n", harness.Result{Stdout: "no setting has changed\n"}},
		{"max_wait = \"6m\"\nstdin_queue_bytes = \"2MiB\"\nprocesses_per_session = 7\n", harness.Result{
			Stdout: "max_wait: 5m -> 6m\nstdin_queue_bytes: 1MiB -> 2MiB (needs a restart)\n"}},
		{"max_wait = \"7m\"\n  max_grace = 1s\n", harness.Result{Code: 125,
			Stderr: "execwire: configuration " + file + ":2:16: is not TOML: expected a top-level item to end with a newline, comment, or EOF, but got 's' instead\n"}},
		{"max_wait = \"7m\"\nmax_graze = \"1s\"\n", harness.Result{Code: 125,
			Stderr: "execwire: configuration " + file + ":2:1: max_graze is not a setting: did you mean max_grace? execwire config example lists them\n"}},
		{"", harness.Result{Stdout: "max_wait: 6m -> 10m\n"}},
	} {
		write(step.text)
		server.ExpectCommand(t, harness.TCPTransport, step.want, "reload")
	}
	write("max_wait = \"8m\"\n")
	server.ExpectCommand(t, harness.TCPTransport, harness.Result{
		Stdout: `{"applied":[{"setting":"max_wait","old":"10m","new":"8m"}],"needs_restart":[]}` + "\n"}, "reload", "--json")
}

// Processes do not inherit the signals that nohup makes the server ignore.
func TestProcess_OfAServerUnderNohup_HeedsSIGHUP(t *testing.T) {
	c := harness.Prepare(exec.Command("/bin/sh", "-c", `trap "" HUP; exec "$0" "$@"`, harness.Execwire, "serve", "--listen", "tcp://127.0.0.1:0"))
	c.Listen(t, 1)
	got := harness.Run(t, nil, c.Through(harness.TCPTransport, "--", "sh", "-c", "kill -HUP $$; echo survived")...)
	if got != (harness.Result{Code: 128 + 1}) {
		t.Errorf("a process that hangs up itself ended with %+v", got)
	}
}
