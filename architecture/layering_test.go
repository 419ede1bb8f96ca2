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
	genHandover = "gen/go/execwire/handover/v1"
)

// domain is plain Go: it can be tested, and embedded, without any protocol.
var domain = []string{"internal/eventlog", "internal/process", "internal/session", "internal/fsops", "internal/sandbox", "internal/httpclient", "internal/ports"}

// packageRule states what a package is for and what it may import.
type packageRule struct {
	purpose  string   // printed with a finding
	imports  []string // packages its non-test files may import
	all      bool     // its non-test files may import every package but cmd
	testOnly bool     // it has no non-test files
	support  bool     // it exists for tests: only _test.go files and other support packages import it
}

// packages lists every package of the repository. Add a new package with the imports that it needs.
var packages = map[string]packageRule{
	"internal/eventlog":          {purpose: "what a process wrote: sequence numbers, cursors, gaps", imports: []string{"internal/notify"}},
	"internal/process":           {purpose: "starts, signals and reaps users' processes", imports: []string{"internal/cgroup", "internal/confinement", "internal/eventlog", "internal/notify", "internal/osuser", "internal/procfs", "internal/sandbox", "internal/screen"}},
	"internal/screen":            {purpose: "what a terminal shows, by the output that it was sent"},
	"internal/confinement":       {purpose: "recognizes confined processes among peers on this host", imports: []string{"internal/procfs", "internal/sockowner"}},
	"internal/sockowner":         {purpose: "shows and finds the process to which a TCP socket belongs"},
	"internal/osuser":            {purpose: "finds users of this machine, as processes run as them"},
	"internal/procfs":            {purpose: "reads /proc: which processes there are, and where they come from"},
	"internal/cgroup":            {purpose: "a pool of control groups for processes", imports: []string{"internal/procfs"}},
	"internal/guardian":          {purpose: "runs a server below a parent that kills what it leaves", imports: []string{"internal/cgroup", "internal/procfs", "internal/syslimit"}},
	"internal/handover":          {purpose: "replaces the running program by another one that goes on with its state", imports: []string{genHandover, "internal/eventlog", "internal/process", "internal/procfs", "internal/session"}},
	"internal/session":           {purpose: "ownership, attachment, resume, quotas", imports: []string{"internal/process", "internal/eventlog", "internal/notify"}},
	"internal/fsops":             {purpose: "opens users' paths", imports: []string{"internal/gitignore", "internal/notify"}},
	"internal/gitignore":         {purpose: "matches paths with patterns of .gitignore"},
	"internal/sandbox":           {purpose: "describes, applies and reports confinement", imports: []string{"internal/sandbox/innerexec", "internal/sandbox/openfiles"}},
	"internal/sandbox/innerexec": {purpose: "executes a program as the last step inside bubblewrap; initialized before other packages, so it imports nothing"},
	"internal/sandbox/openfiles": {purpose: "the limit of open files before package syscall raises it; initialized before that, so it imports nothing"},
	"internal/auth":              {purpose: "credential to principal; knows no RPC", imports: []string{"internal/osuser", "internal/secretfile", "internal/sockdiag"}},
	"internal/secretfile":        {purpose: "reads and reloads files with secrets, and checks their permissions"},
	"internal/sockdiag":          {purpose: "finds TCP sockets of this host and their owners"},
	"internal/errorinfo":         {purpose: "finds the reason of an error in its gRPC status", imports: []string{genExecwire}},
	"internal/inproc":            {purpose: "the in-process gRPC channel"},
	"internal/tcpconn":           {purpose: "tells the end of a TCP connection from a reset", imports: []string{"internal/sockdiag", "internal/syserr"}},
	"internal/syserr":            {purpose: "what errors of connections and pipes mean, on every system"},
	"internal/backoff":           {purpose: "delays between retries"},
	"internal/deadline":          {purpose: "deadlines of a net.Conn"},
	"internal/buffers":           {purpose: "pooled buffers for data that is passed on"},
	"internal/notify":            {purpose: "wakes goroutines that wait for a change"},
	"internal/httpclient":        {purpose: "outgoing HTTP", imports: []string{"internal/destination", "internal/quota"}},
	"internal/destination":       {purpose: "addresses to which the server connects for its callers"},
	"internal/quota":             {purpose: "counts what each owner has"},
	"internal/ports":             {purpose: "ports on which processes listen, connections to them, and ports for callers", imports: []string{"internal/backoff", "internal/destination", "internal/notify", "internal/process", "internal/procfs", "internal/quota", "internal/sockdiag", "internal/tcpconn"}},
	"internal/buildinfo":         {purpose: "what a program was built from"},
	"internal/systemd":           {purpose: "notifications to systemd, and sockets from it"},
	"internal/config":            {purpose: "every setting with name, default and unit", imports: []string{"internal/similar"}},
	"internal/similar":           {purpose: "the name that was probably meant by another"},
	"internal/syslimit":          {purpose: "the system's limits of memory and processes; reserve threads"},
	"internal/flags":             {purpose: "flags that commands share", imports: []string{"internal/config", "internal/observe"}},
	"internal/commands":          {purpose: "commands that both programs have: settings, completions, manual pages", imports: []string{"internal/config", "internal/flags", "internal/similar"}},
	"internal/history":           {purpose: "keeps records of detached processes in files, for the server after a restart"},
	"internal/audit":             {purpose: "writes the audit log: one record per line in a file"},
	"internal/asciicast":         {purpose: "writes and reads recordings in the format of asciinema"},
	"internal/recorder":          {purpose: "records terminals of processes in files of the server", imports: []string{"internal/asciicast", "internal/eventlog", "internal/process"}},
	"internal/observe":           {purpose: "writes the log of a program"},
	"internal/metrics":           {purpose: "the lists of all metrics, and what serves them"},
	"internal/httpstall":         {purpose: "bounds how long a client may delay the next part of an HTTP request or response"},
	"internal/tty":               {purpose: "raw mode and size of this program's terminal"},
	"internal/tracecontext":      {purpose: "parses the trace context of a call"},
	"internal/tracing":           {purpose: "records spans and sends them to a collector", imports: []string{"internal/errorinfo", "internal/secretfile", "internal/tracecontext"}},
	"internal/jsonrpc":           {purpose: "envelope, ids, error objects; knows no method"},
	"internal/wsconn":            {purpose: "the only importer of the websocket library", imports: []string{"internal/buffers", "internal/sockdiag"}},
	"internal/listen":            {purpose: "opens listeners and identifies peers", imports: []string{"internal/auth", "internal/backoff", "internal/confinement", "internal/secretfile"}},
	"internal/reflection":        {purpose: "gRPC reflection with the comments of the contract"},
	"server": {purpose: "gRPC services over the domain; holds no process state",
		imports: slices.Concat(domain, []string{genExecwire, "internal/auth", "internal/errorinfo", "internal/gitignore", "internal/notify", "internal/audit", "internal/osuser", "internal/recorder", "internal/screen", "internal/tracecontext", "internal/tracing", "server/auditcall", "server/fileworker", "server/traffic"})},
	"server/traffic":    {purpose: "counts the bytes that messages carry", imports: []string{genExecwire}},
	"server/auditcall":  {purpose: "records the calls of the contract in the audit log", imports: []string{genExecwire, "internal/errorinfo", "internal/audit"}},
	"server/admin":      {purpose: "AdminService: operates a running server", imports: []string{genExecwire, "internal/audit", "internal/auth", "internal/config", "internal/process", "internal/procfs", "internal/secretfile", "internal/session", "server"}},
	"server/fileworker": {purpose: "runs the worker processes that make confined file calls", imports: []string{"internal/sandbox", "internal/tracing"}},
	"gateway": {purpose: "connections of JSON-RPC clients: sessions, processes, environment; onto the generated gRPC client",
		imports: []string{genExecwire, "gateway/call", "gateway/files", "gateway/httpcalls", "gateway/param", "gateway/rpcerror", "gateway/sandboxjson", "internal/errorinfo", "internal/inproc", "internal/jsonrpc", "internal/notify", "internal/wsconn", "internal/auth", "internal/tracecontext"}},
	"gateway/files": {purpose: "JSON-RPC calls about files",
		imports: []string{genExecwire, "gateway/call", "gateway/param", "gateway/rpcerror", "gateway/sandboxjson", "internal/errorinfo", "internal/inproc", "internal/jsonrpc"}},
	"gateway/filehttp": {purpose: "files over plain HTTP, onto the generated gRPC client", imports: []string{genExecwire, "gateway/rpcerror", "internal/errorinfo", "internal/inproc"}},
	"gateway/httpcalls": {purpose: "http/request of JSON-RPC",
		imports: []string{genExecwire, "gateway/call", "gateway/param", "gateway/rpcerror", "internal/errorinfo", "internal/jsonrpc", "internal/wsconn"}},
	"gateway/call":              {purpose: "order, results, limits and watches of JSON-RPC calls of all subjects", imports: []string{"gateway/param", "gateway/rpcerror", "internal/jsonrpc"}},
	"gateway/rpcerror":          {purpose: "errors of the gRPC server as JSON-RPC errors", imports: []string{genExecwire, "internal/errorinfo", "internal/jsonrpc"}},
	"gateway/wsserver":          {purpose: "HTTP server that upgrades to websockets", imports: []string{"internal/httpstall", "internal/jsonrpc", "internal/wsconn", "internal/auth"}},
	"internal/console":          {purpose: "HTTP servers of the console: a page for one server, and for the executors of a hub", imports: []string{"gateway/connectrpc", "gateway/filehttp", "gen/web", "internal/httpstall"}},
	"gateway/connectrpc":        {purpose: "the contract over HTTP/1.1: Connect, gRPC-Web and JSON, onto any gRPC client", imports: []string{genExecwire, "internal/errorinfo", "internal/httpstall", "internal/inproc", "internal/tracecontext"}},
	"gateway/param":             {purpose: "members of JSON-RPC parameters that several methods have in common", imports: []string{"internal/jsonrpc"}},
	"gateway/sandboxjson":       {purpose: "JSON shapes of sandbox policies", imports: []string{genExecwire, "gateway/param", "internal/jsonrpc"}},
	"relay":                     {purpose: "reliable ordered streams over frames; never parses payloads", imports: []string{"internal/buffers", "internal/deadline", "internal/notify", "internal/tracecontext"}},
	"relay/executor":            {purpose: "the executor's end", imports: []string{"internal/backoff", "internal/secretfile", "internal/sockowner", "internal/wsconn", "relay"}},
	"relay/harness":             {purpose: "the harness's end", imports: []string{"internal/backoff", "internal/notify", "internal/tracecontext", "internal/wsconn", "relay"}},
	"relay/rendezvous":          {purpose: "registry and rendezvous", imports: []string{"internal/audit", "internal/auth", "internal/buffers", "internal/notify", "internal/quota", "internal/tracing", "internal/wsconn", "relay"}},
	"relay/rendezvous/presence": {purpose: "executors' presence in embedded NATS", imports: []string{"internal/notify", "relay/rendezvous"}},
	"relay/channels":            {purpose: "gRPC connections of a hub to its executors", imports: []string{"client"}},
	"relay/preview": {purpose: "ports of executors over HTTP",
		imports: []string{"client", "relay/channels", "internal/audit", "internal/auth", "internal/httpstall", "internal/listen", "internal/tracecontext", "internal/tracing", "relay/rendezvous"}},
	"relay/hub": {purpose: "embeddable wiring of a hub: listeners, credentials, presence",
		imports: []string{"relay", "relay/channels", "relay/harness", "relay/preview", "internal/console", "relay/rendezvous", "relay/rendezvous/presence", "internal/audit", "internal/auth", "internal/config", "internal/confinement", "internal/listen", "internal/metrics", "internal/secretfile", "internal/syslimit", "internal/tracing", "internal/wsconn", "internal/buildinfo"}},
	"client": {purpose: "the Go SDK",
		imports: []string{genExecwire, "internal/errorinfo", "internal/jsonrpc", "internal/backoff", "internal/gitignore", "internal/notify", "internal/wsconn", "internal/secretfile", "internal/sockowner", "internal/syserr", "internal/tracecontext", "internal/tty", "relay", "relay/harness", "client/execserver", "client/internal/outputcodec", "client/internal/portconn", "client/internal/transfer", "client/internal/waitread"}},
	"client/recording":             {purpose: "writes recordings of processes", imports: []string{"client", genExecwire, "internal/asciicast"}},
	"client/internal/commandgroup": {purpose: "a command started by the client, with its descendants"},
	"client/internal/outputcodec":  {purpose: "decodes output without a copy", imports: []string{genExecwire}},
	"client/internal/portconn":     {purpose: "a ConnectPort stream as a net.Conn", imports: []string{genExecwire, "internal/deadline", "internal/notify"}},
	"client/internal/transfer":     {purpose: "copies trees of files between two machines", imports: []string{genExecwire, "internal/gitignore"}},
	"client/internal/waitread":     {purpose: "reads of standard input that can be interrupted"},
	"client/execserver": {purpose: "client of JSON-RPC exec servers",
		imports: []string{genExecwire, "client/internal/commandgroup", "internal/errorinfo", "internal/jsonrpc", "internal/backoff", "internal/inproc", "internal/notify", "internal/secretfile", "internal/tracecontext"}},
	"daemon":                         {purpose: "embeddable wiring", all: true},
	"cmd/execwire":                   {purpose: "flags and output", all: true},
	"cmd/execwire/internal/complete": {purpose: "completes words of command lines from what a server knows", imports: []string{"client", genExecwire}},
	"cmd/execwire/internal/console":  {purpose: "command that shows the console", imports: []string{"client", "internal/console", "internal/tty"}},
	"cmd/execwire/internal/contexts": {purpose: "commands for the user's contexts, which name servers", imports: []string{"internal/config"}},
	"cmd/execwire/internal/display":  {purpose: "formats what commands show to people"},
	"cmd/execwire/internal/filemode": {purpose: "parses the modes of chmod"},
	"cmd/execwire/internal/operate":  {purpose: "commands that operate a running server", imports: []string{"client", "cmd/execwire/internal/display", "internal/config", "internal/tty", genExecwire}},
	"cmd/execwire/internal/owners":   {purpose: "finds the names of users and groups of a server"},
	"cmd/execwire/internal/recording": {purpose: "commands that record processes and play recordings",
		imports: []string{"client", "client/recording", genExecwire, "internal/asciicast", "internal/flags", "internal/screen", "internal/tty"}},
	"cmd/execwire/internal/terminal": {purpose: "connects the command's terminal and signals to a process",
		imports: []string{"client", genExecwire, "internal/screen", "internal/tty"}},
	"cmd/execwire/internal/portforward": {purpose: "forwards local ports to ports of a server",
		imports: []string{"client", genExecwire, "internal/backoff", "internal/tcpconn"}},
	"cmd/execwire-hub": {purpose: "the hub's own binary, so that NATS stays out of the daemon",
		imports: []string{"relay/hub", "internal/buildinfo", "internal/commands", "internal/config", "internal/flags", "internal/observe", "internal/systemd"}},
	"examples/agent":           {purpose: "example: run the commands of an agent", imports: []string{"client", genExecwire}},
	"examples/embed":           {purpose: "example: a program that embeds a server", imports: []string{"daemon", "client"}},
	"examples/hello":           {purpose: "example: the shortest program that uses the SDK", imports: []string{"daemon", "client"}},
	"examples/remote-build":    {purpose: "example: build a project on a remote machine", imports: []string{"daemon", "client", genExecwire}},
	"examples/terminal":        {purpose: "example: a program at this terminal", imports: []string{"client", genExecwire}},
	"examples/upload":          {purpose: "example: copy a directory, with progress", imports: []string{"client"}},
	"integration/harness":      {purpose: "servers, clients and checks that the packages of integration share", all: true, support: true},
	"integration/bench":        {purpose: "measures against the budgets of docs/perf.md", testOnly: true},
	"integration/cli":          {purpose: "end-to-end tests of the commands", testOnly: true},
	"integration/conformance":  {purpose: "transcripts and documented examples of JSON-RPC", testOnly: true},
	"integration/documents":    {purpose: "runs the examples of the documents and of examples/", testOnly: true},
	"integration/files":        {purpose: "end-to-end tests of file operations", testOnly: true},
	"integration/gateway":      {purpose: "end-to-end tests of the JSON-RPC gateway", testOnly: true},
	"integration/hostile":      {purpose: "attacks of hostile clients", testOnly: true},
	"integration/operations":   {purpose: "end-to-end tests of running a server", testOnly: true},
	"integration/upgrade":      {purpose: "end-to-end tests of replacing a server by another program", testOnly: true},
	"integration/process":      {purpose: "end-to-end tests of processes", testOnly: true},
	"integration/relay":        {purpose: "end-to-end tests of executors behind a hub", testOnly: true},
	"integration/session":      {purpose: "end-to-end tests of sessions", testOnly: true},
	"integration/transports":   {purpose: "every client operation over every transport", testOnly: true},
	"architecture":             {purpose: "tests the rules of the code base", testOnly: true},
	"internal/leakcheck":       {purpose: "fails tests that leak goroutines, processes or files", support: true},
	"internal/audit/audittest": {purpose: "checks audit logs in tests", imports: []string{"internal/audit"}, support: true},
	"internal/testcert":        {purpose: "authorities and certificates for tests", support: true},
	"internal/testowner":       {purpose: "owns a process in either form of the contract", support: true, imports: []string{genExecwire, "internal/errorinfo"}},
	"internal/testrace":        {purpose: "which tests run with the race detector, and which without", support: true},
	"internal/connectserver": {purpose: "the server under test of Connect's conformance runner", support: true,
		imports: []string{"gateway/connectrpc", "gateway/wsserver", "internal/inproc"}},
	"internal/testport":     {purpose: "reserves TCP ports for tests", support: true},
	"internal/testprograms": {purpose: "the programs of internal/testproc in a binary of their own", support: true},
	"internal/testproc":     {purpose: "hostile and helpful child processes for tests", support: true},
}

