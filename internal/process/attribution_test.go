package process

import (
	"maps"
	"slices"
	"testing"

	"github.com/execwire/execwire/internal/procfs"
)

// selfPID is the PID of this program in the tables below, and selfSession its session.
const selfPID, selfSession = 10, 5

// procs lists the processes of a case. PIDs from 100 are of the tree of P, which was forked at
// 1000, those from 200 of the tree of Q, forked at 2000.
func procs(list ...procfs.Stat) []procfs.Stat { return list }

func TestAttribute(t *testing.T) {
	p, q := &trackedRoot{pid: 100, forked: 1000, cgroup: "/base/1", streams: []procfs.FileID{{Number: 11}}},
		&trackedRoot{pid: 200, forked: 2000, cgroup: "/base/2", streams: []procfs.FileID{{Terminal: true, Number: 22}}}
	leaderP := procfs.Stat{PID: 100, PPID: selfPID, Group: 100, Session: 100, Start: 1000}
	leaderQ := procfs.Stat{PID: 200, PPID: selfPID, Group: 200, Session: 200, Start: 2000}
	// orphan is adopted and has a session of its own.
	orphan := func(pid int, start uint64) procfs.Stat {
		return procfs.Stat{PID: pid, PPID: selfPID, Group: pid, Session: pid, Start: start}
	}
	type result struct {
		p, q      []int // members
		ambiguous bool  // for P
		zombies   []int
	}
	for name, test := range map[string]struct {
		procs         []procfs.Stat
		reaped        bool // P's leader
		sessionEmpty  bool // P's session
		ending        bool // Q
		onlyP         bool // there is no Q
		noAdoption    bool // orphans are not adopted
		evidence      map[int]procfs.Evidence
		inCgroup      []int // of P
		before        *attribution
		sessionsFresh bool
		want          result
	}{
		"only leaders": {procs: procs(leaderP, leaderQ), want: result{p: []int{100}, q: []int{200}}},
		"children and grandchildren in their own sessions": {
			procs: procs(leaderP, leaderQ,
				procfs.Stat{PID: 101, PPID: 100, Group: 101, Session: 101, Start: 1001},
				procfs.Stat{PID: 102, PPID: 101, Group: 102, Session: 102, Start: 1002}),
			want: result{p: []int{100, 101, 102}, q: []int{200}},
		},
		"the session without its leader": {
			procs: procs(procfs.Stat{PID: 101, PPID: 1, Group: 101, Session: 100, Start: 1001}), reaped: true, onlyP: true,
			want: result{p: []int{101}},
		},
		"a session with the number of a leader that was reaped": {
			procs: procs(
				procfs.Stat{PID: 100, PPID: 1, Group: 100, Session: 100, Start: 9000},
				procfs.Stat{PID: 101, PPID: 1, Group: 101, Session: 100, Start: 9001}), reaped: true, onlyP: true,
			want: result{},
		},
		"a session that reuses the ID of an empty one, without its leader": {
			procs: procs(procfs.Stat{PID: 101, PPID: 1, Group: 101, Session: 100, Start: 9001}), reaped: true, sessionEmpty: true, onlyP: true,
			want: result{},
		},
		"a session that is older than the process": {
			procs: procs(procfs.Stat{PID: 101, PPID: 1, Group: 101, Session: 100, Start: 999}), reaped: true, onlyP: true,
			want: result{},
		},
		"members of the session of a descendant": {
			procs: procs(leaderP, leaderQ,
				procfs.Stat{PID: 101, PPID: 100, Group: 101, Session: 101, Start: 1001},
				procfs.Stat{PID: 102, PPID: 1, Group: 102, Session: 101, Start: 1002},
				procfs.Stat{PID: 103, PPID: 102, Group: 103, Session: 103, Start: 1003}),
			want: result{p: []int{100, 101, 102, 103}, q: []int{200}},
		},
		"own children in the own session": {
			procs: procs(leaderP, leaderQ, procfs.Stat{PID: 50, PPID: selfPID, Group: 50, Session: selfSession, Start: 3000}),
			want:  result{p: []int{100}, q: []int{200}},
		},
		"an orphan with P as the only candidate": {
			procs: procs(leaderP, leaderQ, orphan(101, 1500), procfs.Stat{PID: 102, PPID: 101, Group: 102, Session: 102, Start: 3000}),
			want:  result{p: []int{100, 101, 102}, q: []int{200}},
		},
		"an orphan that was there before": {
			procs: procs(leaderP, leaderQ, orphan(101, 500)), want: result{p: []int{100}, q: []int{200}},
		},
		"an orphan that is not adopted": {
			procs: procs(leaderP, leaderQ, orphan(101, 1500)), noAdoption: true, want: result{p: []int{100}, q: []int{200}},
		},
		"an ambiguous orphan": {
			procs: procs(leaderP, leaderQ, orphan(101, 3000)),
			want:  result{p: []int{100}, q: []int{200}, ambiguous: true},
		},
		"an orphan whose other candidate is ending": {
			procs: procs(leaderP, leaderQ, orphan(101, 3000)), ending: true,
			want: result{p: []int{100, 101}, q: []int{200}},
		},
		"an orphan in the control group of P": {
			procs: procs(leaderP, leaderQ, orphan(101, 3000)), evidence: map[int]procfs.Evidence{101: {Cgroup: "/base/1"}},
			want: result{p: []int{100, 101}, q: []int{200}},
		},
		"an orphan in a control group below that of Q": {
			procs: procs(leaderP, leaderQ, orphan(101, 3000)), evidence: map[int]procfs.Evidence{101: {Cgroup: "/base/2/x"}},
			want: result{p: []int{100}, q: []int{101, 200}},
		},
		"an orphan in a control group that begins like another": {
			procs: procs(leaderP, leaderQ, orphan(101, 3000)), evidence: map[int]procfs.Evidence{101: {Cgroup: "/base/22"}},
			want: result{p: []int{100}, q: []int{200}, ambiguous: true},
		},
		"an orphan that holds a pipe of P": {
			procs: procs(leaderP, leaderQ, orphan(101, 3000)), evidence: map[int]procfs.Evidence{101: {Files: []procfs.FileID{{Number: 9}, {Number: 11}}}},
			want: result{p: []int{100, 101}, q: []int{200}},
		},
		"an orphan that holds a pipe with the number of Q's terminal": {
			procs: procs(leaderP, leaderQ, orphan(101, 3000)), evidence: map[int]procfs.Evidence{101: {Files: []procfs.FileID{{Number: 22}}}},
			want: result{p: []int{100}, q: []int{200}, ambiguous: true},
		},
		"an orphan that was P's when it had a parent": {
			procs:  procs(leaderP, leaderQ, orphan(101, 3000)),
			before: &attribution{owners: map[procfs.ID]*trackedRoot{{PID: 101, Start: 3000}: p}},
			want:   result{p: []int{100, 101}, q: []int{200}},
		},
		"an orphan that has the number of one": {
			procs:  procs(leaderP, leaderQ, orphan(101, 3000)),
			before: &attribution{owners: map[procfs.ID]*trackedRoot{{PID: 101, Start: 2999}: p}},
			want:   result{p: []int{100}, q: []int{200}, ambiguous: true},
		},
		"a session that was P's a moment ago": {
			procs:  procs(leaderP, leaderQ, procfs.Stat{PID: 102, PPID: selfPID, Group: 102, Session: 101, Start: 3000}),
			before: &attribution{sessions: map[int]*trackedRoot{101: p}}, sessionsFresh: true,
			want: result{p: []int{100, 102}, q: []int{200}},
		},
		"a session that was P's long ago": {
			procs:  procs(leaderP, leaderQ, procfs.Stat{PID: 102, PPID: selfPID, Group: 102, Session: 101, Start: 3000}),
			before: &attribution{sessions: map[int]*trackedRoot{101: p}},
			want:   result{p: []int{100}, q: []int{200}, ambiguous: true},
		},
		"members of the control group without other attribution": {
			procs: procs(leaderP, leaderQ, procfs.Stat{PID: 101, PPID: 1, Group: 101, Session: 101, Start: 3000}), inCgroup: []int{101, 999},
			want: result{p: []int{100, 101}, q: []int{200}},
		},
		"zombies": {
			procs: procs(leaderP, leaderQ,
				procfs.Stat{PID: 101, PPID: selfPID, Group: 100, Session: 100, Start: 1001, Dead: true},
				procfs.Stat{PID: 102, PPID: selfPID, Group: 102, Session: 102, Start: 3000, Dead: true},
				procfs.Stat{PID: 103, PPID: selfPID, Group: 103, Session: 103, Start: 500, Dead: true},
				procfs.Stat{PID: 105, PPID: selfPID, Group: 102, Session: 102, Start: 3001, Dead: true},
				procfs.Stat{PID: 104, PPID: 1, Group: 104, Session: 100, Start: 1001, Dead: true}),
			want: result{p: []int{100}, q: []int{200}, zombies: []int{101, 102, 105}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := processScan{
				procs: test.procs, self: selfPID, session: selfSession, adopts: !test.noAdoption, leaders: map[int]bool{100: true, 200: true},
				roots: []scannedRoot{{p, rootState{reaped: test.reaped, sessionEmpty: test.sessionEmpty}}}, cgroups: map[*trackedRoot][]int{p: test.inCgroup},
				previous: test.before, sessionsFresh: test.sessionsFresh, evidence: func(pid int) procfs.Evidence { return test.evidence[pid] },
			}
			if !test.onlyP {
				s.roots = append(s.roots, scannedRoot{q, rootState{ending: test.ending}})
			}
			attributed := s.attribute()
			var got result
			var members []procfs.Stat
			members, got.ambiguous = attributed.membersOf(p)
			got.p, got.q, got.zombies = pids(members), pids(attributed.members[q]), pids(attributed.zombies)
			if !slices.Equal(got.p, test.want.p) || !slices.Equal(got.q, test.want.q) ||
				!slices.Equal(got.zombies, test.want.zombies) || got.ambiguous != test.want.ambiguous {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

func TestAttribute_AsInit_ForeignOrphansAreNotKilled(t *testing.T) {
	p := &trackedRoot{pid: 100, forked: 1000}
	foreign := procfs.Stat{PID: 300, PPID: initPID, Group: 300, Session: 300, Start: 1500}
	zombie := procfs.Stat{PID: 400, PPID: initPID, Group: 400, Session: 400, Start: 500, Dead: true}
	for self, want := range map[int][]int{initPID: nil, selfPID: {300}} {
		foreign.PPID, zombie.PPID = self, self
		attributed := processScan{
			procs: procs(foreign, zombie), self: self, session: selfSession, adopts: true,
			roots:    []scannedRoot{{p, rootState{ending: true, reaped: true}}},
			evidence: func(int) procfs.Evidence { return procfs.Evidence{} },
		}.attribute()
		members, ambiguous := attributed.membersOf(p)
		if got := pids(members); !slices.Equal(got, want) || ambiguous != (self == initPID) {
			t.Errorf("as PID %d: members %v, ambiguous %v", self, got, ambiguous)
		}
		if got := pids(attributed.unowned(func(*trackedRoot) bool { return false })); !slices.Equal(got, want) {
			t.Errorf("as PID %d: unowned %v", self, got)
		}
		if reaped := len(attributed.zombies) == 1; reaped != (self == initPID) {
			t.Errorf("as %d it reaps what was there before: %v", self, reaped)
		}
	}
}

func TestAttribution_Unowned(t *testing.T) {
	first, second := &trackedRoot{pid: 100, forked: 1000}, &trackedRoot{pid: 200, forked: 2000}
	attributed := processScan{
		procs: procs(
			procfs.Stat{PID: 300, PPID: selfPID, Group: 300, Session: 300, Start: 1500},
			procfs.Stat{PID: 400, PPID: selfPID, Group: 400, Session: 400, Start: 2500}),
		self: selfPID, session: selfSession, adopts: true,
		roots:    []scannedRoot{{first, rootState{ending: true, reaped: true}}, {second, rootState{reaped: true}}},
		evidence: func(int) procfs.Evidence { return procfs.Evidence{} },
	}.attribute()
	if got := pids(attributed.unowned(func(*trackedRoot) bool { return false })); !slices.Equal(got, []int{300}) {
		t.Errorf("unowned %v", got)
	}
	if got := attributed.unowned(func(k *trackedRoot) bool { return k == first }); len(got) > 0 {
		t.Errorf("unowned %v, although a kill job covers them", got)
	}
	if !attributed.isCandidate(first) || !attributed.isCandidate(second) {
		t.Error("a candidate is missing")
	}
}

// A process that has ended may have forked another one after the scan had passed it.
func TestAttribution_UnseenOf(t *testing.T) {
	first, second := &trackedRoot{pid: 100, forked: 1000, cgroup: "/base/1"}, &trackedRoot{pid: 200, forked: 2000}
	dead := func(pid, session int, start uint64) procfs.Stat {
		return procfs.Stat{PID: pid, PPID: selfPID, Group: session, Session: session, Start: start, Dead: true}
	}
	type answer struct{ any, owned bool }
	for name, test := range map[string]struct {
		proc          procfs.Stat
		ending        bool // the second
		forking       uint64
		cgroup        string
		first, second answer
	}{
		"a leader":                          {proc: dead(100, 100, 1000)},
		"an older process":                  {proc: dead(300, 300, 500)},
		"one in a session":                  {proc: dead(300, 200, 3000), second: answer{true, true}},
		"one that only the first can have":  {proc: dead(300, 300, 1500), first: answer{true, true}},
		"one that both can have":            {proc: dead(300, 300, 3000), first: answer{any: true}, second: answer{any: true}},
		"the same, with one ending":         {proc: dead(300, 300, 3000), ending: true, first: answer{true, true}, second: answer{any: true}},
		"one in a control group":            {proc: dead(300, 300, 3000), cgroup: "/base/1", first: answer{true, true}},
		"one alive":                         {proc: procfs.Stat{PID: 300, PPID: selfPID, Group: 300, Session: 300, Start: 1500}},
		"one that may be a start under way": {proc: dead(300, 300, 1500), forking: 1500, first: answer{any: true}},
		"one that was there before a start": {proc: dead(300, 300, 1500), forking: 1501, first: answer{true, true}},
		"one whose parent ended meanwhile":  {proc: procfs.Stat{PID: 300, PPID: 299, Group: 300, Session: 300, Start: 1500}, first: answer{any: true}},
		"one whose parent is not visible":   {proc: procfs.Stat{PID: 300, PPID: 0, Group: 300, Session: 300, Start: 1500}},
	} {
		t.Run(name, func(t *testing.T) {
			attributed := processScan{
				procs: procs(test.proc), self: selfPID, session: selfSession, adopts: true, leaders: map[int]bool{100: true, 200: true},
				forking: test.forking, roots: []scannedRoot{{trackedRoot: first}, {second, rootState{ending: test.ending}}},
				evidence: func(int) procfs.Evidence { return procfs.Evidence{Cgroup: test.cgroup} },
			}.attribute()
			for k, want := range map[*trackedRoot]answer{first: test.first, second: test.second} {
				var got answer
				if got.any, got.owned = attributed.unseenOf(k); got != want {
					t.Errorf("of %d: %+v, want %+v", k.pid, got, want)
				}
			}
			if test.forking > 0 && test.proc.Start >= test.forking && len(attributed.zombies) > 0 {
				t.Error("it reaps the child of a start")
			}
		})
	}
}

func pids(list []procfs.Stat) []int {
	set := map[int]bool{}
	for _, p := range list {
		set[p.PID] = true
	}
	if len(set) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(set))
}

func TestAttributeByEvidence_ReusedCgroup(t *testing.T) {
	former := scannedRoot{&trackedRoot{pid: 100, forked: 1000, cgroup: "/base/1"}, rootState{ending: true, detachedAtScan: 1}}
	present := scannedRoot{trackedRoot: &trackedRoot{pid: 200, forked: 1000, cgroup: "/base/1"}}
	for _, candidates := range [][]scannedRoot{{former, present}, {present, former}} {
		if got := attributeByEvidence(procfs.Evidence{Cgroup: "/base/1"}, candidates); got != present.trackedRoot {
			t.Errorf("an orphan in the group is attributed to process %d, want %d", got.pid, present.pid)
		}
	}
}
