package gateway

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// entryParams are an entry: what is granted where.
type entryParams struct {
	_ struct{} `param:",strict"`

	Path    entryPlace     `param:"path"`
	Access  entryAccess    `param:"access"`
	Missing *entryWhenGone `param:"missing_path_behavior"`
}

// entryPlace is the place of an entry: a path, a pattern or a special place, by its
// type.
type entryPlace struct {
	_ struct{} `param:",strict"`

	Type    string        `param:"type"`
	Path    *string       `param:"path"`
	Pattern *string       `param:"pattern"`
	Value   *specialPlace `param:"value"`
}

// specialPlace is a place that has a name. Path is what one was called that the
// client itself did not know.
type specialPlace struct {
	_ struct{} `param:",strict"`

	Kind    specialKind `param:"kind"`
	SubPath *string     `param:"subpath"`
	Path    *string     `param:"path"`
}

// entryAccess is what an entry grants.
type entryAccess execwirev1.SandboxAccess

func (a *entryAccess) UnmarshalText(text []byte) error {
	switch string(text) {
	case "read":
		*a = entryAccess(execwirev1.SandboxAccess_SANDBOX_ACCESS_READ)
	case "write":
		*a = entryAccess(execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE)
	case "deny", "none":
		*a = entryAccess(execwirev1.SandboxAccess_SANDBOX_ACCESS_NONE)
	default:
		return jsonrpc.UnknownVariant(string(text), "read", "write", "deny", "none")
	}
	return nil
}

// entryWhenGone is what becomes of an entry whose place does not exist.
type entryWhenGone struct{}

func (*entryWhenGone) UnmarshalText(text []byte) error {
	if string(text) != "skip" {
		return jsonrpc.UnknownVariant(string(text), "skip")
	}
	return nil
}

// specialKind is a place with a name.
type specialKind execwirev1.SpecialPathKind

// specialUnknown is a place that the client did not know either.
const specialUnknown = specialKind(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_UNSPECIFIED)

var specialKinds = map[string]specialKind{
	"root":                      specialKind(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_ROOT),
	"minimal":                   specialKind(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_MINIMAL),
	"project_roots":             specialKind(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_PROJECT_ROOTS),
	"current_working_directory": specialKind(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_PROJECT_ROOTS),
	"tmpdir":                    specialKind(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_TMPDIR),
	"slash_tmp":                 specialKind(execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_SLASH_TMP),
	"unknown":                   specialUnknown,
}

func (k *specialKind) UnmarshalText(text []byte) error {
	known, ok := specialKinds[string(text)]
	if !ok {
		return jsonrpc.UnknownVariant(string(text), "root", "minimal", "project_roots", "tmpdir", "slash_tmp", "unknown")
	}
	*k = known
	return nil
}

// entries reads a list of entries.
func (r *sandboxReader) entries(field string, list []entryParams, into *policyDraft) *jsonrpc.Error {
	for i := range list {
		if err := r.entry(fmt.Sprintf("%s[%d]", field, i), &list[i], list, into); err != nil {
			return err
		}
	}
	return nil
}

func (r *sandboxReader) entry(field string, e *entryParams, all []entryParams, into *policyDraft) *jsonrpc.Error {
	entry := &execwirev1.SandboxEntry{Access: execwirev1.SandboxAccess(e.Access)}
	if e.Missing != nil {
		entry.MissingPathBehavior = execwirev1.MissingPathBehavior_MISSING_PATH_BEHAVIOR_SKIP
	}
	place := field + ".path"
	if err := e.Path.checkMembers(place); err != nil {
		return err
	}
	switch e.Path.Type {
	case "path":
		path, err := sandboxPath(place+".path", *e.Path.Path)
		if err != nil {
			return err
		}
		entry.Place = &execwirev1.SandboxEntry_Path{Path: path.native}
	case "glob_pattern":
		return r.glob(field, *e.Path.Pattern, entry, into)
	case "special":
		special := e.Path.Value
		if special.Kind == specialUnknown {
			return checkUnknownPlace(field, e, all)
		}
		if err := r.special(place+".value", special, entry); err != nil {
			return err
		}
	}
	into.entries = append(into.entries, entry)
	return nil
}

