package sandbox

import (
	"cmp"
	"encoding/binary"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Plan is a policy resolved on this machine. It is immutable.
type Plan struct {
	rules        map[string]rule // by path
	links        []link          // that lead to granted paths
	network      Network
	unrestricted bool
}

// rule grants access to a path and everything below it, up to the next rule.
type rule struct {
	location
	access    Access // what is granted
	workspace bool   // a workspace root
	temporary bool   // /tmp or TMPDIR, which programs share
}

// Unrestricted reports whether access to files is unrestricted.
func (p *Plan) Unrestricted() bool { return p.unrestricted }

// Confines reports whether the plan restricts anything. If not, programs need no
// sandbox.
func (p *Plan) Confines() bool { return !p.unrestricted || p.network == NetworkRestricted }

// Access returns the access to an absolute path without links.
func (p *Plan) Access(path string) Access {
	for path = filepath.Clean(path); ; path = filepath.Dir(path) {
		if r, ok := p.rules[path]; ok {
			return r.access
		}
		if path == "/" {
			return AccessNone
		}
	}
}

// readsEverything reports whether every path is readable.
func (p *Plan) readsEverything() bool {
	for _, r := range p.rules {
		if r.access < AccessRead {
			return false
		}
	}
	return p.rules["/"].access >= AccessRead
}

// key encodes the plan. For each rule it calls look, which may change the rule and
// returns how often the placeholder of its path was recreated.
func (p *Plan) key(look func(r *rule) (recreated int)) string {
	key := make([]byte, 0, 64*len(p.rules)+2)
	key = append(key, byte(p.network), bit(p.unrestricted))
	for _, r := range p.sorted() {
		recreated := look(&r)
		key = append(key, byte(r.access), bit(r.missing))
		for _, n := range []uint64{r.id.dev, r.id.ino, uint64(recreated)} { //nolint:gosec // a count
			key = binary.AppendUvarint(key, n)
		}
		key = append(append(key, r.path...), 0) // a byte that no path contains
	}
	for _, l := range p.links {
		key = append(append(append(append(key, l.path...), 0), l.target...), 0)
	}
	return string(key)
}

func bit(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// Narrow returns a plan that grants what both plans grant.
func (p *Plan) Narrow(to *Plan) *Plan {
	both := &Plan{network: min(p.network, to.network), unrestricted: p.unrestricted && to.unrestricted, links: slices.Clone(p.links)}
	for _, l := range to.links {
		if !slices.Contains(both.links, l) {
			both.links = append(both.links, l)
		}
	}
	for _, plan := range []*Plan{p, to} {
		for path, r := range plan.rules {
			r.access = min(p.Access(path), to.Access(path))
			both.set(r)
		}
	}
	return both
}

// WithoutNetwork returns the plan with the network restricted.
func (p *Plan) WithoutNetwork() *Plan {
	restricted := *p
	restricted.network = NetworkRestricted
	return &restricted
}

// set adds a rule, or replaces the one for the same path.
func (p *Plan) set(r rule) {
	if p.rules == nil {
		p.rules = map[string]rule{}
	}
	p.rules[r.path] = r
}

// merge adds a rule. If there is one for the same path, AccessNone wins over
// AccessWrite, and that over AccessRead.
func (p *Plan) merge(r rule) {
	if old, ok := p.rules[r.path]; ok {
		r.workspace, r.temporary = r.workspace || old.workspace, r.temporary || old.temporary
		if old.access == AccessNone || old.access == AccessWrite && r.access != AccessNone {
			r.access = old.access
		}
	}
	p.set(r)
}

// sorted returns the rules, directories before their contents.
func (p *Plan) sorted() []rule {
	return slices.SortedFunc(maps.Values(p.rules), func(a, b rule) int { return comparePaths(a.path, b.path) })
}

// comparePaths orders paths such that a directory is followed by its contents.
func comparePaths(a, b string) int {
	a, b = strings.Trim(a, "/"), strings.Trim(b, "/")
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		default:
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}

// accessChange is a path whose access differs from that of its parent.
type accessChange struct {
	path         string
	access       Access
	parentAccess Access // access to the parent
	// missing is set if the path must not come into existence. It is the first missing
	// component of the path of a rule.
	missing bool
	id      fileID
}

// accessChanges returns the changes of access, directories before their contents. It
// includes missing paths only if the program could create them.
func (p *Plan) accessChanges() []accessChange {
	var steps []accessChange
	access := map[string]Access{}
	for _, r := range p.sorted() {
		parent, above := nearestChange(access, r.path)
		missing := r.isMissing()
		if missing {
			if above != AccessWrite || r.access == AccessWrite {
				continue
			}
			at := firstMissing(parent, r.path)
			if _, done := access[at]; done {
				continue
			}
			if at != r.path {
				r = rule{location: location{path: at, missing: true}, access: AccessRead}
			}
		}
		if r.access == above {
			continue
		}
		access[r.path] = r.access
		steps = append(steps, accessChange{path: r.path, access: r.access, parentAccess: above, missing: missing, id: r.id})
	}
	return steps
}

// nearestChange returns the closest directory above path that is in access.
func nearestChange(access map[string]Access, path string) (string, Access) {
	for dir := path; dir != "/"; {
		dir = filepath.Dir(dir)
		if a, ok := access[dir]; ok {
			return dir, a
		}
	}
	return "/", AccessNone
}

// firstMissing returns the first component of path below dir that does not exist.
func firstMissing(dir, path string) string {
	at := dir
	for name := range strings.SplitSeq(strings.Trim(strings.TrimPrefix(path, dir), "/"), "/") {
		at = filepath.Join(at, name)
		if resolved, err := resolveLinks(nil, at); err == nil && resolved.isMissing() {
			return at
		}
	}
	return path
}
