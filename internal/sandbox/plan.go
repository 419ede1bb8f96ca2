package sandbox

import (
	"cmp"
	"encoding/binary"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Plan is a policy as it is on this machine. It does not change.
type Plan struct {
	rules        map[string]rule // by path
	links        []link          // on the way to places that are granted
	network      Network
	unrestricted bool
}

// rule is what is granted at a path, and below it until the next rule.
type rule struct {
	spot
	access    Access // what is granted
	workspace bool   // it is a workspace root
	temporary bool   // it is /tmp or TMPDIR, which programs share
}

// Network says whether the network is reached.
func (p *Plan) Network() Network { return p.network }

// Unrestricted tells that all files may be used as far as the user may.
func (p *Plan) Unrestricted() bool { return p.unrestricted }

// Confines tells whether there is anything to enforce. If not, a program is to be started as it is.
func (p *Plan) Confines() bool { return !p.unrestricted || p.network == NetworkRestricted }

// Access returns what is granted at an absolute path that has no links.
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

// readsEverything tells that reading is granted wherever that is, links or not.
func (p *Plan) readsEverything() bool {
	for _, r := range p.rules {
		if r.access < AccessRead {
			return false
		}
	}
	return p.rules["/"].access >= AccessRead
}

// Key is the same for plans that come to the same, and only for those, so that what was prepared for one can be kept
// for the other.
func (p *Plan) Key() string {
	return p.key(func(r *rule) (lost int) {
		r.is = identity{}
		return 0
	})
}

// key makes a key of the rules as look makes them, which also says how often what kept a place was lost.
func (p *Plan) key(look func(r *rule) (lost int)) string {
	key := make([]byte, 0, 64*len(p.rules)+2)
	key = append(key, byte(p.network), bit(p.unrestricted))
	for _, r := range p.sorted() {
		lost := look(&r)
		key = append(key, byte(r.access), bit(r.missing))
		for _, n := range []uint64{r.is.dev, r.is.ino, uint64(lost)} { //nolint:gosec // a count
			key = binary.AppendUvarint(key, n)
		}
		key = append(append(key, r.path...), 0) // which no path has in it
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

// Narrow is the plan that grants only what both grant.
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

// WithoutNetwork is the plan with the network restricted.
func (p *Plan) WithoutNetwork() *Plan {
	restricted := *p
	restricted.network = NetworkRestricted
	return &restricted
}

// set makes a rule, in place of the one that there may be.
func (p *Plan) set(r rule) {
	if p.rules == nil {
		p.rules = map[string]rule{}
	}
	p.rules[r.path] = r
}

// merge makes a rule beside the one that there may be: none wins over write, and write over read.
func (p *Plan) merge(r rule) {
	if old, ok := p.rules[r.path]; ok {
		r.workspace, r.temporary = r.workspace || old.workspace, r.temporary || old.temporary
		if old.access == AccessNone || old.access == AccessWrite && r.access != AccessNone {
			r.access = old.access
		}
	}
	p.set(r)
}

// sorted lists the rules, parents before what is below them.
func (p *Plan) sorted() []rule {
	return slices.SortedFunc(maps.Values(p.rules), func(a, b rule) int { return comparePaths(a.path, b.path) })
}

// comparePaths orders paths so that a directory comes right before what is below it.
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

// step is a change of access on the way down from the root.
type step struct {
	path   string
	access Access
	above  Access // what is granted around it
	// missing tells that path does not exist and must not come into being: it is the first missing part of what a rule
	// names.
	missing bool
	is      identity
}

// steps lists where access changes, parents before what is below them. Missing places are among them only where the
// program could make them.
func (p *Plan) steps() []step {
	var steps []step
	access := map[string]Access{}
	for _, r := range p.sorted() {
		parent, above := nearest(access, r.path)
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
				r = rule{spot: spot{path: at, missing: true}, access: AccessRead}
			}
		}
		if r.access == above {
			continue
		}
		access[r.path] = r.access
		steps = append(steps, step{path: r.path, access: r.access, above: above, missing: missing, is: r.is})
	}
	return steps
}

// nearest finds the closest directory above path that says what is granted.
func nearest(access map[string]Access, path string) (string, Access) {
	for dir := path; dir != "/"; {
		dir = filepath.Dir(dir)
		if a, ok := access[dir]; ok {
			return dir, a
		}
	}
	return "/", AccessNone
}

// firstMissing finds the first part of path below an existing directory that does not exist.
func firstMissing(dir, path string) string {
	at := dir
	for name := range strings.SplitSeq(strings.Trim(strings.TrimPrefix(path, dir), "/"), "/") {
		at = filepath.Join(at, name)
		if walked, err := follow(at); err == nil && walked.isMissing() {
			return at
		}
	}
	return path
}
