package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/testproc"
)

// strength is what a supervisor has to kill with. Each rung of the ladder is the strongest once the others are taken
// away.
type strength struct {
	cgroup, adopt bool
}

var strengths = []strength{{true, true}, {true, false}, {false, true}, {false, false}}

func (s strength) String() string {
	return fmt.Sprintf("cgroup=%v,adopt=%v", s.cgroup, s.adopt)
}

// writableCgroups finds such a mount in a mountinfo.
var writableCgroups = regexp.MustCompile(`(?m)^\S+ \S+ \S+ \S+ \S+ rw\S* .*- cgroup2 \S+ rw`)

// withCgroups makes a place for control groups, or skips a test where there can be none.
func withCgroups(t testing.TB) *Cgroups {
	t.Helper()
	c, err := OpenCgroups("auto")
	if err != nil {
		t.Fatal(err)
	}
	if c == nil {
		if mounts, _ := os.ReadFile("/proc/self/mountinfo"); os.Getuid() == 0 && writableCgroups.Match(mounts) {
			t.Fatal("there is a cgroup v2 tree for root to write to, and it was not found")
		}
		t.Skip("no cgroup v2 tree can be written to, so that rung is not tested")
	}
	return c
}

// cgroupsOfTest makes a directory for control groups that no other test nor server cleans up, and skips a test like
// withCgroups.
func cgroupsOfTest(t testing.TB) string {
	t.Helper()
	shared := withCgroups(t)
	dir := filepath.Join(filepath.Dir(shared.place.dir), fmt.Sprintf("execwire-test-%d-%s", os.Getpid(), t.Name()))
	if err := errors.Join(shared.Close(), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func (s strength) supervisor(t testing.TB) *Supervisor {
	t.Helper()
	t.Cleanup(func() { wantNoChildren(t) })
	config := Config{AdoptOrphans: s.adopt}
	if s.cgroup {
		config.Cgroups = withCgroups(t)
	}
	return newSupervisor(t, config)
}

// wantNoChildren expects this program to have none, not even zombies, but for those that tests started themselves.
func wantNoChildren(t testing.TB) {
	t.Helper()
	for _, p := range childrenLeft(t) {
		t.Errorf("there is a child %+v", p)
	}
}

func childrenLeft(t testing.TB) []procStat {
	t.Helper()
	procs, err := readProcs()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(procs, func(p procStat) bool { return p.ppid != os.Getpid() || p.session == ownSession() })
}

func onEachStrength(t *testing.T, f func(t *testing.T, s strength)) {
	for _, s := range strengths {
		t.Run(s.String(), func(t *testing.T) { f(t, s) })
	}
}

// tribe is a hostile process with its descendants.
type tribe struct {
	t      testing.TB
	report string
	spec   Spec
}

func newTribe(t testing.TB, args ...string) *tribe {
	t.Helper()
	h := &tribe{t: t, report: filepath.Join(t.TempDir(), "report")}
	h.spec = program("hostile", append([]string{"-report", h.report}, args...)...)
	t.Cleanup(func() {
		for _, p := range h.alive() { // of a test that failed, or that leaves some on purpose
			p.Kill()
		}
	})
	return h
}

// startReady starts it and waits until all its descendants are in place: before that it says nothing.
func (h *tribe) startReady(s *Supervisor) *Process {
	h.t.Helper()
	p := h.start(s)
	poll(h.t, "the hostile family to be in place", func() bool { return p.Log().Stats().LastSeq > 0 })
	return p
}

func (h *tribe) alive() []testproc.Hostile {
	h.t.Helper()
	all, err := testproc.ReadHostile(h.report)
	if err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(p testproc.Hostile) bool { return !p.Alive() })
}

func (h *tribe) start(s *Supervisor) *Process {
	h.t.Helper()
	p, err := s.Start(testContext(h.t), h.spec)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

// wantExtinct expects that nobody is alive, now.
func (h *tribe) wantExtinct(when string) {
	h.t.Helper()
	if left := h.alive(); len(left) > 0 {
		h.t.Errorf("%s, %d are alive: %v", when, len(left), left)
	}
}

// wantEnd expects the log to end as every log does.
func wantEnd(t *testing.T, p *Process) {
	t.Helper()
	exit(t, p)
	stats := p.Log().Stats()
	reader, err := p.Log().NewReader(stats.LastSeq - 1) // what came before may be gone
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	batch, err := reader.Next(testContext(t), 0)
	if err != nil || !stats.Exited || len(batch.Events) != 1 || batch.Events[0].Kind != eventlog.Closed {
		t.Errorf("%+v, %v, exited was said: %v", batch, err, stats.Exited)
	}
}

// ways are those that every rung reaches, and how it is then known that all are dead.
var ways = []struct {
	args   []string
	orphan bool // who has left the session has no parent any more
	alone  Method
}{
	{[]string{"child", "child", "stopped"}, false, MethodProcessGroup},
	{[]string{"-hold", "child", "group", "stopped"}, false, MethodDescendants},
	{[]string{"session", "stopped", "session"}, false, MethodDescendants},
	{[]string{"-flood", "-hold", "session"}, false, MethodDescendants},
	{[]string{"-chain", "300ms", "chain", "chain"}, false, MethodProcessGroup},
	{[]string{"daemon", "child", "daemon"}, true, MethodDescendants},
	{[]string{"-hold", "daemon", "group"}, true, MethodDescendants},
	{[]string{"-chain", "300ms", "daemon-chain", "session"}, true, MethodDescendants},
}

// check compares a result with what this rung can achieve.
func (s strength) check(t *testing.T, h *tribe, result TerminateResult, orphan bool, alone Method) {
	t.Helper()
	if s.cgroup || s.adopt || !orphan {
		h.wantExtinct("after the termination")
	}
	if result.Verified != s.adopt {
		t.Errorf("verified is %v", result.Verified)
	}
	want := alone
	switch {
	case s.cgroup:
		want = MethodCgroup
	case orphan && !s.adopt:
		want = result.Method // of those that could be found
	}
	if result.Method != want && !strings.Contains(strings.Join(h.spec.Argv, " "), "-chain") {
		t.Errorf("method %v, want %v", result.Method, want)
	}
}

func TestNobodySurvivesATermination(t *testing.T) {
	if testing.Short() {
		t.Skip("many hostile processes")
	}
	onEachStrength(t, func(t *testing.T, strength strength) {
		for _, way := range ways {
			for _, how := range []Termination{{}, {Graceful: true, Timeout: 50 * time.Millisecond}} {
				t.Run(fmt.Sprintf("%s,graceful=%v", strings.Join(way.args, " "), how.Graceful), func(t *testing.T) {
					h := newTribe(t, way.args...)
					p := h.startReady(strength.supervisor(t))
					result := terminate(t, p, how)
					strength.check(t, h, result, way.orphan, way.alone)
					if !result.WasRunning || result.Exit.Signal != syscall.SIGKILL || result.Exit.Cause != CauseTerminated {
						t.Errorf("%+v", result)
					}
					wantEnd(t, p)
				})
			}
		}
	})
}

func TestNobodySurvivesTheClose(t *testing.T) {
	onEachStrength(t, func(t *testing.T, strength strength) {
		h := newTribe(t, "-leave", "child", "group", "session", "stopped")
		p := h.start(strength.supervisor(t))
		wantEnd(t, p)
		if strength.cgroup {
			h.wantExtinct("after the close")
		}
		if strength.adopt || strength.cgroup {
			poll(t, "the end of all", func() bool { return len(h.alive()) == 0 })
		}
		if record, _ := p.Exit(); record.Code != 3 || record.Cause != CauseExited {
			t.Errorf("%+v", record)
		}
	})
}

func TestADaemonDoesNotSurviveTheClose(t *testing.T) {
	onEachStrength(t, func(t *testing.T, strength strength) {
		h := newTribe(t, "-leave", "daemon", "daemon")
		p := h.start(strength.supervisor(t))
		wantEnd(t, p)
		if strength.adopt || strength.cgroup { // otherwise nobody can find it, and nobody says that it is gone
			poll(t, "the end of all", func() bool { return len(h.alive()) == 0 })
		}
		result := terminate(t, p, Termination{})
		if result.WasRunning || result.Method != MethodNone || result.Verified != strength.adopt {
			t.Errorf("%+v", result)
		}
	})
}

func TestATimeoutReachesEverybody(t *testing.T) {
	onEachStrength(t, func(t *testing.T, strength strength) {
		h := newTribe(t, "-leave", "-hold", "session", "stopped", "daemon")
		h.spec.Timeout = 700 * time.Millisecond
		if !strength.adopt && !strength.cgroup {
			h = newTribe(t, "-hold", "session", "stopped")
			h.spec.Timeout = 700 * time.Millisecond
		}
		p := h.start(strength.supervisor(t))
		wantEnd(t, p)
		h.wantExtinct("after the timeout")
	})
}

func TestNobodySurvivesTheSupervisor(t *testing.T) {
	onEachStrength(t, func(t *testing.T, strength strength) {
		leakcheck.Check(t)
		s := strength.supervisor(t)
		args := []string{"group", "session", "stopped"}
		if strength.adopt || strength.cgroup {
			args = append(args, "daemon")
		}
		var tribes []*tribe
		for i := range 3 {
			h := newTribe(t, args...)
			h.spec.LeaveDescendants = i == 0
			h.startReady(s)
			tribes = append(tribes, h)
		}
		if err := s.Close(testContext(t)); err != nil {
			t.Fatal(err)
		}
		for _, h := range tribes {
			h.wantExtinct("after the supervisor was closed")
		}
	})
}

func TestWhoLeavesTheControlGroupIsFoundByItsParent(t *testing.T) {
	withCgroups(t)
	place, err := findCgroups("")
	if err != nil {
		t.Fatal(err)
	}
	for _, strength := range []strength{{true, true}, {true, false}} {
		t.Run(strength.String(), func(t *testing.T) {
			h := newTribe(t, "-cgroup", place.dir, "escape", "child")
			p := h.startReady(strength.supervisor(t))
			result := terminate(t, p, Termination{})
			if left := len(h.alive()); result.Verified != strength.adopt || strength.adopt && left > 0 {
				t.Errorf("%+v, and %d are alive", result, left)
			}
			wantEnd(t, p)
		})
	}
}

func init() {
	testproc.Register("fork-chain", func(args []string) int {
		runtime.LockOSThread()
		name, err := unix.BytePtrFromString(args[0]) // the children have it from this thread, and keep it when dead
		if err != nil || unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0) != nil {
			return 1
		}
		fmt.Println("ready")
		// No runtime in the children: they have one thread each.
		for range 10_000 {
			pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
			if pid != 0 || errno != 0 {
				_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
			}
			_, _, _ = syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
		}
		return 0
	})
}

// Each of a chain leaves the session, forks the next and ends, in less time than it takes to list all processes. On a
// busy machine a chain outruns a termination, which then is not verified, and lives on beside the next one. So each has
// a name: of the one that was verified nothing is left, not even zombies.
func TestAChainThatIsNotSeenIsNotTakenForDead(t *testing.T) {
	s := strength{adopt: true}.supervisor(t)
	for i := range 30 {
		name := fmt.Sprintf("chain-%d", i)
		p, err := s.Start(testContext(t), program("fork-chain", name))
		if err != nil {
			t.Fatal(err)
		}
		listen(t, p).until("ready")
		result := terminate(t, p, Termination{})
		exit(t, p)
		if left := childrenNamed(t, name); result.Verified && len(left) > 0 {
			t.Errorf("%s is verified to be dead, and has %q", name, left)
		}
	}
	poll(t, "the end of all chains", func() bool {
		if err := children.settle(testContext(t)); err != nil { // it reaps what was left
			t.Fatal(err)
		}
		return len(childrenLeft(t)) == 0
	})
}

// childrenNamed lists what /proc/PID/stat says of this program's children of a name, dead or alive.
func childrenNamed(t testing.TB, name string) (found []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[1-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, _ := os.ReadFile(path) // of one that is gone there is none
		if p, ok := parseStat(text); ok && p.ppid == os.Getpid() && strings.Contains(string(text), "("+name+")") {
			found = append(found, string(text))
		}
	}
	return found
}

func TestADaemonLivesOnIfThatWasAskedFor(t *testing.T) {
	onEachStrength(t, func(t *testing.T, strength strength) {
		h := newTribe(t, "-leave", "session", "daemon")
		h.spec.LeaveDescendants = true
		s := strength.supervisor(t)
		p := h.start(s)
		wantEnd(t, p)
		other := newTribe(t, "-leave", "child") // what happens to others means nothing to it
		wantEnd(t, other.start(s))
		if strength.adopt {
			if err := children.settle(testContext(t)); err != nil {
				t.Fatal(err)
			}
		}
		if left := h.alive(); len(left) != 2 {
			t.Fatalf("alive are %v", left)
		}
		wantKind(t, p.Signal(syscall.SIGTERM, TargetGroup), AlreadyExited)
		result := terminate(t, p, Termination{})
		if result.WasRunning || result.Verified != strength.adopt {
			t.Errorf("%+v", result)
		}
		if strength.adopt || strength.cgroup {
			h.wantExtinct("after the termination")
		}
	})
}

// Nothing runs any more when the supervisor is closed, but what was left alone.
func TestDaemonsLeftAloneEndWithTheSupervisor(t *testing.T) {
	onEachStrength(t, func(t *testing.T, strength strength) {
		s := strength.supervisor(t)
		var tribes []*tribe
		for range 3 {
			h := newTribe(t, "-leave", "session", "daemon")
			h.spec.LeaveDescendants = true
			wantEnd(t, h.start(s))
			tribes = append(tribes, h)
		}
		for range 2 {
			if err := s.Close(testContext(t)); err != nil {
				t.Fatal(err)
			}
		}
		if !strength.adopt && !strength.cgroup {
			return // a daemon cannot be told from a stranger
		}
		for _, h := range tribes {
			h.wantExtinct("after the close")
		}
	})
}

// Nobody is looked for where the kernel says that nobody is there.
func TestWhoLeavesNobodyIsForgottenAtOnce(t *testing.T) {
	s := strength{adopt: true, cgroup: true}.supervisor(t)
	spec := shell("exit 0")
	spec.LeaveDescendants = true
	p, err := s.Start(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	wantEnd(t, p)
	children.mu.Lock()
	defer children.mu.Unlock()
	if _, left := children.left[p.kin]; left {
		t.Error("it is among those that left somebody")
	}
}

// Without a control group daemons have to be looked for, which takes its time. What ended has no descriptor until then,
// unless somebody is left in its session.
func TestWhoLeavesNobodyInItsSessionIsClosedAtOnce(t *testing.T) {
	s := strength{adopt: true}.supervisor(t)
	for script, closed := range map[string]bool{"exit 0": true, "sleep 1000 >/dev/null 2>&1 &": false} {
		spec := shell(script)
		spec.LeaveDescendants = true
		p, err := s.Start(testContext(t), spec)
		if err != nil {
			t.Fatal(err)
		}
		wantEnd(t, p)
		p.mu.Lock()
		if got := p.pidfd.Control(func(uintptr) {}) != nil; !p.reaped || got != closed {
			t.Errorf("%s: reaped is %t, its descriptor closed %t; want %t", script, p.reaped, got, closed)
		}
		p.mu.Unlock()
	}
}

// Who left a daemon elsewhere is remembered for as long as that lives, but the number of its session is anybody's as
// soon as nobody is left in it.
func TestTheNumberOfADesertedSessionIsAnothers(t *testing.T) {
	s := strength{adopt: true}.supervisor(t)
	member := filepath.Join(t.TempDir(), "member")
	for script, deserted := range map[string]bool{"exit 0": true, "setsid sleep 1000 >/dev/null 2>&1 & sleep 1000 >/dev/null 2>&1 & echo $! >" + member: false} {
		spec := shell(script)
		spec.LeaveDescendants = true
		p, err := s.Start(testContext(t), spec)
		if err != nil {
			t.Fatal(err)
		}
		wantEnd(t, p)
		isDeserted := func() bool {
			children.mu.Lock()
			defer children.mu.Unlock()
			return p.kin.deserted
		}
		if got := isDeserted(); got != deserted {
			t.Errorf("%s: its session is deserted: %t, want %t", script, got, deserted)
		}
		if deserted {
			continue
		}
		text, err := os.ReadFile(member)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for !isDeserted() {
			if err := children.settle(testContext(t)); err != nil {
				t.Fatalf("%s: its session is not deserted: %v", script, err)
			}
		}
	}
}

func TestDescendantsOutsideOfTheGroupAreAskedFirst(t *testing.T) {
	onEachStrength(t, func(t *testing.T, strength strength) {
		asked := filepath.Join(t.TempDir(), "asked")
		script := "trap 'echo asked > " + asked + "; exit 0' TERM; echo ready; while :; do sleep 0.01; done"
		s := strength.supervisor(t)
		p, err := s.Start(testContext(t), shell("setsid sh -c '"+strings.ReplaceAll(script, "'", `'\''`)+"' & wait; exec sleep 1000"))
		if err != nil {
			t.Fatal(err)
		}
		listen(t, p).until("ready")
		result := terminate(t, p, Termination{Graceful: true, Timeout: patience})
		if result.Method < MethodDescendants || result.Verified != strength.adopt || result.Exit.Signal != syscall.SIGTERM {
			t.Errorf("%+v", result)
		}
		if text, err := os.ReadFile(asked); string(text) != "asked\n" {
			t.Errorf("it was not asked: %q, %v", text, err)
		}
	})
}

func TestAnAmbiguousOrphanWaitsForItsSuspects(t *testing.T) {
	s := strength{adopt: true}.supervisor(t)
	first, second := newTribe(t, "child"), newTribe(t, "daemon")
	p, q := first.startReady(s), second.startReady(s)
	result := terminate(t, q, Termination{}) // p was there before the daemon, and could have begotten it
	if result.Verified || len(second.alive()) != 1 {
		t.Errorf("%+v, and %v are alive", result, second.alive())
	}
	result = terminate(t, p, Termination{})
	if !result.Verified {
		t.Errorf("%+v", result)
	}
	first.wantExtinct("after the last suspect ended")
	second.wantExtinct("after the last suspect ended")
	if again := terminate(t, q, Termination{}); !again.Verified {
		t.Errorf("%+v", again)
	}
}

// An orphan without a control group is still known by what it holds, though others could have begotten it.
func TestAnOrphanIsKnownByItsStreams(t *testing.T) {
	for name, terminal := range map[string]*WindowSize{"pipe": nil, "terminal": {}} {
		t.Run(name, func(t *testing.T) {
			s := strength{adopt: true}.supervisor(t)
			other := newTribe(t, "child").startReady(s)
			h := newTribe(t, "-hold", "daemon", "daemon")
			h.spec.Terminal = terminal
			result := terminate(t, h.startReady(s), Termination{})
			h.wantExtinct("after the termination")
			if !result.Verified || other.State() != StateRunning {
				t.Errorf("%+v, the other is %v", result, other.State())
			}
		})
	}
}

func TestOthersAreNotTouched(t *testing.T) {
	onEachStrength(t, func(t *testing.T, strength strength) {
		bystander := exec.Command("/bin/sleep", "1000")
		if err := bystander.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = bystander.Process.Kill(); _ = bystander.Wait() }()
		other := startOther(t, "auto")
		h := newTribe(t, "session", "stopped")
		s := strength.supervisor(t)
		p := h.startReady(s)
		terminate(t, p, Termination{})
		if err := s.Close(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if !alive(bystander.Process.Pid) {
			t.Error("a child of somebody else in this program was killed")
		}
		if got := len(other.tribe.alive()); got != 3 {
			t.Errorf("of another server's three processes %d are left", got)
		}
	})
}
