package documents

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testport"
)

// example is a command of a document and its documented output.
type example struct{ command, output string }

// examplesOf returns the commands behind "$ " in the console blocks of a document.
func examplesOf(t *testing.T, document string) []example {
	t.Helper()
	text, err := os.ReadFile("../../" + document)
	if err != nil {
		t.Fatal(err)
	}
	var list []example
	for block := range strings.SplitSeq(string(text), "```console\n") {
		body, _, _ := strings.Cut(block, "\n```")
		if !strings.HasPrefix(body, "$ ") {
			continue
		}
		for entry := range strings.SplitSeq("\n"+body, "\n$ ") {
			if command, output, _ := strings.Cut(entry, "\n"); command != "" {
				list = append(list, example{command, strings.TrimSpace(output)})
			}
		}
	}
	return list
}

// TestReadme_Commands runs the commands of the README.
func TestReadme_Commands(t *testing.T) { runExamples(t, "README.md", 5) }

// TestReadme_MatchesTheExample checks that the README shows a part of examples/hello,
// which is compiled.
func TestReadme_MatchesTheExample(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../../examples/hello/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(readme), "```go\n")
	block, _, _ = strings.Cut(block, "```")
	if !found || !strings.Contains(string(example), block) {
		t.Errorf("examples/hello has nothing like\n%s", block)
	}
}

// TestSecurityDocument_Commands runs the commands with which docs/security.md verifies
// sandboxes.
func TestSecurityDocument_Commands(t *testing.T) { runExamples(t, "docs/security.md", 6) }

// TestProtocolDocument_Commands runs the commands of docs/protocol.md.
func TestProtocolDocument_Commands(t *testing.T) { runExamples(t, "docs/protocol.md", 15) }

// runExamples runs the commands of a document, at least so many.
func runExamples(t *testing.T, document string, least int) {
	t.Helper()
	server := harness.Serve(t)
	here := []string{
		"bin/execwire", harness.Execwire,
		"grpcurl", tool(t, "grpcurl"),
		"http://127.0.0.1:7420", "http://" + server.Address(harness.WebsocketTransport),
		"127.0.0.1:7420", server.Address(harness.TCPTransport),
		"8000", strconv.Itoa(int(testport.Reserve(t))),
	}
	// Some commands rely on the default address.
	runCommands(t, document, least, here, "EXECWIRE_SERVER="+server.URLs[harness.TCPTransport])
}

// runCommands runs the commands of a document in a directory of their own that also replaces
// /tmp, so that two runs on one machine do not share files. here has further replacements for
// strings.NewReplacer, and variables have the form NAME=VALUE.
func runCommands(t *testing.T, document string, least int, here []string, variables ...string) {
	t.Helper()
	examples := examplesOf(t, document)
	if len(examples) < least {
		t.Fatalf("%s has %d examples", document, len(examples))
	}
	dir := harness.ShortDir(t)
	replace := strings.NewReplacer(append(here, "/tmp/", dir+"/", "--cwd /tmp ", "--cwd "+dir+" ")...)
	for _, e := range examples {
		t.Run(e.command, func(t *testing.T) {
			shell := harness.Prepare(exec.Command("bash", "-c", replace.Replace(e.command)))
			shell.Dir, shell.Env = dir, append(shell.Env, variables...)
			output := shell.Complete(t, nil)
			if got, want := strings.TrimSpace(output.Stdout), replace.Replace(e.output); output.Code != 0 || got != want {
				t.Errorf("the output is %+v, and in %s %q", output, document, want)
			}
		})
	}
}
