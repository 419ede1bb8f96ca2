package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/files"
	"github.com/execwire/execwire/gateway/sandboxjson"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// formatPolicy formats a policy as one line.
func formatPolicy(policy *execwirev1.SandboxPolicy) string {
	network := func(n execwirev1.NetworkAccess) string {
		return strings.ToLower(strings.TrimPrefix(n.String(), "NETWORK_ACCESS_"))
	}
	switch p := policy.GetPolicy().(type) {
	case nil:
		return "none"
	case *execwirev1.SandboxPolicy_Disabled:
		return "disabled"
	case *execwirev1.SandboxPolicy_External:
		return "external, network " + network(p.External.GetNetwork())
	}
	managed := policy.GetManaged()
	text := []string{"network " + network(managed.GetNetwork())}
	if len(managed.GetWorkspaceRoots()) > 0 {
		text = append(text, "roots "+strings.Join(managed.GetWorkspaceRoots(), " "))
	}
	restricted := managed.GetFileSystem().GetRestricted()
	if restricted == nil {
		return strings.Join(append(text, "all files"), ", ")
	}
	if restricted.GlobScanMaxDepth != nil {
		text = append(text, fmt.Sprint("depth ", restricted.GetGlobScanMaxDepth()))
	}
	for _, e := range restricted.GetEntries() {
		text = append(text, formatEntry(e))
	}
	return strings.Join(text, ", ")
}

func formatEntry(e *execwirev1.SandboxEntry) string {
	text := strings.ToLower(strings.TrimPrefix(e.GetAccess().String(), "SANDBOX_ACCESS_")) + " "
	switch place := e.GetPlace().(type) {
	case *execwirev1.SandboxEntry_Path:
		text += place.Path
	case *execwirev1.SandboxEntry_Glob:
		text += "glob " + place.Glob
	case *execwirev1.SandboxEntry_Special:
		text += strings.TrimPrefix(place.Special.GetKind().String(), "SPECIAL_PATH_KIND_")
		if sub := place.Special.GetSubPath(); sub != "" {
			text += "/" + sub
		}
	}
	if e.GetMissingPathBehavior() == execwirev1.MissingPathBehavior_MISSING_PATH_BEHAVIOR_SKIP {
		text += " or skip"
	}
	return text
}

// startWith decodes a process/start in /c with more members.
func startWith(cwd, members string) (*startParams, *jsonrpc.Error) {
	read, err := methods["process/start"].decode([]byte(`{"processId":"p","argv":["a"],"env":{},"tty":false,"cwd":"`+cwd+`",`+members+`}`), nil)
	if err != nil {
		return nil, err
	}
	return read.(*startParams), nil
}

