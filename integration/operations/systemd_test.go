package operations

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/integration/harness"
)

// service is a server that is started as systemd starts a service with two sockets.
type service struct {
	*harness.Command
	unix, tcp string // the addresses of the sockets
	notified  *net.UnixConn
}

// newService prepares a server; UNIX and TCP in flags are the addresses of its sockets.
// LISTEN_PID is set by a shell, which then becomes the server.
func newService(t *testing.T, settings []string, flags ...string) *service {
	t.Helper()
	dir := harness.ShortDir(t)
	s := &service{unix: filepath.Join(dir, "s")}
	notify := &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"}
	var err error
	if s.notified, err = net.ListenUnixgram("unixgram", notify); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.notified.Close() })
	local, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.unix, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	local.SetUnlinkOnClose(false)
	network, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s.tcp = network.Addr().String()
	for i := range flags {
		flags[i] = strings.NewReplacer("UNIX", s.unix, "TCP", s.tcp).Replace(flags[i])
	}
	arguments := slices.Concat([]string{"-c", `LISTEN_PID=$$ exec "$0" serve "$@"`, harness.Execwire}, flags)
	s.Command = harness.Prepare(exec.Command("sh", arguments...))
	s.Env = slices.Concat(s.Env, settings, []string{"LISTEN_FDS=2", "NOTIFY_SOCKET=" + notify.Name})
	for _, socket := range []interface {
		File() (*os.File, error)
		Close() error
	}{local, network} {
		file, err := socket.File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		_ = socket.Close()
		s.ExtraFiles = append(s.ExtraFiles, file)
	}
	return s
}

// state waits for the next notification.
func (s *service) state(t *testing.T) string {
	t.Helper()
	deadline, _ := harness.Context(t).Deadline()
	if err := s.notified.SetReadDeadline(deadline); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 256)
	n, err := s.notified.Read(text)
	if err != nil {
		t.Fatalf("no notification: %v\n%s", err, s.Errors.String())
	}
	return string(text[:n])
}

// TestSystemd_SocketActivation: clients of sockets that systemd has opened are served,
// systemd learns of the start and the stop, processes see none of its variables and
// sockets, and the file of the unix socket stays.
func TestSystemd_SocketActivation(t *testing.T) {
	harness.Waits(t)
	s := newService(t, []string{"EXECWIRE_GUARDIAN=systemd"}, "--listen", "unix://UNIX", "--listen", "tcp://TCP")
	urls := s.Listen(t, 2)
	if got := s.state(t); got != "READY=1" {
		t.Errorf("after the start it notifies %q", got)
	}
	if want := []string{"unix://" + s.unix, "tcp://" + s.tcp}; !slices.Equal(urls, want) {
		t.Errorf("it listens on %v, want %v", urls, want)
	}
	const look = `env | grep -E '^(NOTIFY_SOCKET|LISTEN_|EXECWIRE_GUARDIAN)'; ls /proc/self/fd | grep -c '^[3-9]$'`
	for _, transport := range harness.NetworkTransports {
		// ls itself has the directory open.
		got := harness.Run(t, nil, append(s.Through(transport, "--"), "sh", "-c", look)...)
		if want := (harness.Result{Stdout: "1\n"}); got != want {
			t.Errorf("by %s a process sees %+v", transport, got)
		}
	}
	s.Send(t, unix.SIGTERM)
	if got := s.state(t); got != "STOPPING=1" {
		t.Errorf("after SIGTERM it notifies %q", got)
	}
	if code := s.Await(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(s.unix); err != nil {
		t.Errorf("the file of the socket: %v", err)
	}
}

// TestSystemd_WrongUnit_FailsAtTheStart: a unit by which clients would wait forever, or
// processes outlive a killed server, is an error with a fix.
func TestSystemd_WrongUnit_FailsAtTheStart(t *testing.T) {
	harness.Waits(t)
	for name, test := range map[string]struct {
		settings, flags []string
		want            string
	}{
		"guardian":  {nil, []string{"--listen", "unix://UNIX"}, "set guardian to systemd"},
		"no notify": {[]string{"EXECWIRE_GUARDIAN=systemd"}, []string{"--listen", "off"}, "Type=notify"},
		"no listener": {[]string{"EXECWIRE_GUARDIAN=systemd"}, []string{"--listen", "unix://UNIX"},
			"no listener of the settings has its address; add the address to the setting listen"},
	} {
		s := newService(t, test.settings, test.flags...)
		if name == "no notify" {
			s.Env = append(s.Env, "NOTIFY_SOCKET=")
		}
		s.Launch(t)
		if code := s.Await(t); code != 125 || !strings.Contains(s.Errors.String(), test.want) {
			t.Errorf("%s: exit code %d, %q", name, code, s.Errors.String())
		}
	}
}
