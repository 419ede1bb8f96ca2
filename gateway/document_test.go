package gateway

import (
	"os"
	"regexp"
	"testing"
)

func TestProtocolDocument_HasEveryMethod(t *testing.T) {
	text, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range methods {
		heading := regexp.MustCompile(`(?m)^#+ .*\b` + regexp.QuoteMeta(name) + `\b`)
		example := regexp.MustCompile(`(?m)^> .*"method":"` + regexp.QuoteMeta(name) + `"`)
		if !heading.Match(text) || !example.Match(text) {
			t.Errorf("PROTOCOL.md has no section with an example of %s", name)
		}
	}
}
