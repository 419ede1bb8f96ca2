package integration

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

	"github.com/execwire/execwire/internal/testcert"
)

// otherUser is a user of this host that no server of the tests is run as.
const otherUser = 1001

// publicExecwire returns a copy of the command that every user can run.
func publicExecwire(t *testing.T) string {
	t.Helper()
	path := filepath.Join(publicDir(t), "execwire")
	copyFile(t, execwire, path)
	return path
}

// as is the command binary run by a user.
func as(uid uint32, binary string, args ...string) *command {
	c := prepare(exec.Command(binary, args...))
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return c
}

// expectRefused expects a result to name the user and the setting.
func expectRefused(t *testing.T, what string, uid uint32, got result) {
	t.Helper()
	for _, text := range []string{fmt.Sprintf("uid %d", uid), "loopback_users"} {
		if got.code == 0 || got.stdout != "" || !strings.Contains(got.stderr, text) {
			t.Errorf("%s: %+v, want a failure and %q", what, got, text)
		}
	}
}

func TestLoopback_ProcessesOfOtherUsersAreRefused(t *testing.T) {
	binary := publicExecwire(t)
	server := serve(t)
	hub := newHub(t, nil)
	gateway := newCommand("gateway", "--listen", "ws://127.0.0.1:0", "--upstream", server.urls[unixDoor])
	gateway.listen(t, 1)
	forward := newCommand("forward", "--listen", "grpc://127.0.0.1:0", "--server", server.urls[unixDoor])
	forward.listen(t, 1)
	for what, args := range map[string][]string{
		"gRPC":      server.through(tcpDoor, "--", "id", "-u"),
		"websocket": server.through(websocketDoor, "--", "id", "-u"),
		"gateway":   gateway.through(websocketDoor, "--", "id", "-u"),
		"forward":   forward.through(tcpDoor, "--", "id", "-u"),
		"files":     {"ls", "--server", server.urls[tcpDoor], "/"},
		"hub":       {"executors", "--hub", hub.urls[hubDoor]},
	} {
		expectRefused(t, what, otherUser, as(otherUser, binary, args...).complete(t, nil))
		if got := run(t, nil, args...); got.code != 0 {
			t.Errorf("%s by the server's own user: %+v", what, got)
		}
	}
	for what, c := range map[string]*command{"server": server, "hub": hub, "gateway": gateway, "forward": forward} {
		if !strings.Contains(c.errors.String(), "uid 1001") {
			t.Errorf("the log of the %s does not name the user: %s", what, c.errors.String())
		}
	}
}

// What monitors ask is answered: it says nothing but that a server is there.
func TestLoopback_HealthIsForEveryUser(t *testing.T) {
	server := serve(t)
	url := "http" + strings.TrimPrefix(server.urls[websocketDoor], "ws") + "/readyz"
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
	binary := publicExecwire(t)
	server := as(serverUser, binary, "serve", "--listen", "grpc://127.0.0.1:0", "--listen", "ws://127.0.0.1:0")
	server.listen(t, 2)
	for _, d := range []door{tcpDoor, websocketDoor} {
		args := server.through(d, "--", "id", "-u")
		for _, uid := range []uint32{serverUser, uint32(os.Getuid())} {
			if got := as(uid, binary, args...).complete(t, nil); got != (result{stdout: fmt.Sprintln(serverUser)}) {
				t.Errorf("%s by uid %d: %+v", d, uid, got)
			}
		}
		expectRefused(t, string(d), third, as(third, binary, args...).complete(t, nil))
	}
}

func TestLoopback_UsersOfTheSettingAreAccepted(t *testing.T) {
	binary := publicExecwire(t)
	listed := serve(t, "EXECWIRE_LOOPBACK_USERS=same,1001")
	for _, d := range []door{tcpDoor, websocketDoor} {
		args := listed.through(d, "--", "echo", "ran")
		if got := as(otherUser, binary, args...).complete(t, nil); got != (result{stdout: "ran\n"}) {
			t.Errorf("%s by a listed user: %+v", d, got)
		}
		expectRefused(t, string(d), otherUser+1, as(otherUser+1, binary, args...).complete(t, nil))
	}
	open := serve(t, "EXECWIRE_LOOPBACK_USERS=any")
	for _, d := range []door{tcpDoor, websocketDoor} {
		if got := as(otherUser+1, binary, open.through(d, "--", "echo", "ran")...).complete(t, nil); got != (result{stdout: "ran\n"}) {
			t.Errorf("%s by any user: %+v", d, got)
		}
	}
	if strings.Contains(listed.errors.String(), "every user") || !strings.Contains(open.errors.String(), "loopback_users is any: every user of this host is accepted") {
		t.Errorf("the logs are\n%s\nand with any\n%s", listed.errors.String(), open.errors.String())
	}
	for _, wrong := range []string{"no-such-user-here", "any,1001"} {
		c := newCommand("serve")
		c.Env = append(c.Env, "EXECWIRE_LOOPBACK_USERS="+wrong)
		if got := c.complete(t, nil); got.code == 0 || !strings.Contains(got.stderr, "loopback_users has ") {
			t.Errorf("loopback_users = %s: %+v", wrong, got)
		}
	}
}

