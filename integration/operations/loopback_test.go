package operations

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testcert"
	"github.com/execwire/execwire/internal/testrace"
)

// otherUser is a user of this host that runs no server of the tests.
const otherUser = 1001

// publicExecwire returns a copy of the command that every user can run.
func publicExecwire(t *testing.T) string {
	t.Helper()
	path := filepath.Join(harness.PublicDir(t), "execwire")
	harness.CopyFile(t, harness.Execwire, path)
	return path
}

// as returns the command run by a user.
func as(uid uint32, binary string, args ...string) *harness.Command {
	c := harness.Prepare(exec.Command(binary, args...))
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return c
}

// expectRefused expects a result to name the user and the setting.
func expectRefused(t *testing.T, what string, uid uint32, got harness.Result) {
	t.Helper()
	for _, text := range []string{fmt.Sprintf("uid %d", uid), "loopback_users"} {
		if got.Code == 0 || got.Stdout != "" || !strings.Contains(got.Stderr, text) {
			t.Errorf("%s: %+v, want a failure and %q", what, got, text)
		}
	}
}

func TestLoopback_ProcessesOfOtherUsersAreRefused(t *testing.T) {
	testrace.WithoutRace(t)
	binary := publicExecwire(t)
	server := harness.Serve(t)
	hub := harness.NewHub(t, nil)
	gateway := harness.NewCommand("gateway", "--listen", "ws://127.0.0.1:0", "--upstream", server.URLs[harness.UnixTransport])
	gateway.Listen(t, 1)
	forward := harness.NewCommand("forward", "--listen", "grpc://127.0.0.1:0", "--server", server.URLs[harness.UnixTransport])
	forward.Listen(t, 1)
	for what, args := range map[string][]string{
		"gRPC":      server.Through(harness.TCPTransport, "--", "id", "-u"),
		"websocket": server.Through(harness.WebsocketTransport, "--", "id", "-u"),
		"gateway":   gateway.Through(harness.WebsocketTransport, "--", "id", "-u"),
		"forward":   forward.Through(harness.TCPTransport, "--", "id", "-u"),
		"files":     {"ls", "--server", server.URLs[harness.TCPTransport], "/"},
		"hub":       {"executors", "--hub", hub.URLs[harness.HubTransport]},
	} {
		expectRefused(t, what, otherUser, as(otherUser, binary, args...).Complete(t, nil))
		if got := harness.Run(t, nil, args...); got.Code != 0 {
			t.Errorf("%s by the server's own user: %+v", what, got)
		}
	}
	for what, c := range map[string]*harness.Command{"server": server, "hub": hub, "gateway": gateway, "forward": forward} {
		if !strings.Contains(c.Errors.String(), "uid 1001") {
			t.Errorf("the log of the %s does not name the user: %s", what, c.Errors.String())
		}
	}
}

// Requests of monitors are permitted: the responses only show that a server is there.
func TestLoopback_HealthIsForEveryUser(t *testing.T) {
	server := harness.Serve(t)
	url := "http" + strings.TrimPrefix(server.URLs[harness.WebsocketTransport], "ws") + "/readyz"
	answered := asUser(t, otherUser, func(client *http.Client) (int, error) {
		response, err := client.Get(url)
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, response.Body)
		return response.StatusCode, err
	})
	if answered != http.StatusOK {
		t.Errorf("/readyz answers %d", answered)
	}
}

