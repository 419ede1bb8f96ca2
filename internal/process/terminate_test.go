package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// onEachKernel runs a test with the signals of this kernel, and as on one that has no group signals for pidfds.
func onEachKernel(t *testing.T, f func(t *testing.T, start func(Spec) *Process)) {
	for name, groupsByNumber := range map[string]bool{"native": !canSignalGroups(), "old kernel": true} {
		t.Run(name, func(t *testing.T) {
			s := newSupervisor(t, Config{})
			s.groupsByNumber = groupsByNumber
			f(t, func(spec Spec) *Process {
				p, err := s.Start(testContext(t), spec)
				if err != nil {
					t.Fatal(err)
				}
				return p
			})
		})
	}
}

// terminate is Terminate with what every result of it has to say.
func terminate(t *testing.T, p *Process, how Termination) TerminateResult {
	t.Helper()
	result, err := p.Terminate(testContext(t), how)
	if err != nil {
		t.Fatal(err)
	}
	record, exited := p.Exit()
	if !exited || record != result.Exit {
		t.Errorf("returned before the exit: %+v, %+v", result, record)
	}
	if result.Verified && !p.supervisor.adopts {
		t.Error("claims to have verified what it cannot see")
	}
	return result
}

func TestForcedTerminationKillsAtOnce(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		for _, spec := range []Spec{program("ignore-term"), onTerminal(program("ignore-term"), 0, 0)} {
			p := start(spec)
			listen(t, p).until("ready")
			result := terminate(t, p, Termination{})
			if !result.WasRunning || result.Method != MethodProcessGroup {
				t.Errorf("%+v", result)
			}
			if result.Exit.Signal != syscall.SIGKILL || result.Exit.Cause != CauseTerminated {
				t.Errorf("%+v", result.Exit)
			}
			exit(t, p)
		}
	})
}

func TestGracefulTerminationLetsTheProcessFinish(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		p := start(program("trap-term"))
		l := listen(t, p)
		l.until("ready")
		result := terminate(t, p, Termination{Graceful: true, Timeout: patience})
		if !result.WasRunning || result.Exit.Code != 7 || result.Exit.Signal != 0 || result.Exit.Cause != CauseTerminated {
			t.Errorf("%+v", result)
		}
		if heard := l.all(); heard.stdout != "ready\nterminated\n" {
			t.Errorf("%q", heard.stdout)
		}
	})
}

func TestGracefulTerminationKillsInTheEnd(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		p := start(program("ignore-term"))
		listen(t, p).until("ready")
		result := terminate(t, p, Termination{Graceful: true, Timeout: 10 * time.Millisecond, Cause: CauseLimit})
		if result.Exit.Signal != syscall.SIGKILL || result.Exit.Cause != CauseLimit {
			t.Errorf("%+v", result)
		}
		exit(t, p)
	})
}

func TestGracefulTerminationWakesAStoppedProcess(t *testing.T) {
	p := start(t, program("trap-term"))
	listen(t, p).until("ready")
	if err := p.Signal(syscall.SIGSTOP, TargetProcess); err != nil {
		t.Fatal(err)
	}
	result := terminate(t, p, Termination{Graceful: true, Timeout: patience})
	if result.Exit.Code != 7 {
		t.Errorf("%+v", result)
	}
	exit(t, p)
}

// asStranger runs f on a thread of its own that has given up this user's rights over processes.
func asStranger(t *testing.T, f func()) {
	t.Helper()
	const nobody = 65534
	done := make(chan syscall.Errno)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		// The raw call changes this thread alone.
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody)
		if errno == 0 {
			f()
		}
		done <- errno
	}()
	if errno := <-done; errno != 0 {
		t.Fatalf("failed to become another user, which takes root: %v", errno)
	}
}

func TestARefusedTerminationIsNotTheCause(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		p := start(piped(program("echo")))
		asStranger(t, func() {
			for _, graceful := range []bool{false, true} {
				result, err := p.Terminate(testContext(t), Termination{Graceful: graceful, Timeout: time.Millisecond})
				wantKind(t, err, PermissionDenied)
				if !result.WasRunning || result.Method != MethodNone {
					t.Errorf("%+v", result)
				}
			}
		})
		if err := p.CloseStdin(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if record := exit(t, p); record.Cause != CauseExited || record.Signal != 0 {
			t.Errorf("%+v", record)
		}
	})
}

