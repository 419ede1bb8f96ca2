package config

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// document returns the table of settings for a document.
func document(settings []Setting) string {
	var b strings.Builder
	b.WriteString("| setting | default | unit | range | reload | what it does |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, s := range settings {
		bounds := "–"
		if s.Min != "" {
			bounds = s.Min + " to " + s.Max
		}
		reload := "no"
		if s.Reload {
			reload = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s | %s |\n", s.Name, s.Default, s.Unit, bounds, reload, s.Help)
	}
	return b.String()
}

// TestDocument_IsUpToDate compares the documents with the settings. Set
// EXECWIRE_UPDATE_DOCS=1 to write them.
func TestDocument_IsUpToDate(t *testing.T) {
	for _, d := range []struct {
		path     string
		settings []Setting
	}{{"../../docs/configuration.md", Settings()}, {"../../docs/hub.md", HubSettings()}} {
		t.Run(d.path, func(t *testing.T) { compareDocument(t, d.path, document(d.settings)) })
	}
}

func compareDocument(t *testing.T, path, want string) {
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
	if current == want {
		return
	}
	if os.Getenv("EXECWIRE_UPDATE_DOCS") == "" {
		t.Fatalf("%s is out of date: run EXECWIRE_UPDATE_DOCS=1 go test ./internal/config", path)
	}
	if err := os.WriteFile(path, []byte(head+begin+want+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}
