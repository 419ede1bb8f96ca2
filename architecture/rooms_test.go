package architecture

import (
	"go/ast"
	"slices"
	"strings"
)

// Generated packages.
const (
	genExecwire = "gen/go/execwire/v1"
	genRelay    = "gen/go/codex/exec_server/relay/v1"
)

// domain is plain Go: it can be tested, and embedded, without any door.
var domain = []string{"internal/eventlog", "internal/process", "internal/session", "internal/fsops", "internal/sandbox", "internal/httpclient"}

// relayEnd is what each of the three ends of the relay needs.
var relayEnd = []string{"relay", "internal/wsconn", genRelay, "internal/auth"}

// room is one package of ours and who it may talk to.
type room struct {
	says     string   // what it is, printed with a finding
	imports  []string // rooms its non-test files may import
	all      bool     // its non-test files may import every room but cmd
	testOnly bool     // it has no non-test files
	support  bool     // it exists for tests: only _test.go files and other support rooms import it
}

// rooms is the table of the house. A package that is not here does not belong
// to it yet: add it with the least it needs.
var rooms = map[string]room{
	"internal/eventlog":     {says: "what a process said"},
	"internal/process":      {says: "starts, signals and reaps users' processes", imports: []string{"internal/eventlog", "internal/sandbox"}},
	"internal/session":      {says: "who owns which process", imports: []string{"internal/process", "internal/eventlog"}},
	"internal/fsops":        {says: "opens users' paths", imports: []string{"internal/sandbox"}},
	"internal/sandbox":      {says: "describes, applies and reports confinement"},
	"internal/auth":         {says: "turns a credential into a principal and knows no RPC", imports: []string{"internal/secretfile", "internal/sockdiag"}},
	"internal/secretfile":   {says: "reads keys, tokens and tables that nobody else may, again when they change"},
	"internal/sockdiag":     {says: "asks the kernel who owns the other end of a TCP connection on loopback"},
	"internal/inproc":       {says: "the in-process gRPC channel"},
	"internal/backoff":      {says: "paces attempts to reach somebody"},
	"internal/httpclient":   {says: "outgoing HTTP with its address rules"},
	"internal/config":       {says: "every setting with name, default and unit"},
	"internal/syslimit":     {says: "finds the system's limits of memory and processes, and keeps threads in reserve"},
	"internal/observe":      {says: "logs, metrics, traces, audit"},
	"internal/tracecontext": {says: "reads where a caller is in its trace"},
	"internal/wsconn":       {says: "the only importer of the websocket library"},
	"internal/listen":       {says: "opens listeners and tells who the peer is", imports: []string{"internal/auth", "internal/backoff", "internal/secretfile"}},
	"server": {says: "gRPC services over the domain; holds no process state",
		imports: slices.Concat(domain, []string{genExecwire, "internal/auth", "internal/tracecontext", "server/filehelper"})},
	"server/filehelper": {says: "keeps helper processes that make confined calls about files", imports: []string{"internal/sandbox"}},
	"gateway": {says: "JSON-RPC dialects onto the generated gRPC client; knows nothing of processes or files",
		imports: []string{genExecwire, "gateway/jsonrpc", "internal/wsconn", "internal/auth", "internal/tracecontext"}},
	"gateway/jsonrpc":           {says: "envelope, ids, error objects; knows no method"},
	"relay":                     {says: "reliable ordered streams over frames; never looks into payloads", imports: []string{genRelay}},
	"relay/executor":            {says: "the executor's end", imports: append([]string{"internal/secretfile", "internal/backoff"}, relayEnd...)},
	"relay/harness":             {says: "the harness's end", imports: append([]string{"internal/backoff"}, relayEnd...)},
	"relay/rendezvous":          {says: "registry and rendezvous", imports: relayEnd},
	"relay/rendezvous/presence": {says: "executors' presence in embedded NATS", imports: []string{"relay/rendezvous"}},
	"relay/hub": {says: "embeddable wiring of a hub: listeners, credentials, presence",
		imports: []string{"relay/rendezvous", "relay/rendezvous/presence", "internal/auth", "internal/config", "internal/listen", "internal/secretfile", "internal/syslimit", "internal/wsconn"}},
	"client": {says: "the Go SDK",
		imports: []string{genExecwire, genRelay, "gateway/jsonrpc", "internal/backoff", "internal/wsconn", "internal/secretfile", "relay/harness", "client/execserver"}},
	"client/execserver": {says: "the exec-server protocol as a gRPC channel: the gateway the other way round",
		imports: []string{genExecwire, "gateway/jsonrpc", "internal/backoff", "internal/inproc", "internal/wsconn"}},
	"daemon":       {says: "embeddable wiring", all: true},
	"cmd/execwire": {says: "flags, nothing worth a unit test", all: true},
	"cmd/execwire-hub": {says: "the hub's own binary, so that NATS stays out of the daemon",
		imports: []string{"relay/hub", "internal/config", "internal/observe"}},
	"examples/embed":        {says: "how a program has a server inside itself, with what others can import", imports: []string{"daemon", "client"}},
	"examples/hello":        {says: "the shortest program that uses the SDK", imports: []string{"daemon", "client"}},
	"examples/remote-build": {says: "how a program builds a project elsewhere", imports: []string{"daemon", "client", genExecwire}},
	"integration":           {says: "the promises, through public surfaces", testOnly: true},
	"architecture":          {says: "the rules of the house", testOnly: true},
	"internal/leakcheck":    {says: "fails tests that leave something behind", support: true},
	"internal/testcert":     {says: "authorities and certificates for tests", support: true},
	"internal/testproc":     {says: "hostile and helpful child processes for tests", support: true},
}

