package documents

import (
	"bufio"
	"encoding/json"
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mcpServer is the command line of the MCP server that examples/mcp pins, serving files below a
// directory.
func mcpServer(t testing.TB, directory string) []string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("%v: run make deps", err)
	}
	script := filepath.Join(harness.Repository(t), "examples", "mcp", "node_modules", ".bin", "mcp-server-filesystem")
	if _, err := os.Stat(script); err != nil {
		t.Fatalf("%v: run make deps", err)
	}
	return []string{node, script, directory}
}

// mcp is a client of an MCP server over the standard streams of execwire run.
type mcp struct {
	t       testing.TB
	command *harness.Command
	in      io.WriteCloser
	lines   *bufio.Reader
	id      int
}

// startMCP starts execwire with arguments that run the server, and initializes the session.
func startMCP(t testing.TB, arguments ...string) *mcp {
	t.Helper()
	c := harness.NewCommand(arguments...)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Launch(t)
	m := &mcp{t: t, command: c, in: in, lines: bufio.NewReader(out)}
	var hello struct {
		ProtocolVersion string
		ServerInfo      struct{ Name string }
	}
	m.call("initialize", map[string]any{
		"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "test", "version": "1"},
	}, &hello)
	if hello.ProtocolVersion != "2025-06-18" || hello.ServerInfo.Name != "secure-filesystem-server" {
		t.Fatalf("the server introduces itself as %+v", hello)
	}
	m.say(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	return m
}

// say sends one message.
func (m *mcp) say(message any) {
	m.t.Helper()
	text, err := json.Marshal(message)
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := m.in.Write(append(text, '\n')); err != nil {
		m.t.Fatalf("%v: %s", err, m.command.Errors.String())
	}
}

// ask sends a request and returns its id.
func (m *mcp) ask(method string, parameters any) int {
	m.t.Helper()
	m.id++
	m.say(map[string]any{"jsonrpc": "2.0", "id": m.id, "method": method, "params": parameters})
	return m.id
}

// next reads the next message, which must be a response.
func (m *mcp) next() (id int, result json.RawMessage) {
	m.t.Helper()
	line, err := m.lines.ReadBytes('\n')
	if err != nil {
		m.t.Fatalf("no answer: %v: %s", err, m.command.Errors.String())
	}
	var message struct {
		ID     int
		Result json.RawMessage
		Error  json.RawMessage
	}
	if err := json.Unmarshal(line, &message); err != nil || message.ID == 0 || message.Error != nil {
		m.t.Fatalf("an answer is %.300q, %v", line, err)
	}
	return message.ID, message.Result
}

// call sends a request and decodes its response.
func (m *mcp) call(method string, parameters, result any) {
	m.t.Helper()
	asked := m.ask(method, parameters)
	id, text := m.next()
	if id != asked {
		m.t.Fatalf("request %d gets the answer to %d: %s", asked, id, text)
	}
	m.decode(text, result)
}

func (m *mcp) decode(text json.RawMessage, into any) {
	m.t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		m.t.Fatalf("%v: %s", err, text)
	}
}

// toolResult is the result of a tool.
type toolResult struct {
	Content []struct{ Type, Text string }
	IsError bool
}

// tool calls a tool and returns its text.
func (m *mcp) tool(name string, arguments map[string]any) string {
	m.t.Helper()
	var result toolResult
	m.call("tools/call", map[string]any{"name": name, "arguments": arguments}, &result)
	return m.text(result)
}

func (m *mcp) text(result toolResult) string {
	m.t.Helper()
	if result.IsError || len(result.Content) != 1 || result.Content[0].Type != "text" {
		m.t.Fatalf("a tool returns %+v", result)
	}
	return result.Content[0].Text
}

// tools are the names of the server's tools.
func (m *mcp) tools() (names []string) {
	m.t.Helper()
	var result struct{ Tools []struct{ Name string } }
	m.call("tools/list", map[string]any{}, &result)
	for _, tool := range result.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// leave ends stdin, as MCP clients do, and expects the server to exit with 0 and without
// further messages.
func (m *mcp) leave() {
	m.t.Helper()
	if err := m.in.Close(); err != nil {
		m.t.Fatal(err)
	}
	rest, err := io.ReadAll(m.lines)
	if code := m.command.Await(m.t); code != 0 || err != nil || len(rest) > 0 {
		m.t.Errorf("it ended with %d, after printing %q, %v: %s", code, rest, err, m.command.Errors.String())
	}
}

// fileOf is a file with a content of its own below a directory.
func fileOf(t testing.TB, directory string, i int) (path, content string) {
	t.Helper()
	path, content = filepath.Join(directory, fmt.Sprintf("file-%d", i)), fmt.Sprintf("content %d\n", i)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, content
}

// mcpServersIn returns the processes of MCP servers for a directory.
func mcpServersIn(t testing.TB, directory string) (pids []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		line, _ := os.ReadFile(file) // it may have ended
		if argv := strings.Split(string(line), "\x00"); filepath.Base(argv[0]) == "node" && slices.Contains(argv, directory) {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}