// shapes are the policies of all client versions, and their meaning. A sandbox gets the
// windowsSandboxLevel added. File calls have no network policy.
var shapes = []struct{ members, want string }{
	// The first: the policy of the app server, in the parameters themselves.
	{`"sandboxPolicy":{"type":"dangerFullAccess"}`, "disabled"},
	{`"sandboxPolicy":{"type":"readOnly"}`, "network restricted, roots /c, read ROOT"},
	{`"sandboxPolicy":{"type":"readOnly","access":{"type":"fullAccess"},"networkAccess":true}`, "network enabled, roots /c, read ROOT"},
	{`"sandboxPolicy":{"type":"readOnly","access":{"type":"restricted","readableRoots":["/r","file:///s"]}}`,
		"network restricted, roots /c, read MINIMAL, read /r, read /s"},
	{`"sandboxPolicy":{"type":"readOnly","access":{"type":"restricted","includePlatformDefaults":false}}`, "network restricted, roots /c"},
	{`"sandboxPolicy":{"type":"externalSandbox","networkAccess":"enabled"}`, "external, network enabled"},
	{`"sandboxPolicy":{"type":"externalSandbox"}`, "external, network restricted"},
	{`"sandboxPolicy":{"type":"workspaceWrite"}`, "network restricted, roots /c, read ROOT, write PROJECT_ROOTS, write SLASH_TMP, write TMPDIR"},
	{`"sandboxPolicy":{"type":"workspaceWrite","writableRoots":["/w"],"readOnlyAccess":{"type":"restricted"},"networkAccess":true,"excludeTmpdirEnvVar":true,"excludeSlashTmp":true}`,
		"network enabled, roots /c, read MINIMAL, write PROJECT_ROOTS, write /w"},

	// The names in the description of the first version.
	{`"sandbox":{"type":"ReadOnly"}`, "network restricted, roots /c, read ROOT"},
	{`"sandbox":{"type":"WorkspaceWrite","writable_roots":["/w"],"exclude_slash_tmp":true,"cwd":"/d"}`,
		"network restricted, roots /d, read ROOT, write PROJECT_ROOTS, write TMPDIR, write /w"},
	{`"sandbox":{"sandboxPolicy":{"type":"ReadOnly"}}`, "network restricted, roots /c, read ROOT"},

	// The second: kebab-case, in sandbox.
	{`"sandbox":{"sandboxPolicy":{"type":"danger-full-access"}}`, "disabled"},
	{`"sandbox":{"sandboxPolicy":{"type":"read-only","network_access":true}}`, "network enabled, roots /c, read ROOT"},
	{`"sandbox":{"sandboxPolicy":{"type":"external-sandbox","network_access":"restricted"}}`, "external, network restricted"},
	{`"sandbox":{"sandboxPolicy":{"type":"workspace-write","writable_roots":["/w"],"network_access":false,"exclude_tmpdir_env_var":true,"exclude_slash_tmp":false},` +
		`"windowsSandboxPrivateDesktop":true,"useLegacyLandlock":true}`, "network restricted, roots /c, read ROOT, write PROJECT_ROOTS, write SLASH_TMP, write /w"},
	{`"sandbox":{"sandboxPolicy":{"type":"read-only"},"additionalPermissions":{"network":{"enabled":true},"file_system":{"read":["/r"],"write":["/w"]}}}`,
		"network enabled, roots /c, read ROOT, read /r, write /w"},
	{`"sandbox":{"sandboxPolicy":{"type":"read-only"},"additionalPermissions":{"network":null,"file_system":null,"macos":null}}`, "network restricted, roots /c, read ROOT"},

	// The third: with a cwd, and a separate file system policy.
	{`"sandbox":{"sandboxPolicy":{"type":"workspace-write"},"sandboxPolicyCwd":"file:///d"}`,
		"network restricted, roots /d, read ROOT, write PROJECT_ROOTS, write SLASH_TMP, write TMPDIR"},
	{`"sandbox":{"sandboxPolicy":{"type":"workspace-write","network_access":true},"sandboxPolicyCwd":"/d","fileSystemSandboxPolicy":{"kind":"restricted","entries":[` +
		`{"path":{"type":"special","value":{"kind":"current_working_directory"}},"access":"write"}]}}`, "network enabled, roots /d, write PROJECT_ROOTS"},
	{`"sandbox":{"sandboxPolicy":{"type":"danger-full-access"},"fileSystemSandboxPolicy":{"kind":"restricted","entries":[{"path":{"type":"path","path":"/r"},"access":"read"}]}}`,
		"network enabled, roots /c, read /r"},
	{`"sandbox":{"sandboxPolicy":{"type":"danger-full-access"},"fileSystemSandboxPolicy":{"kind":"unrestricted","entries":[]}}`, "disabled"},
	{`"sandbox":{"sandboxPolicy":{"type":"external-sandbox"},"fileSystemSandboxPolicy":{"kind":"external-sandbox"}}`, "external, network restricted"},

	// The fourth: permissions.
	{`"sandbox":{"permissions":{"type":"disabled"}}`, "disabled"},
	{`"sandbox":{"permissions":{"type":"external","network":"enabled"},"cwd":null}`, "external, network enabled"},
	{`"sandbox":{"permissions":{"type":"managed","file_system":{"type":"unrestricted"},"network":"restricted"}}`, "network restricted, all files"},
	{`"sandbox":{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[]},"network":"enabled"}}`, "network enabled"},
	{`"sandbox":{"permissions":{"type":"managed","file_system":{"type":"restricted","glob_scan_max_depth":3,"entries":[
		{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},
		{"path":{"type":"special","value":{"kind":"minimal"}},"access":"read"},
		{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"},
		{"path":{"type":"special","value":{"kind":"project_roots","subpath":".git"}},"access":"read","missing_path_behavior":"skip"},
		{"path":{"type":"special","value":{"kind":"slash_tmp","subpath":null}},"access":"write"},
		{"path":{"type":"special","value":{"kind":"tmpdir"}},"access":"write"},
		{"path":{"type":"special","value":{"kind":"unknown","path":":later"}},"access":"write"},
		{"path":{"type":"path","path":"/a/../b"},"access":"none"},
		{"path":{"type":"path","path":"file:///b%20c"},"access":"deny"},
		{"path":{"type":"glob_pattern","pattern":"/d/**/*.env"},"access":"none"}]},
		"network":"restricted"},"cwd":"/d"}`,
		"network restricted, roots /d, depth 3, read ROOT, read MINIMAL, write PROJECT_ROOTS, read PROJECT_ROOTS/.git or skip, write SLASH_TMP, write TMPDIR, none /b, none /b c, none glob /d/**/*.env"},
	{`"sandbox":{"permissions":{}}`, "network restricted"},
	{`"sandbox":{"permissions":{"network":{"enabled":true},"file_system":{"read":["/r"],"write":["/w"]}}}`, "network enabled, read /r, write /w"},
	{`"sandbox":{"permissions":{"network":null,"file_system":{"entries":[{"path":{"type":"path","path":"/r"},"access":"read"}]}}}`, "network restricted, read /r"},

	// The fifth: project roots of their own, of which cwd need not be one.
	{`"sandbox":{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"}]},"network":"restricted"},` +
		`"cwd":"file:///d","workspaceRoots":["file:///w","/x"],"windowsSandboxProxySettingsMode":"reconcile","sandboxOverride":"NoOverride","later":{}}`,
		"network restricted, roots /w /x, write PROJECT_ROOTS"},
	{`"sandbox":{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"}]},"network":"restricted"},` +
		`"cwd":"file:///d"}`, "network restricted, write PROJECT_ROOTS"},
	{`"sandbox":{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[{"path":{"type":"glob_pattern","pattern":"**/*.env"},"access":"deny"}]},"network":"restricted"},` +
		`"cwd":"file:///d%2A","workspaceRoots":["file:///w"],"temporaryDirectories":[]}`, `network restricted, roots /w, depth 64, none glob /d\*/**/*.env, none glob /w/**/*.env`},
	{`"sandbox":null,"sandboxPolicy":null`, "none"},
}

