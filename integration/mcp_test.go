package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mcpDoors are the beginnings of command lines that run something, by the way they
// take to where it runs.
func mcpDoors(t *testing.T) map[string][]string {
	server, f := serve(t), newFleet(t)
	forward := newForward(t, "--hub", f.url(), "--executor", executorID)
	return map[string][]string{
		"in this program": {"run"},
		"unix":            server.through(unixDoor),
		"tcp":             server.through(tcpDoor),
		"websocket":       server.through(websocketDoor),
		"launched":        {"run", "--server", "stdio:" + execwire + " serve --listen stdio"},
		"hub":             f.through(),
		"forward":         forward.through(unixDoor),
	}
}

// An MCP server runs where its files are, and its client speaks to it as if it were
// here, whatever is between them. When the client is done nothing is left.
func TestAnMCPServerOnAnExecutor(t *testing.T) {
	for name, through := range mcpDoors(t) {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
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

// A client that is killed takes its server along when the grace is over.
func TestAnMCPServerWhoseClientIsKilled(t *testing.T) {
	server := serve(t)
	dir := shortDir(t)
	m := startMCP(t, slices.Concat(server.through(unixDoor, "-i", "--grace", "100ms", "--"), mcpServer(t, dir))...)
	fileOf(t, dir, 1)
	m.command.send(t, unix.SIGKILL)
	m.command.await(t)
	eventually(t, "the server has ended", func() bool { return len(mcpServersIn(t, dir)) == 0 })
}

// Requests and answers pass once and in order, though the connection is cut all the
// time while they are on their way.
func TestAnMCPServerWhileTheConnectionIsCut(t *testing.T) {
	waits(t)
	server, f := serve(t), newFleet(t)
	wire, websocket := newProxy(t, "tcp", server.address(tcpDoor)), newProxy(t, "tcp", server.address(websocketDoor))
	for name, way := range map[string]struct {
		through []string
		cutting func(time.Duration) (stop func() int)
	}{
		"tcp":       {[]string{"run", "--server", wire.url()}, wire.cutting},
		"websocket": {[]string{"run", "--server", "ws://" + addressIn(websocket.url())}, websocket.cutting},
		"hub":       {f.through(), f.cutting},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
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
