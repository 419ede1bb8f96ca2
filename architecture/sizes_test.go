package architecture

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"testing"
)

// maxMethods and maxFiles bound types and packages: a type or a package that would have more is two.
const (
	maxMethods = 30
	maxFiles   = 40 // without tests
)

// largeTypes have more than maxMethods, each for a reason.
var largeTypes = map[string]string{
	"client.Client": "36 of its methods are the public API, one for each thing that a program asks a server for",
	"internal/session.Process": "owner, retention and charge change together under the lock of the session: to come to rest ends an owner " +
		"and begins the retention, and a new owner ends it",
}

// checkSizes finds types with too many methods, and packages with too many files.
func checkSizes(t *tree) []string {
	var found []string
	for name, methods := range methodsByType(t) {
		if len(methods) > maxMethods && largeTypes[name] == "" {
			found = append(found, fmt.Sprintf("%s has %d methods, more than %d: give a group of its fields, with the methods that use nothing else, "+
				"a type of its own", name, len(methods), maxMethods))
		}
	}
	for dir, files := range t.byDir() {
		files = slices.DeleteFunc(files, func(file *sourceFile) bool { return file.test })
		if len(files) > maxFiles {
			found = append(found, fmt.Sprintf("%s has %d files, more than %d: it is two packages", dir, len(files), maxFiles))
		}
	}
	return found
}

// methodsByType returns the names of the methods of each type, by package and type, without tests.
func methodsByType(t *tree) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for _, file := range t.files {
		if file.test {
			continue
		}
		for _, decl := range file.syntax.Decls {
			method, ok := decl.(*ast.FuncDecl)
			if !ok || method.Recv == nil {
				continue
			}
			of := file.dir + "." + receiver(method)
			if all[of] == nil {
				all[of] = map[string]bool{}
			}
			all[of][method.Name.Name] = true
		}
	}
	return all
}

func TestSizes_PackageWithManyFiles_Reported(t *testing.T) {
	files := map[string]string{}
	for i := range maxFiles {
		files[fmt.Sprintf("server/%d.go", i)] = "package server"
		files[fmt.Sprintf("server/%d_test.go", i)] = "package server"
	}
	expect(t, check(t, "sizes", files), "")
	files["server/a.go"] = "package server"
	expect(t, check(t, "sizes", files), "server has 41 files")
}

// TestLargeTypes_ExceptNothingUnneeded finds exceptions for types that have few methods or do not
// exist.
func TestLargeTypes_ExceptNothingUnneeded(t *testing.T) {
	repository, err := repositoryTree()
	if err != nil {
		t.Fatal(err)
	}
	methods := methodsByType(repository)
	for _, name := range slices.Sorted(maps.Keys(largeTypes)) {
		if n := len(methods[name]); n <= maxMethods {
			t.Errorf("%s has %d methods: remove it from largeTypes", name, n)
		}
	}
}
