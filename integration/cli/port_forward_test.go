package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/proxy"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testport"
)

// forwardPorts starts port-forward and returns the local addresses that it prints.
func forwardPorts(t *testing.T, n int, arguments ...string) (c *harness.Command, addresses []string) {
	t.Helper()
	c = harness.NewCommand(append([]string{"port-forward"}, arguments...)...)
	line := startLines(t, c)
	for range n {
		line := strings.TrimSuffix(line(), "\n")
		local, ok := strings.CutPrefix(line, "Forwarding from ")
		local, _, to := strings.Cut(local, " -> ")
		if !ok || !to {
			t.Fatalf("port-forward prints %q", line)
		}
		addresses = append(addresses, local)
	}
	return c, addresses
}

// startLines starts a command and returns a function that reads the next line of its output.
func startLines(t *testing.T, c *harness.Command) func() string {
	t.Helper()
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Launch(t)
	lines := bufio.NewReader(stdout)
	return func() string {
		t.Helper()
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("%v: %s", err, c.Errors.String())
		}
		return line
	}
}

// portOfProcess waits until a process listens, and returns its port.
func portOfProcess(t *testing.T, connect []string, id string) string {
	t.Helper()
	port := ""
	harness.Eventually(t, "the process listens", func() bool {
		got := harness.Run(t, nil, append(append([]string{"ports"}, connect...), id)...)
		lines := strings.Split(strings.TrimSpace(got.Stdout), "\n")
		if got.Code != 0 || lines[0] != "PROCESS\tPID\tPROGRAM\tADDRESS\tPORT" {
			t.Fatalf("ports: %+v", got)
		}
		if len(lines) == 2 {
			port = lines[1][strings.LastIndexByte(lines[1], '\t')+1:]
		}
		return port != ""
	})
	return port
}

// webServerBehindHub starts a web server of Python with a file on an executor, and port-forward to it
// and to a port on which nothing listens.
func webServerBehindHub(t *testing.T, size int) (fleet *harness.Fleet, forward *harness.Command, addresses []string, sum []byte) {
	t.Helper()
	fleet = harness.NewFleet(t)
	dir := harness.ShortDir(t)
	sum = writeRandom(t, filepath.Join(dir, "large"), size)
	connect := []string{"--hub", fleet.URL(), "--executor", harness.ExecutorID}
	run := append(append([]string{"run", "--detach", "--id", "web", "--cwd", dir}, connect...), "--")
	got := harness.Run(t, nil, append(run, harness.Python, "-u", "-m", "http.server", "--bind", "127.0.0.1", "0")...)
	if got.Code != 0 {
		t.Fatalf("run: %+v", got)
	}
	forward, addresses = forwardPorts(t, 2, append(connect, ":"+portOfProcess(t, connect, "web"), "0:1")...)
	return fleet, forward, addresses, sum
}

func TestPortForward_ThroughHub_ServesWebServer(t *testing.T) {
	size := 64 << 20
	switch {
	case os.Getenv("EXECWIRE_SOAK") != "":
		size = 1 << 30
	case testing.Short():
		size = 8 << 20
	}
	_, forward, addresses, sum := webServerBehindHub(t, size)
	response, err := http.Get("http://" + addresses[0] + "/large")
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.New()
	n, err := io.Copy(digest, response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil || n != int64(size) || !bytes.Equal(digest.Sum(nil), sum) {
		t.Errorf("%d of %d bytes arrived, %v", n, size, err)
	}
	// A connection that is refused ends nothing else.
	expectReset(t, addresses[1])
	harness.Eventually(t, "the error is printed", func() bool {
		return strings.Contains(forward.Errors.String(), "execwire: 127.0.0.1:1 refuses connections: nothing listens there\n  list what listens with: execwire ports\n")
	})
	if code := forward.Stopped(t); code != 0 {
		t.Errorf("the exit code is %d: %s", code, forward.Errors.String())
	}
}

// The loss of the hub is noticed after 30 s, for which a hub may be away.
func TestPortForward_KilledHub_IsNoEnd(t *testing.T) {
	harness.Slow(t)
	harness.Waits(t)
	const size = 16 << 20
	fleet, _, addresses, _ := webServerBehindHub(t, size)
	response, err := http.Get("http://" + addresses[0] + "/large")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(response.Body, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	fleet.Hub.Kill()
	n, err := io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a cut transfer of %d bytes ends after %d with %v", size, n+1<<20, err)
	}
}

func writeRandom(t *testing.T, path string, size int) []byte {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.New()
	_, err = io.CopyN(io.MultiWriter(file, digest), rand.NewChaCha8([32]byte{1}), int64(size))
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	return digest.Sum(nil)
}

// expectReset checks that a connection is reset, perhaps before it was reported as established.
func expectReset(t *testing.T, address string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if errors.Is(err, syscall.ECONNRESET) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(harness.StepTimeout))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection that cannot be forwarded ends with %v", err)
	}
}