func withLevel(members string) string {
	members = strings.Replace(members, `"sandbox":{}`, `"sandbox":{"windowsSandboxLevel":"disabled"}`, 1)
	if strings.Contains(members, "windowsSandboxLevel") {
		return members
	}
	return strings.Replace(members, `"sandbox":{`, `"sandbox":{"windowsSandboxLevel":"disabled",`, 1)
}

func TestSandboxShapes_Decode(t *testing.T) {
	for _, shape := range shapes {
		start, err := startWith("/c", withLevel(shape.members))
		if err != nil {
			t.Errorf("%s fails: %v", shape.members, err)
			continue
		}
		if got := formatPolicy(start.policy); got != shape.want {
			t.Errorf("%s is decoded as\n\t%s, want\n\t%s", shape.members, got, shape.want)
		}
		older, err := methods["command/exec"].decode([]byte(`{"processId":"p","argv":["a"],"env":{},"tty":false,"cwd":"/c",`+withLevel(shape.members)+`}`), nil)
		if err != nil {
			t.Errorf("%s fails in command/exec: %v", shape.members, err)
		} else if got := formatPolicy(older.(*commandParams).start.policy); got != shape.want {
			t.Errorf("%s is decoded by command/exec as\n\t%s, want\n\t%s", shape.members, got, shape.want)
		}
	}
}

