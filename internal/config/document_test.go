package config

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// document is the part of docs/configuration.md that is made from the
// settings.
func document() string {
	var b strings.Builder
	b.WriteString("| setting | default | unit | range | what it does |\n| --- | --- | --- | --- | --- |\n")
	for _, s := range Settings() {
		bounds := "–"
		if s.Min != "" {
			bounds = s.Min + " to " + s.Max
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", s.Name, s.Default, s.Unit, bounds, s.Help)
	}
	return b.String()
}

// TestDocumentIsUpToDate holds docs/configuration.md against the settings. Set
// EXECWIRE_UPDATE_DOCS=1 to write it anew.
func TestDocumentIsUpToDate(t *testing.T) {
	const path = "../../docs/configuration.md"
	const begin, end = "<!-- settings: begin -->\n", "<!-- settings: end -->"
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
		t.Fatalf("%s is out of date: run EXECWIRE_UPDATE_DOCS=1 go test ./internal/config", path)
	}
	if err := os.WriteFile(path, []byte(head+begin+document()+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}
