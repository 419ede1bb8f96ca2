package hostile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/integration/harness"
)

// largeBytes is the size of the neighbour's large messages and uploads.
const largeBytes = 300 << 10

// soakNeighbour is a neighbour that uses every operation of a client.
type soakNeighbour struct {
	*neighbour
	server  *soakServer
	uploads *client.Client
	took    map[string]harness.Samples[time.Duration]
}

// newSoakNeighbour opens its session and its gRPC connection.
func newSoakNeighbour(t *testing.T, s *soakServer) *soakNeighbour {
	t.Helper()
	n := &soakNeighbour{
		neighbour: moveInAs(t, s.Address(harness.WebsocketTransport), s.header(t, "neighbour"), s.publicDirOf(t)),
		server:    s, took: map[string]harness.Samples[time.Duration]{},
	}
	uploads, err := client.Dial(harness.Context(t), s.URLs[harness.UnixTransport], client.WithTokenFile(s.tokens["neighbour"]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = uploads.Close() })
	n.uploads = uploads
	return n
}

// round does every operation once; each call must succeed.
func (n *soakNeighbour) round() {
	n.Helper()
	n.rounds++
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"small requests", n.useFiles},
		{"process", n.useProcess},
		{"terminate", n.endProcess},
		{"300 KB file", n.useLarge},
		{"300 KB to a process", n.useLargeInput},
		{"upload", n.useUpload},
		{"cp", n.useCopy},
		{"run", n.useRun},
		{"watch", n.useWatch},
	} {
		n.took[step.name] = append(n.took[step.name], harness.Timed(step.do))
	}
	n.Forget()
}

// times returns the durations of all steps.
func (n *soakNeighbour) times() string {
	var text []string
	for _, name := range slices.Sorted(maps.Keys(n.took)) {
		text = append(text, fmt.Sprintf("%s p50 %s p99 %s", name, harness.ShowTime(n.took[name].Median()), harness.ShowTime(n.took[name].Quantile(0.99))))
	}
	return strings.Join(text, ", ")
}

// content returns data that differs between rounds.
func (n *neighbour) content() []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%07d\n", n.rounds), largeBytes/8)
}

// useLarge sends a large message, checks the response, and reads the data back.
func (n *neighbour) useLarge() {
	n.Helper()
	path := filepath.Join(n.dir, "large")
	encoded := base64.StdEncoding.EncodeToString(n.content())
	n.Result("fs/writeFile", harness.RPCParams{"path": path, "dataBase64": encoded}, nil)
	var read struct{ DataBase64 string }
	if n.Result("fs/readFile", harness.RPCParams{"path": path}, &read); read.DataBase64 != encoded {
		n.Errorf("round %d: a file of %d bytes is read with %d", n.rounds, len(encoded), len(read.DataBase64))
	}
}

// useLargeInput sends a large message to a process, which reports what it received.
func (n *neighbour) useLargeInput() {
	n.Helper()
	id, content := fmt.Sprint("l", n.rounds), n.content()
	n.Result("process/start", harness.StartOf(id, harness.Shell(fmt.Sprintf("head -c %d | sha256sum", len(content))), harness.RPCParams{"pipeStdin": true}), nil)
	var written struct{ Status string }
	if n.Result("process/write", harness.WriteOf(id, string(content)), &written); written.Status != "accepted" {
		n.Errorf("round %d: a large write is %q", n.rounds, written.Status)
	}
	n.awaitClosed(id)
	sum := sha256.Sum256(content)
	if got := harness.OutputOf(n.Record(), id, "stdout"); got != hex.EncodeToString(sum[:])+"  -\n" {
		n.Errorf("round %d: a process says of %d bytes %q", n.rounds, len(content), got)
	}
}

// useUpload streams a file to the server.
func (n *soakNeighbour) useUpload() {
	n.Helper()
	ctx, cancel := context.WithTimeoutCause(n.Context(), harness.StepTimeout, harness.ErrTimeout)
	defer cancel()
	path, content := filepath.Join(n.dir, "uploaded"), n.content()
	if _, err := n.uploads.Upload(ctx, path, bytes.NewReader(content), client.UploadOptions{}); err != nil {
		n.Errorf("round %d: an upload failed: %v", n.rounds, err)
	}
	n.expectFile(path, content)
}

func (n *neighbour) expectFile(path string, content []byte) {
	n.Helper()
	if on, err := os.ReadFile(path); err != nil || !bytes.Equal(on, content) {
		n.Errorf("round %d: %s has %d bytes, %v, want %d", n.rounds, path, len(on), err, len(content))
	}
}

// command runs execwire with a new connection.
func (n *soakNeighbour) command(name string, args ...string) string {
	n.Helper()
	ctx, cancel := context.WithTimeoutCause(n.Context(), harness.StepTimeout, harness.ErrTimeout)
	defer cancel()
	args = append([]string{name, "--server", n.server.URLs[harness.UnixTransport], "--token-file", n.server.tokens["neighbour"]}, args...)
	cmd := harness.Prepare(exec.CommandContext(ctx, harness.Execwire, args...))
	cmd.Cmd.Stderr = nil
	out, err := cmd.Output()
	if err != nil {
		said := []byte(nil)
		if exit, ok := err.(*exec.ExitError); ok {
			said = exit.Stderr
		}
		n.Errorf("round %d: %s failed: %v: %s", n.rounds, name, err, said)
	}
	return string(out)
}

// useCopy uploads a file with the command.
func (n *soakNeighbour) useCopy() {
	n.Helper()
	from, to, content := filepath.Join(n.dir, "from"), filepath.Join(n.dir, "copied"), n.content()
	if err := os.WriteFile(from, content, 0o600); err != nil {
		n.Fatal(err)
	}
	n.command("cp", from, ":"+to)
	n.expectFile(to, content)
}

// useRun runs a process with the command.
func (n *soakNeighbour) useRun() {
	n.Helper()
	want := fmt.Sprintf("round %d\n", n.rounds)
	if got := n.command("run", "--", "/bin/echo", strings.TrimSpace(want)); got != want {
		n.Errorf("round %d: a command prints %q, want %q", n.rounds, got, want)
	}
}

// useWatch watches a directory, in which a file appears.
func (n *neighbour) useWatch() {
	n.Helper()
	id, name := fmt.Sprint("w", n.rounds), fmt.Sprint("seen-", n.rounds)
	n.Result("fs/watch", harness.RPCParams{"watchId": id, "path": n.dir, "settleMs": 0}, nil)
	path := filepath.Join(n.dir, name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		n.Fatal(err)
	}
	n.Until("the watch reports the file", func(frames []harness.RPCFrame) bool {
		return slices.ContainsFunc(frames, func(f harness.RPCFrame) bool { return strings.Contains(string(f.Params), name) })
	})
	n.Result("fs/unwatch", harness.RPCParams{"watchId": id}, nil)
	if err := os.Remove(path); err != nil {
		n.Fatal(err)
	}
}
