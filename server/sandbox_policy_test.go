package server

import (
	"errors"
	"reflect"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/sandbox"
)

func TestConversions_PolicyEnums_AreComplete(t *testing.T) {
	if n := len(execwirev1.SpecialPathKind_name) - 1; len(specialPaths) != n || len(valuesOf(specialPaths)) != n {
		t.Errorf("%d special places of %d are translated, to %d", len(specialPaths), n, len(valuesOf(specialPaths)))
	}
	if n := len(execwirev1.SandboxAccess_name) - 1; len(accesses) != n || len(valuesOf(accesses)) != n {
		t.Errorf("%d kinds of access of %d are translated, to %d", len(accesses), n, len(valuesOf(accesses)))
	}
	if n := len(execwirev1.SandboxBackend_name) - 1; len(backends) != n || len(valuesOf(backends)) != n {
		t.Errorf("%d backends of %d are translated, to %d", len(backends), n, len(valuesOf(backends)))
	}
	for kind, special := range specialPaths {
		if kind == 0 || int(special) != int(kind) {
			t.Errorf("%v becomes %v", kind, special)
		}
	}
	for message, access := range accesses {
		if message == 0 || int(access) != int(message) {
			t.Errorf("%v becomes %v", message, access)
		}
	}
}

// valuesOf returns the set of values of a table.
func valuesOf[K, V comparable](table map[K]V) map[V]bool {
	values := map[V]bool{}
	for _, value := range table {
		values[value] = true
	}
	return values
}

func TestFromSandbox_AllKinds(t *testing.T) {
	for kind := sandbox.Kind(1); kind < sandbox.KindEnd; kind++ {
		want, ok := sandboxErrors[kind]
		if !ok {
			t.Errorf("kind %v of sandboxes has no translation", kind)
			continue
		}
		err := fromSandbox("f", &sandbox.Error{Kind: kind, Member: "entries[2].special", Path: "/p\xff", Limit: 7, Err: errors.New("cause \xff")})
		info := infoOf(t, err)
		if status.Code(err) != want.code || info.GetReason() != errorinfo.Name(want.reason) {
			t.Errorf("%v becomes %v", kind, err)
		}
		if (info.GetMetadata()["limit"] == "7") != (kind == sandbox.TooManyPaths) {
			t.Errorf("the metadata of %v is %v", kind, info.GetMetadata())
		}
	}
	if err := fromSandbox("f", &sandbox.Error{Err: errors.New("x")}); status.Code(err) != codes.Internal {
		t.Errorf("an error without a kind becomes %v", err)
	}
}

func TestToSandboxPolicy(t *testing.T) {
	const read, write, none = execwirev1.SandboxAccess_SANDBOX_ACCESS_READ, execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE, execwirev1.SandboxAccess_SANDBOX_ACCESS_NONE
	skip := execwirev1.MissingPathBehavior_MISSING_PATH_BEHAVIOR_SKIP
	path := func(p string) *execwirev1.SandboxEntry_Path { return &execwirev1.SandboxEntry_Path{Path: p} }
	for name, tt := range map[string]struct {
		managed *execwirev1.ManagedSandbox
		want    sandbox.Policy
	}{
		"nothing": {restricted(nil), sandbox.Policy{}},
		"unrestricted": {&execwirev1.ManagedSandbox{FileSystem: &execwirev1.FileSystemPolicy{Policy: &execwirev1.FileSystemPolicy_Unrestricted{}}},
			sandbox.Policy{Unrestricted: true}},
		"network": {withNetwork(restricted(nil), execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED), sandbox.Policy{Network: sandbox.NetworkEnabled}},
		"no network": {withNetwork(restricted(nil), execwirev1.NetworkAccess_NETWORK_ACCESS_RESTRICTED),
			sandbox.Policy{Network: sandbox.NetworkRestricted}},
		"workspace": {&execwirev1.ManagedSandbox{WorkspaceRoots: []string{"/a", "/b"}, FileSystem: restricted(nil).GetFileSystem()},
			sandbox.Policy{WorkspaceRoots: []string{"/a", "/b"}}},
		"depth": {restricted(proto.Uint32(sandbox.MaxGlobDepth)), sandbox.Policy{GlobDepth: sandbox.MaxGlobDepth}},
		"entries": {restricted(nil,
			&execwirev1.SandboxEntry{Place: path("/r"), Access: read}, &execwirev1.SandboxEntry{Place: path("/w"), Access: write, MissingPathBehavior: skip},
			&execwirev1.SandboxEntry{Place: &execwirev1.SandboxEntry_Glob{Glob: "/**/x"}, Access: none},
			&execwirev1.SandboxEntry{Access: read, Place: &execwirev1.SandboxEntry_Special{Special: &execwirev1.SpecialPath{
				Kind: execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_PROJECT_ROOTS, SubPath: "sub"}}}),
			sandbox.Policy{Entries: []sandbox.Entry{
				{Path: "/r", Access: sandbox.AccessRead}, {Path: "/w", Access: sandbox.AccessWrite, SkipMissing: true},
				{Glob: "/**/x", Access: sandbox.AccessNone}, {Special: sandbox.SpecialProjectRoots, SubPath: "sub", Access: sandbox.AccessRead}}}},
	} {
		policy := &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Managed{Managed: tt.managed}}
		if got, err := toSandboxPolicy("f", policy); err != nil || !reflect.DeepEqual(*got, tt.want) {
			t.Errorf("%s becomes %+v, %v", name, got, err)
		}
	}
	for _, policy := range []*execwirev1.SandboxPolicy{nil,
		{Policy: &execwirev1.SandboxPolicy_Disabled{}}, {Policy: &execwirev1.SandboxPolicy_External{}}} {
		if got, err := toSandboxPolicy("f", policy); got != nil || err != nil {
			t.Errorf("%v becomes %+v, %v", policy, got, err)
		}
	}
}