// maxPortConnections is the default of port_connections_per_principal.
const maxPortConnections = 1000

// Many connections at the same time, each with what it sends, in bounded memory; at the limit a
// further one is refused. The server is then replaced by another: what is open breaks, and new
// connections work.
func TestPortForward_ManyConnections(t *testing.T) {
	harness.Waits(t)
	connections := 200
	if os.Getenv("EXECWIRE_SOAK") != "" {
		connections = maxPortConnections - 2 // and two more below
	}
	socket := "unix://" + harness.ShortDir(t) + "/s"
	serve := func() *harness.Command {
		c := harness.NewCommand("serve", "--listen", socket)
		c.Listen(t, 1)
		return c
	}
	server := serve()
	listen := func() string {
		t.Helper()
		argv := append([]string{"run", "--detach", "--id", "echo", "-i", "--server", socket, "--"}, harness.Program("echo-server", "127.0.0.1:0")...)
		if got := harness.Run(t, nil, argv...); got.Code != 0 {
			t.Fatalf("run: %+v", got)
		}
		return portOfProcess(t, []string{"--server", socket}, "echo")
	}
	port := listen()
	forward, addresses := forwardPorts(t, 2, "--server", socket, ":"+port, "-D", "0")
	before := server.ResidentBytes(t, "VmHWM")
	var open []net.Conn
	var all sync.WaitGroup
	connect := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", addresses[0])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		open = append(open, conn)
		return conn
	}
	for i := range connections {
		conn := connect()
		all.Go(func() {
			if err := exchange(conn, bytes.Repeat([]byte{byte(i)}, 100_000)); err != nil {
				t.Errorf("connection %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if grown := server.ResidentBytes(t, "VmHWM") - before; grown > int64(connections)<<20 {
		t.Errorf("%d connections take %d KiB each", connections, grown/int64(connections)>>10)
	}

	socks, err := proxy.SOCKS5("tcp", addresses[1], nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := socks.(proxy.ContextDialer).DialContext(harness.Context(t), "tcp", "localhost:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := exchange(conn, []byte("through SOCKS")); err != nil {
		t.Error(err)
	}
	for target, says := range map[string]string{"127.0.0.1:1": "connection refused", "192.0.2.1:80": "not allowed"} {
		if _, err := socks.(proxy.ContextDialer).DialContext(context.Background(), "tcp", target); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("SOCKS to %s: %v", target, err)
		}
	}
	if connections == maxPortConnections-2 {
		if err := exchange(connect(), []byte("the last")); err != nil {
			t.Error(err)
		}
		expectReset(t, addresses[0])
		harness.Eventually(t, "the limit is printed", func() bool {
			return strings.Contains(forward.Errors.String(), "port_connections_per_principal")
		})
	}

	server.Kill()
	for i, conn := range open {
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Fatalf("connection %d of a server that was killed ends with %v", i, err)
		}
	}
	serve()
	port = listen()
	again, err := socks.(proxy.ContextDialer).DialContext(harness.Context(t), "tcp", "localhost:"+port)
	if err != nil {
		t.Fatalf("after the server has returned: %v", err)
	}
	defer func() { _ = again.Close() }()
	if err := exchange(again, []byte("again and again")); err != nil {
		t.Error(err)
	}
}

// exchange sends data and expects it back.
func exchange(conn net.Conn, data []byte) error {
	if err := conn.SetDeadline(time.Now().Add(harness.StepTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write(data); err != nil {
		return err
	}
	got := make([]byte, len(data))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if !bytes.Equal(got, data) {
		return fmt.Errorf("%d other bytes came back", len(got))
	}
	return nil
}

// remoteForward is a forward of a port of the server, as --json prints it.
type remoteForward struct{ Forward, Listen, To string }

// forwardRemote starts port-forward --json and returns a function that reads the next forward.
func forwardRemote(t *testing.T, arguments ...string) (c *harness.Command, next func() remoteForward) {
	t.Helper()
	c = harness.NewCommand(append([]string{"port-forward", "--json"}, arguments...)...)
	lines := startLines(t, c)
	return c, func() remoteForward {
		t.Helper()
		return objects[remoteForward](t, lines())[0]
	}
}

// remoteSpec is a forward to a listener from a port that nothing else takes while the server is away.
func remoteSpec(t *testing.T, to net.Listener) string {
	t.Helper()
	return fmt.Sprintf("%d:%d", testport.Reserve(t), to.Addr().(*net.TCPAddr).Port)
}

// fetchAndReturn is a program of Python that gets a file from a port and puts it there.
const fetchAndReturn = `
import hashlib, sys, urllib.request
url = "http://" + sys.argv[1]
data = urllib.request.urlopen(url + "/file").read()
put = urllib.request.urlopen(urllib.request.Request(url + "/file", data=data, method="PUT")).read()
print(hashlib.sha256(data).hexdigest(), put.decode())
`

// A process of an executor behind a hub reaches a web server of this host, by a port of the executor.
func TestPortForward_Remote_ThroughHub_ReachesThisHost(t *testing.T) {
	size := 64 << 20
	if testing.Short() {
		size = 8 << 20
	}
	path := filepath.Join(harness.ShortDir(t), "file")
	sum := writeRandom(t, path, size)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			http.ServeFile(w, r, path)
			return
		}
		digest := sha256.New()
		_, _ = io.Copy(digest, r.Body)
		_, _ = fmt.Fprintf(w, "%x", digest.Sum(nil))
	}))
	defer web.Close()
	at := web.Listener.Addr().String()
	fleet := harness.NewFleet(t)
	connect := []string{"--hub", fleet.URL(), "--executor", harness.ExecutorID}
	forward, next := forwardRemote(t, append(connect, ":1", "-R", ":"+at, "-R", "127.0.0.2:0:localhost:1")...)
	local, working, refused := next(), next(), next()
	if local.Forward != "local" || local.To != "1" || working.Forward != "remote" || working.To != at || !strings.HasPrefix(refused.Listen, "127.0.0.2:") {
		t.Errorf("the forwards are %+v, %+v, %+v", local, working, refused)
	}
	got := harness.Run(t, nil, append(append([]string{"run"}, connect...), "--", harness.Python, "-c", fetchAndReturn, working.Listen)...)
	if want := fmt.Sprintf("%x %x\n", sum, sum); got.Code != 0 || got.Stdout != want {
		t.Errorf("the process prints %+v, want %s", got, want)
	}
	expectReset(t, refused.Listen)
	harness.Eventually(t, "the error is printed", func() bool {
		return strings.Contains(forward.Errors.String(), "execwire: a connection to 127.0.0.2:0:localhost:1 cannot be forwarded: dial tcp")
	})
	if code := forward.Stopped(t); code != 0 {
		t.Errorf("the exit code is %d: %s", code, forward.Errors.String())
	}
}

