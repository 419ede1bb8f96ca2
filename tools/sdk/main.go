// Command sdk writes the reference of packages as Markdown, a file for each, in the format of
// go doc: godoc's comments, with their links. Its arguments are the root of the repository, the
// directory to write to, and directories of packages. It fails for a link in a comment that leads nowhere.
//
// What an alias exports of an internal package is described with the alias: no other
// page has it.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/doc"
	"go/doc/comment"
	"go/format"
	"go/parser"
	"go/token"
	"log"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/execwire/execwire/"

func main() {
	log.SetFlags(0)
	if len(os.Args) < 4 {
		log.Fatal("usage: sdk ROOT DIRECTORY PACKAGE...")
	}
	root, to, packages := os.Args[1], os.Args[2], os.Args[3:]
	for _, dir := range packages {
		page := &page{root: root, packages: packages}
		if err := page.write(dir); err != nil {
			log.Fatalf("sdk: package %s: %v", dir, err)
		}
		if err := os.WriteFile(filepath.Join(to, path.Base(dir)+".md"), page.text.Bytes(), 0o666); err != nil {
			log.Fatalf("sdk: %v", err)
		}
	}
}

// A page is the text of a package.
type page struct {
	root     string
	packages []string // those with pages
	text     bytes.Buffer
	anchors  []string
	broken   []error
}

// A source is a package with what its declarations were parsed from.
type source struct {
	*doc.Package
	files *token.FileSet
	// imports are the paths of packages by the names by which they are known in it.
	imports map[string]string
}

