// Command slowtests prints what `go test` is called with to run the tests that -short or
// the race detector skips or makes smaller, and no others: -run and a pattern, then the
// packages. They are the tests from which testing.Short or a constant raceEnabled can be
// reached within their package. Its argument is the root of the repository.
package main

import (
	"cmp"
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

func main() {
	log.SetFlags(0)
	var tests, packages []string
	if len(os.Args) != 2 {
		log.Fatal("usage: slowtests ROOT")
	}
	sources, err := testSources(os.DirFS(os.Args[1]))
	if err != nil {
		log.Fatal(err)
	}
	for _, dir := range slices.Sorted(maps.Keys(sources)) {
		calls, err := callsOf(os.Args[1], sources[dir])
		if err != nil {
			log.Fatal(err)
		}
		if slow := slowTests(calls); len(slow) > 0 {
			tests = append(tests, slow...)
			packages = append(packages, "./"+dir)
		}
	}
	if len(tests) == 0 {
		log.Fatalf("slowtests: no test under %s calls testing.Short: is it the root of the repository?", os.Args[1])
	}
	slices.Sort(tests)
	fmt.Printf("-run ^(%s)$ %s\n", strings.Join(slices.Compact(tests), "|"), strings.Join(packages, " "))
}

// testSources returns the files with tests of each directory of the module.
func testSources(root fs.FS) (map[string][]string, error) {
	sources := map[string][]string{}
	err := fs.WalkDir(root, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := entry.Name(); {
		case entry.IsDir() && file != "." && (strings.HasPrefix(name, ".") || slices.Contains([]string{"testdata", "node_modules", "tools"}, name)):
			return fs.SkipDir
		case strings.HasSuffix(name, "_test.go"):
			sources[path.Dir(file)] = append(sources[path.Dir(file)], file)
		}
		return nil
	})
	return sources, err
}

// callsOf returns for each function the names of what it calls. Methods of one name
// count as one function, so that too many tests may be found and never too few.
func callsOf(root string, files []string) (map[string][]string, error) {
	calls := map[string][]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, declared := range parsed.Decls {
			function, ok := declared.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(function, func(node ast.Node) bool {
				switch node := node.(type) {
				case *ast.SelectorExpr:
					name := node.Sel.Name
					if of, ok := node.X.(*ast.Ident); ok {
						name = cmp.Or(map[string]string{"testing": "testing." + name}[of.Name], name)
					}
					calls[function.Name.Name] = append(calls[function.Name.Name], name)
				case *ast.Ident:
					calls[function.Name.Name] = append(calls[function.Name.Name], node.Name)
				}
				return true
			})
		}
	}
	return calls, nil
}

// slowTests returns the tests that reach testing.Short or raceEnabled.
func slowTests(calls map[string][]string) (tests []string) {
	reaches := map[string]bool{"testing.Short": true, "raceEnabled": true}
	for grew := true; grew; {
		grew = false
		for function, called := range calls {
			if !reaches[function] && slices.ContainsFunc(called, func(name string) bool { return reaches[name] }) {
				reaches[function], grew = true, true
			}
		}
	}
	for function := range reaches {
		if strings.HasPrefix(function, "Test") && function != "TestMain" {
			tests = append(tests, function)
		}
	}
	return tests
}