// asUser calls f with a client whose sockets are another user's.
func asUser(t *testing.T, uid int, f func(*http.Client) (int, error)) int {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: dialAs(uid)}
	defer transport.CloseIdleConnections()
	code, err := f(&http.Client{Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return code
}

func TestLoopback_ServerOfAnUnprivilegedUserAcceptsThatUserAndRoot(t *testing.T) {
	const serverUser, third = otherUser, otherUser + 1
	testrace.WithoutRace(t)
	binary := publicExecwire(t)
	server := as(serverUser, binary, "serve", "--listen", "grpc://127.0.0.1:0", "--listen", "ws://127.0.0.1:0")
	server.Listen(t, 2)
	for _, d := range []harness.Transport{harness.TCPTransport, harness.WebsocketTransport} {
		args := server.Through(d, "--", "id", "-u")
		for _, uid := range []uint32{serverUser, uint32(os.Getuid())} {
			if got := as(uid, binary, args...).Complete(t, nil); got != (harness.Result{Stdout: fmt.Sprintln(serverUser)}) {
				t.Errorf("%s by uid %d: %+v", d, uid, got)
			}
		}
		expectRefused(t, string(d), third, as(third, binary, args...).Complete(t, nil))
	}
}

func TestLoopback_UsersOfTheSettingAreAccepted(t *testing.T) {
	testrace.WithoutRace(t)
	binary := publicExecwire(t)
	listed := harness.Serve(t, "EXECWIRE_LOOPBACK_USERS=same,1001")
	for _, d := range []harness.Transport{harness.TCPTransport, harness.WebsocketTransport} {
		args := listed.Through(d, "--", "echo", "ran")
		if got := as(otherUser, binary, args...).Complete(t, nil); got != (harness.Result{Stdout: "ran\n"}) {
			t.Errorf("%s by a listed user: %+v", d, got)
		}
		expectRefused(t, string(d), otherUser+1, as(otherUser+1, binary, args...).Complete(t, nil))
	}
	open := harness.Serve(t, "EXECWIRE_LOOPBACK_USERS=any")
	for _, d := range []harness.Transport{harness.TCPTransport, harness.WebsocketTransport} {
		if got := as(otherUser+1, binary, open.Through(d, "--", "echo", "ran")...).Complete(t, nil); got != (harness.Result{Stdout: "ran\n"}) {
			t.Errorf("%s by any user: %+v", d, got)
		}
	}
	if strings.Contains(listed.Errors.String(), "every user") || !strings.Contains(open.Errors.String(), "loopback_users is any: every user of this host is accepted") {
		t.Errorf("the logs are\n%s\nand with any\n%s", listed.Errors.String(), open.Errors.String())
	}
	for _, wrong := range []string{"no-such-user-here", "any,1001"} {
		c := harness.NewCommand("serve")
		c.Env = append(c.Env, "EXECWIRE_LOOPBACK_USERS="+wrong)
		if got := c.Complete(t, nil); got.Code == 0 || !strings.Contains(got.Stderr, "loopback_users has ") {
			t.Errorf("loopback_users = %s: %+v", wrong, got)
		}
	}
}

// A credential has the same effect as without the setting.
func TestLoopback_TokenOfAnotherUserIsAccepted(t *testing.T) {
	testrace.WithoutRace(t)
	binary := publicExecwire(t)
	dir := harness.PublicDir(t)
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("token-", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	server := harness.Serve(t, "EXECWIRE_WS_AUTH=capability-token", "EXECWIRE_WS_TOKEN_FILE="+token)
	theirs := filepath.Join(dir, "theirs")
	harness.CopyFile(t, token, theirs)
	if err := os.Chown(theirs, otherUser, otherUser); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(theirs, 0o600); err != nil {
		t.Fatal(err)
	}
	args := server.Through(harness.WebsocketTransport, "--token-file", theirs, "--", "echo", "ran")
	if got := as(otherUser, binary, args...).Complete(t, nil); got != (harness.Result{Stdout: "ran\n"}) {
		t.Errorf("with a token: %+v", got)
	}
	expectRefused(t, "gRPC", otherUser, as(otherUser, binary, server.Through(harness.TCPTransport, "--", "true")...).Complete(t, nil))
}

// Refused peers do not use up connections_per_listener.
func TestLoopback_RefusedConnectionsTakeNoPlace(t *testing.T) {
	server := harness.Serve(t, "EXECWIRE_CONNECTIONS_PER_LISTENER=4")
	for _, d := range []harness.Transport{harness.TCPTransport, harness.WebsocketTransport} {
		var opened sync.WaitGroup
		for range 16 {
			opened.Go(func() {
				conn, err := dialAs(otherUser)(t.Context(), "tcp", server.Address(d))
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { _ = conn.Close() })
			})
		}
		opened.Wait()
		for range 3 {
			if got := harness.Run(t, nil, server.Through(d, "--", "echo", "ran")...); got != (harness.Result{Stdout: "ran\n"}) {
				t.Errorf("%s beside refused connections: %+v", d, got)
			}
		}
	}
}

// TLS without a certificate is no credential either.
func TestLoopback_OtherUsersAreRefusedThroughTLS(t *testing.T) {
	testrace.WithoutRace(t)
	binary := publicExecwire(t)
	dir := harness.PublicDir(t)
	authority := testcert.NewAuthority(t)
	certificate, key := authority.Issue("server").Write(t, dir, "server")
	ca := testcert.WriteFile(t, filepath.Join(dir, "ca.pem"), authority.PEM)
	if err := os.Chmod(ca, 0o644); err != nil {
		t.Fatal(err)
	}
	server := harness.NewCommand("serve", "--listen", "grpcs://127.0.0.1:0", "--listen", "wss://127.0.0.1:0")
	server.Env = append(server.Env, "EXECWIRE_TLS_CERT="+certificate, "EXECWIRE_TLS_KEY="+key)
	server.Listen(t, 2)
	for _, url := range server.URLs {
		args := []string{"run", "--server", url, "--tls-ca", ca, "--", "echo", "ran"}
		expectRefused(t, url, otherUser, as(otherUser, binary, args...).Complete(t, nil))
		if got := harness.Run(t, nil, args...); got != (harness.Result{Stdout: "ran\n"}) {
			t.Errorf("%s by the server's own user: %+v", url, got)
		}
	}
}

// A user without a mapping in the server's user namespace appears there as nobody, even if the
// setting names the number of nobody.
func TestLoopback_UsersOutsideTheUserNamespaceAreRefused(t *testing.T) {
	testrace.WithoutRace(t)
	binary := publicExecwire(t)
	server := harness.NewCommand("serve", "--listen", "grpc://127.0.0.1:0")
	server.Env = append(server.Env, "EXECWIRE_LOOPBACK_USERS=65534")
	one := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	server.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: one, GidMappings: one}
	server.Listen(t, 1)
	for _, uid := range []uint32{otherUser, harness.NobodyUID} {
		got := as(uid, binary, server.Through(harness.TCPTransport, "--", "true")...).Complete(t, nil)
		if got.Code != 125 || !strings.Contains(got.Stderr, "user namespace") || !strings.Contains(got.Stderr, "loopback_users") {
			t.Errorf("by uid %d: %+v", uid, got)
		}
	}
	if got := harness.Run(t, nil, server.Through(harness.TCPTransport, "--", "echo", "ran")...); got != (harness.Result{Stdout: "ran\n"}) {
		t.Errorf("by the server's own user: %+v", got)
	}
}
