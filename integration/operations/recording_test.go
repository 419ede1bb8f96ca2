package operations

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

// recordedServer is a server that records the terminals of its clients.
func recordedServer(t *testing.T, settings ...string) (s *harness.Command, recordings func() []string) {
	t.Helper()
	dir := t.TempDir()
	principals := filepath.Join(dir, "principals.toml")
	if err := os.WriteFile(principals, []byte("[[principal]]\nname = \"ci\"\nloopback = true\nallow = [\"all\"]\nrecord = \"terminals\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = harness.Serve(t, append([]string{"EXECWIRE_PRINCIPALS_FILE=" + principals, "EXECWIRE_RECORDING_DIRECTORY=" + filepath.Join(dir, "recordings")}, settings...)...)
	return s, func() (contents []string) {
		names, _ := filepath.Glob(filepath.Join(dir, "recordings", "*.cast"))
		for _, name := range names {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			contents = append(contents, string(content))
		}
		return contents
	}
}

// Every terminal of the principal is recorded, whatever API starts it, and nothing else.
func TestRecordings_EveryTerminalOfThePrincipal(t *testing.T) {
	s, recordings := recordedServer(t)
	s.ExpectCommand(t, harness.TCPTransport, harness.Result{Stdout: "pipe\n"}, "run", "--", "echo", "pipe")
	s.ExpectCommand(t, harness.TCPTransport, harness.Result{Stdout: "grpc\r\n"}, "run", "-t", "--", "echo", "grpc")
	s.ExpectCommand(t, harness.TCPTransport, harness.Result{Stdout: "detached\n"}, "run", "-t", "--detach", "--id", "detached", "--", "echo", "detached")
	rpc := harness.WebsocketClient(t, s.Address(harness.TCPTransport)).Initialize("")
	rpc.Start("rpc", []string{"/bin/echo", "rpc"}, harness.RPCParams{"tty": true})
	harness.Eventually(t, "all recordings have ended", func() bool {
		return strings.Count(strings.Join(recordings(), ""), "exit status 0") == 3
	})
	all := strings.Join(recordings(), "")
	for _, text := range []string{`"grpc\r\n"`, `"detached\r\n"`, `"rpc\r\n"`} {
		if strings.Count(all, text) != 1 {
			t.Errorf("the recordings do not have %s: %s", text, all)
		}
	}
	if strings.Contains(all, "pipe") {
		t.Errorf("a process without a terminal was recorded: %s", all)
	}
}

// A terminal that cannot be recorded is not started, or goes on without.
func TestRecordings_CannotBeWritten(t *testing.T) {
	s, _ := recordedServer(t, "EXECWIRE_RECORDING_DIRECTORY=")
	refused := harness.Run(t, nil, s.Remotely(harness.TCPTransport, "run", "-t", "--", "echo", "x")...)
	if refused.Code != 125 || refused.Stdout != "" || !strings.Contains(refused.Stderr, "recording_failure is refuse") {
		t.Errorf("a terminal that cannot be recorded: %+v", refused)
	}
	s.ExpectCommand(t, harness.TCPTransport, harness.Result{Stdout: "x\n"}, "run", "--", "echo", "x")
	s, _ = recordedServer(t, "EXECWIRE_RECORDING_DIRECTORY=", "EXECWIRE_RECORDING_FAILURE=drop")
	s.ExpectCommand(t, harness.TCPTransport, harness.Result{Stdout: "x\r\n"}, "run", "-t", "--", "echo", "x")
}
