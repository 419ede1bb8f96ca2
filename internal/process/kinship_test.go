package process

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

func TestParseStat(t *testing.T) {
	rest := " S 1 42 40 34816 42 4194304 130 0 0 0 0 0 0 0 20 0 1 0 123456 2500000 200 18446744073709551615 0 0 0"
	want := procStat{pid: 43, ppid: 1, group: 42, session: 40, start: 123456}
	for _, name := range []string{"sh", "", "(sd-pam)", "a) R 7 7 7", "a\nb) S 2", ")", "((", " ) ) "} {
		if got, ok := parseStat([]byte("43 (" + name + ")" + rest + "\n")); !ok || got != want {
			t.Errorf("%q: %+v, %v", name, got, ok)
		}
	}
	dead := want
	dead.dead = true
	threads := " Z 1 42 40 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 "
	for text, want := range map[string]procStat{
		"43 (x)" + threads + "1 0 123456 0": dead,
		"43 (x)" + threads + "2 0 123456 0": want, // its first thread has ended, and another one has not
	} {
		if got, ok := parseStat([]byte(text)); !ok || got != want {
			t.Errorf("%q: %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "43", "43 (x", "43 x)", ") 43 (", "43 (x) S 1 2 3", "x (x)" + rest, "43 (x) S x" + rest[4:]} {
		if got, ok := parseStat([]byte(text)); ok {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("a) b", 43)
	f.Fuzz(func(t *testing.T, name string, pid int) {
		text := fmt.Sprintf("%d (%s) S 1 42 40 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 123456 0", pid, name)
		if p, ok := parseStat([]byte(text)); !ok || p.pid != pid || p.session != 40 || p.start != 123456 {
			t.Errorf("%q: %+v, %v", text, p, ok)
		}
	})
}

func TestParseFileID(t *testing.T) {
	for target, want := range map[string]fileID{
		"pipe:[123]": {number: 123}, "/dev/pts/7": {terminal: true, number: 7},
		"": {}, "pipe:[]": {}, "pipe:[1": {}, "/dev/pts/": {}, "/dev/pts/ptmx": {}, "/dev/null": {}, "socket:[5]": {}, "123": {},
	} {
		got, ok := parseFileID(target)
		if ok != (want != fileID{}) || ok && got != want {
			t.Errorf("%q: %+v, %v", target, got, ok)
		}
	}
}

// us is this program in the tables below: number 10, in session 5.
const us, ourSession = 10, 5

// process numbers: 100 and up are P's, 200 and up Q's. P was forked at 1000, Q at 2000.
func procs(list ...procStat) []procStat { return list }

func TestDescendantsAreFound(t *testing.T) {
	p, q := &kin{pid: 100, forked: 1000, cgroup: "/base/1", streams: []fileID{{number: 11}}},
		&kin{pid: 200, forked: 2000, cgroup: "/base/2", streams: []fileID{{terminal: true, number: 22}}}
	leaderP := procStat{pid: 100, ppid: us, group: 100, session: 100, start: 1000}
	leaderQ := procStat{pid: 200, ppid: us, group: 200, session: 200, start: 2000}
	// orphan is adopted and has a session of its own.
	orphan := func(pid int, start uint64) procStat {
		return procStat{pid: pid, ppid: us, group: pid, session: pid, start: start}
	}
	type result struct {
		p, q     []int // members
		doubtful bool  // for P
		zombies  []int
	}
	for name, test := range map[string]struct {
		procs    []procStat
		reaped   bool // P's leader
		deserted bool // P's session
		over     bool // Q
		alone    bool // there is no Q
		no       bool // orphans are not adopted
		evidence map[int]evidence
		inCgroup []int // of P
		before   *division
		fresh    bool
		want     result
	}{
		"nobody else": {procs: procs(leaderP, leaderQ), want: result{p: []int{100}, q: []int{200}}},
		"children, and theirs, in sessions of their own": {
			procs: procs(leaderP, leaderQ,
				procStat{pid: 101, ppid: 100, group: 101, session: 101, start: 1001},
				procStat{pid: 102, ppid: 101, group: 102, session: 102, start: 1002}),
			want: result{p: []int{100, 101, 102}, q: []int{200}},
		},
		"the session without its leader": {
			procs: procs(procStat{pid: 101, ppid: 1, group: 101, session: 100, start: 1001}), reaped: true, alone: true,
			want: result{p: []int{101}},
		},
		"a session with the number of a leader that was reaped": {
			procs: procs(
				procStat{pid: 100, ppid: 1, group: 100, session: 100, start: 9000},
				procStat{pid: 101, ppid: 1, group: 101, session: 100, start: 9001}), reaped: true, alone: true,
			want: result{},
		},
		"a session with the number of one that was deserted, without its leader": {
			procs: procs(procStat{pid: 101, ppid: 1, group: 101, session: 100, start: 9001}), reaped: true, deserted: true, alone: true,
			want: result{},
		},
		"a session that is older than the process": {
			procs: procs(procStat{pid: 101, ppid: 1, group: 101, session: 100, start: 999}), reaped: true, alone: true,
			want: result{},
		},
		"who shares the session of a descendant": {
			procs: procs(leaderP, leaderQ,
				procStat{pid: 101, ppid: 100, group: 101, session: 101, start: 1001},
				procStat{pid: 102, ppid: 1, group: 102, session: 101, start: 1002},
				procStat{pid: 103, ppid: 102, group: 103, session: 103, start: 1003}),
			want: result{p: []int{100, 101, 102, 103}, q: []int{200}},
		},
		"our own children in our own session": {
			procs: procs(leaderP, leaderQ, procStat{pid: 50, ppid: us, group: 50, session: ourSession, start: 3000}),
			want:  result{p: []int{100}, q: []int{200}},
		},
		"an orphan that only P can have begotten": {
			procs: procs(leaderP, leaderQ, orphan(101, 1500), procStat{pid: 102, ppid: 101, group: 102, session: 102, start: 3000}),
			want:  result{p: []int{100, 101, 102}, q: []int{200}},
		},
		"an orphan that was there before": {
			procs: procs(leaderP, leaderQ, orphan(101, 500)), want: result{p: []int{100}, q: []int{200}},
		},
		"an orphan that is not adopted": {
			procs: procs(leaderP, leaderQ, orphan(101, 1500)), no: true, want: result{p: []int{100}, q: []int{200}},
		},
		"an ambiguous orphan": {
			procs: procs(leaderP, leaderQ, orphan(101, 3000)),
			want:  result{p: []int{100}, q: []int{200}, doubtful: true},
		},
		"an orphan whose other suspect is over": {
			procs: procs(leaderP, leaderQ, orphan(101, 3000)), over: true,
			want: result{p: []int{100, 101}, q: []int{200}},
		},
		"an orphan in the control group of P": {
			procs: procs(leaderP, leaderQ, orphan(101, 3000)), evidence: map[int]evidence{101: {cgroup: "/base/1"}},
			want: result{p: []int{100, 101}, q: []int{200}},
		},
		"an orphan in a control group below that of Q": {
			procs: procs(leaderP, leaderQ, orphan(101, 3000)), evidence: map[int]evidence{101: {cgroup: "/base/2/x"}},
			want: result{p: []int{100}, q: []int{101, 200}},
		},
		"an orphan in a control group that begins like another": {
			procs: procs(leaderP, leaderQ, orphan(101, 3000)), evidence: map[int]evidence{101: {cgroup: "/base/22"}},
			want: result{p: []int{100}, q: []int{200}, doubtful: true},
		},
		"an orphan that holds a pipe of P": {
			procs: procs(leaderP, leaderQ, orphan(101, 3000)), evidence: map[int]evidence{101: {streams: []fileID{{number: 9}, {number: 11}}}},
			want: result{p: []int{100, 101}, q: []int{200}},
		},
		"an orphan that holds a pipe with the number of Q's terminal": {
			procs: procs(leaderP, leaderQ, orphan(101, 3000)), evidence: map[int]evidence{101: {streams: []fileID{{number: 22}}}},
			want: result{p: []int{100}, q: []int{200}, doubtful: true},
		},
		"an orphan that was P's when it had a parent": {
			procs:  procs(leaderP, leaderQ, orphan(101, 3000)),
			before: &division{owners: map[identity]*kin{{101, 3000}: p}},
			want:   result{p: []int{100, 101}, q: []int{200}},
		},
		"an orphan that has the number of one": {
			procs:  procs(leaderP, leaderQ, orphan(101, 3000)),
			before: &division{owners: map[identity]*kin{{101, 2999}: p}},
			want:   result{p: []int{100}, q: []int{200}, doubtful: true},
		},
		"a session that was P's a moment ago": {
			procs:  procs(leaderP, leaderQ, procStat{pid: 102, ppid: us, group: 102, session: 101, start: 3000}),
			before: &division{sessions: map[int]*kin{101: p}}, fresh: true,
			want: result{p: []int{100, 102}, q: []int{200}},
		},
		"a session that was P's long ago": {
			procs:  procs(leaderP, leaderQ, procStat{pid: 102, ppid: us, group: 102, session: 101, start: 3000}),
			before: &division{sessions: map[int]*kin{101: p}},
			want:   result{p: []int{100}, q: []int{200}, doubtful: true},
		},
		"members of the control group that belong to nobody": {
			procs: procs(leaderP, leaderQ, procStat{pid: 101, ppid: 1, group: 101, session: 101, start: 3000}), inCgroup: []int{101, 999},
			want: result{p: []int{100, 101}, q: []int{200}},
		},
		"zombies": {
			procs: procs(leaderP, leaderQ,
				procStat{pid: 101, ppid: us, group: 100, session: 100, start: 1001, dead: true},
				procStat{pid: 102, ppid: us, group: 102, session: 102, start: 3000, dead: true},
				procStat{pid: 103, ppid: us, group: 103, session: 103, start: 500, dead: true},
				procStat{pid: 105, ppid: us, group: 102, session: 102, start: 3001, dead: true},
				procStat{pid: 104, ppid: 1, group: 104, session: 100, start: 1001, dead: true}),
			want: result{p: []int{100}, q: []int{200}, zombies: []int{101, 102, 105}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := survey{
				procs: test.procs, self: us, session: ourSession, adopts: !test.no, ours: map[int]bool{100: true, 200: true},
				claims: []claim{{kin: p, reaped: test.reaped, deserted: test.deserted}}, cgroups: map[*kin][]int{p: test.inCgroup},
				before: test.before, fresh: test.fresh, evidence: func(pid int) evidence { return test.evidence[pid] },
			}
			if !test.alone {
				s.claims = append(s.claims, claim{kin: q, over: test.over})
			}
			d := s.divide()
			var got result
			var members []procStat
			members, got.doubtful = d.of(p)
			got.p, got.q, got.zombies = pids(members), pids(d.members[q]), pids(d.zombies)
			if !slices.Equal(got.p, test.want.p) || !slices.Equal(got.q, test.want.q) ||
				!slices.Equal(got.zombies, test.want.zombies) || got.doubtful != test.want.doubtful {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

func TestInitKillsNoStrangers(t *testing.T) {
	p := &kin{pid: 100, forked: 1000}
	stranger := procStat{pid: 300, ppid: initPID, group: 300, session: 300, start: 1500}
	zombie := procStat{pid: 400, ppid: initPID, group: 400, session: 400, start: 500, dead: true}
	for self, want := range map[int][]int{initPID: nil, us: {300}} {
		stranger.ppid, zombie.ppid = self, self
		d := survey{
			procs: procs(stranger, zombie), self: self, session: ourSession, adopts: true,
			claims:   []claim{{kin: p, over: true, reaped: true}},
			evidence: func(int) evidence { return evidence{} },
		}.divide()
		members, doubtful := d.of(p)
		if got := pids(members); !slices.Equal(got, want) || doubtful != (self == initPID) {
			t.Errorf("as %d it takes %v for a descendant, doubtful: %v", self, got, doubtful)
		}
		if got := pids(d.strays(func(*kin) bool { return false })); !slices.Equal(got, want) {
			t.Errorf("as %d it finds the strays %v", self, got)
		}
		if reaped := len(d.zombies) == 1; reaped != (self == initPID) {
			t.Errorf("as %d it reaps what was there before: %v", self, reaped)
		}
	}
}

func TestStraysAreThoseOfWhomAllSuspectsAreOver(t *testing.T) {
	first, second := &kin{pid: 100, forked: 1000}, &kin{pid: 200, forked: 2000}
	d := survey{
		procs: procs(
			procStat{pid: 300, ppid: us, group: 300, session: 300, start: 1500},
			procStat{pid: 400, ppid: us, group: 400, session: 400, start: 2500}),
		self: us, session: ourSession, adopts: true,
		claims:   []claim{{kin: first, over: true, reaped: true}, {kin: second, reaped: true}},
		evidence: func(int) evidence { return evidence{} },
	}.divide()
	if got := pids(d.strays(func(*kin) bool { return false })); !slices.Equal(got, []int{300}) {
		t.Errorf("strays %v", got)
	}
	if got := d.strays(func(k *kin) bool { return k == first }); len(got) > 0 {
		t.Errorf("strays %v, while a sweep comes for them", got)
	}
	if !d.suspected(first) || !d.suspected(second) {
		t.Error("a suspect was forgotten")
	}
}

// Whoever has ended may have forked somebody after we had looked for those.
func TestWhatWasNotSeenIsNotForgotten(t *testing.T) {
	first, second := &kin{pid: 100, forked: 1000, cgroup: "/base/1"}, &kin{pid: 200, forked: 2000}
	dead := func(pid, session int, start uint64) procStat {
		return procStat{pid: pid, ppid: us, group: session, session: session, start: start, dead: true}
	}
	type answer struct{ any, mine bool }
	for name, test := range map[string]struct {
		proc          procStat
		over          bool // the second
		forking       uint64
		cgroup        string
		first, second answer
	}{
		"a leader":                           {proc: dead(100, 100, 1000)},
		"one who was there before":           {proc: dead(300, 300, 500)},
		"one in a session":                   {proc: dead(300, 200, 3000), second: answer{true, true}},
		"one that only the first can have":   {proc: dead(300, 300, 1500), first: answer{true, true}},
		"one that both can have":             {proc: dead(300, 300, 3000), first: answer{any: true}, second: answer{any: true}},
		"of whom one is over":                {proc: dead(300, 300, 3000), over: true, first: answer{true, true}, second: answer{any: true}},
		"one in a control group":             {proc: dead(300, 300, 3000), cgroup: "/base/1", first: answer{true, true}},
		"one alive":                          {proc: procStat{pid: 300, ppid: us, group: 300, session: 300, start: 1500}},
		"one that may be a start under way":  {proc: dead(300, 300, 1500), forking: 1500, first: answer{any: true}},
		"one that was there before a start":  {proc: dead(300, 300, 1500), forking: 1501, first: answer{true, true}},
		"one whose parent ended meanwhile":   {proc: procStat{pid: 300, ppid: 299, group: 300, session: 300, start: 1500}, first: answer{any: true}},
		"one whose parent is not to be seen": {proc: procStat{pid: 300, ppid: 0, group: 300, session: 300, start: 1500}},
	} {
		t.Run(name, func(t *testing.T) {
			d := survey{
				procs: procs(test.proc), self: us, session: ourSession, adopts: true, ours: map[int]bool{100: true, 200: true},
				forking: test.forking, claims: []claim{{kin: first}, {kin: second, over: test.over}},
				evidence: func(int) evidence { return evidence{cgroup: test.cgroup} },
			}.divide()
			for k, want := range map[*kin]answer{first: test.first, second: test.second} {
				var got answer
				if got.any, got.mine = d.riddle(k); got != want {
					t.Errorf("of %d: %+v, want %+v", k.pid, got, want)
				}
			}
			if test.forking > 0 && test.proc.start >= test.forking && len(d.zombies) > 0 {
				t.Error("it reaps the child of a start")
			}
		})
	}
}

func pids(list []procStat) []int {
	set := map[int]bool{}
	for _, p := range list {
		set[p.pid] = true
	}
	if len(set) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(set))
}

func TestReusedControlGroupBelongsToItsPresentProcess(t *testing.T) {
	former := claim{kin: &kin{pid: 100, forked: 1000, cgroup: "/base/1"}, over: true, forgotten: true}
	present := claim{kin: &kin{pid: 200, forked: 1000, cgroup: "/base/1"}}
	for _, suspects := range [][]claim{{former, present}, {present, former}} {
		if got := convict(evidence{cgroup: "/base/1"}, suspects); got != present.kin {
			t.Errorf("an orphan in the group is attributed to process %d, want %d", got.pid, present.pid)
		}
	}
}
