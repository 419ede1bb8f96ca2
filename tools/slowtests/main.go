// Command slowtests prints what `go test` is called with to run some tests and no others:
// -run and a pattern, then the packages. Its arguments are the root of the repository,
// which tests, and the directories of packages to leave out. "race" are the tests that the
// race detector skips, or in which it skips a check; "all" are these and those that -short
// skips. A test that -short makes smaller, or of which it skips some subtests, is in
// neither: make test runs it small, make test-all in full.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// helpers are the packages whose functions tests call to be skipped.
var helpers = []string{"internal/testrace", "integration/harness"}

// marks finds functions that a test must not run with.
var marks = map[string]func(body ast.Node) bool{
	"race": usesTestrace,
	"all":  func(body ast.Node) bool { return skipsIfShort(body) || usesTestrace(body) },
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 || marks[os.Args[2]] == nil {
		log.Fatal("usage: slowtests ROOT race|all [DIRECTORY...]")
	}
	root, isMarked := os.Args[1], marks[os.Args[2]]
	sources, err := testSources(os.DirFS(root))
	if err != nil {
		log.Fatal(err)
	}
	var found map[string]bool
	for _, dir := range helpers {
		if found, err = marked(root, sources[dir], found, isMarked); err != nil {
			log.Fatal(err)
		}
		delete(sources, dir)
	}
	for _, dir := range os.Args[3:] {
		delete(sources, dir)
	}
	var tests, packages []string
	for _, dir := range slices.Sorted(maps.Keys(sources)) {
		functions, err := marked(root, sources[dir], found, isMarked)
		if err != nil {
			log.Fatal(err)
		}
		before := len(tests)
		for name := range functions {
			if strings.HasPrefix(name, "Test") && name != "TestMain" {
				tests = append(tests, name)
			}
		}
		if len(tests) > before {
			packages = append(packages, "./"+dir)
		}
	}
	if len(tests) == 0 {
		log.Fatalf("slowtests: no such test under %s: is it the root of the repository?", root)
	}
	slices.Sort(tests)
	fmt.Printf("-run ^(%s)$ %s\n", strings.Join(slices.Compact(tests), "|"), strings.Join(packages, " "))
}

// testSources returns the files with tests of each directory of the module, and those of
// the helpers.
func testSources(root fs.FS) (map[string][]string, error) {
	sources := map[string][]string{}
	err := fs.WalkDir(root, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := entry.Name(); {
		case entry.IsDir() && file != "." && (strings.HasPrefix(name, ".") || slices.Contains([]string{"testdata", "node_modules", "tools", "sdk", "web"}, name)):
			return fs.SkipDir
		case strings.HasSuffix(name, "_test.go"), slices.Contains(helpers, path.Dir(file)) && path.Ext(name) == ".go":
			sources[path.Dir(file)] = append(sources[path.Dir(file)], file)
		}
		return nil
	})
	return sources, err
}

// marked returns the functions of the files that isMarked finds, those of helpers, and
// those that call one of these, but not within a function literal, which would be a
// subtest. Methods of one name count as one function, so that too many tests may be
// found and never too few.
func marked(root string, files []string, helpers map[string]bool, isMarked func(ast.Node) bool) (map[string]bool, error) {
	bodies := map[string][]*ast.BlockStmt{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, declared := range parsed.Decls {
			if function, ok := declared.(*ast.FuncDecl); ok && function.Body != nil {
				bodies[function.Name.Name] = append(bodies[function.Name.Name], function.Body)
			}
		}
	}
	found := maps.Clone(helpers)
	if found == nil {
		found = map[string]bool{}
	}
	isFound := func(body *ast.BlockStmt) bool { return isMarked(body) || callsOneOf(body, found) }
	for grew := true; grew; {
		grew = false
		for name, body := range bodies {
			if !found[name] && slices.ContainsFunc(body, isFound) {
				found[name], grew = true, true
			}
		}
	}
	return found, nil
}

// skipsIfShort reports whether a body has an if statement on testing.Short that skips.
func skipsIfShort(body ast.Node) bool {
	return holds(body, func(node ast.Node) bool {
		branch, ok := node.(*ast.IfStmt)
		return ok && callsOneOf(branch.Cond, map[string]bool{"Short": true}) &&
			callsOneOf(branch.Body, map[string]bool{"Skip": true, "Skipf": true})
	})
}

// usesTestrace reports whether a body is that of a test that the race detector skips, or in
// which it skips a check: whether it uses package testrace, but for Slow, subtests included.
func usesTestrace(body ast.Node) (found bool) {
	ast.Inspect(body, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if ok {
			name, ok := selector.X.(*ast.Ident)
			found = found || ok && name.Name == "testrace" && selector.Sel.Name != "Slow"
		}
		return !found
	})
	return found
}

// callsOneOf reports whether a node calls a function or method with one of the names.
func callsOneOf(node ast.Node, names map[string]bool) bool {
	return holds(node, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return false
		}
		switch function := call.Fun.(type) {
		case *ast.Ident:
			return names[function.Name]
		case *ast.SelectorExpr:
			return names[function.Sel.Name]
		}
		return false
	})
}

// holds reports whether is holds for a node of the tree outside function literals.
func holds(tree ast.Node, is func(ast.Node) bool) (found bool) {
	ast.Inspect(tree, func(node ast.Node) bool {
		if _, ok := node.(*ast.FuncLit); ok || found {
			return false
		}
		found = node != nil && is(node)
		return !found
	})
	return found
}
