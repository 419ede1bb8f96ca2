package sandboxjson

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/execwire/execwire/gateway/param"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// entryParams is one entry: a path and the access to it.
type entryParams struct {
	_ struct{} `param:",strict"`

	Path    entryPath            `param:"path"`
	Access  entryAccess          `param:"access"`
	Missing *missingPathBehavior `param:"missing_path_behavior"`
}

// entryPath is the path of an entry: by its type a path, a pattern or a special path.
type entryPath struct {
	_ struct{} `param:",strict"`

	Type    string       `param:"type"`
	Path    *string      `param:"path"`
	Pattern *string      `param:"pattern"`
	Value   *specialPath `param:"value"`
}

// specialPath is a path with a symbolic name. Path is the name of one that is unknown
// to the client.
type specialPath struct {
	_ struct{} `param:",strict"`

	Kind    specialKind `param:"kind"`
	SubPath *string     `param:"subpath"`
	Path    *string     `param:"path"`
}

type entryAccess execwirev1.SandboxAccess

func (a *entryAccess) UnmarshalText(text []byte) error {
	return param.Variant((*execwirev1.SandboxAccess)(a), text, []string{"read", "write", "deny", "none"},
		execwirev1.SandboxAccess_SANDBOX_ACCESS_READ, execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE, execwirev1.SandboxAccess_SANDBOX_ACCESS_NONE, execwirev1.SandboxAccess_SANDBOX_ACCESS_NONE)
}

// missingPathBehavior says what happens to an entry whose path does not exist.
type missingPathBehavior struct{}

func (*missingPathBehavior) UnmarshalText(text []byte) error {
	if string(text) != "skip" {
		return jsonrpc.UnknownVariant(string(text), "skip")
	}
	return nil
}

type specialKind execwirev1.SpecialPathKind

// specialUnknown is a special path that the client itself did not know.
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

func (r *Parser) parseEntries(field string, list []entryParams, into *Policy) *jsonrpc.Error {
	for i := range list {
		if err := r.parseEntry(fmt.Sprintf("%s[%d]", field, i), &list[i], list, into); err != nil {
			return err
		}
	}
	return nil
}

func (r *Parser) parseEntry(field string, e *entryParams, all []entryParams, into *Policy) *jsonrpc.Error {
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
		path, err := parsePath(place+".path", *e.Path.Path)
		if err != nil {
			return err
		}
		entry.Place = &execwirev1.SandboxEntry_Path{Path: path.Native}
	case "glob_pattern":
		return r.addGlob(field, *e.Path.Pattern, entry, into)
	case "special":
		special := e.Path.Value
		if special.Kind == specialUnknown {
			return checkUnknownSpecial(field, e, all)
		}
		if err := r.parseSpecial(place+".value", special, entry); err != nil {
			return err
		}
	}
	into.entries = append(into.entries, entry)
	return nil
}

// checkMembers rejects a path that does not have exactly the member of its type.
func (p *entryPath) checkMembers(field string) *jsonrpc.Error {
	types := []string{"path", "glob_pattern", "special"}
	members := []string{"path", "pattern", "value"}
	at := slices.Index(types, p.Type)
	if at < 0 {
		return param.Unknown(field+".type", p.Type, types...)
	}
	for i, isThere := range []bool{p.Path != nil, p.Pattern != nil, p.Value != nil} {
		switch {
		case i == at && !isThere:
			return param.Missing(field, members[i])
		case i != at && isThere:
			return param.Invalid(field+"."+members[i], "is not for a place of the type "+p.Type+": leave it out")
		}
	}
	return nil
}

func (r *Parser) parseSpecial(field string, place *specialPath, entry *execwirev1.SandboxEntry) *jsonrpc.Error {
	if place.Path != nil {
		return param.Invalid(field+".path", "is only for the kind unknown: leave it out")
	}
	special := &execwirev1.SpecialPath{Kind: execwirev1.SpecialPathKind(place.Kind)}
	isRoots := special.GetKind() == execwirev1.SpecialPathKind_SPECIAL_PATH_KIND_PROJECT_ROOTS
	if place.SubPath != nil {
		sub := *place.SubPath
		switch {
		case !isRoots:
			return param.Invalid(field+".subpath", "is only for project_roots: give a path")
		case strings.HasPrefix(sub, "/") || slices.Contains(strings.Split(sub, "/"), ".."), strings.IndexByte(sub, 0) >= 0:
			return param.Invalid(field+".subpath", "leads out of the project roots: give a relative path without \"..\"")
		case strings.HasPrefix(strings.ToLower(sub), "file:"):
			return param.Invalid(field+".subpath", "is a URI: give a relative path")
		}
		special.SubPath = sub
	}
	r.needsCwd = r.needsCwd || isRoots
	entry.Place = &execwirev1.SandboxEntry_Special{Special: special}
	return nil
}

// checkUnknownSpecial drops an entry for an unknown special path, as the reference
// does. It rejects the entry if dropping it could lift a restriction: a denial, or
// read-only access below a writable path.
func checkUnknownSpecial(field string, e *entryParams, all []entryParams) *jsonrpc.Error {
	const write = entryAccess(execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE)
	writes := func(other entryParams) bool { return other.Access == write }
	switch {
	case e.Access == write:
		return nil
	case e.Access == entryAccess(execwirev1.SandboxAccess_SANDBOX_ACCESS_READ) && !slices.ContainsFunc(all, writes):
		return nil
	}
	return param.Invalid(field+".path.value.kind", "is unknown, and the entry may take something away: name the place")
}

// maxPatterns is the largest number of patterns in a request, counted per alternative
// and base directory.
const maxPatterns = 10_000

// addGlob adds the entries of a pattern. A relative one is based at cwd and at every
// project root.
func (r *Parser) addGlob(field, pattern string, entry *execwirev1.SandboxEntry, into *Policy) *jsonrpc.Error {
	if entry.GetAccess() != execwirev1.SandboxAccess_SANDBOX_ACCESS_NONE {
		return param.Invalid(field+".access", "is not deny, and a glob_pattern can only deny: name paths")
	}
	patterns, problem := expandGlob(pattern)
	if problem != "" {
		return param.Invalid(field+".path.pattern", problem)
	}
	for _, translated := range patterns {
		for _, start := range r.globBases(translated) {
			switch r.patternCount++; {
			case r.patternCount > maxPatterns:
				return tooLarge(field+".path.pattern", maxPatterns, "patterns for all places to look in: deny whole directories")
			case len(start)+len(translated) >= maxPatternBytes:
				return param.Invalid(field+".path.pattern", "is longer than any path where it begins: shorten it")
			}
			into.entries = append(into.entries, &execwirev1.SandboxEntry{
				Place:  &execwirev1.SandboxEntry_Glob{Glob: path.Join(start, translated)},
				Access: entry.GetAccess(), MissingPathBehavior: entry.GetMissingPathBehavior()})
		}
	}
	return nil
}

// globBases returns the base directories of a pattern, themselves as patterns.
func (r *Parser) globBases(pattern string) []string {
	if strings.HasPrefix(pattern, "/") {
		return []string{"/"}
	}
	r.needsCwd = true
	var starts []string
	if r.cwd != nil {
		starts = append(starts, escapeGlob(r.cwd.Native))
	}
	for _, root := range r.roots {
		if escaped := escapeGlob(root); !slices.Contains(starts, escaped) {
			starts = append(starts, escaped)
		}
	}
	return starts
}
