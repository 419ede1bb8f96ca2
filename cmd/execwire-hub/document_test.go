package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// document returns the part of docs/hub.md that is generated from the command.
func document() string {
	command := newCommand(io.Discard, io.Discard)
	return "```text\n" + strings.TrimSpace(command.Long) + "\n\nUsage:\n  " + command.UseLine() +
		"\n\nExamples:\n" + command.Example + "\n\nFlags:\n" + command.NonInheritedFlags().FlagUsagesWrapped(90) + "```\n"
}

// TestDocument_IsUpToDate compares docs/hub.md with the command. Set
// EXECWIRE_UPDATE_DOCS=1 to update it.
func TestDocument_IsUpToDate(t *testing.T) {
	const path = "../../docs/hub.md"
	const begin, end = "<!-- command: begin -->\n", "<!-- command: end -->"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	current, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s lacks its markers", path)
	}
	if current == document() {
		return
	}
	if os.Getenv("EXECWIRE_UPDATE_DOCS") == "" {
		t.Fatalf("%s is out of date: run EXECWIRE_UPDATE_DOCS=1 go test ./cmd/execwire-hub", path)
	}
	if err := os.WriteFile(path, []byte(head+begin+document()+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestMan_PagesAreValid(t *testing.T) {
	directory := t.TempDir()
	if code := execute([]string{"man", directory}, io.Discard, os.Stderr); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	pages, err := filepath.Glob(directory + "/execwire-hub*.1")
	if err != nil || len(pages) < 4 {
		t.Fatalf("%q, %v", pages, err)
	}
	if out, err := exec.Command("groff", append([]string{"-man", "-ww", "-z"}, pages...)...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}