// A file call has no working directory that an older policy could make writable,
// and no network.
func TestSandboxShapes_FileCalls_HaveNoNetwork(t *testing.T) {
	srv := &recordingFiles{}
	service := files.New(srv, nil, nil, nil)
	for _, shape := range shapes {
		read, err := methods["fs/getMetadata"].decode([]byte(`{"path":"/p",`+withLevel(shape.members)+`}`), service)
		if err != nil {
			t.Errorf("%s fails: %v", shape.members, err)
			continue
		}
		want := strings.Replace(shape.want, "network enabled", "network restricted", 1)
		if strings.Contains(want, "roots /c") {
			want = strings.Replace(strings.Replace(want, ", roots /c", "", 1), ", write PROJECT_ROOTS", "", 1)
		}
		if want == "disabled" || strings.HasPrefix(want, "external") || strings.HasSuffix(want, "all files") {
			want = "none"
		}
		_, _ = service.Run(t.Context(), read.(files.Call))
		if got := formatPolicy(srv.policy); got != want {
			t.Errorf("%s is decoded as\n\t%s, want\n\t%s", shape.members, got, want)
		}
	}
}

// recordingFiles is a server that records the sandbox of a call.
type recordingFiles struct {
	execwirev1.FileSystemServiceClient
	policy *execwirev1.SandboxPolicy
}

func (f *recordingFiles) GetMetadata(_ context.Context, ask *execwirev1.GetMetadataRequest, _ ...grpc.CallOption) (*execwirev1.GetMetadataResponse, error) {
	f.policy = ask.GetSandbox()
	return &execwirev1.GetMetadataResponse{}, nil
}

// entryOf returns a sandbox with one entry.
func entryOf(entry string) string {
	return `"sandbox":{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[` + entry + `]},"network":"restricted"},"cwd":"/d"}`
}

