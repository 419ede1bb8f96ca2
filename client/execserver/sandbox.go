package execserver

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// wireSandbox is the member sandbox of requests.
type wireSandbox struct {
	Permissions    map[string]any `json:"permissions"`
	Cwd            string         `json:"cwd,omitempty"`
	WorkspaceRoots []string       `json:"workspaceRoots,omitempty"`
	WindowsLevel   string         `json:"windowsSandboxLevel"` // required, and without effect here
}

type wireEntry struct {
	Path    wirePlace `json:"path"`
	Access  string    `json:"access"`
	Missing string    `json:"missing_path_behavior,omitempty"`
}

type wirePlace struct {
	Type  string       `json:"type"`
	Path  string       `json:"path,omitempty"`
	Value *wireSpecial `json:"value,omitempty"`
}

type wireSpecial struct {
	Kind    string `json:"kind"`
	SubPath string `json:"subpath,omitempty"`
}

var specialKinds = map[execwirev1.SpecialPathKind]string{
	execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_ROOT:          "root",
	execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_MINIMAL:       "minimal",
	execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_PROJECT_ROOTS: "project_roots",
	execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_TMPDIR:        "tmpdir",
	execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_SLASH_TMP:     "slash_tmp",
}

var accesses = map[execwirev1.SandboxAccess]string{
	execwirev1.SandboxAccess_SANDBOX_ACCESS_NONE:  "none",
	execwirev1.SandboxAccess_SANDBOX_ACCESS_READ:  "read",
	execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE: "write",
}

var networks = map[execwirev1.NetworkAccess]string{
	execwirev1.NetworkAccess_NETWORK_ACCESS_UNSPECIFIED: "restricted",
	execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED:  "restricted",
	execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED:     "enabled",
}

// newSandbox returns a policy in the form of the protocol, nil for none, and rejects what
// that cannot express. field is that of the request, and cwd the working directory of the
// call, "" for none.
func newSandbox(l *link, field string, policy *execwirev1.SandboxPolicy, cwd string) (*wireSandbox, error) {
	if policy == nil || policy.GetDisabled() != nil {
		return nil, nil
	}
	if _, err := proto.Marshal(policy); err != nil {
		return nil, invalidField(field, "has text that is not UTF-8")
	}
	managed := policy.GetManaged()
	files := managed.GetFileSystem()
	sandbox := &wireSandbox{WindowsLevel: "disabled", Permissions: map[string]any{"type": "managed", "network": networks[managed.GetNetwork()]}}
	switch {
	case policy.GetExternal() != nil:
		sandbox.Permissions = map[string]any{"type": "external", "network": networks[policy.GetExternal().GetNetwork()]}
	case files.GetUnrestricted() != nil:
		sandbox.Permissions["file_system"] = map[string]string{"type": "unrestricted"}
	case files.GetRestricted() != nil:
		return sandbox, sandbox.restrict(l, field, managed, cwd)
	default:
		return nil, invalidField(field, "has no policy: set managed with a policy of the file system, disabled or external")
	}
	return sandbox, nil
}

// restrict adds the rules for the file system.
func (s *wireSandbox) restrict(l *link, field string, policy *execwirev1.ManagedSandbox, cwd string) error {
	entries, hasRoots := []wireEntry{}, false
	for i, entry := range policy.GetFileSystem().GetRestricted().GetEntries() {
		isRoots := entry.GetSpecial().GetKind() == execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_PROJECT_ROOTS
		if isRoots && len(policy.GetWorkspaceRoots()) == 0 {
			continue // it means nothing
		}
		hasRoots = hasRoots || isRoots
		converted, err := newEntry(l, fmt.Sprintf("%s.managed.file_system.restricted.entries[%d]", field, i), entry)
		if err != nil {
			return err
		}
		entries = append(entries, converted)
	}
	s.Permissions["file_system"] = map[string]any{"type": "restricted", "entries": entries}
	if !hasRoots {
		return nil
	}
	return s.addRoots(l, field, policy.GetWorkspaceRoots(), cwd)
}

// addRoots adds the project roots. Older servers have one, the working directory.
func (s *wireSandbox) addRoots(l *link, field string, roots []string, cwd string) (err error) {
	if !l.peer.uris && len(roots) > 1 {
		return failure(execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE,
			"this server knows one workspace root, and %s has %d: name the others in entries of their own; nothing was done", field, len(roots))
	}
	if cwd == "" || !l.peer.uris {
		cwd = roots[0]
	}
	if s.Cwd, err = wirePath(l, field, cwd); err != nil || !l.peer.uris {
		return err
	}
	for i, root := range roots {
		path, err := wirePath(l, fmt.Sprintf("%s.managed.workspace_roots[%d]", field, i), root)
		if err != nil {
			return err
		}
		s.WorkspaceRoots = append(s.WorkspaceRoots, path)
	}
	return nil
}

func newEntry(l *link, field string, entry *execwirev1.SandboxEntry) (wireEntry, error) {
	converted := wireEntry{Access: accesses[entry.GetAccess()]}
	if converted.Access == "" {
		return converted, invalidField(field+".access", "is none of none, read and write")
	}
	if entry.GetMissingPathBehavior() == execwirev1.MissingPathBehavior_MISSING_PATH_BEHAVIOR_SKIP {
		converted.Missing = "skip"
	}
	switch place := entry.GetPlace().(type) {
	case *execwirev1.SandboxEntry_Path:
		path, err := wirePath(l, field+".path", place.Path)
		converted.Path = wirePlace{Type: "path", Path: path}
		return converted, err
	case *execwirev1.SandboxEntry_Glob:
		return converted, failure(execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE,
			"%s.glob is not supported over the exec-server protocol: name paths, or reach the server over gRPC; nothing was done", field)
	case *execwirev1.SandboxEntry_Special:
		kind := specialKinds[place.Special.GetKind()]
		if kind == "" {
			return converted, invalidField(field+".special.kind", "is not known")
		}
		converted.Path = wirePlace{Type: "special", Value: &wireSpecial{Kind: kind, SubPath: place.Special.GetSubPath()}}
		return converted, nil
	}
	return converted, invalidField(field, "names no place: set path, glob or special")
}