// A transfer outlives a hub that is killed and soon back. When the hub stays away, after 30 s both ends
// get a reset, and once it is back, the same port is forwarded again.
func TestPortForward_Remote_KilledHub_LosesNoBytes(t *testing.T) {
	harness.Slow(t)
	harness.Waits(t)
	const size = 32 << 20 // more than is in buffers
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(data) // never fails
	local, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = local.Close() }()
	fleet := harness.NewFleet(t)
	address := harness.AddressOf(fleet.Hub.URLs[harness.HubTransport])
	returns := func() {
		t.Helper()
		fleet.Hub = harness.NewHub(t, nil, "--listen", "http://"+address)
	}
	spec := remoteSpec(t, local)
	forward, next := forwardRemote(t, "--hub", fleet.URL(), "--executor", harness.ExecutorID, "-R", spec)
	first := next()
	// begin connects, and reads the first of the data that the other end sends.
	const beginning = 1 << 20
	begin := func() (near net.Conn, sent chan error) {
		t.Helper()
		near, err := net.Dial("tcp", first.Listen)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = near.Close() })
		far, err := local.Accept()
		if err != nil {
			t.Fatal(err)
		}
		sent = make(chan error, 1)
		go func() {
			_, err := far.Write(data)
			sent <- errors.Join(err, far.Close())
		}()
		got := make([]byte, beginning)
		if _, err := io.ReadFull(near, got); err != nil || !bytes.Equal(got, data[:beginning]) {
			t.Fatalf("the first bytes are not those that were sent, %v", err)
		}
		return near, sent
	}
	completes := func(near net.Conn, sent chan error) {
		t.Helper()
		rest, err := io.ReadAll(near)
		if err := errors.Join(err, near.Close(), <-sent); err != nil || !bytes.Equal(rest, data[beginning:]) {
			t.Errorf("%d bytes of %d arrive, %v", len(rest), size-beginning, err)
		}
	}

	near, sent := begin()
	fleet.Hub.Kill()
	returns()
	completes(near, sent)

	near, sent = begin()
	fleet.Hub.Kill()
	rest, err := io.ReadAll(near)
	if !errors.Is(err, syscall.ECONNRESET) || !bytes.HasPrefix(data[beginning:], rest) {
		t.Errorf("a cut transfer ends after %d bytes with %v", len(rest), err)
	}
	if err := <-sent; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the end here gets %v", err)
	}
	returns()
	fleet.Executor.Kill() // the next one does not wait for half a minute, as this one by now
	fleet.Executor = harness.NewCommand("serve", "--remote", "http://"+fleet.Far.Listener.Addr().String(), "--executor-id", harness.ExecutorID)
	fleet.Executor.Launch(t)
	if again := next(); again != first {
		t.Errorf("it listens again as %+v, want %+v", again, first)
	}
	completes(begin())
	if lost := "execwire: forwarding " + spec + " stops until the server listens again: "; strings.Count(forward.Errors.String(), lost) != 1 {
		t.Errorf("it prints %q", forward.Errors.String())
	}
}