func TestSandboxShapes_Malformed_NamesField(t *testing.T) {
	const invalid, refused = jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidRequest
	for _, test := range []struct {
		members string
		code    int
		field   string
		text    string
	}{
		{`"sandbox":5`, invalid, "sandbox", "expected struct SandboxParams"},
		{`"sandbox":[]`, invalid, "sandbox", "is an array"},
		{`"sandbox":{}`, invalid, "sandbox.permissions", "missing field `permissions`"},
		{`"sandbox":{"permissions":null}`, invalid, "sandbox.permissions", ""},
		{`"sandbox":{"permissions":{"type":"disabled"},"windowsSandboxLevel":null}`, invalid, "sandbox.windowsSandboxLevel", "missing field `windowsSandboxLevel`"},
		{`"sandbox":{"permissions":{"type":"disabled"},"windowsSandboxLevel":"high"}`, invalid, "sandbox.windowsSandboxLevel", "unknown variant `high`"},
		{`"sandbox":{"permissions":{"type":"disabled"},"useLegacyLandlock":null}`, invalid, "sandbox.useLegacyLandlock", "expected a boolean"},
		{`"sandbox":{"permissions":{"type":"disabled"},"cwd":"rel"}`, invalid, "sandbox.cwd", "relative URL without a base"},
		{`"sandbox":{"permissions":{"type":"disabled"},"workspaceRoots":["/a","b"]}`, invalid, "sandbox.workspaceRoots[1]", "relative URL"},
		{`"sandbox":{"permissions":{"type":"disabled"},"workspaceRoots":["file:///%ff"]}`, invalid, "sandbox.workspaceRoots", "not UTF-8"},
		{`"sandbox":{"permissions":{"type":"disabled"},"type":"ReadOnly"}`, invalid, "sandbox", "in two ways"},
		{`"sandbox":{"permissions":{"type":"disabled"},"sandboxPolicy":{"type":"read-only"}}`, invalid, "sandbox", "in two ways"},
		{`"sandbox":{"permissions":{"type":"disabled"}},"sandboxPolicy":{"type":"readOnly"}`, invalid, "sandboxPolicy", "beside `sandbox`"},
		{`"sandbox":{"permissions":{"type":"disabled","file_system":{"type":"restricted","entries":[]}}}`, invalid, "sandbox.permissions.file_system", "nothing is restricted"},
		{`"sandbox":{"permissions":{"type":"magic"}}`, invalid, "sandbox.permissions.type", "unknown variant `magic`, expected one of `managed`, `disabled`, `external`"},
		{`"sandbox":{"permissions":{"type":"managed"}}`, invalid, "sandbox.permissions.file_system", "missing field `file_system`"},
		{`"sandbox":{"permissions":{"type":"managed","file_system":{"type":"unrestricted"}}}`, invalid, "sandbox.permissions.network", "missing field `network`"},
		{`"sandbox":{"permissions":{"type":"managed","file_system":{"type":"unrestricted"},"network":{"domains":["a"]}}}`, invalid, "sandbox.permissions.network", "no string"},
		{`"sandbox":{"permissions":{"type":"managed","file_system":{"type":"unrestricted"},"network":"some"}}`, invalid, "sandbox.permissions.network", "unknown variant `some`"},
		{`"sandbox":{"permissions":{"type":"managed","file_system":{"type":"some"},"network":"enabled"}}`, invalid, "sandbox.permissions.file_system.type", "unknown variant `some`"},
		{`"sandbox":{"permissions":{"type":"managed","file_system":{"entries":[]},"network":"enabled"}}`, invalid, "sandbox.permissions.file_system.type", "missing field `type`"},
		{`"sandbox":{"permissions":{"type":"managed","file_system":{"type":"restricted"},"network":"enabled"}}`, invalid, "sandbox.permissions.file_system.entries", "missing field `entries`"},
		{`"sandbox":{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[],"except":[]},"network":"enabled"}}`, invalid, "sandbox.permissions.file_system.except", "unknown field `except`"},
		{`"sandbox":{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[],"glob_scan_max_depth":0},"network":"enabled"}}`, invalid, "sandbox.permissions.file_system.glob_scan_max_depth", "is 0"},
		{`"sandbox":{"permissions":{"type":"managed","file_system":{"type":"unrestricted","entries":[{"path":{"type":"path","path":"/"},"access":"none"}]},"network":"enabled"}}`,
			invalid, "sandbox.permissions.file_system.entries", "nothing is restricted"},
		{`"sandbox":{"permissions":{"file_system":{"read":["/a"],"entries":[]}}}`, invalid, "sandbox.permissions.file_system.entries", "beside `read`"},
		{`"sandbox":{"permissions":{"file_system":{"write":["a"]}}}`, invalid, "sandbox.permissions.file_system.write[0]", "relative URL"},
		{`"sandbox":{"permissions":{"network":true}}`, invalid, "sandbox.permissions.network", "expected struct"},
		{entryOf(`{"path":{"type":"path","path":"/a"}}`), invalid, "sandbox.permissions.file_system.entries[0].access", "missing field `access`"},
		{entryOf(`{"path":{"type":"path","path":"/a"},"access":"execute"}`), invalid, "sandbox.permissions.file_system.entries[0].access", "unknown variant `execute`"},
		{entryOf(`{"path":{"type":"path","path":"a"},"access":"read"}`), invalid, "sandbox.permissions.file_system.entries[0].path.path", "relative URL"},
		{entryOf(`{"path":{"type":"path","path":"http://a/"},"access":"read"}`), invalid, "sandbox.permissions.file_system.entries[0].path.path", "unsupported path URI scheme `http`"},
		{entryOf(`{"path":{"type":"path","path":"/\u0000"},"access":"read"}`), invalid, "sandbox.permissions.file_system.entries[0].path.path", "NUL"},
		{entryOf(`{"path":{"type":"path"},"access":"read"}`), invalid, "sandbox.permissions.file_system.entries[0].path.path", "missing field `path`"},
		{entryOf(`{"path":{"type":"path","path":"/a","value":{"kind":"root"}},"access":"read"}`), invalid, "sandbox.permissions.file_system.entries[0].path.value", "is not for a place of the type path"},
		{entryOf(`{"path":{"type":"inode","path":"/a"},"access":"read"}`), invalid, "sandbox.permissions.file_system.entries[0].path.type", "unknown variant `inode`"},
		{entryOf(`{"path":{"type":"path","path":"/a"},"access":"read","missing_path_behavior":"create"}`), invalid, "sandbox.permissions.file_system.entries[0].missing_path_behavior", "unknown variant `create`"},
		{entryOf(`{"path":{"type":"special","value":{"kind":"home"}},"access":"read"}`), invalid, "sandbox.permissions.file_system.entries[0].path.value.kind", "unknown variant `home`"},
		{entryOf(`{"path":{"type":"special","value":{"kind":"unknown"}},"access":"none"}`), invalid, "sandbox.permissions.file_system.entries[0].path.value.kind", "may take something away"},
		{entryOf(`{"path":{"type":"special","value":{"kind":"root"}},"access":"write"},{"path":{"type":"special","value":{"kind":"unknown"}},"access":"read"}`),
			invalid, "sandbox.permissions.file_system.entries[1].path.value.kind", "may take something away"},
		{entryOf(`{"path":{"type":"special","value":{"kind":"tmpdir","subpath":"a"}},"access":"write"}`), invalid, "sandbox.permissions.file_system.entries[0].path.value.subpath", "only for project_roots"},
		{entryOf(`{"path":{"type":"special","value":{"kind":"project_roots","subpath":"../a"}},"access":"write"}`), invalid, "sandbox.permissions.file_system.entries[0].path.value.subpath", "leads out"},
		{entryOf(`{"path":{"type":"special","value":{"kind":"project_roots","subpath":"/a"}},"access":"write"}`), invalid, "sandbox.permissions.file_system.entries[0].path.value.subpath", "leads out"},
		{entryOf(`{"path":{"type":"glob_pattern","pattern":"/a/*"},"access":"read"}`), invalid, "sandbox.permissions.file_system.entries[0].access", "can only deny"},
		{entryOf(`{"path":{"type":"glob_pattern","pattern":"/a/{b"},"access":"none"}`), invalid, "sandbox.permissions.file_system.entries[0].path.pattern", "brace"},
		{strings.Replace(entryOf(`{"path":{"type":"special","value":{"kind":"tmpdir"}},"access":"write"}`), `"cwd"`, `"temporaryDirectories":["file:///t"],"cwd"`, 1),
			refused, "", "`temporaryDirectories` cannot be"},
		{`"sandboxPolicy":{}`, invalid, "sandboxPolicy.type", "missing field `type`"},
		{`"sandboxPolicy":"readOnly"`, invalid, "sandboxPolicy", "is no object"},
		{`"sandboxPolicy":{"type":"some"}`, invalid, "sandboxPolicy.type", "unknown variant `some`"},
		{`"sandboxPolicy":{"type":"readOnly","deniedPaths":["/a"]}`, invalid, "sandboxPolicy.deniedPaths", "unknown field `deniedPaths`"},
		{`"sandboxPolicy":{"type":"readOnly","networkAccess":"some"}`, invalid, "sandboxPolicy.networkAccess", "neither a boolean"},
		{`"sandboxPolicy":{"type":"readOnly","networkAccess":false,"network_access":true}`, invalid, "sandboxPolicy.networkAccess", "two spellings"},
		{`"sandboxPolicy":{"type":"readOnly","access":{"type":"fullAccess","readableRoots":["/a"]}}`, invalid, "sandboxPolicy.access.readableRoots", "everything may be read"},
		{`"sandboxPolicy":{"type":"workspaceWrite","writableRoots":["a"]}`, invalid, "sandboxPolicy.writableRoots[0]", "relative URL"},
		{`"sandboxPolicy":{"type":"workspaceWrite","access":{"type":"restricted"}}`, invalid, "sandboxPolicy.access", "use `readOnlyAccess`"},
		{`"sandbox":{"sandboxPolicy":{"type":"read-only"},"fileSystemSandboxPolicy":{"kind":"unrestricted"}}`, invalid, "sandbox.fileSystemSandboxPolicy.kind", "lifts what"},
		{`"sandbox":{"sandboxPolicy":{"type":"read-only"},"fileSystemSandboxPolicy":{"kind":"external-sandbox"}}`, invalid, "sandbox.fileSystemSandboxPolicy.kind", "lifts what"},
		{`"sandbox":{"fileSystemSandboxPolicy":{"entries":[]}}`, invalid, "sandbox.fileSystemSandboxPolicy.kind", "missing field `kind`"},
		{`"sandbox":{"sandboxPolicy":{"type":"read-only"},"additionalPermissions":{"type":"disabled"}}`, invalid, "sandbox.additionalPermissions.type", "lifts all"},
	} {
		_, err := startWith("/c", withLevel(test.members))
		if err == nil {
			t.Errorf("%s is accepted", test.members)
			continue
		}
		if err.Code != test.code || !strings.Contains(err.Message, test.text) || fieldOf(t, err) != test.field {
			t.Errorf("%s fails with %d %q in %q, want %d %q in %q", test.members, err.Code, err.Message, fieldOf(t, err), test.code, test.text, test.field)
		}
	}
}

