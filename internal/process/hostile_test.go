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

	"github.com/execwire/execwire/internal/cgroup"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/procfs"
	"github.com/execwire/execwire/internal/testproc"
	"github.com/execwire/execwire/internal/testrace"
)

// killSetup is what a supervisor has for killing.
type killSetup struct {
	cgroup, adopt bool
}

var killSetups = []killSetup{{true, true}, {true, false}, {false, true}, {false, false}}

func (s killSetup) String() string {
	return fmt.Sprintf("cgroup=%v,adopt=%v", s.cgroup, s.adopt)
}

// writableCgroups matches a writable cgroup v2 mount in a mountinfo.
var writableCgroups = regexp.MustCompile(`(?m)^\S+ \S+ \S+ \S+ \S+ rw\S* .*- cgroup2 \S+ rw`)

// withCgroups opens a pool of control groups.
func withCgroups(t testing.TB) *cgroup.Pool {
	t.Helper()
	c, err := cgroup.Open("auto")
	if err != nil {
		t.Fatal(err)
	}
	if c == nil {
		if mounts, _ := os.ReadFile("/proc/self/mountinfo"); os.Getuid() == 0 && writableCgroups.Match(mounts) {
			t.Fatal("there is a writable cgroup v2 tree, and it was not found")
		}
		t.Fatal("there is no writable cgroup v2 tree: run the tests as root on a system with one")
	}
	return c
}

// cgroupsOfTest creates a directory for control groups that no other test or server cleans up.
func cgroupsOfTest(t testing.TB) string {
	t.Helper()
	shared := withCgroups(t)
	dir := filepath.Join(filepath.Dir(shared.Dir()), fmt.Sprintf("execwire-test-%d-%s", os.Getpid(), t.Name()))
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

func (s killSetup) supervisor(t testing.TB) *Supervisor {
	t.Helper()
	t.Cleanup(func() { wantNoChildren(t) })
	config := Config{AdoptOrphans: s.adopt}
	if s.cgroup {
		config.Cgroups = withCgroups(t)
	}
	return newSupervisor(t, config)
}

// wantNoChildren expects this program to have no children, not even zombies, other than those in
// its own session.
func wantNoChildren(t testing.TB) {
	t.Helper()
	for _, p := range childrenLeft(t) {
		t.Errorf("there is a child %+v", p)
	}
}

func childrenLeft(t testing.TB) []procfs.Stat {
	t.Helper()
	procs, err := procfs.List()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(procs, func(p procfs.Stat) bool { return p.PPID != os.Getpid() || p.Session == ownSession() })
}

func onEachKillSetup(t *testing.T, f func(t *testing.T, s killSetup)) {
	for _, s := range killSetups {
		t.Run(s.String(), func(t *testing.T) { f(t, s) })
	}
}

// hostileTree is a hostile process with its descendants.
type hostileTree struct {
	t      testing.TB
	report string
	spec   Spec
}

func newHostileTree(t testing.TB, args ...string) *hostileTree {
	t.Helper()
	h := &hostileTree{t: t, report: filepath.Join(t.TempDir(), "report")}
	h.spec = program("hostile", append([]string{"-report", h.report}, args...)...)
	t.Cleanup(func() {
		for _, p := range h.alive() { // left by a failed test, or on purpose
			p.Kill()
		}
	})
	return h
}

// startReady starts the tree and waits for its first output, which it prints when all descendants
// run.
func (h *hostileTree) startReady(s *Supervisor) *Process {
	h.t.Helper()
	p := h.start(s)
	poll(h.t, "the hostile tree to be complete", func() bool { return p.Log().Stats().LastSeq > 0 })
	return p
}

func (h *hostileTree) alive() []testproc.Hostile {
	h.t.Helper()
	all, err := testproc.ReadHostile(h.report)
	if err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(p testproc.Hostile) bool { return !p.Alive() })
}

