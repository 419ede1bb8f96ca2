// Package architecture tests the rules of the code base: which package may import which, which
// packages may use the operating system and the large libraries, what library code never
// calls, that every exported name is documented, and how large types and packages may be.
//
// The rules are data (layering_test.go, libraries_test.go, names_test.go, sizes_test.go); a new
// package is one line in layering_test.go. They read the source and run nothing.
// Each rule is also applied to a tree that breaks it, so that a rule without effect fails.
package architecture

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const modulePath = "github.com/execwire/execwire"

// sourceFile is one parsed Go file.
type sourceFile struct {
	name   string // path from the root of the repository
	dir    string // directory of the file, "." for the root
	test   bool   // the name ends in _test.go
	syntax *ast.File
}

// tree is every hand-written Go file of the main module.
type tree struct {
	fset  *token.FileSet
	files []*sourceFile
}

// isForeign reports whether a directory has no hand-written code of the main module.
func isForeign(name string) bool {
	switch path.Base(name) {
	case "testdata", "node_modules":
		return true
	}
	return slices.Contains([]string{"bin", "gen", "integration/browser", "sdk", "tools", "web"}, name) ||
		name != "." && strings.HasPrefix(path.Base(name), ".")
}

// repositoryTree is the tree of the repository, which is parsed once.
var repositoryTree = sync.OnceValues(func() (*tree, error) { return readTree(os.DirFS("..")) })

// readTree parses all Go files of fsys. An empty tree is an error: a check of nothing must not
// pass.
func readTree(fsys fs.FS) (*tree, error) {
	t := &tree{fset: token.NewFileSet()}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && isForeign(name):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		return t.parse(fsys, name)
	})
	if err == nil && len(t.files) == 0 {
		err = errors.New("no Go files found")
	}
	if err != nil {
		return nil, fmt.Errorf("failed to read the source tree: %w", err)
	}
	return t, nil
}

func (t *tree) parse(fsys fs.FS, name string) error {
	source, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	syntax, err := parser.ParseFile(t.fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	t.files = append(t.files, &sourceFile{
		name:   name,
		dir:    path.Dir(name),
		test:   strings.HasSuffix(name, "_test.go"),
		syntax: syntax,
	})
	return nil
}

// at formats a finding like compilers do, so that editors can jump to it.
func (t *tree) at(pos token.Pos, format string, args ...any) string {
	p := t.fset.Position(pos)
	return fmt.Sprintf("%s:%d: %s", p.Filename, p.Line, fmt.Sprintf(format, args...))
}

// byDir groups the files by directory.
func (t *tree) byDir() map[string][]*sourceFile {
	grouped := map[string][]*sourceFile{}
	for _, file := range t.files {
		grouped[file.dir] = append(grouped[file.dir], file)
	}
	return grouped
}

// importPath returns the unquoted path of an import.
func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		panic("malformed import: " + spec.Path.Value)
	}
	return p
}

// ourPackage returns the directory of an imported package of this module, or false.
func ourPackage(imported string) (string, bool) {
	if imported == modulePath {
		return ".", true
	}
	return strings.CutPrefix(imported, modulePath+"/")
}

// within reports whether the slash path name is dir or lies below it.
func within(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, dir+"/")
}