// The number of paths is bounded, however roots, patterns and alternatives
// multiply.
func TestSandboxShapes_TooManyPaths_Fail(t *testing.T) {
	const pattern = `{"path":{"type":"glob_pattern","pattern":"%s"},"access":"deny"}`
	roots := func(n int) string { return `"/w` + strings.Repeat(`","/w`, n-1) + `"` }
	unlike := `"/0"`
	for i := range 400 {
		unlike += fmt.Sprintf(`,"/%d"`, i+1)
	}
	patterns := func(pattern string, n int) string { return strings.Repeat(pattern+",", n-1) + pattern }
	for _, test := range []struct {
		entries, roots string
		code           int
		field          string
	}{
		{fmt.Sprintf(pattern, "*.a"), roots(sandboxjson.MaxWorkspaceRoots), 0, ""},
		{fmt.Sprintf(pattern, "*.a"), roots(sandboxjson.MaxWorkspaceRoots + 1), jsonrpc.CodeLimitReached, "sandbox.workspaceRoots"},
		{patterns(fmt.Sprintf(pattern, "*.a"), 20), unlike, 0, ""},
		{patterns(fmt.Sprintf(pattern, "*.a"), 30), unlike, jsonrpc.CodeLimitReached, "sandbox.permissions.file_system.entries[24].path.pattern"},
		{patterns(fmt.Sprintf(pattern, "/{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"), 160), `"/w"`, jsonrpc.CodeLimitReached, "sandbox.permissions.file_system.entries[156].path.pattern"},
		{fmt.Sprintf(pattern, "/"+strings.Repeat("{", 1<<20)), `"/w"`, jsonrpc.CodeInvalidParams, "sandbox.permissions.file_system.entries[0].path.pattern"},
		{fmt.Sprintf(pattern, strings.Repeat("a", 2048)), `"/` + strings.Repeat("w", 2048) + `"`, jsonrpc.CodeInvalidParams, "sandbox.permissions.file_system.entries[0].path.pattern"},
	} {
		_, err := startWith("/c", withLevel(strings.Replace(entryOf(test.entries), `"cwd"`, `"workspaceRoots":[`+test.roots+`],"cwd"`, 1)))
		switch {
		case (err == nil) != (test.code == 0):
			t.Errorf("got %v, want %d", err, test.code)
		case err != nil && (err.Code != test.code || fieldOf(t, err) != test.field):
			t.Errorf("got %d in %q, want %d in %q", err.Code, fieldOf(t, err), test.code, test.field)
		}
	}
}

