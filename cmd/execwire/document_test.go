package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// document is docs/cli.md: the help of every command.
func document() string {
	var b strings.Builder
	b.WriteString(`# Command line

The help of every command, as ` + "`--help`" + ` prints it. Errors are told on stderr, with a
line that says what to do next where there is one to say; stdout is for what was
asked for. Objects of ` + "`--json`" + ` are one per line, and their members stay: new ones may
come.

This file is made by ` + "`EXECWIRE_UPDATE_DOCS=1 go test ./cmd/execwire -run Document`" + `.
`)
	for _, command := range commands(newRootCommand(streams{})) {
		b.WriteString("\n## " + command.CommandPath() + "\n\n```text\n")
		b.WriteString(strings.TrimSpace(command.Long) + "\n\nUsage:\n  " + command.UseLine() + "\n")
		b.WriteString("\nExamples:\n" + command.Example + "\n")
		if flags := command.NonInheritedFlags(); flags.HasAvailableFlags() {
			b.WriteString("\nFlags:\n" + flags.FlagUsagesWrapped(90))
		}
		b.WriteString("```\n")
	}
	return b.String()
}

// commands are a command and all below it that do something.
func commands(command *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{command}
	for _, child := range command.Commands() {
		if !child.Hidden {
			list = append(list, commands(child)...)
		}
	}
	return list
}

func TestDocumentIsUpToDate(t *testing.T) {
	const path = "../../docs/cli.md"
	text, err := os.ReadFile(path)
	if err == nil && string(text) == document() {
		return
	}
	if os.Getenv("EXECWIRE_UPDATE_DOCS") == "" {
		t.Fatalf("%s is out of date: run EXECWIRE_UPDATE_DOCS=1 go test ./cmd/execwire", path)
	}
	if err := os.WriteFile(path, []byte(document()), 0o644); err != nil {
		t.Fatal(err)
	}
}
