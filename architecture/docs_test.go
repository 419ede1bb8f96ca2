package architecture

import (
	"go/ast"
	"go/token"
	"strings"
)

// checkPackageDocs requires exactly one package comment per package, in the form that godoc
// shows: a second one is usually a licence or a stray line that became part of the
// documentation.
func checkPackageDocs(t *tree) []string {
	var found []string
	for dir, files := range t.byDir() {
		if production := productionFiles(files); len(production) > 0 {
			files = production
		}
		var documented []*sourceFile
		for _, file := range files {
			if file.syntax.Doc != nil {
				documented = append(documented, file)
			}
		}
		switch {
		case len(documented) == 0:
			found = append(found, t.at(files[0].syntax.Package, "package %s has no package comment", dir))
		case len(documented) > 1:
			found = append(found, t.at(documented[1].syntax.Package,
				"package %s has a second package comment; the first is in %s", dir, documented[0].name))
		case !hasStandardOpening(documented[0].syntax):
			found = append(found, t.at(documented[0].syntax.Package,
				"the comment of package %s begins neither \"Package %s\" nor \"Command\"", dir, documented[0].syntax.Name.Name))
		}
	}
	return found
}

func productionFiles(files []*sourceFile) []*sourceFile {
	var production []*sourceFile
	for _, file := range files {
		if !file.test {
			production = append(production, file)
		}
	}
	return production
}

func hasStandardOpening(file *ast.File) bool {
	if file.Name.Name == "main" {
		return strings.HasPrefix(file.Doc.Text(), "Command ")
	}
	return strings.HasPrefix(file.Doc.Text(), "Package "+strings.TrimSuffix(file.Name.Name, "_test")+" ")
}

// checkExportedDocs requires a comment on every exported name outside test files, including
// fields and interface methods except in support packages.
func checkExportedDocs(t *tree) []string {
	var found []string
	for _, file := range t.files {
		if file.test {
			continue
		}
		missing := func(pos token.Pos, name string) {
			found = append(found, t.at(pos, "exported %s has no comment", name))
		}
		for _, decl := range file.syntax.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				checkFuncDoc(decl, missing)
			case *ast.GenDecl:
				checkGenDoc(t, decl, !packages[file.dir].support, missing)
			}
		}
	}
	return found
}

// selfEvident are methods whose contract is that of the standard library's
// interface.
var selfEvident = map[string]bool{"Error": true, "String": true, "Unwrap": true, "Read": true, "Write": true}

func checkFuncDoc(decl *ast.FuncDecl, missing func(token.Pos, string)) {
	if decl.Doc != nil || !decl.Name.IsExported() {
		return
	}
	if decl.Recv == nil {
		missing(decl.Pos(), decl.Name.Name)
		return
	}
	if owner := receiver(decl); ast.IsExported(owner) && !selfEvident[decl.Name.Name] {
		missing(decl.Pos(), owner+"."+decl.Name.Name)
	}
}

// receiver names the type a method belongs to.
func receiver(decl *ast.FuncDecl) string {
	for expr := decl.Recv.List[0].Type; ; {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.ParenExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

// checkGenDoc accepts one comment for a parenthesised group of constants or variables, but
// requires one for each type, and for its members if members is set.
func checkGenDoc(t *tree, decl *ast.GenDecl, members bool, missing func(token.Pos, string)) {
	for _, spec := range decl.Specs {
		switch spec := spec.(type) {
		case *ast.ValueSpec:
			if decl.Doc != nil || spec.Doc != nil || spec.Comment != nil {
				continue
			}
			for _, name := range spec.Names {
				if name.IsExported() {
					missing(name.Pos(), name.Name)
				}
			}
		case *ast.TypeSpec:
			if !spec.Name.IsExported() {
				continue
			}
			if spec.Doc == nil && (decl.Lparen.IsValid() || decl.Doc == nil) {
				missing(spec.Pos(), spec.Name.Name)
			}
			if members {
				checkMembers(t, spec, missing)
			}
		}
	}
}

// checkMembers requires comments on exported fields and methods. A comment covers the lines
// that follow it up to a blank line: related fields share one.
func checkMembers(t *tree, spec *ast.TypeSpec, missing func(token.Pos, string)) {
	var members *ast.FieldList
	switch body := spec.Type.(type) {
	case *ast.StructType:
		members = body.Fields
	case *ast.InterfaceType:
		members = body.Methods
	default:
		return
	}
	covered, last := false, 0
	for _, field := range members.List {
		begins := t.fset.Position(field.Pos()).Line
		covered = field.Doc != nil || field.Comment != nil || covered && begins == last+1
		last = t.fset.Position(field.End()).Line
		for _, name := range field.Names {
			if name.IsExported() && !covered {
				missing(name.Pos(), spec.Name.Name+"."+name.Name)
			}
		}
	}
}
