package architecture

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

var rules = map[string]func(*tree) []string{
	"layering":      checkLayering,
	"libraries":     checkLibraries,
	"names":         checkNames,
	"stubs":         checkStubs,
	"package docs":  checkPackageDocs,
	"exported docs": checkExportedDocs,
	"sizes":         checkSizes,
}

// TestRepository_FollowsRules applies every rule to the repository itself.
func TestRepository_FollowsRules(t *testing.T) {
	repository, err := repositoryTree()
	if err != nil {
		t.Fatal(err)
	}
	for rule, check := range rules {
		t.Run(rule, func(t *testing.T) {
			found := check(repository)
			slices.Sort(found)
			for _, finding := range found {
				t.Error(finding)
			}
		})
	}
}

// TestPackages_PermitNothingUnused finds packages in the table that do not exist, and imports that
// it permits for nothing.
func TestPackages_PermitNothingUnused(t *testing.T) {
	repository, err := repositoryTree()
	if err != nil {
		t.Fatal(err)
	}
	imported := map[string]map[string]bool{}
	for _, file := range repository.files {
		if imported[file.dir] == nil {
			imported[file.dir] = map[string]bool{}
		}
		for _, spec := range file.syntax.Imports {
			if to, ours := ourPackage(importPath(spec)); ours && !file.test {
				imported[file.dir][to] = true
			}
		}
	}
	for dir, rule := range packages {
		if imported[dir] == nil {
			t.Errorf("%s does not exist: remove it from the table", dir)
		}
		for _, to := range rule.imports {
			if !imported[dir][to] {
				t.Errorf("%s may import %s, but does not: remove it from the table", dir, to)
			}
		}
	}
}

// violation is one way to break a rule: a file, and the expected finding.
type violation struct {
	rule, file, source string
	want               string // "" when the rule must accept the file
}

