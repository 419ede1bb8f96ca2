package execserver

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// wireSandbox is the member sandbox of requests.
type wireSandbox struct {
	Permissions    wirePermissions `json:"permissions"`
	Cwd            *string         `json:"cwd,omitempty"`
	WorkspaceRoots *[]string       `json:"workspaceRoots,omitempty"`
	WindowsLevel   string          `json:"windowsSandboxLevel"`
}

type wirePermissions struct {
	Type       string          `json:"type"`
	FileSystem *wireFileSystem `json:"file_system,omitempty"`
	Network    string          `json:"network"`
}

type wireFileSystem struct {
	Type      string       `json:"type"`
	Entries   *[]wireEntry `json:"entries,omitempty"`
	GlobDepth *uint32      `json:"glob_scan_max_depth,omitempty"`
}

type wireEntry struct {
	Path    wirePlace `json:"path"`
	Access  string    `json:"access"`
	Missing string    `json:"missing_path_behavior,omitempty"`
}

type wirePlace struct {
	Type    string       `json:"type"`
	Path    string       `json:"path,omitempty"`
	Pattern string       `json:"pattern,omitempty"`
	Value   *wireSpecial `json:"value,omitempty"`
}

type wireSpecial struct {
	Kind    string `json:"kind"`
	SubPath string `json:"subpath,omitempty"`
}

var (
	specialKinds = map[execwirev1.SpecialPathKind]string{
		execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_ROOT:          "root",
		execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_MINIMAL:       "minimal",
		execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_PROJECT_ROOTS: "project_roots",
		execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_TMPDIR:        "tmpdir",
		execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_SLASH_TMP:     "slash_tmp",
	}
	accesses = map[execwirev1.SandboxAccess]string{
		execwirev1.SandboxAccess_SANDBOX_ACCESS_NONE:  "none",
		execwirev1.SandboxAccess_SANDBOX_ACCESS_READ:  "read",
		execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE: "write",
	}
	// plainGlob are the patterns that mean the same in the contract and in the
	// protocol.
	plainGlob = regexp.MustCompile(`^[A-Za-z0-9_./*?@:+=, -]*$`)
)

// sandbox writes a policy as requests have it, nil for none. field is that of the
// request, and cwd where the call is made from, "" for none. A policy that the
// protocol cannot express is refused.
func (c *Conn) sandbox(ctx context.Context, field string, policy *execwirev1.SandboxPolicy, cwd string) (*wireSandbox, error) {
	if _, err := c.current(ctx); err != nil {
		return nil, err
	}
	w := sandboxWriter{ctx: ctx, conn: c, field: field}
	switch {
	case policy == nil, policy.GetDisabled() != nil:
		return nil, nil
	case policy.GetExternal() != nil:
		return &wireSandbox{WindowsLevel: windowsLevel,
			Permissions: wirePermissions{Type: "external", Network: networkName(policy.GetExternal().GetNetwork())}}, nil
	case policy.GetManaged() == nil:
		return nil, invalidField(field, "has no policy: set managed, disabled or external")
	}
	return w.managed(policy.GetManaged(), cwd)
}

// windowsLevel means nothing here, and is required.
const windowsLevel = "disabled"

func networkName(network execwirev1.NetworkAccess) string {
	if network == execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED {
		return "enabled"
	}
	return "restricted"
}

type sandboxWriter struct {
	ctx   context.Context
	conn  *Conn
	field string
}

