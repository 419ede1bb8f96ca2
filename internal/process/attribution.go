package process

import (
	"slices"
	"strings"

	"github.com/execwire/execwire/internal/procfs"
)

// trackedRoot identifies the descendants of one process. It outlives the process for as long as an
// orphan may descend from it.
type trackedRoot struct {
	pid     int             // of the leader
	forked  uint64          // a tick before the fork
	cgroup  string          // as in /proc/PID/cgroup; "": none
	streams []procfs.FileID // its pipes or terminal

	state        rootState // guarded by rootTable.mu
	verifiedGone bool      // no descendant is left; guarded by rootTable.mu
}

// rootState is the part of a root that changes.
type rootState struct {
	reaped       bool // the PID is valid only while its session is not empty
	sessionEmpty bool // a session with this ID belongs to another process
	ending       bool // it has ended or is being killed, with its descendants
	leftRunning  bool // it has closed with LeaveDescendants
	// detachedAtScan is the first scan begun after the process was left running or forgotten; 0: it
	// was neither.
	detachedAtScan uint64
}

// scannedRoot is a root with its state at the time of a scan.
type scannedRoot struct {
	*trackedRoot
	rootState
}

// snapshot is called with rootTable.mu held.
func (r *trackedRoot) snapshot() scannedRoot { return scannedRoot{r, r.state} }

// isForgotten reports whether the process was forgotten, so that another may use its control group.
func (r rootState) isForgotten() bool { return r.detachedAtScan > 0 && !r.leftRunning }

// processScan is the input of an attribution.
type processScan struct {
	procs   []procfs.Stat
	self    int // this program
	session int // of this program; children in it are not managed here
	adopts  bool
	leaders map[int]bool // children that a Process reaps
	forking uint64       // a tick; children forked since then may belong to a pending start; 0: no start is pending
	roots   []scannedRoot
	// cgroups has the members of the control groups that were read.
	cgroups map[*trackedRoot][]int
	// previous is the result of the scan before. With sessionsFresh it is so recent that no session
	// ID was reused since.
	previous      *attribution
	sessionsFresh bool
	// evidence reads what identifies the origin of an orphan.
	evidence func(pid int) procfs.Evidence
}

// origin is what is known about the root of a process.
type origin struct {
	owner        *trackedRoot  // nil: one of the candidates
	candidates   []scannedRoot // roots that it may descend from
	mayBeForeign bool          // it may descend from none of the roots
}

// includes reports whether the process may descend from a root.
func (o origin) includes(root *trackedRoot) bool {
	return o.owner == root || slices.ContainsFunc(o.candidates, func(c scannedRoot) bool { return c.trackedRoot == root })
}

// endsWith reports whether the process is to be killed with a root: it descends from it, or all other
// candidates are ending, so that it is to be killed whichever of them it descends from.
func (o origin) endsWith(root *trackedRoot) bool {
	return o.includes(root) && !o.mayBeForeign &&
		!slices.ContainsFunc(o.candidates, func(c scannedRoot) bool { return c.trackedRoot != root && !c.ending })
}

// orphan is an adopted child of unknown origin, with its descendants.
type orphan struct {
	origin
	tree []procfs.Stat // without zombies
}

// initPID is the PID to which every orphan of a PID namespace is reparented, also those that
// entered the namespace from outside, for example through a container engine.
const initPID = 1

// attribution is the result of a scan: which process descends from which root.
type attribution struct {
	members  map[*trackedRoot][]procfs.Stat // without zombies, with the leaders
	owners   map[procfs.ID]*trackedRoot     // all members, with zombies
	sessions map[int]*trackedRoot
	orphans  []orphan
	zombies  []procfs.Stat // adopted, to be reaped
	// unseen has the origins of living descendants that the scan may have missed. A scan takes time,
	// and misses a process that is forked meanwhile by one that then ends. But the last process of a
	// tree that ended without a parent stays an adopted zombie until it is reaped. So without unseen
	// descendants no process of the tree was alive when the scan began.
	unseen []origin
}

