package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Resolve looks at the machine and makes a plan: it finds out what special places stand for, follows symbolic links,
// expands globs, and protects .git (also where a gitdir file points to), .agents and .codex in writable places, unless
// an entry names them or other users can write there too, as to /tmp, and it is no workspace root. It waits for the file system only, and does not write. The plan says what was there now;
// enforcing it opens every place again without following a link, and fails if it is not what it was.
//
// It fails with InvalidPolicy, with UnsafeLink when a place in the policy is reached through a symbolic link that the
// program could replace, and with TooManyPlaces.
func (p *Policy) Resolve(ctx context.Context, around Surroundings) (*Plan, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	plan := &Plan{network: p.Network, unrestricted: p.Unrestricted}
	if p.Unrestricted {
		plan.set(rule{spot: spot{path: "/"}, access: AccessWrite})
		return plan, nil
	}
	wanted, err := p.places(ctx, around)
	if err != nil {
		return nil, err
	}
	s := survey{limit: around.Within}
	defer s.close()
	var found []grant
	for _, w := range wanted {
		g, err := w.find(&s)
		if errors.Is(err, errOutside) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if g.found.missing && w.skipMissing {
			continue
		}
		found = append(found, g)
		plan.merge(rule{spot: g.found.spot, access: w.access, workspace: w.workspace, temporary: w.temporary})
	}
	if err := plan.protect(&s); err != nil {
		return nil, err
	}
	for _, g := range found {
		if err := plan.checkLinks(g); err != nil {
			return nil, err
		}
	}
	if len(plan.rules) > MaxPlaces {
		return nil, tooMany("entries", MaxPlaces, "places; name directories rather than what is in them")
	}
	return plan, nil
}

// validate refuses what could not be meant, before anything is looked at.
func (p *Policy) validate() error {
	switch {
	case p.Unrestricted && len(p.Entries) > 0:
		return invalid("entries", "an unrestricted file system has none; remove them")
	case p.GlobDepth < 0 || p.GlobDepth > MaxGlobDepth:
		return invalid("glob_scan_max_depth", "is %d; give 0 to %d", p.GlobDepth, MaxGlobDepth)
	case p.Network > NetworkEnabled:
		return invalid("network", "is unknown; give restricted or enabled")
	}
	if len(p.WorkspaceRoots) > MaxPlaces {
		return tooMany("workspace_roots", MaxPlaces, "places; name directories above them")
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

// element is the name of one in a list.
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
		return invalid(member, "names %d places; give one of path, glob and special", set)
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
	return &Error{Kind: TooManyPlaces, Member: member, Limit: limit, Err: fmt.Errorf("come to more than %d %s", limit, of)}
}

// place is what an entry stands for on this machine.
type place struct {
	member      string
	path        string
	access      Access
	skipMissing bool
	workspace   bool // it is a workspace root
	temporary   bool // it is /tmp or TMPDIR
	trusted     bool // links on the way are not checked: see checkLinks
}

// places expands the entries.
func (p *Policy) places(ctx context.Context, around Surroundings) ([]place, error) {
	expansion := expansion{depth: p.GlobDepth, left: MaxGlobEntries, limit: around.Within}
	if expansion.depth == 0 {
		expansion.depth = DefaultGlobDepth
	}
	var all []place
	for i, entry := range p.Entries {
		base := place{member: element("entries", i), access: entry.Access, skipMissing: entry.SkipMissing}
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
			all = append(all, at(base, matches)...)
		default:
			base.member += ".special"
			special, err := p.special(entry, base, around)
			if err != nil {
				return nil, err
			}
			all = append(all, special...)
		}
		if len(all) > MaxPlaces {
			return nil, tooMany(base.member, MaxPlaces, "places; deny whole directories, or a smaller depth")
		}
	}
	return all, nil
}

func (p *Policy) isWorkspace(path string) bool {
	return slices.ContainsFunc(p.WorkspaceRoots, func(root string) bool { return filepath.Clean(root) == filepath.Clean(path) })
}

func (p *Policy) special(entry Entry, base place, around Surroundings) ([]place, error) {
	switch entry.Special {
	case SpecialRoot:
		return at(base, []string{"/"}), nil
	case SpecialMinimal:
		base.skipMissing, base.trusted = true, true
		return at(base, minimal), nil
	case SpecialSlashTmp:
		base.temporary = true
		return at(base, []string{"/tmp"}), nil
	case SpecialTmpdir:
		if around.TmpDir == "" {
			return nil, nil
		}
		if err := checkPath("TMPDIR of the environment", around.TmpDir); err != nil {
			return nil, err
		}
		base.temporary = true
		return at(base, []string{around.TmpDir}), nil
	}
	base.workspace = entry.SubPath == "" || filepath.Clean(entry.SubPath) == "."
	var roots []string
	for _, root := range p.WorkspaceRoots {
		roots = append(roots, filepath.Join(root, entry.SubPath))
	}
	return at(base, roots), nil
}

// at is base at each of the paths.
func at(base place, paths []string) []place {
	places := make([]place, len(paths))
	for i, path := range paths {
		places[i] = base
		places[i].path = path
	}
	return places
}

// grant is a place that was looked for.
type grant struct {
	place
	found walk
}

// find follows the links of a place. It fails with errOutside if the plan would lose the place when it is narrowed.
func (w place) find(s *survey) (grant, error) {
	path := filepath.Clean(w.path)
	if s.limit != nil && w.access == AccessNone && isOwn(path) {
		return grant{place: w, found: walk{spot: spot{path: path}}}, nil // refused later, whether it exists or not
	}
	walked, err := s.follow(path)
	switch {
	case err == nil, errors.Is(err, errOutside):
		return grant{place: w, found: walked}, err
	case errors.Is(err, unix.ENOTDIR):
		e := invalid(w.member, "a part of it is a file, so nothing can be below it; name what exists")
		e.Path = w.path
		return grant{}, e
	}
	e := unseen(w.path, "cannot find out what it is", err)
	e.Member = w.member
	return grant{}, e
}

// checkLinks refuses a place that is reached through a link which the program, or one confined like it before, could
// point elsewhere: then another place would be granted, or the right one not denied. Trusted places are those that the
// policy does not name one by one. A link met for a glob is not content, and what it points to is denied as well.
func (p *Plan) checkLinks(g grant) error {
	for _, l := range g.found.links {
		if p.Access(filepath.Dir(l.path)) == AccessWrite && !g.trusted {
			return &Error{Kind: UnsafeLink, Member: g.member, Path: l.path,
				Err: errors.New("is a symbolic link in a place that is writable, so it proves nothing; name what it points to")}
		}
		if !slices.Contains(p.links, l) {
			p.links = append(p.links, l)
		}
	}
	return nil
}