func (w *sandboxWriter) managed(policy *execwirev1.ManagedSandbox, cwd string) (*wireSandbox, error) {
	files := policy.GetFileSystem()
	sandbox := &wireSandbox{WindowsLevel: windowsLevel,
		Permissions: wirePermissions{Type: "managed", Network: networkName(policy.GetNetwork())}}
	switch {
	case files.GetUnrestricted() != nil:
		sandbox.Permissions.FileSystem = &wireFileSystem{Type: "unrestricted"}
		return sandbox, nil
	case files.GetRestricted() == nil:
		return nil, invalidField(w.field+".managed.file_system", "has no policy: set restricted or unrestricted")
	}
	entries := []wireEntry{} // which has to be there
	restricted := &wireFileSystem{Type: "restricted", Entries: &entries, GlobDepth: files.GetRestricted().GlobScanMaxDepth}
	sandbox.Permissions.FileSystem = restricted
	hasRoots := false
	for i, entry := range files.GetRestricted().GetEntries() {
		isRoots := entry.GetSpecial().GetKind() == execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_PROJECT_ROOTS
		if isRoots && len(policy.GetWorkspaceRoots()) == 0 {
			continue // which stands for nothing
		}
		hasRoots = hasRoots || isRoots
		written, err := w.entry(fmt.Sprintf("%s.managed.file_system.restricted.entries[%d]", w.field, i), entry)
		if err != nil {
			return nil, err
		}
		entries = append(entries, written)
	}
	if !hasRoots {
		return sandbox, nil
	}
	return sandbox, w.roots(sandbox, policy.GetWorkspaceRoots(), cwd)
}

// roots writes what project roots stand for: older servers know one, which is the
// directory the call is made from.
func (w *sandboxWriter) roots(sandbox *wireSandbox, roots []string, cwd string) error {
	if cwd == "" {
		cwd = roots[0]
	}
	written := make([]string, 0, len(roots))
	for i, root := range roots {
		path, err := w.path(fmt.Sprintf("%s.managed.workspace_roots[%d]", w.field, i), root)
		if err != nil {
			return err
		}
		written = append(written, path)
	}
	if !w.conn.features().uris {
		if len(roots) > 1 {
			return failure(execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE,
				"this server knows one workspace root, and %s has %d: name the others in entries of their own; nothing was done", w.field, len(roots))
		}
		sandbox.Cwd = &written[0]
		return nil
	}
	from, err := w.path(w.field, cwd)
	if err != nil {
		return err
	}
	sandbox.Cwd, sandbox.WorkspaceRoots = &from, &written
	return nil
}

func (w *sandboxWriter) path(field, native string) (string, error) {
	if !utf8.ValidString(native) {
		return "", invalidField(field, "is not UTF-8: name a directory above it")
	}
	return w.conn.wirePath(w.ctx, field, native)
}

func (w *sandboxWriter) entry(field string, entry *execwirev1.SandboxEntry) (wireEntry, error) {
	access, ok := accesses[entry.GetAccess()]
	if !ok {
		return wireEntry{}, invalidField(field+".access", "is none of none, read and write")
	}
	written := wireEntry{Access: access}
	if entry.GetMissingPathBehavior() == execwirev1.MissingPathBehavior_MISSING_PATH_BEHAVIOR_SKIP {
		written.Missing = "skip"
	}
	switch place := entry.GetPlace().(type) {
	case *execwirev1.SandboxEntry_Path:
		path, err := w.path(field+".path", place.Path)
		written.Path = wirePlace{Type: "path", Path: path}
		return written, err
	case *execwirev1.SandboxEntry_Glob:
		if !strings.HasPrefix(place.Glob, "/") {
			return written, invalidField(field+".glob", "is not absolute: write it from / on")
		}
		if !plainGlob.MatchString(place.Glob) {
			return written, failure(execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE,
				"%s.glob has characters that the exec-server protocol takes for others: use only *, ** and ? beside letters and digits, or reach the server over gRPC; nothing was done", field)
		}
		written.Path = wirePlace{Type: "glob_pattern", Pattern: place.Glob}
		return written, nil
	case *execwirev1.SandboxEntry_Special:
		kind, ok := specialKinds[place.Special.GetKind()]
		if !ok {
			return written, invalidField(field+".special.kind", "is not known")
		}
		written.Path = wirePlace{Type: "special", Value: &wireSpecial{Kind: kind, SubPath: place.Special.GetSubPath()}}
		return written, nil
	}
	return written, invalidField(field, "names no place: set path, glob or special")
}
