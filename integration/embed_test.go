package integration

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/execwire/execwire/client"
)

// embedCommand is the path of the example that has a server inside itself.
var embedCommand = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(filepath.Dir(execwire), "embed")
	return binary, build(binary, "./examples/embed")
})

// newEmbed runs that example.
func newEmbed(t testing.TB, flags ...string) *command {
	t.Helper()
	binary, err := embedCommand()
	if err != nil {
		t.Fatal(err)
	}
	c := prepare(exec.Command(binary, append([]string{"--listen", "unix://" + filepath.Join(shortDir(t), "e")}, flags...)...))
	c.listen(t, 1)
	return c
}

// A program with a server inside itself is reached by its socket and through a hub
// at once, sandboxes work in it, and it leaves nothing behind.
func TestTheExampleThatEmbedsAServer(t *testing.T) {
	f := newFleet(t)
	embed := newEmbed(t, "--hub", f.url(), "--executor-id", "inside")
	f.awaitExecutorOf(t, "inside")
	hub, err := client.RelayURL(f.url(), "inside")
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{embed.urls[unixDoor], hub} {
		if got := run(t, nil, append([]string{"run", "--server", url, "--"}, shell("echo hello; exit 3")...)...); got != (result{code: 3, stdout: "hello\n"}) {
			t.Errorf("through %s: %+v", url, got)
		}
		file := filepath.Join(shortDir(t), "file")
		got := run(t, nil, append([]string{"run", "--server", url, "--sandbox", "read-only", "--"}, shell("echo x >"+file)...)...)
		if got.code == 0 || !strings.Contains(got.stderr, "Read-only") && !strings.Contains(got.stderr, "denied") {
			t.Errorf("a file is written in a sandbox through %s: %+v", url, got)
		}
	}
	if got := run(t, nil, "executors", "--hub", f.url()); !strings.Contains(got.stdout, "program=embed") {
		t.Errorf("executors: %+v", got)
	}
	left := newCommand("run", "--server", hub, "--", "sleep", "1000")
	left.launch(t)
	eventually(t, "it runs", func() bool { return strings.Contains(run(t, nil, "ps", "--server", hub).stdout, "sleep") })
	if code := embed.stopped(t); code != 0 {
		t.Errorf("it ended with %d: %s", code, embed.errors.String())
	}
	if code := left.await(t); code == 0 {
		t.Errorf("what ran in it ended with %d", code)
	}
}

// Without a hub it is a server like any other.
func TestTheExampleThatEmbedsAServerAlone(t *testing.T) {
	embed := newEmbed(t)
	if got := run(t, strings.NewReader("hello"), append([]string{"run", "-i", "--server", embed.urls[unixDoor], "--"}, shell("tr a-z A-Z")...)...); got != (result{stdout: "HELLO"}) {
		t.Errorf("run: %+v", got)
	}
	if code := embed.stopped(t); code != 0 {
		t.Errorf("it ended with %d: %s", code, embed.errors.String())
	}
	if said := embed.errors.String(); !strings.HasPrefix(said, "embed: processes run on Linux\n") {
		t.Errorf("it said %q", said)
	}
}

// The program of the document is one that others can have: it is built outside of
// this repository, which it imports.
func TestTheProgramOfTheDocumentAboutEmbedding(t *testing.T) {
	slow(t)
	text, err := os.ReadFile("../docs/embedding.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(text), "```go\n")
	program, _, _ = strings.Cut(program, "\n```")
	binary := buildOutside(t, map[string]string{"main.go": program})
	server := serve(t)
	for _, url := range []string{"", "local:", server.urls[unixDoor]} {
		c := prepare(exec.Command(binary))
		c.Env = append(c.Env, "EXECUTOR_URL="+url)
		if got := c.complete(t, nil); got != (result{stdout: "hello\n<nil>\n"}) {
			t.Errorf("with %q: %+v", url, got)
		}
	}
}

// buildOutside builds a program of a module of its own that needs this one.
func buildOutside(t *testing.T, files map[string]string) (binary string) {
	t.Helper()
	sums, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	const here = "github.com/execwire/execwire"
	all := map[string]string{
		"go.sum": string(sums),
		"go.mod": "module example.org/outside\n\ngo 1.26\n\nrequire " + here + " v0.0.0\n\nreplace " + here + " => " + repository(t) + "\n",
	}
	maps.Copy(all, files)
	dir := t.TempDir()
	for name, content := range all {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary = filepath.Join(dir, "program")
	build := exec.Command("go", "build", "-mod=mod", "-o", binary, ".")
	build.Dir, build.Env = dir, append(os.Environ(), "GOPROXY=off", "GOWORK=off", "GOFLAGS=")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return binary
}