// attribute attributes all processes. Members are certain by the rules of the kernel: a process
// cannot join the session of another or become its child. Only the evidence of an orphan can be
// forged, and only by a process with the rights of this program. The orphan is then treated as what
// it claims to be.
func (s processScan) attribute() *attribution {
	a := attributor{
		processScan: s, byPID: make(map[int]procfs.Stat, len(s.procs)), children: map[int][]int{}, bySession: map[int][]int{},
		owner: map[int]*trackedRoot{}, unattributed: map[int]bool{}, known: map[*trackedRoot]bool{},
		result: attribution{members: map[*trackedRoot][]procfs.Stat{}, owners: map[procfs.ID]*trackedRoot{}, sessions: map[int]*trackedRoot{}},
	}
	for _, p := range s.procs {
		a.byPID[p.PID] = p
		a.children[p.PPID] = append(a.children[p.PPID], p.PID)
		if p.Session != 0 { // 0: the session leader is outside of this PID namespace
			a.bySession[p.Session] = append(a.bySession[p.Session], p.PID)
		}
	}
	a.attributeCertain()
	if s.adopts {
		a.attributeOrphans()
	}
	a.collect()
	result := a.result // a copy: a itself refers to the previous attribution
	return &result
}

type attributor struct {
	processScan
	byPID        map[int]procfs.Stat
	children     map[int][]int
	bySession    map[int][]int
	owner        map[int]*trackedRoot
	unattributed map[int]bool // in the tree of an orphan of unknown origin
	known        map[*trackedRoot]bool
	result       attribution
}

// attributeCertain attributes the descendants that the kernel vouches for.
func (a *attributor) attributeCertain() {
	for _, root := range a.roots {
		a.known[root.trackedRoot] = true
		_, exists := a.byPID[root.pid]
		if !root.reaped && a.byPID[root.pid].Start >= root.forked {
			a.assign(root.pid, root.trackedRoot)
		}
		if !root.reaped || !exists && !root.sessionEmpty { // otherwise the PID was reused
			a.assignSession(root.pid, root.trackedRoot)
		}
		for _, pid := range a.cgroups[root.trackedRoot] {
			a.assign(pid, root.trackedRoot)
		}
	}
	if a.previous == nil {
		return
	}
	for _, p := range a.procs {
		if owner := a.previous.owners[p.ID()]; a.known[owner] {
			a.assign(p.PID, owner)
		}
	}
	if !a.sessionsFresh {
		return
	}
	// The members of such a session may all have been replaced by their children.
	for session, owner := range a.previous.sessions {
		if _, exists := a.byPID[session]; !exists && a.known[owner] {
			a.assignSession(session, owner)
		}
	}
}

func (a *attributor) assignSession(session int, owner *trackedRoot) {
	for _, pid := range a.bySession[session] {
		if a.byPID[pid].Start >= owner.forked {
			a.assign(pid, owner)
		}
	}
}

// assign attributes a process, its descendants and the members of their sessions to a root.
func (a *attributor) assign(pid int, owner *trackedRoot) {
	for _, found := range a.tree(pid) {
		a.owner[found] = owner
	}
}

// tree lists a process and its descendants as far as they are not attributed.
func (a *attributor) tree(pid int) (tree []int) {
	seen, sessionsSeen := map[int]bool{}, map[int]bool{}
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		p, exists := a.byPID[queue[0]]
		if !exists || seen[p.PID] || a.owner[p.PID] != nil || p.PID == a.self || p.Session == a.session {
			continue
		}
		seen[p.PID] = true
		tree = append(tree, p.PID)
		queue = append(queue, a.children[p.PID]...)
		if !sessionsSeen[p.Session] {
			sessionsSeen[p.Session] = true
			queue = append(queue, a.bySession[p.Session]...)
		}
	}
	return tree
}

// attributeOrphans looks for the roots of adopted children.
func (a *attributor) attributeOrphans() {
	for _, pid := range a.children[a.self] {
		p := a.byPID[pid]
		switch {
		case a.leaders[pid] || p.Session == a.session:
			continue
		case a.owner[pid] == nil && a.forking > 0 && p.Start >= a.forking:
			a.noteUncertain(p, true)
			continue
		case p.Dead:
			defer a.noteUncertain(p, a.self == initPID) // deferred until its root is known
		}
		if a.owner[pid] == nil && !a.unattributed[pid] {
			a.attributeOrphan(p)
		}
		if p.Dead && (a.owner[pid] != nil || a.unattributed[pid] || a.self == initPID) {
			a.result.zombies = append(a.result.zombies, p)
		}
	}
}