// When the server stops or is killed, both ends of a connection get a reset, and the next server
// listens again, on the same port. When port-forward is killed, both ends get a reset, too.
func TestPortForward_Remote_NextServer_ListensAgain(t *testing.T) {
	harness.Waits(t)
	local, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = local.Close() }()
	socket := "unix://" + harness.ShortDir(t) + "/s"
	serve := func() *harness.Command {
		c := harness.NewCommand("serve", "--listen", socket)
		c.Listen(t, 1)
		return c
	}
	server := serve()
	spec := remoteSpec(t, local)
	forward, next := forwardRemote(t, "--server", socket, "-R", spec)
	first := next()
	for _, tt := range []struct {
		what string
		do   func()
	}{
		{"the server stops", func() { server.Stopped(t) }},
		{"the server is killed", func() { server.Kill() }},
		{"port-forward is killed", func() { forward.Kill() }},
	} {
		near, err := net.Dial("tcp", first.Listen)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = near.Close() }()
		far, err := local.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = far.Close() }()
		passed := make(chan error, 1)
		go func() {
			_, err := io.CopyN(struct{ io.Writer }{far}, far, 100_000) // splice would keep a pipe
			passed <- err
		}()
		if err := errors.Join(exchange(near, make([]byte, 100_000)), <-passed); err != nil {
			t.Fatalf("before %s: %v", tt.what, err)
		}
		tt.do()
		for end, conn := range map[string]net.Conn{"on the server": near, "here": far} {
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s: the end %s gets %v", tt.what, end, err)
			}
		}
		if server.ProcessState == nil {
			break
		}
		server = serve()
		if again := next(); again != first {
			t.Errorf("%s: it listens again as %+v, want %+v", tt.what, again, first)
		}
	}
	if lost := "execwire: forwarding " + spec + " stops until the server listens again: "; strings.Count(forward.Errors.String(), lost) != 2 {
		t.Errorf("it prints %q", forward.Errors.String())
	}
}

