//go:build reference

package upgrade

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/execwire/execwire/integration/harness"
)

// model takes the place of the service that tells the reference's client what to run. It
// calls one tool after the other.
type model struct {
	t *testing.T
	// next returns the name and the arguments of the next call, given the outputs of those
	// before; an empty name ends the turn.
	next func(outputs []string) (name string, arguments map[string]any)

	mu      sync.Mutex
	outputs []string // guarded by mu; of the last request
}

// serve returns the URL of the model.
func (m *model) serve() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		m.t.Fatal(err)
	}
	server := &http.Server{Handler: m}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	m.t.Cleanup(func() { _ = server.Close(); serving.Wait() })
	return "http://" + listener.Addr().String() + "/v1"
}

// ServeHTTP implements http.Handler.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Input []struct {
			Type   string
			Output json.RawMessage
		}
	}
	if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&request) != nil {
		http.NotFound(w, r) // of what it asks beside responses
		return
	}
	var outputs []string
	for _, item := range request.Input {
		if item.Type == "function_call_output" {
			text := ""
			if json.Unmarshal(item.Output, &text) != nil {
				text = string(item.Output)
			}
			outputs = append(outputs, text)
		}
	}
	m.mu.Lock()
	m.outputs = outputs
	m.mu.Unlock()
	item := map[string]any{"type": "message", "id": "m", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": "done"}}}
	if name, arguments := m.next(outputs); name != "" {
		item = map[string]any{"type": "function_call", "id": fmt.Sprintf("f%d", len(outputs)), "call_id": fmt.Sprintf("c%d", len(outputs)), "name": name, "arguments": harness.MustJSON(arguments)}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range []map[string]any{
		{"type": "response.created", "response": map[string]any{"id": "r"}},
		{"type": "response.output_item.done", "output_index": 0, "item": item},
		{"type": "response.completed", "response": map[string]any{"id": "r", "usage": map[string]any{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}},
	} {
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event["type"], harness.MustJSON(event)) // a client that is gone fails the test by its exit code
	}
}

// runningSession finds the session of a command that goes on.
var runningSession = regexp.MustCompile(`session ID (\d+)`)

// The client of the reference runs commands while the server is upgraded: a long one, of whose
// output nothing may be missing or twice, and a terminal with input between upgrades.
func TestUpgrade_Reference(t *testing.T) {
	codex := os.Getenv(harness.ReferenceVariable)
	if codex == "" {
		t.Fatal("run it by make reference")
	}
	const upgrades = 10
	s := serve(t)
	dir := harness.ShortDir(t)
	long := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do i=$((i+1)); until [ -e %s/$i ]; do sleep 0.02; done; echo step $i; echo warning $i >&2; echo $i >>%s/ran; done; exit 4`, upgrades, dir, dir)
	calls := 0
	m := &model{t: t}
	m.next = func(outputs []string) (string, map[string]any) {
		switch {
		case len(outputs) == 0:
			return "exec_command", map[string]any{"cmd": long, "yield_time_ms": 1000}
		case calls == 0 && runningSession.MatchString(outputs[len(outputs)-1]):
			return "write_stdin", map[string]any{"session_id": json.Number(runningSession.FindStringSubmatch(outputs[len(outputs)-1])[1]), "chars": "", "yield_time_ms": 5000}
		case calls == 0:
			calls++
			return "exec_command", map[string]any{"cmd": "while read -r line; do echo got $line; done; exit 5", "tty": true, "yield_time_ms": 300}
		case calls > upgrades:
			if running := runningSession.FindStringSubmatch(outputs[len(outputs)-1]); running != nil && calls == upgrades+1 {
				calls++
				return "write_stdin", map[string]any{"session_id": json.Number(running[1]), "chars": "\x04", "yield_time_ms": 5000}
			}
			return "", nil
		}
		running := runningSession.FindStringSubmatch(outputs[len(outputs)-1])
		if running == nil {
			return "", nil // the outputs show what is wrong
		}
		s.upgrade()
		calls++
		return "write_stdin", map[string]any{"session_id": json.Number(running[1]), "chars": fmt.Sprintf("line%d.\n", calls-1), "yield_time_ms": 300}
	}
	home, err := os.MkdirTemp(filepath.Dir(codex), "home-") // see openRealReference
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	config := fmt.Sprintf("model = 'mock'\nmodel_provider = 'mock'\napproval_policy = 'never'\nsandbox_mode = 'danger-full-access'\n"+
		"[model_providers.mock]\nname = 'mock'\nbase_url = '%s'\nwire_api = 'responses'\nsupports_websockets = false\n", m.serve())
	if err := os.WriteFile(filepath.Join(home, "config.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	client := harness.Prepare(exec.Command(codex, "exec", "--skip-git-repo-check", "--json", "-C", dir, "go"))
	client.Env = append(os.Environ(), "CODEX_HOME="+home, "CODEX_EXEC_SERVER_URL=ws://"+s.Address(harness.TCPTransport))
	output, err := client.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	client.Launch(t)
	for i := range upgrades {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i+1)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "a step ends", func() bool {
			ran, err := os.ReadFile(filepath.Join(dir, "ran"))
			return err == nil && strings.Count(string(ran), "\n") == i+1
		})
		if i < upgrades-1 {
			s.upgrade()
		}
	}
	events, err := io.ReadAll(output)
	if code := client.Await(t); code != 0 || err != nil {
		t.Fatalf("the client exits with %d, %v:\n%s\n%s", code, err, events, client.Errors.String())
	}
	m.mu.Lock()
	all := strings.Join(m.outputs, "\n")
	m.mu.Unlock()
	for i := range upgrades {
		for _, line := range []string{fmt.Sprintf("step %d\n", i+1), fmt.Sprintf("warning %d\n", i+1), fmt.Sprintf("got line%d.", i+1)} {
			if n := strings.Count(all, line); n != 1 {
				t.Errorf("the client got %q %d times", line, n)
			}
		}
	}
	if !strings.Contains(all, "exited with code 4") || !strings.Contains(all, "exited with code 5") {
		t.Error("the client did not get the exit codes")
	}
	if t.Failed() {
		t.Logf("the outputs:\n%s\nthe events:\n%s", all, events)
	}
}
