package bench

import (
	"fmt"
	"path/filepath"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// The budgets of a confined file call with a running worker, beside an unconfined one: where
// everything may be read, and where a workspace may be written.
const (
	readOnlyCallRatio  = 2
	workspaceCallRatio = 2.5
)

// readOnlyJSON is what harness.ReadOnly is in JSON-RPC.
const readOnlyJSON = `,"sandbox":{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[{"path":{"type":"special","value":{"kind":"root"}},"access":"read"}]},"network":"restricted"},"windowsSandboxLevel":"disabled"}`

// workspaceJSON is workspaceWrite of a directory in JSON-RPC, as clients send it.
const workspaceJSON = `,"sandbox":{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[` +
	`{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},` +
	`{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"},` +
	`{"path":{"type":"special","value":{"kind":"slash_tmp"}},"access":"write"},` +
	`{"path":{"type":"special","value":{"kind":"tmpdir"}},"access":"write"},` +
	`{"path":{"type":"special","value":{"kind":"project_roots","subpath":".git"}},"access":"read","missing_path_behavior":"skip"},` +
	`{"path":{"type":"special","value":{"kind":"project_roots","subpath":".agents"}},"access":"read","missing_path_behavior":"skip"},` +
	`{"path":{"type":"special","value":{"kind":"project_roots","subpath":".codex"}},"access":"read","missing_path_behavior":"skip"},` +
	`{"path":{"type":"special","value":{"kind":"project_roots","subpath":".aws"}},"access":"read","missing_path_behavior":"skip"}]},` +
	`"network":"restricted"},"cwd":"file://%[1]s","workspaceRoots":["file://%[1]s"],"windowsSandboxLevel":"disabled"}`

// workspaceWrite grants read access to all files, and write access to a directory and to
// temporary directories except for protected paths.
func workspaceWrite(dir string) *execwirev1.SandboxPolicy {
	policy := harness.ReadOnly()
	managed := policy.GetManaged()
	managed.WorkspaceRoots = []string{dir}
	special := func(access execwirev1.SandboxAccess, kind execwirev1.SpecialPathKind, below string) {
		entry := &execwirev1.SandboxEntry{Access: access,
			Place: &execwirev1.SandboxEntry_Special{Special: &execwirev1.SpecialPath{Kind: kind, SubPath: below}}}
		if below != "" {
			entry.MissingPathBehavior = execwirev1.MissingPathBehavior_MISSING_PATH_BEHAVIOR_SKIP
		}
		restricted := managed.GetFileSystem().GetRestricted()
		restricted.Entries = append(restricted.Entries, entry)
	}
	const write, read = execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE, execwirev1.SandboxAccess_SANDBOX_ACCESS_READ
	const roots = execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_PROJECT_ROOTS
	special(write, roots, "")
	special(write, execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_SLASH_TMP, "")
	special(write, execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_TMPDIR, "")
	for _, name := range []string{".git", ".agents", ".codex", ".aws"} {
		special(read, roots, name)
	}
	return policy
}

// measureSandboxedFiles makes calls with and without a sandbox in turn, over both transports,
// on a server for each backend. Landlock cannot protect paths in a writable directory.
func measureSandboxedFiles(b *bench) []line {
	var lines []line
	for _, kind := range sandboxBackends {
		path := b.zeroFile(1 << 10)
		lines = append(lines, b.confinedStats(kind.name, kind.name, path, harness.ReadOnly(), readOnlyJSON, readOnlyCallRatio)...)
		if kind.backend == execwirev1.SandboxBackend_SANDBOX_BACKEND_BUBBLEWRAP {
			dir := filepath.Dir(path)
			lines = append(lines, b.confinedStats(kind.name, kind.name+", a workspace", path, workspaceWrite(dir), fmt.Sprintf(workspaceJSON, dir), workspaceCallRatio)...)
		}
	}
	return lines
}

// confinedStats asks for the metadata of a file with a policy, given in both forms,
// that lets nothing be made in .git beside it.
func (b *bench) confinedStats(backend, what, path string, policy *execwirev1.SandboxPolicy, policyJSON string, limit float64) []line {
	setting := "EXECWIRE_SANDBOX_BACKENDS=" + backend
	files := execwirev1.NewFileSystemServiceClient(b.channel(b.startServer(setting), tuned()...))
	stat := func(policy *execwirev1.SandboxPolicy) {
		response, err := files.GetMetadata(b.ctx, &execwirev1.GetMetadataRequest{Path: path, Sandbox: policy})
		if err != nil || response.GetMetadata().GetSize() != 1<<10 {
			b.Fatalf("the metadata of the file is %v: %v", response, err)
		}
	}
	protected := &execwirev1.CreateDirectoryRequest{Path: filepath.Dir(path) + "/.git/hooks", Recursive: true, Sandbox: policy}
	if _, err := files.CreateDirectory(b.ctx, protected); err == nil {
		b.Fatal("the call was not confined")
	}
	grpcLine := b.confinedCalls("gRPC, "+what, func() { stat(nil) }, func() { stat(policy) }, limit)

	c := harness.DialRPCUnread(b, harness.StartSocketServer(b, setting).URLs[harness.JSONRPC])
	ask := func(sandbox string) {
		ask(c, `{"id":0,"method":"fs/getMetadata","params":{"path":%q%s}}`, "file://"+path, sandbox)
	}
	return []line{grpcLine, b.confinedCalls("JSON-RPC, "+what, func() { ask("") }, func() { ask(policyJSON) }, limit)}
}

// confinedCalls takes two calls in turn.
func (b *bench) confinedCalls(what string, plain, confined func(), limit float64) line {
	confined() // starts the worker
	times := b.alternate(b.sizes.requests, 0.5, timed("call about a file, beside "+what, plain), timed("call about a file in a sandbox, "+what, confined))
	return atMost("call about a file in a sandbox, warm, "+what+", p50", times[0], times[1], limit, showSeconds)
}
