package architecture

import (
	"go/ast"
	"slices"
	"strings"
)

// stubs are the methods of client.Client that return generated stubs.
var stubs = []string{"Processes", "Sessions", "Files"}

// checkStubs finds calls in commands that bypass the SDK: other programs need the same calls.
func checkStubs(t *tree) []string {
	var found []string
	for _, file := range t.files {
		if file.test || !within(file.dir, "cmd") {
			continue
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			selected, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			name := selected.Sel.Name
			if len(call.Args) == 0 && slices.Contains(stubs, name) || strings.HasPrefix(name, "New") && strings.HasSuffix(name, "ServiceClient") {
				found = append(found, t.at(node.Pos(), "%s in %s: give package client a method for it", name, file.dir))
			}
			return true
		})
	}
	return found
}
