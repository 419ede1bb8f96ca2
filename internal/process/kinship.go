package process

import "strings"

// kin is what is remembered of a process that was started, to know its descendants by. It outlives the process as long
// as an orphan may turn up that could be its. The second half is guarded by sweeper.mu.
type kin struct {
	pid     int
	forked  uint64   // a tick at which it had not been forked yet
	cgroup  string   // its own, as /proc/PID/cgroup names it; "": none
	streams []fileID // its pipes or terminal

	reaped   bool   // its number is its own only while somebody is left in its session
	deserted bool   // nobody is, so that a session of its number is another's
	over     bool   // it has ended, or is being killed, with all that descends from it
	gone     uint64 // the first survey that began after its process was forgotten; 0: it is not
	clear    bool   // it is known that no descendant is left
}

// claim is the state of a kin at the time of a survey.
type claim struct {
	*kin
	reaped, deserted, over bool
	forgotten              bool // its control group may be another's by now
}

// survey is all that tells whose descendant each process is.
type survey struct {
	procs   []procStat
	self    int // this program, whose children are either the supervisors' or adopted
	session int // its own: children in it are somebody else's business
	adopts  bool
	ours    map[int]bool // children that supervisors look after themselves
	forking uint64       // a tick; a child forked since then may be of a start under way; 0: there is none
	claims  []claim
	// cgroups has the members of those cgroups that were looked into.
	cgroups map[*kin][]int
	// before is the result of an earlier survey, and fresh that it is so recent that no number was reused since.
	before *division
	fresh  bool
	// evidence looks at an orphan.
	evidence func(pid int) evidence
}

// orphan is a child of ours that none of our processes is known to have begotten, with what descends from it.
type orphan struct {
	tree     []procStat // those alive
	suspects []claim    // whose descendant it can be
	stranger bool       // it can also be somebody's who is none of our processes
}

// initPID is the process that every orphan goes to in the end: also those who came into its namespace from outside,
// through a container engine for one.
const initPID = 1

// division says whose descendants the processes are.
type division struct {
	members  map[*kin][]procStat // those alive, the processes themselves among them
	owners   map[identity]*kin   // the same, with the dead, by identity
	sessions map[int]*kin
	orphans  []orphan
	zombies  []procStat // adopted, to be reaped
	riddles  []riddle
}

// riddle is something that may have a living descendant that was not seen. It takes time to list all processes, and one
// that is forked meanwhile by one that then ends is missed. But whoever of a family of descendants was the last to end
// without a parent is an adopted zombie until we reap it: without riddles nobody was alive when the listing began.
type riddle struct {
	owner    *kin    // nil: one of the suspects
	suspects []claim // for owner nil
	other    bool    // it can also be one that is none of our processes, or be none
}

// divide attributes processes. What it says of members is certain by the kernel's own rules: nobody can join another's
// session or become another's child. Only the evidence of an orphan can be forged, by one with this program's rights:
// then it counts as what it pretends to be.
func (s survey) divide() *division {
	d := divider{
		survey: s, byPID: make(map[int]procStat, len(s.procs)), children: map[int][]int{}, sessions: map[int][]int{},
		owner: map[int]*kin{}, foundling: map[int]bool{}, known: map[*kin]bool{},
		result: division{members: map[*kin][]procStat{}, owners: map[identity]*kin{}, sessions: map[int]*kin{}},
	}
	for _, p := range s.procs {
		d.byPID[p.pid] = p
		d.children[p.ppid] = append(d.children[p.ppid], p.pid)
		if p.session != 0 { // of a process whose session began outside of this namespace
			d.sessions[p.session] = append(d.sessions[p.session], p.pid)
		}
	}
	d.takeCertain()
	if s.adopts {
		d.takeOrphans()
	}
	d.list()
	result := d.result // alone: the rest refers to the division before
	return &result
}

type divider struct {
	survey
	byPID     map[int]procStat
	children  map[int][]int
	sessions  map[int][]int
	owner     map[int]*kin
	foundling map[int]bool // in the tree of an orphan that nobody is known to own
	known     map[*kin]bool
	result    division
}

// takeCertain takes the descendants that the kernel itself vouches for.
func (d *divider) takeCertain() {
	for _, c := range d.claims {
		d.known[c.kin] = true
		_, exists := d.byPID[c.pid]
		if !c.reaped && d.byPID[c.pid].start >= c.forked {
			d.take(c.pid, c.kin)
		}
		if !c.reaped || !exists && !c.deserted { // otherwise the number is another's by now
			d.takeSession(c.pid, c.kin)
		}
		for _, pid := range d.cgroups[c.kin] {
			d.take(pid, c.kin)
		}
	}
	if d.before == nil {
		return
	}
	for _, p := range d.procs {
		if k := d.before.owners[p.identity()]; d.known[k] {
			d.take(p.pid, k)
		}
	}
	if !d.fresh {
		return
	}
	for session, k := range d.before.sessions { // whose members have all been replaced by their children
		if _, exists := d.byPID[session]; !exists && d.known[k] {
			d.takeSession(session, k)
		}
	}
}

func (d *divider) takeSession(session int, k *kin) {
	for _, pid := range d.sessions[session] {
		if d.byPID[pid].start >= k.forked {
			d.take(pid, k)
		}
	}
}

// take gives a process and everything that descends from it or shares a session with it to an owner.
func (d *divider) take(pid int, k *kin) {
	for _, found := range d.tree(pid) {
		d.owner[found] = k
	}
}