// fieldOf returns the member that an error names.
func fieldOf(t *testing.T, err *jsonrpc.Error) string {
	t.Helper()
	written, failed := json.Marshal(err.Data)
	if failed != nil {
		t.Fatal(failed)
	}
	var data struct{ Field string }
	if failed := json.Unmarshal(written, &data); failed != nil {
		t.Fatal(failed)
	}
	return data.Field
}

// The error is that of the client's version.
func TestSandboxShapes_MissingCwd_Fails(t *testing.T) {
	const text = "file system sandbox context with dynamic permissions requires cwd"
	for _, dynamic := range []string{
		`{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"}`,
		`{"path":{"type":"glob_pattern","pattern":"*.env"},"access":"deny"}`,
	} {
		for members, paths := range map[string]map[string]int{
			entryOf(dynamic): {"/p": jsonrpc.CodeInvalidRequest, "file:///p": jsonrpc.CodeInvalidParams},
			strings.Replace(entryOf(dynamic), `"cwd"`, `"workspaceRoots":["file:///w"],"cwd"`, 1): {"/p": jsonrpc.CodeInvalidParams},
		} {
			for path, code := range paths {
				members := withLevel(strings.Replace(members, `"cwd":"/d"`, `"cwd":null`, 1))
				_, err := methods["fs/readFile"].decode([]byte(`{"path":"`+path+`",`+members+`}`), files.New(nil, nil, nil, nil))
				if err == nil || err.Code != code || err.Message != text {
					t.Errorf("%s with %s: got %v, want %d %q", path, members, err, code, text)
				}
			}
		}
	}
}