func (h *hostileTree) start(s *Supervisor) *Process {
	h.t.Helper()
	p, err := s.Start(testContext(h.t), h.spec)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

// waitForTick waits until a new process is certain to be younger than all of the tree. Start times are
// in ticks of 10 ms: an orphan that is not older than a process may descend from it.
func (h *hostileTree) waitForTick() {
	h.t.Helper()
	newest := uint64(0)
	for _, p := range h.alive() {
		newest = max(newest, p.Start)
	}
	poll(h.t, "the next tick", func() bool { return procfs.BootTicks() > newest })
}

// wantAllDead expects that no process is alive, now.
func (h *hostileTree) wantAllDead(when string) {
	h.t.Helper()
	if left := h.alive(); len(left) > 0 {
		h.t.Errorf("%s, %d are alive: %v", when, len(left), left)
	}
}

// wantEnd expects the last events of a log.
func wantEnd(t *testing.T, p *Process) {
	t.Helper()
	waitClosed(t, p)
	stats := p.Log().Stats()
	reader, err := p.Log().NewReader(stats.LastSeq - 1) // earlier events may have been evicted
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	batch, err := reader.Next(testContext(t), 0)
	if err != nil || !stats.Exited || len(batch.Events) != 1 || batch.Events[0].Kind != eventlog.Closed {
		t.Errorf("%+v, %v, exited event: %v", batch, err, stats.Exited)
	}
}

// hostileWays are arguments of hostile trees that every setup kills, and the expected method
// without a control group.
var hostileWays = []struct {
	args   []string
	orphan bool // processes outside of the session have no parent
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

// check compares a result with what the setup can achieve.
func (s killSetup) check(t *testing.T, h *hostileTree, result TerminateResult, orphan bool, alone Method) {
	t.Helper()
	if s.cgroup || s.adopt || !orphan {
		h.wantAllDead("after the termination")
	}
	if result.Verified != s.adopt {
		t.Errorf("verified is %v", result.Verified)
	}
	want := alone
	switch {
	case s.cgroup:
		want = MethodCgroup
	case orphan && !s.adopt:
		want = result.Method // depends on which were found
	}
	if result.Method != want && !strings.Contains(strings.Join(h.spec.Argv, " "), "-chain") {
		t.Errorf("method %v, want %v", result.Method, want)
	}
}

func TestTerminate_LeavesNoDescendant(t *testing.T) {
	testrace.Slow(t) // many hostile processes
	onEachKillSetup(t, func(t *testing.T, setup killSetup) {
		for _, way := range hostileWays {
			for _, options := range []Termination{{}, {Graceful: true, Timeout: 50 * time.Millisecond}} {
				t.Run(fmt.Sprintf("%s,graceful=%v", strings.Join(way.args, " "), options.Graceful), func(t *testing.T) {
					h := newHostileTree(t, way.args...)
					p := h.startReady(setup.supervisor(t))
					result := terminate(t, p, options)
					setup.check(t, h, result, way.orphan, way.alone)
					if !result.WasRunning || result.Exit.Signal != syscall.SIGKILL || result.Exit.Cause != CauseTerminated {
						t.Errorf("%+v", result)
					}
					wantEnd(t, p)
				})
			}
		}
	})
}

func TestProcessClose_KillsDescendants(t *testing.T) {
	onEachKillSetup(t, func(t *testing.T, setup killSetup) {
		h := newHostileTree(t, "-leave", "child", "group", "session", "stopped")
		p := h.start(setup.supervisor(t))
		wantEnd(t, p)
		if setup.cgroup {
			h.wantAllDead("after the close")
		}
		if setup.adopt || setup.cgroup {
			poll(t, "the end of all", func() bool { return len(h.alive()) == 0 })
		}
		if record, _ := p.Exit(); record.Code != 3 || record.Cause != CauseExited {
			t.Errorf("%+v", record)
		}
	})
}

func TestProcessClose_KillsDaemons(t *testing.T) {
	onEachKillSetup(t, func(t *testing.T, setup killSetup) {
		h := newHostileTree(t, "-leave", "daemon", "daemon")
		p := h.start(setup.supervisor(t))
		wantEnd(t, p)
		if setup.adopt || setup.cgroup { // otherwise it cannot be found, and is not reported as gone
			poll(t, "the end of all", func() bool { return len(h.alive()) == 0 })
		}
		result := terminate(t, p, Termination{})
		if result.WasRunning || result.Method != MethodNone || result.Verified != setup.adopt {
			t.Errorf("%+v", result)
		}
	})
}

func TestTimeout_KillsDescendants(t *testing.T) {
	onEachKillSetup(t, func(t *testing.T, setup killSetup) {
		h := newHostileTree(t, "-leave", "-hold", "session", "stopped", "daemon")
		h.spec.Timeout = 700 * time.Millisecond
		if !setup.adopt && !setup.cgroup {
			h = newHostileTree(t, "-hold", "session", "stopped")
			h.spec.Timeout = 700 * time.Millisecond
		}
		p := h.start(setup.supervisor(t))
		wantEnd(t, p)
		h.wantAllDead("after the timeout")
	})
}

func TestClose_LeavesNoDescendant(t *testing.T) {
	onEachKillSetup(t, func(t *testing.T, setup killSetup) {
		leakcheck.Check(t)
		s := setup.supervisor(t)
		args := []string{"group", "session", "stopped"}
		if setup.adopt || setup.cgroup {
			args = append(args, "daemon")
		}
		var trees []*hostileTree
		for i := range 3 {
			h := newHostileTree(t, args...)
			h.spec.LeaveDescendants = i == 0
			h.startReady(s)
			trees = append(trees, h)
		}
		if err := s.Close(testContext(t)); err != nil {
			t.Fatal(err)
		}
		for _, h := range trees {
			h.wantAllDead("after the supervisor was closed")
		}
	})
}

func TestTerminate_DescendantOutsideCgroup_IsFound(t *testing.T) {
	parent := filepath.Dir(withCgroups(t).Dir())
	for _, setup := range []killSetup{{true, true}, {true, false}} {
		t.Run(setup.String(), func(t *testing.T) {
			h := newHostileTree(t, "-cgroup", parent, "escape", "child")
			p := h.startReady(setup.supervisor(t))
			result := terminate(t, p, Termination{})
			if left := len(h.alive()); result.Verified != setup.adopt || setup.adopt && left > 0 {
				t.Errorf("%+v, and %d are alive", result, left)
			}
			wantEnd(t, p)
		})
	}
}

func init() {
	testproc.Register("fork-chain", func(args []string) int {
		runtime.LockOSThread()
		name, err := unix.BytePtrFromString(args[0]) // children inherit it from this thread, and zombies keep it
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

// Each process of a chain leaves the session, forks the next and ends, in less time than a scan
// takes. On a busy machine a chain outruns a termination, which is then not verified, and runs on
// beside the next one. So each chain has a name: after a verified termination nothing is left of
// that chain, not even zombies.
func TestTerminate_ForkChain_VerifiedMeansDead(t *testing.T) {
	s := killSetup{adopt: true}.supervisor(t)
	chains := 30
	if testing.Short() {
		chains = 10
	}
	for i := range chains {
		name := fmt.Sprintf("chain-%d", i)
		p, err := s.Start(testContext(t), program("fork-chain", name))
		if err != nil {
			t.Fatal(err)
		}
		readLog(t, p).until("ready")
		result := terminate(t, p, Termination{})
		waitClosed(t, p)
		if left := childrenNamed(t, name); result.Verified && len(left) > 0 {
			t.Errorf("%s is verified dead, and has %q", name, left)
		}
	}
	poll(t, "the end of all chains", func() bool {
		if err := tracker.waitForOrphans(testContext(t)); err != nil { // reaps the rest
			t.Fatal(err)
		}
		return len(childrenLeft(t)) == 0
	})
}

// childrenNamed returns /proc/PID/stat of the children of this program with a name, dead or alive.
func childrenNamed(t testing.TB, name string) (found []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[1-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, _ := os.ReadFile(path) // empty if it is gone
		if p, ok := procfs.ParseStat(text); ok && p.PPID == os.Getpid() && strings.Contains(string(text), "("+name+")") {
			found = append(found, string(text))
		}
	}
	return found
}

func TestLeaveDescendants_KeepsDaemons(t *testing.T) {
	onEachKillSetup(t, func(t *testing.T, setup killSetup) {
		h := newHostileTree(t, "-leave", "session", "daemon")
		h.spec.LeaveDescendants = true
		s := setup.supervisor(t)
		p := h.start(s)
		wantEnd(t, p)
		other := newHostileTree(t, "-leave", "child") // the end of another process has no effect
		wantEnd(t, other.start(s))
		if setup.adopt {
			if err := tracker.waitForOrphans(testContext(t)); err != nil {
				t.Fatal(err)
			}
		}
		if left := h.alive(); len(left) != 2 {
			t.Fatalf("alive are %v", left)
		}
		wantKind(t, p.Signal(syscall.SIGTERM, TargetGroup), AlreadyExited)
		result := terminate(t, p, Termination{})
		if result.WasRunning || result.Verified != setup.adopt {
			t.Errorf("%+v", result)
		}
		if setup.adopt || setup.cgroup {
			h.wantAllDead("after the termination")
		}
	})
}

// Descendants that were left running end with the supervisor.
func TestLeaveDescendants_EndWithSupervisor(t *testing.T) {
	onEachKillSetup(t, func(t *testing.T, setup killSetup) {
		s := setup.supervisor(t)
		var trees []*hostileTree
		for range 3 {
			h := newHostileTree(t, "-leave", "session", "daemon")
			h.spec.LeaveDescendants = true
			wantEnd(t, h.start(s))
			trees = append(trees, h)
		}
		for range 2 {
			if err := s.Close(testContext(t)); err != nil {
				t.Fatal(err)
			}
		}
		if !setup.adopt && !setup.cgroup {
			return // daemons cannot be found
		}
		for _, h := range trees {
			h.wantAllDead("after the close")
		}
	})
}

// An empty control group proves without a scan that no descendant is left.
func TestLeaveDescendants_NoneLeft_ReleasedAtOnce(t *testing.T) {
	s := killSetup{adopt: true, cgroup: true}.supervisor(t)
	spec := shell("exit 0")
	spec.LeaveDescendants = true
	p, err := s.Start(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	wantEnd(t, p)
	tracker.mu.Lock()
	defer tracker.mu.Unlock()
	if p.root.state.leftRunning {
		t.Error("it counts as one with descendants")
	}
}

// Without a control group daemons are found only by a scan. Until then a process has no pidfd,
// unless its session has members.
func TestLeaveDescendants_EmptySession_PidfdIsClosed(t *testing.T) {
	s := killSetup{adopt: true}.supervisor(t)
	for script, closed := range map[string]bool{"exit 0": true, "sleep 1000 >/dev/null 2>&1 &": false} {
		spec := shell(script)
		spec.LeaveDescendants = true
		p, err := s.Start(testContext(t), spec)
		if err != nil {
			t.Fatal(err)
		}
		wantEnd(t, p)
		p.mu.Lock()
		if got := p.leader.pidfd.Control(func(uintptr) {}) != nil; !p.leader.reaped.Load() || got != closed {
			t.Errorf("%s: reaped is %t, its descriptor closed %t; want %t", script, p.leader.reaped.Load(), got, closed)
		}
		p.mu.Unlock()
	}
}

// A process with a daemon in another session is tracked as long as the daemon runs, but its session
// ID is released when its session is empty.
func TestLeaveDescendants_EmptySession_IDIsReleased(t *testing.T) {
	s := killSetup{adopt: true}.supervisor(t)
	member := filepath.Join(t.TempDir(), "member")
	for script, wantEmpty := range map[string]bool{"exit 0": true, "setsid sleep 1000 >/dev/null 2>&1 & sleep 1000 >/dev/null 2>&1 & echo $! >" + member: false} {
		spec := shell(script)
		spec.LeaveDescendants = true
		p, err := s.Start(testContext(t), spec)
		if err != nil {
			t.Fatal(err)
		}
		wantEnd(t, p)
		isEmpty := func() bool {
			tracker.mu.Lock()
			defer tracker.mu.Unlock()
			return p.root.state.sessionEmpty
		}
		if got := isEmpty(); got != wantEmpty {
			t.Errorf("%s: session empty: %t, want %t", script, got, wantEmpty)
		}
		if wantEmpty {
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
		for !isEmpty() {
			if err := tracker.waitForOrphans(testContext(t)); err != nil {
				t.Fatalf("%s: the session is not empty: %v", script, err)
			}
		}
	}
}

// A process is released when its last daemon ends, also if nothing else happens then.
func TestLeaveDescendants_LastDaemonEnds_IsReleased(t *testing.T) {
	s := killSetup{adopt: true}.supervisor(t)
	spec := shell("setsid sleep 0.3 >/dev/null 2>&1 &")
	spec.LeaveDescendants = true
	p, err := s.Start(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	wantEnd(t, p)
	poll(t, "the release", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.released
	})
}

func TestTerminate_Graceful_SendsSIGTERMOutsideGroup(t *testing.T) {
	onEachKillSetup(t, func(t *testing.T, setup killSetup) {
		sawTerm := filepath.Join(t.TempDir(), "terminated")
		script := "trap 'echo SIGTERM > " + sawTerm + "; exit 0' TERM; echo ready; while :; do sleep 0.01; done"
		s := setup.supervisor(t)
		p, err := s.Start(testContext(t), shell("setsid sh -c '"+strings.ReplaceAll(script, "'", `'\''`)+"' & wait; exec sleep 1000"))
		if err != nil {
			t.Fatal(err)
		}
		readLog(t, p).until("ready")
		result := terminate(t, p, Termination{Graceful: true, Timeout: testTimeout})
		if result.Method < MethodDescendants || result.Verified != setup.adopt || result.Exit.Signal != syscall.SIGTERM {
			t.Errorf("%+v", result)
		}
		if text, err := os.ReadFile(sawTerm); string(text) != "SIGTERM\n" {
			t.Errorf("it received no SIGTERM: %q, %v", text, err)
		}
	})
}

func TestTerminate_AmbiguousOrphan_KilledWithLastCandidate(t *testing.T) {
	s := killSetup{adopt: true}.supervisor(t)
	first, second := newHostileTree(t, "child"), newHostileTree(t, "daemon")
	p, q := first.startReady(s), second.startReady(s)
	result := terminate(t, q, Termination{}) // p is older than the daemon, so it is a candidate
	if result.Verified || len(second.alive()) != 1 {
		t.Errorf("%+v, and %v are alive", result, second.alive())
	}
	result = terminate(t, p, Termination{})
	if !result.Verified {
		t.Errorf("%+v", result)
	}
	first.wantAllDead("after the last candidate ended")
	second.wantAllDead("after the last candidate ended")
	if again := terminate(t, q, Termination{}); !again.Verified {
		t.Errorf("%+v", again)
	}
}

// An orphan without a control group is attributed by the streams that it holds.
func TestTerminate_Orphan_AttributedByStreams(t *testing.T) {
	for name, terminal := range map[string]*WindowSize{"pipe": nil, "terminal": {}} {
		t.Run(name, func(t *testing.T) {
			s := killSetup{adopt: true}.supervisor(t)
			other := newHostileTree(t, "child").startReady(s)
			h := newHostileTree(t, "-hold", "daemon", "daemon")
			h.spec.Terminal = terminal
			result := terminate(t, h.startReady(s), Termination{})
			h.wantAllDead("after the termination")
			if !result.Verified || other.State() != StateRunning {
				t.Errorf("%+v, the other is %v", result, other.State())
			}
		})
	}
}

func TestTerminate_OtherProcesses_AreNotKilled(t *testing.T) {
	onEachKillSetup(t, func(t *testing.T, setup killSetup) {
		bystander := exec.Command("/bin/sleep", "1000")
		if err := bystander.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = bystander.Process.Kill(); _ = bystander.Wait() }()
		other := startOtherServer(t, "auto")
		h := newHostileTree(t, "session", "stopped")
		s := setup.supervisor(t)
		p := h.startReady(s)
		terminate(t, p, Termination{})
		if err := s.Close(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if !alive(bystander.Process.Pid) {
			t.Error("another child of this program was killed")
		}
		if got := len(other.tree.alive()); got != 3 {
			t.Errorf("%d of the three processes of another server are left", got)
		}
	})
}