func TestToSandboxPolicy_Malformed_NamesField(t *testing.T) {
	entry := func(change func(*execwirev1.SandboxEntry)) *execwirev1.ManagedSandbox {
		e := &execwirev1.SandboxEntry{Place: &execwirev1.SandboxEntry_Path{Path: "/"}, Access: execwirev1.SandboxAccess_SANDBOX_ACCESS_READ}
		change(e)
		return restricted(nil, e)
	}
	const entries = "f.managed.file_system.restricted.entries[0]."
	for field, managed := range map[string]*execwirev1.ManagedSandbox{
		"f.managed.network": withNetwork(restricted(nil), 9),
		"f.managed.file_system.restricted.glob_scan_max_depth": restricted(proto.Uint32(sandbox.MaxGlobDepth + 1)),
		"f.managed.file_system.policy":                         {},
		entries + "access":                                     entry(func(e *execwirev1.SandboxEntry) { e.Access = 9 }),
		entries + "missing_path_behavior":                      entry(func(e *execwirev1.SandboxEntry) { e.MissingPathBehavior = 9 }),
		entries + "place":                                      entry(func(e *execwirev1.SandboxEntry) { e.Place = nil }),
		entries + "path":                                       entry(func(e *execwirev1.SandboxEntry) { e.Place = &execwirev1.SandboxEntry_Path{} }),
		entries + "glob":                                       entry(func(e *execwirev1.SandboxEntry) { e.Place = &execwirev1.SandboxEntry_Glob{} }),
		entries + "special.kind":                               entry(func(e *execwirev1.SandboxEntry) { e.Place = &execwirev1.SandboxEntry_Special{} }),
	} {
		_, err := toSandboxPolicy("f", &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Managed{Managed: managed}})
		expectInvalid(t, err, field)
	}
	_, err := toSandboxPolicy("f", &execwirev1.SandboxPolicy{})
	expectInvalid(t, err, "f.policy")
}

// The members that package sandbox names become fields of the request message.
func TestFromSandbox_NamesProtoField(t *testing.T) {
	for member, field := range map[string]string{
		"workspace_roots[1]":   "f.managed.workspace_roots[1]",
		"network":              "f.managed.network",
		"glob_scan_max_depth":  "f.managed.file_system.restricted.glob_scan_max_depth",
		"entries":              "f.managed.file_system.restricted.entries",
		"entries[3].path":      "f.managed.file_system.restricted.entries[3].path",
		"entries[3].special":   "f.managed.file_system.restricted.entries[3].special.kind",
		"entries[3].sub_path":  "f.managed.file_system.restricted.entries[3].special.sub_path",
		"TMPDIR of the system": "",
	} {
		err := fromSandbox("f", &sandbox.Error{Kind: sandbox.InvalidPolicy, Member: member, Err: errors.New("x")})
		if got := infoOf(t, err).GetMetadata()["field"]; got != field {
			t.Errorf("%s becomes %q, want %q", member, got, field)
		}
	}
}

func restricted(depth *uint32, entries ...*execwirev1.SandboxEntry) *execwirev1.ManagedSandbox {
	return &execwirev1.ManagedSandbox{FileSystem: &execwirev1.FileSystemPolicy{Policy: &execwirev1.FileSystemPolicy_Restricted{
		Restricted: &execwirev1.RestrictedFileSystem{Entries: entries, GlobScanMaxDepth: depth}}}}
}

func withNetwork(m *execwirev1.ManagedSandbox, n execwirev1.NetworkAccess) *execwirev1.ManagedSandbox {
	m.Network = n
	return m
}

func expectInvalid(t *testing.T, err error, field string) {
	t.Helper()
	if infoOf(t, err).GetReason() != "INVALID_FIELD" {
		t.Errorf("%s: %v", field, err)
	}
	for _, detail := range status.Convert(err).Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok && bad.GetFieldViolations()[0].GetField() == field {
			return
		}
	}
	t.Errorf("%v does not name %s", err, field)
}
