package architecture

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var makefilePattern = regexp.MustCompile(`-(?:run|bench) '([^']+)'`)

// TestMakefile_PatternsMatchTests checks the names of tests and benchmarks in the
// Makefile: go test passes when a pattern matches nothing. Each alternative of a group
// is checked.
func TestMakefile_PatternsMatchTests(t *testing.T) {
	source, err := repositoryTree()
	if err != nil {
		t.Fatal(err)
	}
	var functions []string
	for _, file := range source.files {
		for _, declared := range file.syntax.Decls {
			if function, ok := declared.(*ast.FuncDecl); ok && file.test {
				functions = append(functions, function.Name.Name)
			}
		}
	}
	patterns := makefilePattern.FindAllStringSubmatch(readDocument(t, "Makefile"), -1)
	if len(patterns) < 5 {
		t.Fatalf("the Makefile has only %d patterns", len(patterns))
	}
	for _, found := range patterns {
		pattern, _, _ := strings.Cut(strings.ReplaceAll(found[1], "$$", "$"), "/")
		if pattern == "^$" { // nothing, beside -bench
			continue
		}
		for _, alternative := range alternatives(pattern) {
			if !slices.ContainsFunc(functions, regexp.MustCompile(alternative).MatchString) {
				t.Errorf("the Makefile runs %s, which matches no test", alternative)
			}
		}
	}
}

// alternatives expands the first group of a pattern.
func alternatives(pattern string) []string {
	before, rest, grouped := strings.Cut(pattern, "(")
	if !grouped {
		return []string{pattern}
	}
	group, after, _ := strings.Cut(rest, ")")
	var all []string
	for _, alternative := range strings.Split(group, "|") {
		all = append(all, before+alternative+after)
	}
	return all
}