var violations = []violation{
	{"layering", "server/a.go", `import _ "github.com/execwire/execwire/internal/session"`, ""},
	{"layering", "daemon/a.go", `import _ "github.com/execwire/execwire/gateway"`, ""},
	{"layering", "server/a_test.go", `import _ "github.com/execwire/execwire/internal/testproc"`, ""},
	{"layering", "internal/newpackage/a.go", ``, "internal/newpackage is not in the table"},
	{"layering", "internal/eventlog/a.go", `import _ "github.com/execwire/execwire/internal/process"`, "imports only internal/notify"},
	{"layering", "internal/notify/a.go", `import _ "github.com/execwire/execwire/internal/process"`, "imports nothing of ours"},
	{"layering", "internal/session/a.go", `import _ "github.com/execwire/execwire/gen/go/execwire/v1"`, "must never import gen/go/execwire/v1"},
	{"layering", "internal/session/a_test.go", `import _ "github.com/execwire/execwire/gen/go/execwire/v1"`, "must never import gen/go/execwire/v1"},
	{"layering", "gateway/a.go", `import _ "github.com/execwire/execwire/server"`, "gateway must never import server"},
	{"layering", "gateway/param/a.go", `import _ "github.com/execwire/execwire/internal/process"`, "must never import internal/process"},
	{"layering", "gateway/a.go", `import _ "github.com/execwire/execwire/relay/executor"`, "must never import relay/executor"},
	{"layering", "relay/executor/a.go", `import _ "github.com/execwire/execwire/gateway"`, "must never import gateway"},
	{"layering", "server/a.go", `import _ "github.com/execwire/execwire/relay"`, "server must never import relay"},
	{"layering", "internal/auth/a.go", `import _ "github.com/execwire/execwire/internal/config"`, "imports only internal/osuser, internal/secretfile"},
	{"layering", "client/a.go", `import _ "github.com/execwire/execwire/server"`, "client may not import server"},
	{"layering", "daemon/a.go", `import _ "github.com/execwire/execwire/cmd/execwire"`, "only a command imports"},
	{"layering", "client/a.go", `import _ "github.com/execwire/execwire/cmd/execwire/internal/terminal"`, "only a command imports"},
	{"layering", "cmd/execwire/a.go", `import _ "github.com/execwire/execwire/cmd/execwire/internal/terminal"`, ""},
	{"layering", "daemon/a.go", `import _ "github.com/execwire/execwire/internal/testproc"`, "is for _test.go files"},
	{"layering", "integration/cli/a.go", ``, "has test files only"},
	{"layering", "integration/harness/a.go", `import _ "github.com/execwire/execwire/daemon"`, ""},
	{"layering", "integration/cli/a_test.go", `import _ "github.com/execwire/execwire/integration/harness"`, ""},
	{"layering", "daemon/a.go", `import _ "github.com/execwire/execwire/integration/harness"`, "is for _test.go files"},

	{"libraries", "internal/process/a.go", `import _ "github.com/creack/pty"; import _ "os/exec"`, ""},
	{"libraries", "integration/cli/a_test.go", `import _ "os/exec"`, ""},
	{"libraries", "server/a.go", `import _ "google.golang.org/grpc/codes"`, ""},
	{"libraries", "server/a.go", `import _ "log/slog"`, ""},
	{"libraries", "server/a.go", `import _ "github.com/creack/pty"`, "may not import github.com/creack/pty"},
	{"libraries", "gateway/a.go", `import _ "github.com/coder/websocket/wsjson"`, "may not import github.com/coder/websocket"},
	{"libraries", "internal/wsconn/a.go", `import _ "nhooyr.io/websocket"`, "deprecated by its author"},
	{"libraries", "server/a.go", `import _ "os/exec"`, "may not import os/exec"},
	{"libraries", "internal/process/a.go", `import _ "google.golang.org/grpc/codes"`, "may not import google.golang.org/grpc"},
	{"libraries", "internal/eventlog/a_test.go", `import _ "google.golang.org/protobuf/proto"`, "may not import google.golang.org/protobuf"},
	{"libraries", "server/a.go", `import _ "log"`, "use log/slog"},

	{"names", "server/a.go", `import "time"; var _ = time.NewTimer`, ""},
	{"names", "server/a_test.go", `import "time"; var _ = time.Sleep`, ""},
	{"names", "cmd/execwire/a.go", `import "fmt"; var _ = fmt.Println`, ""},
	{"names", "internal/process/a.go", `import "syscall"; var _ = syscall.Kill`, ""},
	{"names", "server/a.go", `import "time"; func f() { time.Sleep(1) }`, "time.Sleep in server"},
	{"names", "server/a.go", `import clock "time"; var _ = clock.After`, "clock.After in server"},
	{"names", "server/a.go", `import "context"; var _ = context.WithCancel`, "use WithCancelCause"},
	{"names", "server/a.go", `import "fmt"; func f() { fmt.Printf("") }`, "standard output belongs to the command"},
	{"names", "server/a.go", `import "os"; var _ = os.StartProcess`, "one package starts"},
	{"names", "server/a.go", `import "golang.org/x/sys/unix"; var _ = unix.Kill`, "one package signals"},
	{"names", "server/a.go", `func f() { println() }`, "builtin println"},
	{"names", "server/a.go", `var x interface{}`, "write any"},

	{"libraries", "cmd/execwire/a.go", `import _ "google.golang.org/grpc/codes"`, "uses the SDK and nothing else"},
	{"libraries", "cmd/execwire/a_test.go", `import _ "google.golang.org/grpc/codes"`, ""},
	{"stubs", "cmd/execwire/a.go", `func f() { c.Run(); c.Processes(1) }`, ""},
	{"stubs", "daemon/a.go", `func f() { c.Processes() }`, ""},
	{"stubs", "cmd/execwire/a_test.go", `func f() { c.Processes() }`, ""},
	{"stubs", "cmd/execwire/a.go", `func f() { c.Processes().Get() }`, "give package client a method"},
	{"stubs", "cmd/execwire/a.go", `func f() { v1.NewProcessServiceClient(conn) }`, "give package client a method"},

	{"exported docs", "server/a.go", "// T is.\ntype T struct {\n// A and B pair.\nA int\nB int\n\nc int\n}", ""},
	{"exported docs", "server/a.go", "func (t *hidden) Do() {}", ""},
	{"exported docs", "server/a.go", "// E is.\ntype E int\nfunc (E) Error() string", ""},
	{"exported docs", "server/a.go", "// Kinds of things.\nconst (\nA = 1\nB = 2\n)", ""},
	{"exported docs", "internal/testproc/a.go", "// T is.\ntype T struct{ A int }", ""},
	{"exported docs", "server/a.go", "func Do() {}", "exported Do has no comment"},
	{"exported docs", "server/a.go", "type T int", "exported T has no comment"},
	{"exported docs", "server/a.go", "// Group.\ntype (\nT int\n)", "exported T has no comment"},
	{"exported docs", "server/a.go", "// T is.\ntype T[K any] int\nfunc (*T[K]) Do() {}", "exported T.Do has no comment"},
	{"exported docs", "server/a.go", "// T is.\ntype T struct {\n// A is.\nA int\n\nB int\n}", "exported T.B has no comment"},
	{"exported docs", "server/a.go", "// I is.\ntype I interface {\nDo()\n}", "exported I.Do has no comment"},
	{"exported docs", "server/a.go", "const A = 1", "exported A has no comment"},

	{"sizes", "server/a.go", "type t int\n" + methods("t", 30) + methods("u", 30), ""},
	{"sizes", "server/a_test.go", methods("t", 31), ""},
	{"sizes", "client/a.go", methods("Client", 31), ""},
	{"sizes", "server/a.go", methods("t", 31), "server.t has 31 methods"},
	{"sizes", "server/a.go", methods("t[K]", 31), "server.t has 31 methods"},
}

