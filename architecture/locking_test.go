package architecture

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

var lockName = regexp.MustCompile("`([a-z]+)\\.([A-Za-z]+)\\.([a-z][A-Za-z]*)`")

// TestLocking_NamesLocksThatExist finds every lock of docs/locking.md, written as
// package.type.field, in the source.
func TestLocking_NamesLocksThatExist(t *testing.T) {
	fields := map[string]bool{}
	source, err := repositoryTree()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range source.files {
		if file.test {
			continue
		}
		ast.Inspect(file.syntax, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if body, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range body.Fields.List {
					for _, name := range field.Names {
						fields[file.syntax.Name.Name+"."+spec.Name.Name+"."+name.Name] = true
					}
				}
			}
			return true
		})
	}
	text, _, _ := strings.Cut(readDocument(t, "docs/locking.md"), "## What waits for what")
	names := lockName.FindAllStringSubmatch(text, -1)
	if len(names) < 30 {
		t.Fatalf("docs/locking.md names only %d locks", len(names))
	}
	for _, name := range names {
		if lock := strings.Join(name[1:], "."); !fields[lock] {
			t.Errorf("docs/locking.md names %s, which is not a field", lock)
		}
	}
}
