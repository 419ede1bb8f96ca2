package operations

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/audit/audittest"
	"github.com/execwire/execwire/internal/testcert"
)

// The server decides as whom a principal may start processes, whatever way the call comes.
func TestRunAs_IsCheckedOnEveryWay(t *testing.T) {
	table := testcert.WriteFile(t, filepath.Join(harness.ShortDir(t), "principals.toml"), []byte(`
[[principal]]
name = "user"
unix_users = ["0"]
allow = ["all"]
run_as = ["*"]

[[principal]]
name = "local"
loopback = true
allow = ["all"]
run_as = ["nobody"]

[[principal]]
name = "relay"
allow = ["all"]
run_as = ["65534"]
`))
	hub := harness.NewHub(t, nil)
	fleet := &harness.Fleet{Hub: hub, Near: harness.NewProxy(t, "tcp", harness.AddressOf(hub.URLs[harness.HubTransport]))}
	auditFile := filepath.Join(harness.ShortDir(t), "audit.log")
	server := harness.ServeWith(t, []string{"--remote", hub.URLs[harness.HubTransport], "--executor-id", harness.ExecutorID},
		"EXECWIRE_PRINCIPALS_FILE="+table, "EXECWIRE_AUDIT_FILE="+auditFile)
	fleet.AwaitExecutor(t)
	ctx := harness.Context(t)
	for way, url := range map[string]string{
		"unix": server.URLs[harness.UnixTransport], "gRPC": server.URLs[harness.TCPTransport], "relay": fleet.Server(t),
	} {
		c, err := client.Dial(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		for user, allowed := range map[string]string{"": "0\n", "root": "0\n", "nobody": "65534\n", "65534:65534": "65534\n", "4321": "4321\n", "nobody:0": "65534\n"} {
			command := client.Command{Argv: []string{"id", "-u"}, User: user}
			output, err := c.Output(ctx, command)
			_, startErr := c.StartDetached(ctx, command.Request())
			if user, group, _ := strings.Cut(user, ":"); way != "unix" && (user == "4321" || group == "0") {
				if harness.ReasonOf(err) != "USER_NOT_ALLOWED" || harness.ReasonOf(startErr) != "USER_NOT_ALLOWED" {
					t.Errorf("%s as %q: %q, %v, %v", way, user, output, err, startErr)
				}
			} else if string(output) != allowed || err != nil || startErr != nil {
				t.Errorf("%s as %q: %q, %v, %v", way, user, output, err, startErr)
			}
		}
	}
	if answer := callConnect(ctx, t, server, "4321"); !strings.Contains(answer, "USER_NOT_ALLOWED") || !strings.Contains(answer, "in run_as of local") {
		t.Errorf("by HTTP: %s", answer)
	}
	if answer := callConnect(ctx, t, server, "nobody"); !strings.Contains(answer, `"user":"nobody"`) {
		t.Errorf("by HTTP as nobody: %s", answer)
	}
	// A client of JSON-RPC cannot name a user, and is not one itself.
	got := harness.Run(t, nil, server.Through(harness.WebsocketTransport, "-u", "nobody", "--", "id")...)
	if got.Code != 125 || got.Stdout != "" || !strings.Contains(got.Stderr, "does not support another user") {
		t.Errorf("by JSON-RPC: %+v", got)
	}
	// What the server started as another user is not the same user on loopback.
	got = harness.Run(t, nil, server.Through(harness.TCPTransport, append([]string{"-u", "nobody", "--", publicExecwire(t)}, server.Through(harness.TCPTransport, "--", "id")...)...)...)
	if expectRefused(t, "its process", harness.NobodyUID, got); got.Code != 125 {
		t.Errorf("its process: %+v", got)
	}
	got = harness.Run(t, nil, server.Through(harness.TCPTransport, "-u", "daemon", "--", "id")...)
	if want := `execwire: --user "daemon" is not in run_as of local, the principal of the caller: add it in the principals_file of the server, or leave it out`; got.Code != 125 || got.Stderr != want+"\n" {
		t.Errorf("a refused command: %+v", got)
	}
	text, err := os.ReadFile(auditFile)
	if err != nil {
		t.Fatal(err)
	}
	users := map[string]string{} // by the type of record and the rule
	for _, r := range audittest.Parse(t, text) {
		if r.Principal == "local" && r.Action == "process.start" && r.User != "" {
			users[string(r.Type)+" "+r.Rule] += r.User + " "
		}
	}
	if !strings.Contains(users["intent permission start"], "4321") || users["result USER_NOT_ALLOWED"] != "" ||
		!strings.Contains(users["result permission start"], "nobody") || strings.Contains(users["result permission start"], "4321") {
		t.Errorf("the audit log has %v", users)
	}
}

// callConnect starts a process as a user by HTTP, and returns the answer without spaces.
func callConnect(ctx context.Context, t *testing.T, server *harness.Command, user string) string {
	t.Helper()
	body := fmt.Sprintf(`{"user": %q, "command": {"direct": {"argv": ["/bin/true"], "workingDirectory": "/"}}}`, user)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"http://"+server.Address(harness.TCPTransport)+execwirev1.ProcessService_StartProcess_FullMethodName, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(answer), `": "`, `":"`)
}

// A server that is not root starts processes as its own user alone, and says what to do instead.
func TestRunAs_ServerWithoutPrivileges_SaysWhatToDo(t *testing.T) {
	server := harness.Prepare(as(harness.NobodyUID, publicExecwire(t), "serve", "--listen", "tcp://127.0.0.1:0").Cmd)
	server.Listen(t, 1)
	got := harness.Run(t, nil, server.Through(harness.TCPTransport, "-u", "nobody", "--", "sh", "-c", "id -u; echo $HOME")...)
	if got != (harness.Result{Stdout: "65534\n/nonexistent\n"}) {
		t.Errorf("as its own user: %+v", got)
	}
	got = harness.Run(t, nil, server.Through(harness.TCPTransport, "-u", "root", "--", "id")...)
	if got.Code != 125 || got.Stdout != "" || !strings.Contains(got.Stderr, "--user: the server, which runs as nobody, cannot start processes as root") ||
		!strings.Contains(got.Stderr, "sudo -u root") {
		t.Errorf("as root: %+v", got)
	}
	got = harness.Run(t, nil, server.Through(harness.TCPTransport, "-u", "4321:1", "--", "id")...)
	if got.Code != 125 || !strings.Contains(got.Stderr, "cannot start processes as 4321:1 (") || !strings.Contains(got.Stderr, "sudo -u '#4321' -g '#1'") {
		t.Errorf("as a number: %+v", got)
	}
}