func TestTheEarliestDeadlineCounts(t *testing.T) {
	p := start(t, program("ignore-term"))
	listen(t, p).until("ready")
	var all sync.WaitGroup
	for _, how := range []Termination{
		{Graceful: true, Timeout: time.Hour},
		{Graceful: true, Timeout: time.Millisecond},
		{Graceful: true, Timeout: time.Hour},
	} {
		all.Go(func() {
			if result := terminate(t, p, how); result.Exit.Signal != syscall.SIGKILL {
				t.Errorf("%+v", result)
			}
		})
	}
	all.Wait()
	exit(t, p)
}

func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// childrenOf waits for a tree and returns the pids of the children.
func childrenOf(t *testing.T, p *Process) []int {
	t.Helper()
	heard := listen(t, p).until("\n")
	var pids []int
	for _, field := range strings.Fields(heard.stdout)[1:] {
		pid, err := strconv.Atoi(field)
		if err != nil || !alive(pid) {
			t.Fatalf("%q: %v", heard.stdout, err)
		}
		pids = append(pids, pid)
	}
	return pids
}

func wantDead(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		poll(t, "the end of "+strconv.Itoa(pid), func() bool { return !alive(pid) })
	}
}

func TestTerminationReachesTheGroup(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		for _, how := range []Termination{{}, {Graceful: true, Timeout: patience}} {
			p := start(program("tree", "5"))
			pids := childrenOf(t, p)
			terminate(t, p, how)
			wantDead(t, pids)
			exit(t, p)
		}
	})
}

func TestGracefulTerminationLeavesNoMemberThatIgnoresIt(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		script := "sh -c 'trap \"\" TERM; echo ready $$; exec sleep 1000 >/dev/null 2>&1' & wait"
		p := start(shell(script))
		pids := childrenOf(t, p)
		terminate(t, p, Termination{Graceful: true, Timeout: patience})
		wait(t, "closed", p.Closed()) // long before the timeout, for it holds no stream
		wantDead(t, pids)
	})
}

func TestTerminationOfAnExitedLeaderKillsThoseWhoHoldItsPipes(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		for _, how := range []Termination{{}, {Graceful: true, Timeout: patience}} {
			p := start(program("hold-pipes", filepath.Join(t.TempDir(), "never")))
			wait(t, "exited", p.Exited())
			result := terminate(t, p, how)
			if result.WasRunning || result.Method != MethodProcessGroup || result.Exit.Code != 3 || result.Exit.Cause != CauseExited {
				t.Errorf("%+v", result)
			}
			exit(t, p)
		}
	})
}

func TestTerminationOfWhatIsGoneDoesNothing(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		p := start(shell("exit 6"))
		exit(t, p)
		for _, how := range []Termination{{}, {Graceful: true}} {
			result := terminate(t, p, how)
			if result.WasRunning || result.Method != MethodNone || result.Exit.Code != 6 || result.Exit.Cause != CauseExited {
				t.Errorf("%+v", result)
			}
		}
		for _, target := range []Target{TargetGroup, TargetProcess} {
			wantKind(t, p.Signal(syscall.SIGTERM, target), AlreadyExited)
		}
	})
}