func (p *page) parse(dir string) (*source, error) {
	context := build.Default
	context.GOOS, context.GOARCH, context.CgoEnabled = "linux", "amd64", false
	found, err := context.ImportDir(filepath.Join(p.root, dir), 0)
	if err != nil {
		return nil, err
	}
	s := &source{files: token.NewFileSet(), imports: map[string]string{}}
	var files []*ast.File
	for _, name := range found.GoFiles {
		file, err := parser.ParseFile(s.files, filepath.Join(found.Dir, name), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, imported := range file.Imports {
			at, _ := strconv.Unquote(imported.Path.Value)
			name := path.Base(at)
			if imported.Name != nil {
				name = imported.Name.Name
			}
			s.imports[name] = at
		}
		files = append(files, file)
	}
	s.Package, err = doc.NewFromFiles(s.files, files, module+dir)
	return s, err
}

func (p *page) write(dir string) error {
	s, err := p.parse(dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(&p.text, "# Package %s\n\n```go\nimport %q\n```\n\n", s.Name, s.ImportPath)
	p.comment(s, s.Doc, 2)
	p.index(s)
	p.section(s, "Constants", s.Consts, nil)
	p.section(s, "Variables", s.Vars, nil)
	p.section(s, "Functions", nil, s.Funcs)
	if len(s.Types) > 0 {
		p.heading(2, "Types")
	}
	for _, t := range s.Types {
		p.heading(3, "type "+t.Name)
		p.declaration(s, t)
		if at, named := s.aliased(t); at != "" {
			if err := p.hidden(strings.TrimPrefix(at, module), named, t.Name); err != nil {
				return err
			}
		}
		for _, group := range [][]*doc.Value{t.Consts, t.Vars} {
			p.values(s, group)
		}
		p.functions(s, 4, append(t.Funcs, t.Methods...), t.Name)
	}
	for i, anchor := range p.anchors {
		if slices.Contains(p.anchors[:i], anchor) {
			p.broken = append(p.broken, fmt.Errorf("two headings have the anchor %s", anchor))
		}
	}
	text := bytes.TrimRight(p.text.Bytes(), "\n")
	p.text.Truncate(len(text) + 1)
	return errors.Join(p.broken...)
}

// aliased returns the internal package and the name for which a type is an alias.
func (s *source) aliased(t *doc.Type) (at, name string) {
	spec, ok := t.Decl.Specs[0].(*ast.TypeSpec)
	if !ok || !spec.Assign.IsValid() {
		return "", ""
	}
	selected, ok := spec.Type.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	at = s.imports[selected.X.(*ast.Ident).Name]
	if !strings.HasPrefix(at, module) || !strings.Contains(at, "/internal/") {
		return "", ""
	}
	return at, selected.Sel.Name
}

// hidden writes the declaration and the methods of a type of an internal package.
func (p *page) hidden(dir, name, alias string) error {
	s, err := p.parse(dir)
	if err != nil {
		return err
	}
	for _, t := range s.Types {
		if t.Name == name {
			p.declaration(s, t)
			p.functions(s, 4, t.Methods, alias)
			return nil
		}
	}
	return fmt.Errorf("%s has no type %s", dir, name)
}

// index lists functions and types with the first sentences of their comments.
func (p *page) index(s *source) {
	p.heading(2, "Index")
	line := func(indent, kind, name, text string) {
		fmt.Fprintf(&p.text, "%s- [%s](#%s): %s\n", indent, name, anchor(kind+name), s.Synopsis(text))
	}
	for _, f := range s.Funcs {
		line("", "func ", f.Name, f.Doc)
	}
	for _, t := range s.Types {
		line("", "type ", t.Name, t.Doc)
		for _, f := range t.Funcs {
			line("  ", "func ", f.Name, f.Doc)
		}
	}
	p.text.WriteByte('\n')
}

func (p *page) section(s *source, title string, values []*doc.Value, functions []*doc.Func) {
	if len(values)+len(functions) > 0 {
		p.heading(2, title)
		p.values(s, values)
		p.functions(s, 3, functions, "")
	}
}

func (p *page) values(s *source, values []*doc.Value) {
	for _, v := range values {
		p.code(s, v.Decl)
		p.comment(s, v.Doc, 5)
	}
}

func (p *page) declaration(s *source, t *doc.Type) {
	p.code(s, t.Decl)
	p.comment(s, t.Doc, 5)
}

// functions writes functions and methods; receiver is the name of their type here.
func (p *page) functions(s *source, level int, functions []*doc.Func, receiver string) {
	for _, f := range functions {
		if f.Recv == "" {
			p.heading(level, "func "+f.Name)
		} else {
			p.heading(level, receiver+"."+f.Name)
		}
		p.code(s, f.Decl)
		p.comment(s, f.Doc, level+1)
	}
}

func (p *page) heading(level int, title string) {
	p.anchors = append(p.anchors, anchor(title))
	fmt.Fprintf(&p.text, "%s %s\n\n", strings.Repeat("#", level), title)
}

// anchor is the fragment that GitHub makes of a heading of names.
func anchor(title string) string {
	return strings.ReplaceAll(strings.ToLower(strings.ReplaceAll(title, ".", "")), " ", "-")
}

func (p *page) code(s *source, declared ast.Decl) {
	ast.Inspect(declared, func(node ast.Node) bool {
		if field, ok := node.(*ast.Field); ok {
			field.Tag = nil // docs/configuration.md has what those of settings say
		}
		return true
	})
	p.text.WriteString("```go\n")
	if err := format.Node(&p.text, s.files, declared); err != nil {
		p.broken = append(p.broken, err)
	}
	p.text.WriteString("\n```\n\n")
}

// unresolved is a link of a comment that godoc shows with its brackets.
var unresolved = regexp.MustCompile(`\[\*?[A-Z]\w*(\.[A-Z]\w*)?\]`)

func (p *page) comment(s *source, text string, level int) {
	parsed := s.Parser().Parse(text)
	p.check(parsed.Content)
	printer := s.Printer()
	printer.HeadingLevel = level
	printer.HeadingID = func(*comment.Heading) string { return "" }
	printer.DocLinkURL = func(link *comment.DocLink) string { return p.link(s, link) }
	p.text.Write(printer.Markdown(parsed))
	if len(parsed.Content) > 0 {
		p.text.WriteByte('\n')
	}
}

// check finds links that are none, and remembers headings.
func (p *page) check(blocks []comment.Block) {
	for _, block := range blocks {
		var texts []comment.Text
		switch block := block.(type) {
		case *comment.Heading:
			texts = block.Text
			var title strings.Builder
			for _, text := range texts {
				if plain, ok := text.(comment.Plain); ok {
					title.WriteString(string(plain))
				}
			}
			p.anchors = append(p.anchors, anchor(title.String()))
		case *comment.Paragraph:
			texts = block.Text
		case *comment.List:
			for _, item := range block.Items {
				p.check(item.Content)
			}
		}
		for _, text := range texts {
			if plain, ok := text.(comment.Plain); ok {
				for _, link := range unresolved.FindAllString(string(plain), -1) {
					p.broken = append(p.broken, fmt.Errorf("%s in a comment leads nowhere", link))
				}
			}
		}
	}
}

// link is where a link of a comment leads; nowhere for names of internal packages.
func (p *page) link(s *source, link *comment.DocLink) string {
	dir, ours := strings.CutPrefix(link.ImportPath, module)
	switch {
	case ours && slices.Contains(p.packages, dir):
		return path.Base(dir) + ".md"
	case link.ImportPath != "":
		return link.DefaultURL("https://pkg.go.dev")
	case strings.Contains(s.ImportPath, "/internal/"):
		return ""
	}
	isFunction := func(f *doc.Func) bool { return f.Name == link.Name }
	if link.Recv != "" {
		has := func(t *doc.Type) bool { return t.Name == link.Recv && slices.ContainsFunc(t.Methods, isFunction) }
		if slices.ContainsFunc(s.Types, has) {
			return "#" + anchor(link.Recv+"."+link.Name)
		}
		return "#" + anchor("type "+link.Recv) // a field, or a method of an interface
	}
	named := func(t *doc.Type) bool { return t.Name == link.Name }
	makes := func(t *doc.Type) bool { return slices.ContainsFunc(t.Funcs, isFunction) }
	switch {
	case slices.ContainsFunc(s.Types, named):
		return "#" + anchor("type "+link.Name)
	case slices.ContainsFunc(s.Funcs, isFunction), slices.ContainsFunc(s.Types, makes):
		return "#" + anchor("func "+link.Name)
	}
	for _, v := range s.Consts {
		if slices.Contains(v.Names, link.Name) {
			return "#constants"
		}
	}
	return "#variables"
}
