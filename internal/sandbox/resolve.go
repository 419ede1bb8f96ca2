package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Resolve resolves the policy on this machine. It determines the special paths, follows
// symbolic links, expands globs, and makes .git (also the directory that a gitdir file
// points to), .agents and .codex read-only in writable directories. The last does not
// apply to paths that an entry names, nor to directories that other users can write to,
// such as /tmp, unless they are workspace roots. Resolve only reads the file system.
// The plan describes the current files: before it is enforced, each path is opened
// again without following links, and must still be the same file.
//
// It fails with InvalidPolicy, with TooManyPaths, and with UnsafeLink if an entry
// refers to a path through a symbolic link that the program could replace.
func (p *Policy) Resolve(ctx context.Context, options ResolveOptions) (*Plan, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	plan := &Plan{network: p.Network, unrestricted: p.Unrestricted}
	if p.Unrestricted {
		plan.set(rule{location: location{path: "/"}, access: AccessWrite})
		return plan, nil
	}
	targets, err := p.targets(ctx, options)
	if err != nil {
		return nil, err
	}
	var granted []target
	for _, t := range targets {
		err := t.resolve(options.Within)
		if errors.Is(err, errHidden) || err == nil && t.resolved.missing && t.skipMissing {
			continue
		}
		if err != nil {
			return nil, err
		}
		granted = append(granted, t)
		plan.merge(rule{location: t.resolved.location, access: t.access, workspace: t.workspace, temporary: t.temporary})
	}
	if err := plan.protect(options.Within); err != nil {
		return nil, err
	}
	for _, t := range granted {
		if err := plan.checkLinks(t); err != nil {
			return nil, err
		}
	}
	if len(plan.rules) > MaxPaths {
		return nil, tooMany("entries", MaxPaths, "paths; name directories rather than their contents")
	}
	return plan, nil
}

// validate checks what can be checked without the file system.
func (p *Policy) validate() error {
	switch {
	case p.Unrestricted && len(p.Entries) > 0:
		return invalid("entries", "an unrestricted file system has none; remove them")
	case p.GlobDepth < 0 || p.GlobDepth > MaxGlobDepth:
		return invalid("glob_scan_max_depth", "is %d; give 0 to %d", p.GlobDepth, MaxGlobDepth)
	case p.Network > NetworkEnabled:
		return invalid("network", "is unknown; give restricted or enabled")
	}
	if len(p.WorkspaceRoots) > MaxPaths {
		return tooMany("workspace_roots", MaxPaths, "paths; name directories above them")
	}
	for i, root := range p.WorkspaceRoots {
		if err := checkPath(element("workspace_roots", i), root); err != nil {
			return err
		}
	}
	for i, entry := range p.Entries {
		if err := entry.validate(element("entries", i)); err != nil {
			return err
		}
	}
	return nil
}