// A signal ends port-forward also while one direction of a connection has ended and nothing arrives in the
// other.
func TestPortForward_Signal_ResetsHalfClosedConnection(t *testing.T) {
	local, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = local.Close() }()
	server := harness.Serve(t)
	forward, next := forwardRemote(t, "--server", server.URLs[harness.UnixTransport], "-R", ":"+local.Addr().String())
	near, err := net.Dial("tcp", next().Listen)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = near.Close() }()
	far, err := local.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = far.Close() }()
	if err := far.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("after the end of a direction: %v", err)
	}
	if code := forward.Stopped(t); code != 0 {
		t.Errorf("the exit code is %d: %s", code, forward.Errors.String())
	}
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the end here gets %v", err)
	}
}

func TestPortForward_Remote_Refused_NamesForward(t *testing.T) {
	server := harness.Serve(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	at := taken.Addr().String()
	for spec, says := range map[string]string{
		at + ":1": at + " is in use\n  take a free port with port 0: -R 0:[HOST:]LOCAL\n",
		"*:0:1":   "listening on [::]:0 is denied: it is not on loopback, and ports_listen is loopback\n  listen on loopback",
	} {
		got := harness.Run(t, nil, server.Remotely(harness.UnixTransport, "port-forward", "-R", spec)...)
		if want := "execwire: cannot forward " + spec + ": " + says; got.Code != 125 || !strings.HasPrefix(got.Stderr, want) {
			t.Errorf("%s: %+v, want %q", spec, got, want)
		}
	}
}

func TestPortForward_WrongArguments(t *testing.T) {
	for _, arguments := range [][]string{{}, {"x"}, {"0"}, {"1:0"}, {"70000"}, {"1:2:3:4"}, {"1::2"}, {"1:::1:2"}, {"-D", "192.0.2.1:1"}, {"-D", "x"},
		{"-R", ""}, {"-R", "1"}, {"-R", "1:0"}, {"-R", "70000:1"}, {"-R", "1:x"}, {"-R", "1::2"}, {"-R", "name:1:2"}, {"-R", "1:2:h:3"}, {"-R", "::1:1:2"}, {"-R", "[::1]:1:h:2:3"}, {"-R", "[::1:1:2"}} {
		got := harness.Run(t, nil, append([]string{"port-forward"}, arguments...)...)
		if got.Code != 2 || got.Stdout != "" || !strings.Contains(got.Stderr, "see: execwire port-forward --help") {
			t.Errorf("%q: %+v", arguments, got)
		}
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	got := harness.Run(t, nil, "port-forward", fmt.Sprintf("%d:80", taken.Addr().(*net.TCPAddr).Port))
	if got.Code != 125 || !strings.Contains(got.Stderr, "address already in use\n  take a free port with :80") {
		t.Errorf("a port that is taken: %+v", got)
	}
}

func TestPorts_Watch_PrintsChanges(t *testing.T) {
	harness.Waits(t)
	server := harness.Serve(t)
	d := harness.UnixTransport
	watch := harness.NewCommand(server.Remotely(d, "ports", "--watch", "--json")...)
	lines := startLines(t, watch)
	detach(server, t, d, "listens", harness.Program("listen", "127.0.0.1:0"), "-i")
	first := lines()
	if got := harness.Run(t, nil, server.Remotely(d, "kill", "listens")...); got.Code != 0 {
		t.Fatalf("kill: %+v", got)
	}
	second := lines()
	type event struct {
		Event, Process, Address string
		PID, Port               int
	}
	list := objects[event](t, first+second)
	opened, closed := list[0], list[1]
	if opened.Event != "opened" || opened.Process != "listens" || opened.Address != "127.0.0.1" || opened.PID == 0 || opened.Port == 0 {
		t.Errorf("opened: %+v", opened)
	}
	if opened.Event = "closed"; opened != closed {
		t.Errorf("closed: %+v, want %+v", closed, opened)
	}
	if code := watch.Stopped(t); code != 130 {
		t.Errorf("the exit code is %d", code)
	}
}