// methods declares n methods of a type.
func methods(of string, n int) string {
	var source strings.Builder
	for i := range n {
		fmt.Fprintf(&source, "func (*%s) m%d() {}\n", of, i)
	}
	return source.String()
}

// TestRules_CatchViolations applies each rule to a tree of one file that breaks it, so that a
// rule without effect fails here.
func TestRules_CatchViolations(t *testing.T) {
	for _, b := range violations {
		t.Run(b.rule+"/"+b.file, func(t *testing.T) {
			found := check(t, b.rule, map[string]string{b.file: "package p\n" + b.source})
			expect(t, found, b.want)
		})
	}
}

func TestPackageDocs_CatchViolations(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"one", map[string]string{"p/a.go": "// Package p is.\npackage p", "p/b.go": "package p", "p/b_test.go": "package p"}, ""},
		{"test package", map[string]string{"p/a_test.go": "// Package p is.\npackage p_test"}, ""},
		{"command", map[string]string{"p/a.go": "// Command p is.\npackage main"}, ""},
		{"none", map[string]string{"p/a.go": "package p"}, "has no package comment"},
		{"only in a test file", map[string]string{"p/a.go": "package p", "p/a_test.go": "// Package p is.\npackage p"}, "has no package comment"},
		{"two", map[string]string{"p/a.go": "// Package p is.\npackage p", "p/b.go": "// Package p too.\npackage p"}, "second package comment"},
		{"licence", map[string]string{"p/a.go": "// Copyright somebody.\npackage p"}, "begins neither"},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, check(t, "package docs", c.files), c.want) })
	}
}

// TestRules_EachHasAViolation keeps the two tables above complete.
func TestRules_EachHasAViolation(t *testing.T) {
	for rule := range rules {
		caught := rule == "package docs" || slices.ContainsFunc(violations, func(b violation) bool { return b.rule == rule && b.want != "" })
		if !caught {
			t.Errorf("rule %q has no case in violations that it must report", rule)
		}
	}
}

func TestReadTree_EmptyTree_Fails(t *testing.T) {
	for name, files := range map[string]fstest.MapFS{
		"nothing":           {},
		"only foreign code": {"gen/go/a.go": {Data: []byte("package a")}, "p/testdata/a.go": {Data: []byte("package a")}},
	} {
		if _, err := readTree(files); err == nil {
			t.Errorf("%s: the tree was accepted", name)
		}
	}
}

func check(t *testing.T, rule string, files map[string]string) []string {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, source := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(source)}
	}
	parsed, err := readTree(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return rules[rule](parsed)
}

// expect checks that there is no finding for "", else one with want.
func expect(t *testing.T, found []string, want string) {
	t.Helper()
	if want == "" && len(found) > 0 {
		t.Errorf("the rule reports what it must accept: %q", found)
	}
	if want != "" && !slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, want) }) {
		t.Errorf("findings are %q, want one with %q", found, want)
	}
}