// element returns the name of an element of a list.
func element(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

func (e *Entry) validate(member string) error {
	set := 0
	for _, is := range []bool{e.Path != "", e.Glob != "", e.Special != 0} {
		if is {
			set++
		}
	}
	switch {
	case set != 1:
		return invalid(member, "names %d paths; give one of path, glob and special", set)
	case e.Access < AccessNone || e.Access > AccessWrite:
		return invalid(member+".access", "is unknown; give none, read or write")
	case e.Glob != "" && e.Access != AccessNone:
		return invalid(member+".access", "is %v; a glob can only deny: give none, or name paths", e.Access)
	case e.Special > SpecialSlashTmp:
		return invalid(member+".special", "is unknown; give root, minimal, project roots, tmpdir or /tmp")
	case e.SubPath != "" && e.Special != SpecialProjectRoots:
		return invalid(member+".sub_path", "is only for project roots; remove it")
	case e.SubPath != "" && !filepath.IsLocal(e.SubPath) || hasNUL(e.SubPath):
		return invalid(member+".sub_path", "%q leads out of the roots; give a relative path without \"..\"", e.SubPath)
	case e.Path != "":
		return checkPath(member+".path", e.Path)
	case e.Glob != "":
		return checkGlob(member+".glob", e.Glob)
	}
	return nil
}

func checkPath(member, path string) error {
	switch {
	case !filepath.IsAbs(path):
		return invalid(member, "%q is not absolute; give an absolute path", path)
	case hasNUL(path):
		return invalid(member, "%q contains a NUL byte, which no path can; remove it", path)
	}
	return nil
}

func hasNUL(s string) bool { return strings.IndexByte(s, 0) >= 0 }

func tooMany(member string, limit int, of string) *Error {
	return &Error{Kind: TooManyPaths, Member: member, Limit: limit, Err: fmt.Errorf("come to more than %d %s", limit, of)}
}

// target is a path to which an entry refers.
type target struct {
	member      string
	path        string
	access      Access
	skipMissing bool
	workspace   bool         // a workspace root
	temporary   bool         // /tmp or TMPDIR
	trusted     bool         // links on the way are not checked: see checkLinks
	resolved    resolvedPath // set by find
}

// targets returns the paths to which the entries refer.
func (p *Policy) targets(ctx context.Context, options ResolveOptions) ([]target, error) {
	expansion := expansion{depth: p.GlobDepth, remaining: MaxGlobEntries, limit: options.Within}
	expansion.depth = cmp.Or(expansion.depth, DefaultGlobDepth)
	var all []target
	for i, entry := range p.Entries {
		base := target{member: element("entries", i), access: entry.Access, skipMissing: entry.SkipMissing}
		switch {
		case entry.Path != "":
			base.path, base.workspace = entry.Path, p.isWorkspace(entry.Path)
			base.member += ".path"
			all = append(all, base)
		case entry.Glob != "":
			base.member += ".glob"
			matches, err := expansion.expand(ctx, base.member, entry.Glob)
			if err != nil {
				return nil, err
			}
			base.skipMissing, base.trusted = true, true
			all = append(all, withPaths(base, matches)...)
		default:
			base.member += ".special"
			special, err := p.special(entry, base, options)
			if err != nil {
				return nil, err
			}
			all = append(all, special...)
		}
		if len(all) > MaxPaths {
			return nil, tooMany(base.member, MaxPaths, "paths; deny whole directories, or use a smaller depth")
		}
	}
	return all, nil
}

func (p *Policy) isWorkspace(path string) bool {
	return slices.ContainsFunc(p.WorkspaceRoots, func(root string) bool { return filepath.Clean(root) == filepath.Clean(path) })
}

func (p *Policy) special(entry Entry, base target, options ResolveOptions) ([]target, error) {
	switch entry.Special {
	case SpecialRoot:
		return withPaths(base, []string{"/"}), nil
	case SpecialMinimal:
		base.skipMissing, base.trusted = true, true
		return withPaths(base, minimalPaths), nil
	case SpecialSlashTmp:
		base.temporary = true
		return withPaths(base, []string{"/tmp"}), nil
	case SpecialTmpdir:
		if options.TmpDir == "" {
			return nil, nil
		}
		if err := checkPath("TMPDIR of the environment", options.TmpDir); err != nil {
			return nil, err
		}
		base.temporary = true
		return withPaths(base, []string{options.TmpDir}), nil
	}
	base.workspace = entry.SubPath == "" || filepath.Clean(entry.SubPath) == "."
	var roots []string
	for _, root := range p.WorkspaceRoots {
		roots = append(roots, filepath.Join(root, entry.SubPath))
	}
	return withPaths(base, roots), nil
}

// withPaths returns a copy of base for each path.
func withPaths(base target, paths []string) []target {
	targets := make([]target, len(paths))
	for i, path := range paths {
		targets[i] = base
		targets[i].path = path
	}
	return targets
}

// resolve follows the links of the path. It fails with errHidden if limit does not
// grant the path.
func (t *target) resolve(limit *Plan) (err error) {
	path := filepath.Clean(t.path)
	if limit != nil && t.access == AccessNone && isVirtual(path) {
		t.resolved.path = path // a backend rejects it later, whether it exists or not
		return nil
	}
	t.resolved, err = resolveLinks(limit, path)
	switch {
	case err == nil, errors.Is(err, errHidden):
		return err
	case errors.Is(err, unix.ENOTDIR):
		e := invalid(t.member, "a part of it is a file, so nothing can be below it; name what exists")
		e.Path = t.path
		return e
	}
	e := lookupError(t.path, "cannot find out what it is", err)
	e.Member = t.member
	return e
}

// checkLinks fails if a link on the way to the target is in a directory where the
// program, or an earlier one with the same policy, can replace it: then the wrong path
// would be granted, or the right one not denied. Trusted targets, those of globs and of
// special paths, are exempt. It also records the links.
func (p *Plan) checkLinks(t target) error {
	for _, l := range t.resolved.links {
		if p.Access(filepath.Dir(l.path)) == AccessWrite && !t.trusted {
			return &Error{Kind: UnsafeLink, Member: t.member, Path: l.path,
				Err: errors.New("is a symbolic link in a writable directory, so the program could replace it; name what it points to")}
		}
		if !slices.Contains(p.links, l) {
			p.links = append(p.links, l)
		}
	}
	return nil
}
