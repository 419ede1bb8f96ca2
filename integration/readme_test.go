package integration

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// example is one command of README.md and what it says.
type example struct{ command, says string }

// examplesOf are the commands behind "$ " in the console blocks of a document.
func examplesOf(t *testing.T, document string) []example {
	t.Helper()
	text, err := os.ReadFile("../" + document)
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
			if command, says, _ := strings.Cut(entry, "\n"); command != "" {
				list = append(list, example{command, strings.TrimSpace(says)})
			}
		}
	}
	return list
}

// TestReadmeIsTrue runs what the README tells a newcomer to type.
func TestReadmeIsTrue(t *testing.T) { runExamples(t, "README.md", 5) }

// TestReadmeShowsWhatTheExamplesSay: what a newcomer reads is what was compiled.
func TestReadmeShowsWhatTheExamplesSay(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../examples/hello/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(readme), "```go\n")
	block, _, _ = strings.Cut(block, "```")
	if !found || !strings.Contains(string(example), block) {
		t.Errorf("examples/hello has nothing like\n%s", block)
	}
}

// TestSandboxesCanBeVerified runs what the document about security says shows that
// they confine.
func TestSandboxesCanBeVerified(t *testing.T) { runExamples(t, "docs/security.md", 6) }

// runExamples runs the commands of a document, least at least.
func runExamples(t *testing.T, document string, least int) {
	t.Helper()
	server := serve(t)
	here := strings.NewReplacer(
		"bin/execwire", execwire,
		"./examples", "../examples",
		"grpcurl", tool(t, "grpcurl"),
		"127.0.0.1:7420", server.address(tcpDoor),
	)
	// Where the document relies on the default address.
	runCommands(t, document, least, here, []string{"EXECWIRE_SERVER=" + server.urls[tcpDoor]})
}

// runCommands runs the commands of a document with what is different here, and
// with variables.
func runCommands(t *testing.T, document string, least int, here *strings.Replacer, variables []string) {
	t.Helper()
	examples := examplesOf(t, document)
	if len(examples) < least {
		t.Fatalf("%s has %d examples", document, len(examples))
	}
	for _, e := range examples {
		t.Run(e.command, func(t *testing.T) {
			shell := exec.CommandContext(testContext(t), "bash", "-c", here.Replace(e.command))
			shell.Env = append(os.Environ(), variables...)
			said, err := shell.Output()
			if err != nil {
				t.Fatalf("%v", err)
			}
			if got := strings.TrimSpace(string(said)); got != e.says {
				t.Errorf("it says %q, and %s %q", got, document, e.says)
			}
		})
	}
}