func TestTerminationGoesOnWithoutItsCaller(t *testing.T) {
	p := start(t, program("ignore-term"))
	listen(t, p).until("ready")
	gone := errors.New("client gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(gone)
	result, err := p.Terminate(ctx, Termination{Graceful: true, Timeout: 5 * time.Millisecond})
	if !errors.Is(err, gone) || !result.WasRunning {
		t.Errorf("%+v, %v", result, err)
	}
	if record := exit(t, p); record.Signal != syscall.SIGKILL || record.Cause != CauseTerminated {
		t.Errorf("%+v", record)
	}
}

func TestSignalsReachTheirTarget(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		for target, want := range map[Target]string{TargetGroup: "child leader", TargetProcess: "leader"} {
			file := filepath.Join(t.TempDir(), "said")
			script := "sh -c 'trap \"echo child >> " + file + "; exit 0\" USR1; echo -n re; while :; do sleep 0.01; done' &" +
				"trap 'kill $!; wait $!; echo leader >> " + file + "; exit 0' USR1; echo -n ady; while :; do sleep 0.01; done"
			if target == TargetGroup {
				script = strings.Replace(script, "kill $!; ", "", 1)
			}
			p := start(shell(script))
			l := listen(t, p)
			for heard := ""; !strings.Contains(heard, "re") || !strings.Contains(heard, "ady"); heard = l.heard.stdout {
				l.next()
			}
			if err := p.Signal(syscall.SIGUSR1, target); err != nil {
				t.Fatal(err)
			}
			if record := exit(t, p); record.Code != 0 || record.Cause != CauseExited {
				t.Errorf("%+v", record)
			}
			said, _ := os.ReadFile(file)
			if got := strings.Join(strings.Fields(string(said)), " "); got != want {
				t.Errorf("target %d: %q, want %q", target, got, want)
			}
		}
	})
}

func TestTheGroupCanBeSignalledAfterItsLeaderExited(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		p := start(program("hold-pipes", filepath.Join(t.TempDir(), "never")))
		wait(t, "exited", p.Exited())
		wantKind(t, p.Signal(syscall.SIGTERM, TargetProcess), AlreadyExited)
		if err := p.Signal(syscall.SIGTERM, TargetGroup); err != nil {
			t.Error(err)
		}
		exit(t, p)
	})
}

func TestSignalsAreChecked(t *testing.T) {
	p := start(t, shell("exec sleep 1000"))
	for _, sig := range []syscall.Signal{-1, 0, 65} {
		wantKind(t, p.Signal(sig, TargetGroup), InvalidArgument)
	}
	wantKind(t, p.Signal(syscall.SIGTERM, Target(9)), InvalidArgument)
	if err := p.Signal(unix.SIGKILL, TargetGroup); err != nil {
		t.Fatal(err)
	}
	if record := exit(t, p); record.Signal != syscall.SIGKILL || record.Cause != CauseExited {
		t.Errorf("%+v", record)
	}
}

func TestTimeoutKillsTheGroup(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		spec := shell("(trap '' TERM; exec sleep 1000) & echo ready $!; exec sleep 1000")
		spec.Timeout = 200 * time.Millisecond
		p := start(spec)
		pids := childrenOf(t, p)
		if record := exit(t, p); record.Signal != syscall.SIGKILL || record.Cause != CauseTimeout {
			t.Errorf("%+v", record)
		}
		wantDead(t, pids)
	})
}

func TestTimeoutEndsThoseWhoHoldPipesAfterTheExit(t *testing.T) {
	spec := shell("sleep 1000 & exit 2")
	spec.Timeout = 100 * time.Millisecond
	p := start(t, spec)
	if record := exit(t, p); record.Code != 2 || record.Cause != CauseExited {
		t.Errorf("%+v", record)
	}
}

func TestTimeoutThatIsNotReachedChangesNothing(t *testing.T) {
	spec := shell("exit 2")
	spec.Timeout = time.Hour
	if _, record := run(t, spec); record.Code != 2 || record.Cause != CauseExited {
		t.Errorf("%+v", record)
	}
}

func TestEndsRaceSafely(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		for range 50 {
			spec := shell("exit 1")
			spec.Timeout = time.Millisecond
			p := start(spec)
			var all sync.WaitGroup
			for i := range 4 {
				all.Go(func() {
					result, err := p.Terminate(testContext(t), Termination{Graceful: i%2 == 0, Timeout: time.Millisecond})
					if err != nil || result.Exit.Cause == 0 {
						t.Errorf("%+v, %v", result, err)
					}
				})
				all.Go(func() {
					if err := p.Signal(syscall.SIGCONT, Target(i%2)); err != nil && KindOf(err) != AlreadyExited {
						t.Error(err)
					}
				})
			}
			all.Wait()
			record := exit(t, p)
			if record.Code == 1 == (record.Signal != 0) {
				t.Errorf("%+v", record)
			}
		}
	})
}