// never repeats the most important consequences of the table, so that a change of the table
// cannot permit such an import by accident.
var never = []struct {
	from, to []string
	tests    bool // holds for test files too
	why      string
}{
	{from: domain, to: []string{"gen", "server", "gateway", "relay", "client", "daemon"}, tests: true,
		why: "domain packages know no protocol"},
	{from: []string{"gateway"}, to: append([]string{"server"}, domain...),
		why: "a gateway must be able to run on another host, in front of a remote server"},
	{from: []string{"gateway"}, to: []string{"relay", genRelay},
		why: "gateway and relay meet in daemon, as message streams"},
	{from: []string{"relay"}, to: []string{"gateway", "server", genExecwire},
		why: "the relay never parses payloads; gateway and relay meet in daemon"},
	{from: []string{"server"}, to: []string{"gateway", "relay"},
		why: "the server does not know its protocols' translators"},
}

// checkLayering applies the table and the never list to every import of this module's packages.
func checkLayering(t *tree) []string {
	var found []string
	for _, file := range t.files {
		here, known := packages[file.dir]
		switch {
		case !known:
			found = append(found, t.at(file.syntax.Package,
				"package %s is not in the table: add it to architecture/layering_test.go with what it may import", file.dir))
			continue
		case here.testOnly && !file.test:
			found = append(found, t.at(file.syntax.Package, "%s (%s) has test files only", file.dir, here.purpose))
		}
		for _, spec := range file.syntax.Imports {
			if to, ours := ourPackage(importPath(spec)); ours {
				found = append(found, checkImport(t, file, spec, to)...)
			}
		}
	}
	return found
}