// noteUncertain records that p may have had a child that the scan missed.
func (a *attributor) noteUncertain(p procfs.Stat, mayBeForeign bool) {
	if owner := a.owner[p.PID]; owner != nil {
		a.result.unseen = append(a.result.unseen, origin{owner: owner})
	} else if candidates := a.candidates(p); len(candidates) > 0 {
		a.result.unseen = append(a.result.unseen, origin{candidates: candidates, mayBeForeign: mayBeForeign})
	}
}

func (a *attributor) attributeOrphan(p procfs.Stat) {
	candidates := a.candidates(p)
	if len(candidates) == 0 {
		return // it is older than all roots
	}
	if owner := attributeByEvidence(a.evidence(p.PID), candidates); owner != nil { // zombies still have a control group
		a.assign(p.PID, owner)
		return
	}
	found := orphan{origin: origin{candidates: candidates, mayBeForeign: a.self == initPID}}
	for _, pid := range a.tree(p.PID) {
		a.unattributed[pid] = true
		if member := a.byPID[pid]; !member.Dead {
			found.tree = append(found.tree, member)
		}
	}
	if len(found.tree) > 0 {
		a.result.orphans = append(a.result.orphans, found)
	}
}

// candidates lists the roots that are older than p.
func (a *attributor) candidates(p procfs.Stat) (found []scannedRoot) {
	for _, root := range a.roots {
		if root.forked <= p.Start {
			found = append(found, root)
		}
	}
	return found
}

// attributeByEvidence returns the root that the evidence identifies, or nil. A control group counts
// before a pipe or terminal. Control groups are reused: a living process takes precedence over a
// forgotten one with the same group. Terminals are renumbered: the youngest root with the stream
// takes precedence.
func attributeByEvidence(e procfs.Evidence, candidates []scannedRoot) (found *trackedRoot) {
	for _, root := range candidates {
		if root.cgroup != "" && (e.Cgroup == root.cgroup || strings.HasPrefix(e.Cgroup, root.cgroup+"/")) {
			found = root.trackedRoot
			if !root.isForgotten() {
				return found
			}
		}
	}
	if found != nil {
		return found
	}
	for _, root := range candidates {
		isShared := func(stream procfs.FileID) bool { return slices.Contains(e.Files, stream) }
		if slices.ContainsFunc(root.streams, isShared) && (found == nil || found.forked < root.forked) {
			found = root.trackedRoot
		}
	}
	return found
}

// collect fills in the result.
func (a *attributor) collect() {
	for _, p := range a.procs {
		owner := a.owner[p.PID]
		if owner == nil {
			if _, exists := a.byPID[p.PPID]; a.adopts && !exists && p.PPID != 0 && !a.unattributed[p.PID] {
				// Its parent ended during the scan, so its new parent is not known.
				a.noteUncertain(p, true)
			}
			continue
		}
		a.result.owners[p.ID()] = owner
		a.result.sessions[p.Session] = owner
		if !p.Dead {
			a.result.members[owner] = append(a.result.members[owner], p)
		}
	}
}

// membersOf lists the living descendants of a root, and the orphans that are to be killed with it. It
// reports whether another orphan may descend from it.
func (a *attribution) membersOf(root *trackedRoot) (members []procfs.Stat, ambiguous bool) {
	members = a.members[root]
	for _, o := range a.orphans {
		switch {
		case o.endsWith(root):
			members = append(members[:len(members):len(members)], o.tree...)
		case o.includes(root):
			ambiguous = true
		}
	}
	return members, ambiguous
}

// unseenOf reports whether the scan may have missed a descendant of a root, and whether that would
// have to be killed with it.
func (a *attribution) unseenOf(root *trackedRoot) (any, endsWith bool) {
	for _, unseen := range a.unseen {
		any = any || unseen.includes(root)
		endsWith = endsWith || unseen.endsWith(root)
	}
	return any, endsWith
}

// unowned lists the living orphans that no kill job covers: all of their candidates are ending, and
// none of them is active.
func (a *attribution) unowned(active func(*trackedRoot) bool) (found []procfs.Stat) {
	for _, o := range a.orphans {
		isUnowned := !o.mayBeForeign
		for _, root := range o.candidates {
			isUnowned = isUnowned && root.ending && !active(root.trackedRoot)
		}
		if isUnowned {
			found = append(found, o.tree...)
		}
	}
	return found
}

// isCandidate reports whether an orphan may descend from a root.
func (a *attribution) isCandidate(root *trackedRoot) bool {
	return slices.ContainsFunc(a.orphans, func(o orphan) bool { return o.includes(root) })
}