// checkMembers refuses a place that does not have exactly the member that its type
// says.
func (p *entryPlace) checkMembers(field string) *jsonrpc.Error {
	types := []string{"path", "glob_pattern", "special"}
	members := []string{"path", "pattern", "value"}
	at := slices.Index(types, p.Type)
	if at < 0 {
		return unknownMember(field+".type", p.Type, types...)
	}
	for i, isThere := range []bool{p.Path != nil, p.Pattern != nil, p.Value != nil} {
		switch {
		case i == at && !isThere:
			return missingMember(field, members[i])
		case i != at && isThere:
			return invalidMember(field+"."+members[i], "is not for a place of the type "+p.Type+": leave it out")
		}
	}
	return nil
}

func (r *sandboxReader) special(field string, place *specialPlace, entry *execwirev1.SandboxEntry) *jsonrpc.Error {
	if place.Path != nil {
		return invalidMember(field+".path", "is only for the kind unknown: leave it out")
	}
	special := &execwirev1.SpecialPath{Kind: execwirev1.SpecialPathKind(place.Kind)}
	isRoots := special.GetKind() == execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_PROJECT_ROOTS
	if place.SubPath != nil {
		sub := *place.SubPath
		switch {
		case !isRoots:
			return invalidMember(field+".subpath", "is only for project_roots: give a path")
		case strings.HasPrefix(sub, "/") || slices.Contains(strings.Split(sub, "/"), ".."), strings.IndexByte(sub, 0) >= 0:
			return invalidMember(field+".subpath", "leads out of the project roots: give a relative path without \"..\"")
		case strings.HasPrefix(strings.ToLower(sub), "file:"):
			return invalidMember(field+".subpath", "is a URI: give a relative path")
		}
		special.SubPath = sub
	}
	r.dynamic = r.dynamic || isRoots
	entry.Place = &execwirev1.SandboxEntry_Special{Special: special}
	return nil
}

// checkUnknownPlace leaves out an entry for a place that the client did not know, as
// the reference does, but refuses it where it may take something away: if it denies,
// or if it only lets read what others may let write.
func checkUnknownPlace(field string, e *entryParams, all []entryParams) *jsonrpc.Error {
	const write = entryAccess(execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE)
	writes := func(other entryParams) bool { return other.Access == write }
	switch {
	case e.Access == write:
		return nil
	case e.Access == entryAccess(execwirev1.SandboxAccess_SANDBOX_ACCESS_READ) && !slices.ContainsFunc(all, writes):
		return nil
	}
	return invalidMember(field+".path.value.kind", "is unknown, and the entry may take something away: name the place")
}

// maxPatterns is the most that the patterns of a request come to, one for each of
// their alternatives at each place where they begin.
const maxPatterns = 10_000

// glob adds the entries of a pattern. A relative one begins at cwd, and at every
// project root besides.
func (r *sandboxReader) glob(field, pattern string, entry *execwirev1.SandboxEntry, into *policyDraft) *jsonrpc.Error {
	if entry.GetAccess() != execwirev1.SandboxAccess_SANDBOX_ACCESS_NONE {
		return invalidMember(field+".access", "is not deny, and a glob_pattern can only deny: name paths")
	}
	patterns, problem := translateGlob(pattern)
	if problem != "" {
		return invalidMember(field+".path.pattern", problem)
	}
	for _, translated := range patterns {
		for _, start := range r.startsOf(translated) {
			switch r.patterns++; {
			case r.patterns > maxPatterns:
				return sandboxTooLarge(field+".path.pattern", maxPatterns, "patterns for all places to look in: deny whole directories")
			case len(start)+len(translated) >= maxPatternBytes:
				return invalidMember(field+".path.pattern", "is longer than any path where it begins: shorten it")
			}
			into.entries = append(into.entries, &execwirev1.SandboxEntry{
				Place:  &execwirev1.SandboxEntry_Glob{Glob: path.Join(start, translated)},
				Access: entry.GetAccess(), MissingPathBehavior: entry.GetMissingPathBehavior()})
		}
	}
	return nil
}

// startsOf are the directories that a pattern begins at, as patterns. Without cwd
// the policy is refused.
func (r *sandboxReader) startsOf(pattern string) []string {
	if strings.HasPrefix(pattern, "/") {
		return []string{"/"}
	}
	r.dynamic = true
	var starts []string
	if r.cwd != nil {
		starts = append(starts, escapeGlob(r.cwd.native))
	}
	for _, root := range r.roots {
		if escaped := escapeGlob(root); !slices.Contains(starts, escaped) {
			starts = append(starts, escaped)
		}
	}
	return starts
}
