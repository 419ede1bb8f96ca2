package relay

import (
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testcert"
)

// machines are a hub, an executor and a client with separate networks, and a link from the hub
// to each of the others.
type machines struct {
	t         *testing.T
	hub       int            // PID of the holder of the hub's network
	others    map[string]int // and those of the others
	url       map[string]string
	authority string
	tokens    map[string]string
	executor  *harness.Command
}

// holdNetwork keeps an unconnected network alive, and returns the PID of its holder.
func holdNetwork(t *testing.T, command ...string) int {
	t.Helper()
	c := exec.Command(command[0], command[1:]...)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatalf("failed to make a network: %v", err)
	}
	return c.Process.Pid
}

// inNetwork returns a command line that runs in the network of a process.
func inNetwork(holder int, command ...string) []string {
	enter := []string{"nsenter", "-t", strconv.Itoa(holder), "-n"}
	if os.Geteuid() != 0 {
		enter = append(enter, "-U", "--preserve-credentials")
	}
	return append(enter, command...)
}

func newMachines(t *testing.T) *machines {
	t.Helper()
	const holds = "echo; exec sleep 1000"
	unshare := []string{"unshare", "-n"}
	if os.Geteuid() != 0 {
		unshare = append(unshare, "-U", "-r")
	}
	m := &machines{t: t, others: map[string]int{}, url: map[string]string{}, tokens: map[string]string{}}
	m.hub = holdNetwork(t, append(unshare, "sh", "-c", holds)...)
	for i, name := range []string{"executor", "client"} {
		m.others[name] = holdNetwork(t, inNetwork(m.hub, "unshare", "-n", "sh", "-c", holds)...)
		m.do(m.hub, "ip", "link", "add", name, "type", "veth", "peer", "name", "hub", "netns", strconv.Itoa(m.others[name]))
		for holder, device := range map[int]string{m.hub: name, m.others[name]: "hub"} {
			host := 2
			if holder == m.hub {
				host = 1
			}
			m.do(holder, "ip", "address", "add", fmt.Sprintf("10.231.%d.%d/24", i+1, host), "dev", device)
			m.do(holder, "ip", "link", "set", device, "up")
		}
		m.url[name] = fmt.Sprintf("https://10.231.%d.1:7430", i+1)
	}
	return m
}

func (m *machines) do(holder int, command ...string) {
	m.t.Helper()
	line := inNetwork(holder, command...)
	if said, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
		m.t.Fatalf("%v: %v\n%s", line, err, said)
	}
}

// connected connects the link to a machine, or removes it.
func (m *machines) connected(name string, is bool) {
	m.t.Helper()
	m.do(m.hub, "ip", "link", "set", name, map[bool]string{true: "up", false: "down"}[is])
}

// command prepares a command in the network of a machine.
func (m *machines) command(holder int, line ...string) *harness.Command {
	line = inNetwork(holder, line...)
	return harness.Prepare(exec.Command(line[0], line[1:]...))
}

// start starts hub and executor.
func (m *machines) start(settings ...string) {
	m.t.Helper()
	dir := harness.ShortDir(m.t)
	write := func(name, content string) string {
		return testcert.WriteFile(m.t, filepath.Join(dir, name), []byte(content))
	}
	authority := testcert.NewAuthority(m.t)
	m.authority = write("ca.pem", string(authority.PEM))
	certificate, key := authority.Issue("hub", func(c *x509.Certificate) {
		c.IPAddresses = []net.IP{net.IPv4(10, 231, 1, 1), net.IPv4(10, 231, 2, 1)}
	}).Write(m.t, dir, "hub")
	table := ""
	for name, may := range map[string]string{"executor": "act_as_executors", "client": "connect_to_executors"} {
		m.tokens[name] = write(name, strings.Repeat(name, 6))
		table += fmt.Sprintf("[[principal]]\nname=%q\ntoken_file=%q\nallow=['all']\n%s=['%s']\n", name, m.tokens[name], may, harness.ExecutorID)
	}
	binary, err := harness.HubCommand()
	if err != nil {
		m.t.Fatal(err)
	}
	hub := m.command(m.hub, binary, "--listen", m.url["executor"], "--listen", m.url["client"],
		"--tls-cert", certificate, "--tls-key", key, "--principals-file", write("principals.toml", table))
	hub.Env = append(hub.Env, settings...)
	hub.Listen(m.t, 2)
	m.executor = m.command(m.others["executor"], harness.Execwire, "serve", "--remote", m.url["executor"], "--executor-id", harness.ExecutorID,
		"--remote-token-file", m.tokens["executor"], "--remote-tls-ca", m.authority)
	m.executor.Env = append(m.executor.Env, settings...)
	m.executor.Launch(m.t)
	harness.Eventually(m.t, "the executor is connected", func() bool {
		return strings.Contains(m.executor.Errors.String(), "the executor is connected")
	})
}

