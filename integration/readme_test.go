package integration

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// example is one command of README.md and what it says.
type example struct{ command, says string }

// readmeExamples are the commands behind "$ " in README.md's console blocks.
func readmeExamples(t *testing.T) []example {
	t.Helper()
	text, err := os.ReadFile("../README.md")
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
func TestReadmeIsTrue(t *testing.T) {
	server := serve(t)
	examples := readmeExamples(t)
	if len(examples) < 5 {
		t.Fatalf("README.md has %d examples", len(examples))
	}
	here := strings.NewReplacer(
		"bin/execwire", execwire,
		"grpcurl", tool(t, "grpcurl"),
		"127.0.0.1:7420", server.address(tcpDoor),
	)
	for _, e := range examples {
		t.Run(e.command, func(t *testing.T) {
			shell := exec.CommandContext(testContext(t), "bash", "-c", here.Replace(e.command))
			// Where the README relies on the default address.
			shell.Env = append(os.Environ(), "EXECWIRE_SERVER="+server.urls[tcpDoor])
			said, err := shell.Output()
			if err != nil {
				t.Fatalf("%v", err)
			}
			if got := strings.TrimSpace(string(said)); got != e.says {
				t.Errorf("it says %q, and the README %q", got, e.says)
			}
		})
	}
}
