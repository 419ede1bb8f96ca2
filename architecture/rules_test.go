package architecture

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

var rules = map[string]func(*tree) []string{
	"rooms":         checkRooms,
	"libraries":     checkLibraries,
	"names":         checkNames,
	"stubs":         checkStubs,
	"package docs":  checkPackageDocs,
	"exported docs": checkExportedDocs,
}

// TestHouse applies every rule to the repository itself.
func TestHouse(t *testing.T) {
	house, err := readTree(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	for rule, check := range rules {
		t.Run(rule, func(t *testing.T) {
			found := check(house)
			slices.Sort(found)
			for _, finding := range found {
				t.Error(finding)
			}
		})
	}
}

// breach is one way to break a rule: a file, and what is said about it.
type breach struct {
	rule, file, source string
	want               string // "" when the rule must accept the file
}

var breaches = []breach{
	{"rooms", "server/a.go", `import _ "github.com/execwire/execwire/internal/session"`, ""},
	{"rooms", "daemon/a.go", `import _ "github.com/execwire/execwire/gateway"`, ""},
	{"rooms", "server/a_test.go", `import _ "github.com/execwire/execwire/internal/testproc"`, ""},
	{"rooms", "internal/newroom/a.go", ``, "internal/newroom is not in the table"},
	{"rooms", "internal/eventlog/a.go", `import _ "github.com/execwire/execwire/internal/process"`, "imports nothing of ours"},
	{"rooms", "internal/session/a.go", `import _ "github.com/execwire/execwire/gen/go/execwire/v1"`, "must never import gen/go/execwire/v1"},
	{"rooms", "internal/session/a_test.go", `import _ "github.com/execwire/execwire/gen/go/execwire/v1"`, "must never import gen/go/execwire/v1"},
	{"rooms", "gateway/a.go", `import _ "github.com/execwire/execwire/server"`, "gateway must never import server"},
	{"rooms", "gateway/jsonrpc/a.go", `import _ "github.com/execwire/execwire/internal/process"`, "must never import internal/process"},
	{"rooms", "gateway/a.go", `import _ "github.com/execwire/execwire/relay/executor"`, "must never import relay/executor"},
	{"rooms", "relay/executor/a.go", `import _ "github.com/execwire/execwire/gateway"`, "must never import gateway"},
	{"rooms", "server/a.go", `import _ "github.com/execwire/execwire/relay"`, "server must never import relay"},
	{"rooms", "internal/auth/a.go", `import _ "github.com/execwire/execwire/internal/config"`, "imports only internal/secretfile"},
	{"rooms", "client/a.go", `import _ "github.com/execwire/execwire/server"`, "client may not import server"},
	{"rooms", "daemon/a.go", `import _ "github.com/execwire/execwire/cmd/execwire"`, "imported by nobody"},
	{"rooms", "daemon/a.go", `import _ "github.com/execwire/execwire/internal/testproc"`, "is for _test.go files"},
	{"rooms", "integration/a.go", ``, "has test files only"},

	{"libraries", "internal/process/a.go", `import _ "github.com/creack/pty"; import _ "os/exec"`, ""},
	{"libraries", "integration/a_test.go", `import _ "os/exec"`, ""},
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
	{"names", "server/a.go", `import "os"; var _ = os.StartProcess`, "one room starts"},
	{"names", "server/a.go", `import "golang.org/x/sys/unix"; var _ = unix.Kill`, "one room signals"},
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
}

// TestRulesCatchBreaches shows each rule a tree of one file, so that a rule
// that no longer sees anything fails here.
func TestRulesCatchBreaches(t *testing.T) {
	for _, b := range breaches {
		t.Run(b.rule+"/"+b.file, func(t *testing.T) {
			found := check(t, b.rule, map[string]string{b.file: "package p\n" + b.source})
			expect(t, found, b.want)
		})
	}
}

func TestPackageDocsCatchBreaches(t *testing.T) {
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

// TestEveryRuleIsShownABreach keeps the two tables above complete.
func TestEveryRuleIsShownABreach(t *testing.T) {
	for rule := range rules {
		caught := rule == "package docs" || slices.ContainsFunc(breaches, func(b breach) bool { return b.rule == rule && b.want != "" })
		if !caught {
			t.Errorf("rule %q has no case in breaches that it must report", rule)
		}
	}
}

func TestEmptyTreeIsAnError(t *testing.T) {
	for name, files := range map[string]fstest.MapFS{
		"nothing":               {},
		"only what is not ours": {"gen/go/a.go": {Data: []byte("package a")}, "p/testdata/a.go": {Data: []byte("package a")}},
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

// expect wants exactly no finding for "", else one that says want.
func expect(t *testing.T, found []string, want string) {
	t.Helper()
	if want == "" && len(found) > 0 {
		t.Errorf("the rule reports what it must accept: %q", found)
	}
	if want != "" && !slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, want) }) {
		t.Errorf("findings are %q, want one that says %q", found, want)
	}
}