// client prepares a command of the client.
func (m *machines) client(name string, args ...string) *harness.Command {
	return m.command(m.others["client"], append([]string{harness.Execwire, name, "--hub", m.url["client"], "--executor", harness.ExecutorID,
		"--token-file", m.tokens["client"], "--tls-ca", m.authority}, args...)...)
}

// quickly has settings with short timeouts, for tests that wait for them.
var quickly = []string{"EXECWIRE_KEEPALIVE_TIMEOUT=1s", "EXECWIRE_HUB_KEEPALIVE_INTERVAL=1s", "EXECWIRE_HUB_KEEPALIVE_TIMEOUT=1s"}

// A network failure shorter than the grace period only costs time.
func TestNetworkLoss_WithinGrace_LosesNothing(t *testing.T) {
	harness.Slow(t)
	harness.Waits(t)
	m := newMachines(t)
	m.start(quickly...)
	c := m.client("run", append([]string{"--"}, harness.Shell("i=0; while [ $i -lt 150 ]; do i=$((i+1)); echo $i; sleep 0.05; done; exit 3")...)...)
	var stdout harness.LockedBuffer
	c.Stdout = &stdout
	c.Launch(t)
	want := ""
	for i := range 150 {
		want += fmt.Sprintln(i + 1)
	}
	for i, name := range []string{"executor", "client"} {
		harness.Eventually(t, "it says more", func() bool { return strings.Count(stdout.String(), "\n") > 10+i*80 })
		m.connected(name, false)
		time.Sleep(3 * time.Second) // the duration of the failure
		m.connected(name, true)
	}
	if code := c.Await(t); code != 3 || stdout.String() != want {
		t.Errorf("it ended with %d after %d lines: %s", code, strings.Count(stdout.String(), "\n"), c.Errors.String())
	}
}

// A longer failure ends the processes, on whichever machine it occurs, and the client reports
// that once it is connected.
func TestNetworkLoss_BeyondGrace_IsReported(t *testing.T) {
	harness.Slow(t)
	for _, away := range []string{"client", "executor"} {
		t.Run(away, func(t *testing.T) {
			harness.Waits(t)
			m := newMachines(t)
			m.start(append(quickly, "EXECWIRE_HUB_STREAM_GRACE=1s", "EXECWIRE_RELAY_SILENCE_TIMEOUT=2s", "EXECWIRE_CLOSED_PROCESS_RETENTION=10m")...)
			file := filepath.Join(harness.ShortDir(t), "pid")
			c := m.client("run", append([]string{"--grace", "1s", "--"}, harness.Shell("echo $$ >"+file+"; while :; do echo on; sleep 0.05; done")...)...)
			var stdout harness.LockedBuffer
			c.Stdout = &stdout
			c.Launch(t)
			harness.Eventually(t, "it says something", func() bool { return strings.Count(stdout.String(), "\n") > 10 })
			pid := 0
			text, err := os.ReadFile(file)
			if _, scanErr := fmt.Sscan(string(text), &pid); err != nil || scanErr != nil {
				t.Fatalf("%q: %v, %v", text, err, scanErr)
			}
			m.connected(away, false)
			harness.Eventually(t, "the process is gone", func() bool { return !harness.ProcessAlive(int32(pid)) })
			m.connected(away, true)
			if code := c.Await(t); code != 128+9 || !strings.Contains(c.Errors.String(), "longer than the grace period") {
				t.Errorf("the client ended with %d and %q", code, c.Errors.String())
			}
		})
	}
}
