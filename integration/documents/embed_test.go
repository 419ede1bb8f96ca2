package documents

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/integration/harness"
)

// embedCommand is the path of the example that embeds a server.
var embedCommand = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(filepath.Dir(harness.Execwire), "embed")
	return binary, harness.Build(binary, "./examples/embed")
})

// newEmbed runs that example.
func newEmbed(t testing.TB, flags ...string) *harness.Command {
	t.Helper()
	binary, err := embedCommand()
	if err != nil {
		t.Fatal(err)
	}
	c := harness.Prepare(exec.Command(binary, append([]string{"--listen", "unix://" + filepath.Join(harness.ShortDir(t), "e")}, flags...)...))
	c.Listen(t, 1)
	return c
}

// A program that embeds a server can be reached by its socket and through a hub at the same
// time, sandboxes work in it, and it leaves nothing behind.
func TestEmbedExample(t *testing.T) {
	f := harness.NewFleet(t)
	embed := newEmbed(t, "--hub", f.URL(), "--executor-id", "inside")
	f.AwaitExecutorOf(t, "inside")
	hub, err := client.RelayURL(f.URL(), "inside")
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{embed.URLs[harness.UnixTransport], hub} {
		if got := harness.Run(t, nil, append([]string{"run", "--server", url, "--"}, harness.Shell("echo hello; exit 3")...)...); got != (harness.Result{Code: 3, Stdout: "hello\n"}) {
			t.Errorf("through %s: %+v", url, got)
		}
		file := filepath.Join(harness.ShortDir(t), "file")
		got := harness.Run(t, nil, append([]string{"run", "--server", url, "--sandbox", "read-only", "--"}, harness.Shell("echo x >"+file)...)...)
		if got.Code == 0 || !strings.Contains(got.Stderr, "Read-only") && !strings.Contains(got.Stderr, "denied") {
			t.Errorf("a file is written in a sandbox through %s: %+v", url, got)
		}
	}
	if got := harness.Run(t, nil, "executors", "--hub", f.URL()); !strings.Contains(got.Stdout, "program=embed") {
		t.Errorf("executors: %+v", got)
	}
	left := harness.NewCommand("run", "--server", hub, "--", "sleep", "1000")
	left.Launch(t)
	harness.Eventually(t, "it runs", func() bool { return strings.Contains(harness.Run(t, nil, "ps", "--server", hub).Stdout, "sleep") })
	if code := embed.Stopped(t); code != 0 {
		t.Errorf("it ended with %d: %s", code, embed.Errors.String())
	}
	if code := left.Await(t); code == 0 {
		t.Errorf("what ran in it ended with %d", code)
	}
}

// Without a hub it is an ordinary server.
func TestEmbedExample_WithoutAHub(t *testing.T) {
	embed := newEmbed(t)
	if got := harness.Run(t, strings.NewReader("hello"), append([]string{"run", "-i", "--server", embed.URLs[harness.UnixTransport], "--"}, harness.Shell("tr a-z A-Z")...)...); got != (harness.Result{Stdout: "HELLO"}) {
		t.Errorf("run: %+v", got)
	}
	if code := embed.Stopped(t); code != 0 {
		t.Errorf("it ended with %d: %s", code, embed.Errors.String())
	}
	if said := embed.Errors.String(); !strings.HasPrefix(said, "embed: processes run on Linux\n") {
		t.Errorf("it printed %q", said)
	}
}

// The program of the document can be built in another module that imports this repository.
func TestEmbeddingDocument_Program(t *testing.T) {
	harness.Slow(t)
	text, err := os.ReadFile("../../docs/embedding.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(text), "```go\n")
	program, _, _ = strings.Cut(program, "\n```")
	binary := buildOutside(t, map[string]string{"main.go": program})
	server := harness.Serve(t)
	for _, url := range []string{"", "local:", server.URLs[harness.UnixTransport]} {
		c := harness.Prepare(exec.Command(binary))
		c.Env = append(c.Env, "EXECUTOR_URL="+url)
		if got := c.Complete(t, nil); got != (harness.Result{Stdout: "hello\n<nil>\n"}) {
			t.Errorf("with %q: %+v", url, got)
		}
	}
}

// buildOutside builds a program in a separate module that depends on this one.
func buildOutside(t *testing.T, files map[string]string) (binary string) {
	t.Helper()
	all := map[string]string{
		"go.mod":  "module example.org/outside\n\ngo 1.26.0\n",
		"go.work": "go 1.26.0\n\nuse (\n\t.\n\t" + harness.Repository(t) + "\n)\n", // what make test has compiled is used again
	}
	maps.Copy(all, files)
	dir := t.TempDir()
	for name, content := range all {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary = filepath.Join(dir, "program")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Dir, build.Env = dir, append(os.Environ(), "GOWORK=", "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return binary
}