func checkImport(t *tree, file *sourceFile, spec *ast.ImportSpec, to string) []string {
	var found []string
	if why := refused(file, to); why != "" {
		found = append(found, t.at(spec.Pos(), "%s may not import %s: %s", file.dir, to, why))
	}
	for _, border := range never {
		if (border.tests || !file.test) && withinAny(file.dir, border.from) && withinAny(to, border.to) {
			found = append(found, t.at(spec.Pos(), "%s must never import %s: %s", file.dir, to, border.why))
		}
	}
	return found
}

// refused returns why the table forbids file to import package to, or "". Test files may
// import every package but cmd: what a test needs does not shape the package.
func refused(file *sourceFile, to string) string {
	here := packages[file.dir]
	switch {
	case within(to, "cmd") && !within(file.dir, strings.Split(to, "/internal/")[0]):
		return "only a command imports its packages"
	case file.dir == to, file.test, here.support && packages[to].support:
		return ""
	case packages[to].support:
		return "\"" + packages[to].purpose + "\" is for _test.go files"
	case packages[to].testOnly:
		return "it has test files only"
	case here.all, slices.Contains(here.imports, to):
		return ""
	case len(here.imports) == 0:
		return "the package is \"" + here.purpose + "\" and imports nothing of ours"
	}
	return "the package is \"" + here.purpose + "\" and imports only " + strings.Join(here.imports, ", ")
}

func withinAny(name string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return within(name, dir) })
}