// never repeats what the table implies for the borders that matter most, so
// that widening a line of the table cannot open one of them by accident.
var never = []struct {
	from, to []string
	tests    bool // holds for test files too
	why      string
}{
	{from: domain, to: []string{"gen", "server", "gateway", "relay", "client", "daemon"}, tests: true,
		why: "the domain is plain Go that no door shapes"},
	{from: []string{"gateway"}, to: append([]string{"server"}, domain...),
		why: "a gateway must be able to run on another host, in front of a remote core"},
	{from: []string{"gateway"}, to: []string{"relay", genRelay},
		why: "gateway and relay meet in the wiring, as message streams"},
	{from: []string{"relay"}, to: []string{"gateway", "server", genExecwire},
		why: "the relay never looks into payloads; gateway and relay meet in the wiring"},
	{from: []string{"server"}, to: []string{"gateway", "relay"},
		why: "the core does not know its doors"},
}

// checkRooms applies the table and the never list to every import of ours.
func checkRooms(t *tree) []string {
	var found []string
	for _, file := range t.files {
		here, known := rooms[file.room]
		switch {
		case !known:
			found = append(found, t.at(file.syntax.Package,
				"package %s is not in the table: add it to architecture/rooms_test.go with what it may import", file.room))
			continue
		case here.testOnly && !file.test:
			found = append(found, t.at(file.syntax.Package, "%s (%s) has test files only", file.room, here.says))
		}
		for _, spec := range file.syntax.Imports {
			if to, ours := ourRoom(importPath(spec)); ours {
				found = append(found, checkImport(t, file, spec, to)...)
			}
		}
	}
	return found
}

func checkImport(t *tree, file *sourceFile, spec *ast.ImportSpec, to string) []string {
	var found []string
	if why := refused(file, to); why != "" {
		found = append(found, t.at(spec.Pos(), "%s may not import %s: %s", file.room, to, why))
	}
	for _, border := range never {
		if (border.tests || !file.test) && withinAny(file.room, border.from) && withinAny(to, border.to) {
			found = append(found, t.at(spec.Pos(), "%s must never import %s: %s", file.room, to, border.why))
		}
	}
	return found
}

// refused says why the table does not let file import the room to; empty when
// it does. Test files may use every room but cmd: what they need for a test
// does not shape the package.
func refused(file *sourceFile, to string) string {
	here := rooms[file.room]
	switch {
	case within(to, "cmd"):
		return "a command is imported by nobody"
	case file.room == to, file.test, here.support && rooms[to].support:
		return ""
	case rooms[to].support:
		return "\"" + rooms[to].says + "\" is for _test.go files"
	case rooms[to].testOnly:
		return "it has test files only"
	case here.all, slices.Contains(here.imports, to):
		return ""
	case len(here.imports) == 0:
		return "the room is \"" + here.says + "\" and imports nothing of ours"
	}
	return "the room is \"" + here.says + "\" and imports only " + strings.Join(here.imports, ", ")
}

func withinAny(name string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return within(name, dir) })
}