func TestSandboxShapes_PartialNetwork_Fails(t *testing.T) {
	const none = `"sandbox":{"windowsSandboxLevel":"disabled","permissions":{"type":"managed","file_system":{"type":"unrestricted"},"network":"restricted"}},`
	const all = `"sandbox":{"windowsSandboxLevel":"disabled","permissions":{"type":"managed","file_system":{"type":"unrestricted"},"network":"enabled"}},`
	for members, accepted := range map[string]bool{
		`"enforceManagedNetwork":true`:                                             false,
		all + `"enforceManagedNetwork":true`:                                       false,
		none + `"enforceManagedNetwork":true`:                                      true,
		all + `"enforceManagedNetwork":false`:                                      true,
		none + `"managedNetwork":{"loopbackPorts":[],"allowLocalBinding":false}`:   true,
		none + `"managedNetwork":null,"networkProxy":null`:                         true,
		all + `"managedNetwork":{"loopbackPorts":[],"allowLocalBinding":false}`:    false,
		none + `"managedNetwork":{"loopbackPorts":[80],"allowLocalBinding":false}`: false,
		none + `"managedNetwork":{"loopbackPorts":[],"allowLocalBinding":true}`:    false,
		none + `"managedNetwork":{"loopbackPorts":[],"domains":["a"]}`:             false,
		none + `"networkProxy":{}`:                                                 false,
	} {
		if _, err := startWith("/c", members); (err == nil) != accepted {
			t.Errorf("%s: got %v, want accepted: %v", members, err, accepted)
		}
	}
}

func TestSandboxType_NamesBackend(t *testing.T) {
	if got := sandboxType(&execwirev1.Process{}); got != "none" {
		t.Errorf("without a report the sandbox type is %s", got)
	}
	for _, backend := range []execwirev1.SandboxBackend{execwirev1.SandboxBackend_SANDBOX_BACKEND_BUBBLEWRAP, execwirev1.SandboxBackend_SANDBOX_BACKEND_LANDLOCK} {
		if got := sandboxType(&execwirev1.Process{Sandbox: &execwirev1.SandboxReport{Backend: backend}}); got != "linuxSeccomp" {
			t.Errorf("with %v the sandbox type is %s", backend, got)
		}
	}
}