// tree lists a process and everything that descends from it, as far as nobody owns it.
func (d *divider) tree(pid int) (tree []int) {
	seen, spread := map[int]bool{}, map[int]bool{}
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		p, exists := d.byPID[queue[0]]
		if !exists || seen[p.pid] || d.owner[p.pid] != nil || p.pid == d.self || p.session == d.session {
			continue
		}
		seen[p.pid] = true
		tree = append(tree, p.pid)
		queue = append(queue, d.children[p.pid]...)
		if !spread[p.session] {
			spread[p.session] = true
			queue = append(queue, d.sessions[p.session]...)
		}
	}
	return tree
}

// takeOrphans looks for the owners of adopted children.
func (d *divider) takeOrphans() {
	for _, pid := range d.children[d.self] {
		p := d.byPID[pid]
		switch {
		case d.ours[pid] || p.session == d.session:
			continue
		case d.owner[pid] == nil && d.forking > 0 && p.start >= d.forking:
			d.wonder(p, true)
			continue
		case p.dead:
			defer d.wonder(p, d.self == initPID) // when its owner is known, if it will be
		}
		if d.owner[pid] == nil && !d.foundling[pid] {
			d.takeOrphan(p)
		}
		if p.dead && (d.owner[pid] != nil || d.foundling[pid] || d.self == initPID) {
			d.result.zombies = append(d.result.zombies, p)
		}
	}
}

// wonder notes that p may have had a child that was not seen, or may be one. It can also be another's if so said.
func (d *divider) wonder(p procStat, other bool) {
	if k := d.owner[p.pid]; k != nil {
		d.result.riddles = append(d.result.riddles, riddle{owner: k})
	} else if suspects := d.suspects(p); len(suspects) > 0 {
		d.result.riddles = append(d.result.riddles, riddle{suspects: suspects, other: other})
	}
}

func (d *divider) takeOrphan(p procStat) {
	suspects := d.suspects(p)
	if len(suspects) == 0 {
		return // it was there before all of them
	}
	if k := convict(d.evidence(p.pid), suspects); k != nil { // the dead still have a control group
		d.take(p.pid, k)
		return
	}
	var found orphan
	for _, pid := range d.tree(p.pid) {
		d.foundling[pid] = true
		if member := d.byPID[pid]; !member.dead {
			found.tree = append(found.tree, member)
		}
	}
	if len(found.tree) > 0 {
		found.suspects = suspects
		found.stranger = d.self == initPID
		d.result.orphans = append(d.result.orphans, found)
	}
}

// suspects lists those who were there when p was forked.
func (d *divider) suspects(p procStat) (found []claim) {
	for _, c := range d.claims {
		if c.forked <= p.start {
			found = append(found, c)
		}
	}
	return found
}

// convict finds the one whom the evidence names, if it does: by the cgroup, or else by a pipe or terminal that was made
// for it. Control groups are used again: that of a living process outweighs the same one of a forgotten process. Of two
// streams the later one counts: terminals are numbered anew.
func convict(e evidence, suspects []claim) (found *kin) {
	for _, c := range suspects {
		if c.cgroup != "" && (e.cgroup == c.cgroup || strings.HasPrefix(e.cgroup, c.cgroup+"/")) {
			found = c.kin
			if !c.forgotten {
				return found
			}
		}
	}
	if found != nil {
		return found
	}
	for _, c := range suspects {
		if sharesStream(c.streams, e.streams) && (found == nil || found.forked < c.forked) {
			found = c.kin
		}
	}
	return found
}

func sharesStream(a, b []fileID) bool {
	for _, stream := range a {
		for _, other := range b {
			if stream == other {
				return true
			}
		}
	}
	return false
}

// list fills in the result.
func (d *divider) list() {
	for _, p := range d.procs {
		k := d.owner[p.pid]
		if k == nil {
			if _, exists := d.byPID[p.ppid]; d.adopts && !exists && p.ppid != 0 && !d.foundling[p.pid] {
				d.wonder(p, true) // its parent ended while we looked, so whose child it is by now is not known
			}
			continue
		}
		d.result.owners[p.identity()] = k
		d.result.sessions[p.session] = k
		if !p.dead {
			d.result.members[k] = append(d.result.members[k], p)
		}
	}
}

// of lists the descendants of k that are alive, and tells whether there is an orphan that may be another one. An orphan
// is k's if everybody else who may have begotten it is over: then it has to go, whosever it was.
func (d *division) of(k *kin) (members []procStat, doubtful bool) {
	members = d.members[k]
	for _, o := range d.orphans {
		suspected, mine := false, !o.stranger
		for _, c := range o.suspects {
			suspected = suspected || c.kin == k
			mine = mine && (c.kin == k || c.over)
		}
		if suspected && mine {
			members = append(members[:len(members):len(members)], o.tree...)
		}
		doubtful = doubtful || suspected && !mine
	}
	return members, doubtful
}

// riddle tells whether k may have a descendant that was not seen, and whether that one would certainly be to be killed
// for k: it is k's, or everybody else's whose it can be is over.
func (d *division) riddle(k *kin) (any, mine bool) {
	for _, r := range d.riddles {
		suspected, other := r.owner == k, r.other
		for _, c := range r.suspects {
			suspected = suspected || c.kin == k
			other = other || c.kin != k && !c.over
		}
		any = any || suspected
		mine = mine || suspected && !other
	}
	return any, mine
}

// strays lists those alive whom nobody will come for: of all who may have begotten them, each is over.
func (d *division) strays(active func(*kin) bool) (found []procStat) {
	for _, o := range d.orphans {
		stray := !o.stranger
		for _, c := range o.suspects {
			stray = stray && c.over && !active(c.kin)
		}
		if stray {
			found = append(found, o.tree...)
		}
	}
	return found
}

// suspected tells whether an orphan may be k's.
func (d *division) suspected(k *kin) bool {
	for _, o := range d.orphans {
		for _, c := range o.suspects {
			if c.kin == k {
				return true
			}
		}
	}
	return false
}
