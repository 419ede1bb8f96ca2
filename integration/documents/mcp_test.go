package documents

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/integration/harness"
	"golang.org/x/sys/unix"
)

// mcpTransports are the beginnings of command lines that run a program, by transport.
func mcpTransports(t *testing.T) map[string][]string {
	server, f := harness.Serve(t), harness.NewFleet(t)
	forward := harness.NewForward(t, "--hub", f.URL(), "--executor", harness.ExecutorID)
	return map[string][]string{
		"in this program": {"run"},
		"unix":            server.Through(harness.UnixTransport),
		"tcp":             server.Through(harness.TCPTransport),
		"websocket":       server.Through(harness.WebsocketTransport),
		"launched":        {"run", "--server", "stdio:" + harness.Execwire + " serve --listen stdio"},
		"hub":             f.Through(),
		"forward":         forward.Through(harness.UnixTransport),
	}
}

// An MCP server runs next to its files, and its client uses it like a local one over every
// transport. Nothing remains when the client is done.
func TestMCP_ServerOnAnExecutor(t *testing.T) {
	for name, through := range mcpTransports(t) {
		t.Run(name, func(t *testing.T) {
			dir := harness.ShortDir(t)
			m := startMCP(t, slices.Concat(through, []string{"-i", "--"}, mcpServer(t, dir))...)
			if names := m.tools(); !slices.Contains(names, "read_text_file") || !slices.Contains(names, "write_file") {
				t.Errorf("its tools are %q", names)
			}
			path, content := fileOf(t, dir, 1)
			if got := m.tool("read_text_file", map[string]any{"path": path}); got != content {
				t.Errorf("a file reads %q", got)
			}
			long := strings.Repeat("a line of a file that is not short\n", 10_000)
			m.tool("write_file", map[string]any{"path": filepath.Join(dir, "long"), "content": long})
			if got, err := os.ReadFile(filepath.Join(dir, "long")); err != nil || string(got) != long {
				t.Errorf("%d of %d bytes were written, %v", len(got), len(long), err)
			}
			if got := m.tool("read_text_file", map[string]any{"path": filepath.Join(dir, "long")}); got != long {
				t.Errorf("%d of %d bytes were read", len(got), len(long))
			}
			pids := mcpServersIn(t, dir)
			if len(pids) == 0 {
				t.Error("the server does not run here")
			}
			m.leave()
			if left := mcpServersIn(t, dir); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}
		})
	}
}

// If the client is killed, its server ends after the grace period.
func TestMCP_KilledClient_EndsTheServer(t *testing.T) {
	server := harness.Serve(t)
	dir := harness.ShortDir(t)
	m := startMCP(t, slices.Concat(server.Through(harness.UnixTransport, "-i", "--grace", "100ms", "--"), mcpServer(t, dir))...)
	fileOf(t, dir, 1)
	m.command.Send(t, unix.SIGKILL)
	m.command.Await(t)
	harness.Eventually(t, "the server has ended", func() bool { return len(mcpServersIn(t, dir)) == 0 })
}

// Requests and responses are delivered once and in order while the connection is cut
// repeatedly.
func TestMCP_Cuts_LosesNothing(t *testing.T) {
	harness.Waits(t)
	server, f := harness.Serve(t), harness.NewFleet(t)
	wire, websocket := harness.NewProxy(t, "tcp", server.Address(harness.TCPTransport)), harness.NewProxy(t, "tcp", server.Address(harness.WebsocketTransport))
	for name, way := range map[string]struct {
		through []string
		cutting func(time.Duration) (stop func() int)
	}{
		"tcp":       {[]string{"run", "--server", wire.URL()}, wire.Cutting},
		"websocket": {[]string{"run", "--server", "ws://" + harness.AddressOf(websocket.URL())}, websocket.Cutting},
		"hub":       {f.Through(), f.Cutting},
	} {
		t.Run(name, func(t *testing.T) {
			dir := harness.ShortDir(t)
			m := startMCP(t, slices.Concat(way.through, []string{"-i", "--"}, mcpServer(t, dir))...)
			stop := way.cutting(300 * time.Millisecond)
			deadline := time.Now().Add(3 * time.Second)
			for round := 0; round < 10 || time.Now().Before(deadline); round++ {
				asked := map[int]string{}
				for i := range 5 {
					path, content := fileOf(t, dir, i)
					asked[m.ask("tools/call", map[string]any{"name": "read_text_file", "arguments": map[string]any{"path": path}})] = content
				}
				for len(asked) > 0 {
					id, text := m.next()
					var result toolResult
					m.decode(text, &result)
					if want, is := asked[id]; !is || m.text(result) != want {
						t.Fatalf("request %d is answered by %s", id, text)
					}
					delete(asked, id)
				}
			}
			if cuts := stop(); cuts < 3 {
				t.Errorf("only %d connections were cut", cuts)
			}
			m.leave()
			if left := mcpServersIn(t, dir); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}
		})
	}
}
