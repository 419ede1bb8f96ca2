package bench

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

func init() { testproc.Register("bench-serve-zeros", serveZeros) }

// serveZeros serves connections on a free port: it reads a number of eight bytes, and writes
// that many.
func serveZeros([]string) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	for err == nil {
		var conn net.Conn
		if conn, err = listener.Accept(); err == nil {
			err = writeZeros(conn)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func writeZeros(conn net.Conn) error {
	defer func() { _ = conn.Close() }()
	var n int64
	if err := binary.Read(conn, binary.BigEndian, &n); err != nil {
		return err
	}
	for piece := make([]byte, 64<<10); n > 0; n -= int64(len(piece)) {
		if _, err := conn.Write(piece[:min(n, int64(len(piece)))]); err != nil {
			return err
		}
	}
	return nil
}

// measureForward compares a connection forwarded by execwire port-forward with the output of a
// process to its owner over the same way: directly, and through a hub. The forward has a
// process and a TCP connection more.
func measureForward(b *bench) []line {
	server := b.startExecutor()
	n := b.sizes.outputBytes / 2
	var lines []line
	for _, way := range []struct{ what, transport string }{{"TCP", "TCP"}, {"through a hub", harness.ThroughHub}} {
		c := b.dial(server, way.transport)
		address := b.forward(c, server.URLs[way.transport])
		got := b.carry(n,
			transfer{"output, " + way.what, server, func() { b.receiveOutput(c, n) }},
			transfer{"forwarded connection, " + way.what, server, func() { b.receiveForwarded(address, n) }})
		lines = append(lines, atLeast("a forwarded connection, beside the output of a process, "+way.what, got[0].rate, got[1].rate, 0.6, showMiBRate))
	}
	return lines
}

var errPortFound = errors.New("the port is known")

// forward starts serveZeros as a process of the client, and execwire port-forward to it, and
// returns the local address.
func (b *bench) forward(c *client.Client, url string) (address string) {
	b.Helper()
	started, err := c.Processes().StartProcess(b.ctx, benchCommand(testproc.Argv("bench-serve-zeros")...))
	if err != nil {
		b.Fatal(err)
	}
	var port uint32
	err = c.WatchPorts(b.ctx, &execwirev1.WatchPortsRequest{ProcessId: started.GetProcess().GetProcessId()}, func(m *execwirev1.WatchPortsResponse) error {
		for _, opened := range m.GetOpened() {
			port = opened.GetPort()
			return errPortFound
		}
		return nil
	})
	if !errors.Is(err, errPortFound) {
		b.Fatal(err)
	}
	cmd := exec.Command(harness.Execwire, "port-forward", "--server", url, fmt.Sprintf("0:%d", port))
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { harness.StopPeer(b, cmd) })
	line, err := bufio.NewReader(output).ReadString('\n')
	address, _, found := strings.Cut(strings.TrimPrefix(line, "Forwarding from "), " -> ")
	if err != nil || !found {
		b.Fatalf("port-forward prints %q: %v", line, err)
	}
	return address
}

// receiveForwarded receives n bytes by a connection of its own.
func (b *bench) receiveForwarded(address string, n int64) {
	b.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := binary.Write(conn, binary.BigEndian, n); err != nil {
		b.Fatal(err)
	}
	if got, err := io.Copy(io.Discard, conn); err != nil || got != n {
		b.Fatalf("%d of %d bytes arrived: %v", got, n, err)
	}
}
