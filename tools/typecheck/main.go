// Command typecheck vets packages for another system, which GOOS and GOARCH name, from source.
// Nothing is compiled, not even the standard library: that costs seconds of a processor
// instead of a minute. Its arguments are the root of the repository and patterns of packages;
// with -test, it vets their tests, too.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/analysis/suite/vet"
	"golang.org/x/tools/go/packages"
)

func main() {
	log.SetFlags(0)
	debug.SetGCPercent(400) // most of what it allocates lives until the end
	tests := flag.Bool("test", false, "vet the tests of the packages, too")
	flag.Parse()
	if flag.NArg() < 2 {
		log.Fatal("usage: typecheck [-test] ROOT PATTERN...")
	}
	found, err := check(flag.Arg(0), *tests, flag.Args()[1:])
	if err != nil {
		log.Fatalf("typecheck: %v", err)
	}
	for _, text := range found {
		fmt.Fprintln(os.Stderr, text)
	}
	if len(found) > 0 {
		os.Exit(1)
	}
}

// check returns what is wrong with the packages.
func check(root string, tests bool, patterns []string) (found []string, err error) {
	if root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	loaded, err := packages.Load(&packages.Config{
		Mode:  packages.LoadAllSyntax | packages.NeedModule,
		Dir:   root,
		Tests: tests,
		ParseFile: func(files *token.FileSet, name string, source []byte) (*ast.File, error) {
			file, err := parser.ParseFile(files, name, source, parser.ParseComments|parser.SkipObjectResolution)
			if err == nil && !strings.HasPrefix(name, root+string(filepath.Separator)) {
				dropBodies(file)
			}
			return file, err
		},
	}, patterns...)
	if err != nil {
		return nil, err
	}
	// The main functions of tests are generated.
	loaded = slices.DeleteFunc(loaded, func(p *packages.Package) bool { return strings.HasSuffix(p.ID, ".test") })
	if len(loaded) == 0 {
		return nil, fmt.Errorf("%s has no packages %q", root, patterns)
	}
	packages.Visit(loaded, nil, func(p *packages.Package) {
		// Dependencies have no bodies: that they do not use their imports is no error.
		p.IllTyped = false
		if p.Module != nil && p.Module.Main || slices.Contains(loaded, p) { // a missing package has no module
			for _, wrong := range p.Errors {
				found = append(found, wrong.Error())
			}
		}
	})
	if len(found) > 0 {
		return found, nil
	}
	graph, err := checker.Analyze(vet.Suite, loaded, nil)
	if err != nil {
		return nil, err
	}
	for _, action := range graph.Roots {
		if action.Err != nil {
			found = append(found, fmt.Sprintf("%s of %s: %v", action.Analyzer, action.Package, action.Err))
		}
		for _, diagnostic := range action.Diagnostics {
			found = append(found, fmt.Sprintf("%s: %s", action.Package.Fset.Position(diagnostic.Pos), diagnostic.Message))
		}
	}
	return found, nil
}

// dropBodies removes what no other package sees: bodies of functions, and elements of tables,
// but for those that state the length of an array.
func dropBodies(file *ast.File) {
	for _, declared := range file.Decls {
		switch declared := declared.(type) {
		case *ast.FuncDecl:
			declared.Body = nil
		case *ast.GenDecl:
			ast.Inspect(declared, func(node ast.Node) bool {
				table, ok := node.(*ast.CompositeLit)
				if !ok {
					_, ok = node.(*ast.FuncLit)
					return !ok
				}
				if array, ok := table.Type.(*ast.ArrayType); ok && array.Len != nil {
					return false
				}
				table.Elts = nil
				return false
			})
		}
	}
}