// A credential decides as it does without the setting.
func TestLoopback_TokenOfAnotherUserIsAccepted(t *testing.T) {
	binary := publicExecwire(t)
	dir := publicDir(t)
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("token-", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	server := serve(t, "EXECWIRE_WS_AUTH=capability-token", "EXECWIRE_WS_TOKEN_FILE="+token)
	theirs := filepath.Join(dir, "theirs")
	copyFile(t, token, theirs)
	if err := os.Chown(theirs, otherUser, otherUser); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(theirs, 0o600); err != nil {
		t.Fatal(err)
	}
	args := server.through(websocketDoor, "--token-file", theirs, "--", "echo", "ran")
	if got := as(otherUser, binary, args...).complete(t, nil); got != (result{stdout: "ran\n"}) {
		t.Errorf("with a token: %+v", got)
	}
	expectRefused(t, "gRPC", otherUser, as(otherUser, binary, server.through(tcpDoor, "--", "true")...).complete(t, nil))
}

// Refused peers do not use up connections_per_listener.
func TestLoopback_RefusedConnectionsTakeNoPlace(t *testing.T) {
	server := serve(t, "EXECWIRE_CONNECTIONS_PER_LISTENER=4")
	for _, d := range []door{tcpDoor, websocketDoor} {
		var opened sync.WaitGroup
		for range 16 {
			opened.Go(func() {
				conn, err := dialAs(otherUser)(t.Context(), "tcp", server.address(d))
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { _ = conn.Close() })
			})
		}
		opened.Wait()
		for range 3 {
			if got := run(t, nil, server.through(d, "--", "echo", "ran")...); got != (result{stdout: "ran\n"}) {
				t.Errorf("%s beside refused connections: %+v", d, got)
			}
		}
	}
}

// Encryption is no credential either.
func TestLoopback_OtherUsersAreRefusedThroughTLS(t *testing.T) {
	binary := publicExecwire(t)
	dir := publicDir(t)
	authority := testcert.NewAuthority(t)
	certificate, key := authority.Issue("server").Write(t, dir, "server")
	ca := testcert.WriteFile(t, filepath.Join(dir, "ca.pem"), authority.PEM)
	if err := os.Chmod(ca, 0o644); err != nil {
		t.Fatal(err)
	}
	server := newCommand("serve", "--listen", "grpcs://127.0.0.1:0", "--listen", "wss://127.0.0.1:0")
	server.Env = append(server.Env, "EXECWIRE_TLS_CERTIFICATE_FILE="+certificate, "EXECWIRE_TLS_KEY_FILE="+key)
	server.listen(t, 2)
	for _, url := range server.urls {
		args := []string{"run", "--server", url, "--tls-ca", ca, "--", "echo", "ran"}
		expectRefused(t, url, otherUser, as(otherUser, binary, args...).complete(t, nil))
		if got := run(t, nil, args...); got != (result{stdout: "ran\n"}) {
			t.Errorf("%s by the server's own user: %+v", url, got)
		}
	}
}

// A user without a number in the user namespace of the server is nobody there, also
// if the setting names the number that stands for such users.
func TestLoopback_UsersOutsideTheUserNamespaceAreRefused(t *testing.T) {
	binary := publicExecwire(t)
	server := newCommand("serve", "--listen", "grpc://127.0.0.1:0")
	server.Env = append(server.Env, "EXECWIRE_LOOPBACK_USERS=65534")
	one := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	server.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: one, GidMappings: one}
	server.listen(t, 1)
	for _, uid := range []uint32{otherUser, nobody} {
		got := as(uid, binary, server.through(tcpDoor, "--", "true")...).complete(t, nil)
		if got.code != 125 || !strings.Contains(got.stderr, "user namespace") || !strings.Contains(got.stderr, "loopback_users") {
			t.Errorf("by uid %d: %+v", uid, got)
		}
	}
	if got := run(t, nil, server.through(tcpDoor, "--", "echo", "ran")...); got != (result{stdout: "ran\n"}) {
		t.Errorf("by the server's own user: %+v", got)
	}
}
