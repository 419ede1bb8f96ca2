package architecture

import (
	"go/ast"
	"path"
	"slices"
)

// name lists functions or types of another package that production code must not use.
type name struct {
	pkg   string   // import path
	names []string // what must not be used of it
	only  []string // packages that may nevertheless
	cmd   bool     // commands may nevertheless
	why   string
}

var reapers = []string{"internal/process", "internal/cgroup", "internal/guardian", "internal/handover", "internal/sandbox"}

var forbidden = []name{
	{pkg: "time", names: []string{"Sleep", "After", "Tick"},
		why: "it cannot be cancelled: use a timer in a select with the context"},
	{pkg: "context", names: []string{"WithCancel"},
		why: "use WithCancelCause, so that the cancelled code can report why"},
	{pkg: "fmt", names: []string{"Print", "Printf", "Println"}, cmd: true,
		why: "standard output belongs to the command; libraries return errors or log through slog"},
	{pkg: "os", names: []string{"StartProcess", "FindProcess"}, only: reapers,
		why: "one package starts and signals processes"},
	{pkg: "syscall", names: []string{"ForkExec", "StartProcess", "Wait4"}, only: reapers,
		why: "one package starts, signals and reaps processes"},
	{pkg: "syscall", names: []string{"Kill"}, only: append([]string{"client/internal/commandgroup"}, reapers...),
		why: "one package signals processes; client/internal/commandgroup kills the command that client/execserver started as a connection"},
	{pkg: "golang.org/x/sys/unix", names: []string{"Kill", "PidfdSendSignal", "Wait4", "Waitid"}, only: reapers,
		why: "one package signals and reaps processes"},
}

// checkNames finds uses of forbidden names, and spellings the language has
// replaced, in production code. Test files and support packages are free.
func checkNames(t *tree) []string {
	var found []string
	for _, file := range t.files {
		if file.test || packages[file.dir].support {
			continue
		}
		imported := importedAs(file.syntax)
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			found = append(found, checkNode(t, file, imported, node)...)
			return true
		})
	}
	return found
}

func checkNode(t *tree, file *sourceFile, imported map[string]string, node ast.Node) []string {
	switch node := node.(type) {
	case *ast.SelectorExpr:
		qualifier, ok := node.X.(*ast.Ident)
		if !ok {
			return nil
		}
		for _, rule := range forbidden {
			if rule.pkg == imported[qualifier.Name] && slices.Contains(rule.names, node.Sel.Name) && !rule.admits(file) {
				return []string{t.at(node.Pos(), "%s.%s in %s: %s", qualifier.Name, node.Sel.Name, file.dir, rule.why)}
			}
		}
	case *ast.CallExpr:
		if builtin, ok := node.Fun.(*ast.Ident); ok && (builtin.Name == "print" || builtin.Name == "println") {
			return []string{t.at(node.Pos(), "builtin %s in %s: log through slog", builtin.Name, file.dir)}
		}
	case *ast.InterfaceType:
		if len(node.Methods.List) == 0 {
			return []string{t.at(node.Pos(), "interface{} in %s: write any", file.dir)}
		}
	}
	return nil
}

func (n name) admits(file *sourceFile) bool {
	return slices.Contains(n.only, file.dir) || n.cmd && within(file.dir, "cmd")
}

// importedAs maps the name a file uses for a package to its import path.
func importedAs(file *ast.File) map[string]string {
	as := map[string]string{}
	for _, spec := range file.Imports {
		imported := importPath(spec)
		local := path.Base(imported)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		as[local] = imported
	}
	return as
}
