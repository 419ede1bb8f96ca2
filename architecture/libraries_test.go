package architecture

import "slices"

// library is an external package that only some packages may import.
type library struct {
	path  string   // the package and everything below it, unless exact
	exact bool     // the package alone
	only  []string // packages that may import it; none: no package may
	not   []string // packages that may not; all others may
	tests bool     // holds for test files too
	why   string
}

// noRPC lists the packages that must not depend on an RPC library.
var noRPC = append(slices.Clone(domain), "internal/auth", "internal/wsconn", "internal/jsonrpc")

var libraries = []library{
	{path: "google.golang.org/grpc", not: noRPC, tests: true, why: "the domain knows no RPC"},
	{path: "google.golang.org/grpc", not: []string{"cmd/execwire"}, why: "the command uses the SDK and nothing else"},
	{path: "google.golang.org/protobuf", not: noRPC, tests: true, why: "the domain knows no wire format"},
	{path: "google.golang.org/genproto", not: noRPC, tests: true, why: "the domain knows no wire format"},
	{path: "github.com/grpc-ecosystem", not: noRPC, tests: true, why: "the domain knows no RPC"},
	{path: "github.com/creack/pty", only: []string{"internal/process"}, why: "one importer, so that it can be replaced"},
	{path: "github.com/coder/websocket", only: []string{"internal/wsconn"}, why: "limits, pings, close codes and origin are decided in one place"},
	{path: "nhooyr.io/websocket", tests: true, why: "deprecated by its author for github.com/coder/websocket"},
	{path: "github.com/gorilla/websocket", why: "internal/wsconn is our websocket"},
	{path: "golang.org/x/net/websocket", why: "internal/wsconn is our websocket"},
	{path: "os/exec", only: []string{"internal/process", "internal/sandbox", "client/execserver", "cmd/execwire/internal/console"}, why: "one package starts processes, so that none escapes its owner; client/execserver starts the command that is a connection, and the console the user's browser, never users' processes"},
	{path: "github.com/nats-io", only: []string{"relay/rendezvous/presence"}, why: "NATS stays out of everything but the hub's binary"},
	{path: "github.com/coreos/go-oidc", only: []string{"relay/hub"}, why: "sign-in at an OpenID provider stays out of everything but the hub's binary"},
	{path: "golang.org/x/oauth2", only: []string{"relay/hub"}, why: "sign-in at an OpenID provider stays out of everything but the hub's binary"},
	{path: "github.com/prometheus", only: []string{"daemon", "internal/metrics", "relay/hub"}, why: "packages count without Prometheus; one list has all metrics"},
	{path: "log", exact: true, tests: true, why: "use log/slog"},
}

// checkLibraries finds imports of restricted libraries. Support packages count as
// test code.
func checkLibraries(t *tree) []string {
	var found []string
	for _, file := range t.files {
		for _, spec := range file.syntax.Imports {
			for _, lib := range libraries {
				if lib.names(importPath(spec)) && !lib.admits(file) {
					found = append(found, t.at(spec.Pos(), "%s may not import %s: %s", file.dir, lib.path, lib.why))
				}
			}
		}
	}
	return found
}

func (l library) names(imported string) bool {
	return imported == l.path || !l.exact && within(imported, l.path)
}

func (l library) admits(file *sourceFile) bool {
	if !l.tests && (file.test || packages[file.dir].support) {
		return true
	}
	if l.not != nil {
		return !slices.Contains(l.not, file.dir)
	}
	return slices.Contains(l.only, file.dir)
}
