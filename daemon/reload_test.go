package daemon_test

import (
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/testcert"
)

// lockForReload runs a daemon with the principal ci.
func lockForReload(t *testing.T) *locked {
	t.Helper()
	return lock(t, many, func(l *locked) string { return l.principal("ci", `"all", "admin"`) })
}

// reload calls Reload as ci.
func (l *locked) reload(conn grpc.ClientConnInterface) (*execwirev1.ReloadResponse, error) {
	return execwirev1.NewAdminServiceClient(conn).Reload(l.as("ci"), &execwirev1.ReloadRequest{})
}

// maxWait returns the max_wait that clients are told.
func (l *locked) maxWait(conn grpc.ClientConnInterface) time.Duration {
	l.t.Helper()
	got, err := execwirev1.NewEnvironmentServiceClient(conn).GetEnvironment(l.as("ci"), &execwirev1.GetEnvironmentRequest{})
	if err != nil {
		l.t.Fatal(err)
	}
	return got.GetLimits().GetMaxWait().AsDuration()
}

func TestReload_AppliesWhatCanChange_AndNamesTheRest(t *testing.T) {
	l := lockForReload(t)
	conn := l.dial(onGRPC)
	start := func() error {
		_, err := execwirev1.NewProcessServiceClient(conn).StartProcess(l.as("ci"), &execwirev1.StartProcessRequest{ProcessId: "p",
			Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{Direct: &execwirev1.DirectCommand{Argv: []string{"/bin/true"}, WorkingDirectory: "/"}}}})
		return err
	}
	listen := func() error {
		stream, err := execwirev1.NewPortServiceClient(conn).ListenPort(l.as("ci"), &execwirev1.ListenPortRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	host := func() int {
		u, err := url.Parse(l.urls[onGRPC])
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(l.ctx, http.MethodGet, "http://"+u.Host+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = "build.example.org"
		request.Close = true
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	if got := host(); got != http.StatusMisdirectedRequest {
		t.Errorf("before: status %d", got)
	}

	l.wanted.MaxWait = config.Duration(time.Minute)
	l.wanted.Connections = 1
	l.wanted.Processes = 1
	l.wanted.DirectExec = "off"
	l.wanted.PortsListen = "off"
	l.wanted.Hosts = []string{"build.example.org"}
	l.wanted.StdinQueue = 2 << 20
	l.wanted.WebsocketTokenHash = strings.Repeat("a", 64)
	got, err := l.reload(conn)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for i, list := range [][]*execwirev1.SettingChange{got.GetApplied(), got.GetNeedsRestart()} {
		for _, c := range list {
			lines = append(lines, []string{"applied ", "restart "}[i]+c.GetSetting()+": "+c.GetOldValue()+" to "+c.GetNewValue())
		}
	}
	want := []string{
		"applied connections_per_listener: 1000 to 1", "applied processes_per_session: 1000 to 1", "applied allow_direct_exec: on to off", "applied ports_listen: loopback to off",
		"applied max_wait: 10m to 1m", "applied allowed_hosts:  to build.example.org",
		"restart stdin_queue_bytes: 1MiB to 2MiB", "restart ws_token_sha256:  to ",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("changes are\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	if got := l.maxWait(conn); got != time.Minute {
		t.Errorf("max_wait is %v", got)
	}
	holdStream(t, l.as("ci"), conn)
	another := l.dial(onGRPC)
	expectConnectionLimit(t, list(l.as("ci"), another), 1)
	_ = another.Close() // it must not connect again and displace the next
	l.expect(start(), codes.PermissionDenied, "COMMAND_FORM_DISABLED")
	l.expect(listen(), codes.PermissionDenied, "PORT_LISTEN_DENIED")
	if got := host(); got != http.StatusOK {
		t.Errorf("after: status %d", got)
	}
	for _, text := range []string{
		`msg="changed a setting" setting=max_wait old=10m new=1m`, `msg="a changed setting needs a restart" setting=stdin_queue_bytes old=1MiB new=2MiB`,
	} {
		if !strings.Contains(l.log.String(), text) {
			t.Errorf("the log does not have %s", text)
		}
	}

	// What needs a restart is named again; what was applied is not.
	if got, err = l.reload(conn); err != nil || len(got.GetApplied()) != 0 || len(got.GetNeedsRestart()) != 2 {
		t.Errorf("the second time: %v, %v", got, err)
	}
	l.wanted.DirectExec = "on"
	if _, err = l.reload(conn); err != nil {
		t.Fatal(err)
	}
	if err := start(); err != nil {
		t.Error(err)
	}
}

func TestReload_Invalid_ChangesNothing(t *testing.T) {
	l := lockForReload(t)
	conn := l.dial(onGRPC)
	table, certificate := l.wanted.Principals, l.wanted.TLSCertificate
	good := func(path string) []byte {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	goodTable, goodCertificate := good(table), good(certificate)
	l.wanted.MaxWait = config.Duration(time.Minute)
	wanted := l.wanted
	for _, tc := range []struct {
		name     string
		spoil    func()
		metadata map[string]string
	}{
		{"the configuration", func() {
			l.invalid = &config.Error{Source: "c.toml", Line: 3, Column: 7, Setting: "max_wait", Problem: "is odd"}
		}, map[string]string{"file": "c.toml", "line": "3", "column": "7", "setting": "max_wait"}},
		{"a contradiction of what stays", func() { l.wanted.RetainedOutput, l.wanted.RetainedTotal = 1<<30, 1<<20 },
			map[string]string{"setting": "retained_output_bytes_total"}},
		{"the ports", func() { l.wanted.PortsAllow = []string{"nothing at all"} }, map[string]string{"setting": "ports_allow"}},
		{"the table", func() { l.writeTable("[[principal]]\nname = 'ci'\nallow = [oops]\n") },
			map[string]string{"file": table, "line": "3", "column": "10", "setting": "principals_file"}},
		{"a permission", func() { l.writeTable("[[principal]]\nname = 'ci'\nallow = ['oops']\n") },
			map[string]string{"file": table, "setting": "principals_file"}},
		{"the certificate", func() { testcert.WriteFile(t, certificate, []byte("oops")) }, map[string]string{"file": certificate}},
	} {
		l.wanted, l.invalid = wanted, nil
		tc.spoil()
		_, err := l.reload(conn)
		l.expect(err, codes.FailedPrecondition, "CONFIGURATION_INVALID")
		if got := errorinfo.Of(err).GetMetadata(); !maps.Equal(got, tc.metadata) {
			t.Errorf("%s: %v has metadata %v, want %v", tc.name, err, got, tc.metadata)
		}
		if got := l.maxWait(conn); got != 10*time.Minute {
			t.Errorf("%s: max_wait is %v", tc.name, got)
		}
		if err := list(l.as("ci"), conn); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		testcert.WriteFile(t, table, goodTable)
		testcert.WriteFile(t, certificate, goodCertificate)
	}
	l.wanted, l.invalid = wanted, nil
	if _, err := l.reload(conn); err != nil || l.maxWait(conn) != time.Minute {
		t.Errorf("afterwards: %v, max_wait is %v", err, l.maxWait(conn))
	}
}

// Contents and paths of files take effect with the answer.
func TestReload_Files_AreReadAtOnce(t *testing.T) {
	l := lockForReload(t)
	before := l.dial(onTLS)
	if err := list(l.as("ci"), before); err != nil {
		t.Fatal(err)
	}
	l.ca = testcert.NewAuthority(t)
	l.wanted.TLSCertificate, l.wanted.TLSKey = l.ca.Issue("server").Write(t, l.dir, "next")
	l.writeTable(l.principal("ci", `"all", "admin"`) + l.principal("other", `"view"`))
	got, err := l.reload(before)
	if err != nil || len(got.GetApplied()) != 2 || len(got.GetNeedsRestart()) != 0 {
		t.Fatalf("%v, %v", got, err)
	}
	if err := list(l.as("other"), l.dial(onTLS)); err != nil {
		t.Errorf("a new principal on a new connection: %v", err)
	}
	if err := list(l.as("other"), before); err != nil {
		t.Errorf("on the connection of before: %v", err)
	}
	// The same path with another content.
	l.ca = testcert.NewAuthority(t)
	l.ca.Issue("server").Write(t, l.dir, "next")
	l.writeTable(l.principal("ci", `"all", "admin"`))
	if _, err := l.reload(before); err != nil {
		t.Fatal(err)
	}
	after := l.dial(onTLS)
	if err := list(l.as("ci"), after); err != nil {
		t.Errorf("on a new connection: %v", err)
	}
	l.expectUnknown(list(l.as("other"), after))
}
