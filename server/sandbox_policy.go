package server

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/sandbox"
)

// specialPaths translates special paths; a test proves it complete.
var specialPaths = map[execwirev1.SpecialPathKind]sandbox.Special{
	execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_ROOT:          sandbox.SpecialRoot,
	execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_MINIMAL:       sandbox.SpecialMinimal,
	execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_PROJECT_ROOTS: sandbox.SpecialProjectRoots,
	execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_TMPDIR:        sandbox.SpecialTmpdir,
	execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_SLASH_TMP:     sandbox.SpecialSlashTmp,
}

// accesses translates the access of an entry; a test proves it complete.
var accesses = map[execwirev1.SandboxAccess]sandbox.Access{
	execwirev1.SandboxAccess_SANDBOX_ACCESS_NONE:  sandbox.AccessNone,
	execwirev1.SandboxAccess_SANDBOX_ACCESS_READ:  sandbox.AccessRead,
	execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE: sandbox.AccessWrite,
}

// toSandboxPolicy translates a policy, or returns an error that names the malformed
// field; field is the policy in the request. Nil is no confinement by this server.
func toSandboxPolicy(field string, policy *execwirev1.SandboxPolicy) (*sandbox.Policy, error) {
	if policy == nil {
		return nil, nil
	}
	switch policy.GetPolicy().(type) {
	case nil:
		return nil, invalidField(field+".policy", "is missing: set managed, disabled or external")
	case *execwirev1.SandboxPolicy_Disabled, *execwirev1.SandboxPolicy_External:
		return nil, nil
	}
	managed, field := policy.GetManaged(), field+".managed"
	translated := &sandbox.Policy{WorkspaceRoots: managed.GetWorkspaceRoots()}
	switch managed.GetNetwork() {
	case execwirev1.NetworkAccess_NETWORK_ACCESS_UNSPECIFIED, execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED:
	case execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED:
		translated.Network = sandbox.NetworkEnabled
	default:
		return nil, invalidField(field+".network", "is unknown: set NETWORK_ACCESS_RESTRICTED or NETWORK_ACCESS_ENABLED")
	}
	switch managed.GetFileSystem().GetPolicy().(type) {
	case nil:
		return nil, invalidField(field+".file_system.policy", "is missing: set restricted or unrestricted")
	case *execwirev1.FileSystemPolicy_Unrestricted:
		translated.Unrestricted = true
		return translated, nil
	}
	restricted, field := managed.GetFileSystem().GetRestricted(), field+".file_system.restricted"
	depth := restricted.GetGlobScanMaxDepth()
	if depth > sandbox.MaxGlobDepth {
		return nil, invalidField(field+".glob_scan_max_depth", fmt.Sprintf("is %d: give %d at most", depth, sandbox.MaxGlobDepth))
	}
	translated.GlobDepth = int(depth)
	for i, entry := range restricted.GetEntries() {
		e, err := toEntry(field+".entries["+strconv.Itoa(i)+"]", entry)
		if err != nil {
			return nil, err
		}
		translated.Entries = append(translated.Entries, e)
	}
	return translated, nil
}

// toEntry translates an entry, and validates what package sandbox does not.
func toEntry(field string, entry *execwirev1.SandboxEntry) (sandbox.Entry, error) {
	e := sandbox.Entry{Access: accesses[entry.GetAccess()]}
	if e.Access == 0 {
		return e, invalidField(field+".access", "is missing or unknown: set SANDBOX_ACCESS_NONE, SANDBOX_ACCESS_READ or SANDBOX_ACCESS_WRITE")
	}
	switch entry.GetMissingPathBehavior() {
	case execwirev1.MissingPathBehavior_MISSING_PATH_BEHAVIOR_UNSPECIFIED:
	case execwirev1.MissingPathBehavior_MISSING_PATH_BEHAVIOR_SKIP:
		e.SkipMissing = true
	default:
		return e, invalidField(field+".missing_path_behavior", "is unknown: leave it out, or set MISSING_PATH_BEHAVIOR_SKIP")
	}
	switch path := entry.GetPlace().(type) {
	case nil:
		return e, invalidField(field+".place", "is missing: give one of path, glob and special")
	case *execwirev1.SandboxEntry_Path:
		if e.Path = path.Path; e.Path == "" {
			return e, invalidField(field+".path", "is empty: give an absolute path")
		}
	case *execwirev1.SandboxEntry_Glob:
		if e.Glob = path.Glob; e.Glob == "" {
			return e, invalidField(field+".glob", "is empty: give a pattern of absolute paths")
		}
	case *execwirev1.SandboxEntry_Special:
		if e.Special = specialPaths[path.Special.GetKind()]; e.Special == 0 {
			return e, invalidField(field+".special.kind", "is missing or unknown: set SPECIAL_PATH_KIND_ROOT, _MINIMAL, _PROJECT_ROOTS, _TMPDIR or _SLASH_TMP")
		}
		e.SubPath = path.Special.GetSubPath()
	}
	return e, nil
}

// policyMembers map members of a policy to fields of the message.
var policyMembers = map[string]string{
	"workspace_roots": ".managed.workspace_roots",
	"network":         ".managed.network",
	"entries":         ".managed.file_system.restricted.entries",

	"glob_scan_max_depth": ".managed.file_system.restricted.glob_scan_max_depth",
}

// sandboxErrors translates the kinds of package sandbox; a test proves it complete.
var sandboxErrors = map[sandbox.Kind]translation{
	sandbox.InvalidPolicy: {codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD},
	sandbox.UnsafeLink:    {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_SANDBOX_PATH_UNSAFE},
	sandbox.TooManyPaths:  {codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_SANDBOX_TOO_LARGE},
	sandbox.Unavailable:   {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE},
	sandbox.NotStarted:    {codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_SANDBOX_NOT_STARTED},
	sandbox.NoDirectory:   {codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_SANDBOX_NOT_STARTED},
	sandbox.NotExecuted:   {codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_SANDBOX_NOT_STARTED},
	sandbox.Failed:        {codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_SANDBOX_NOT_STARTED},
}

// fromSandbox translates an error of package sandbox about the policy in a field of
// the request. Other errors are returned unchanged.
func fromSandbox(field string, failed error) error {
	err, ok := errors.AsType[*sandbox.Error](failed)
	if !ok {
		return failed
	}
	problem := err.Err.Error()
	f := translate(sandboxErrors, err.Kind).failure(err.Error()).set("path", err.Path)
	if err.Path != "" {
		f.resource("path", err.Path, problem)
	}
	member, rest := err.Member, ""
	if i := strings.IndexAny(member, "[."); i >= 0 {
		member, rest = member[:i], strings.Replace(member[i:], "].special", "].special.kind", 1)
	}
	if name := policyMembers[member]; name != "" {
		f.field(field+name+strings.Replace(rest, "].sub_path", "].special.sub_path", 1), problem)
	}
	if err.Kind == sandbox.TooManyPaths {
		f.set("limit", strconv.Itoa(err.Limit))
	}
	return f.status()
}
