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
	for name, groupsByNumber := range map[string]bool{"native": !pidfdSignalsGroups(), "old kernel": true} {
		t.Run(name, func(t *testing.T) {
			s := newSupervisor(t, Config{})
			s.signalGroupsByPID = groupsByNumber
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

// terminate calls Terminate and checks what every result has in common.
func terminate(t *testing.T, p *Process, options Termination) TerminateResult {
	t.Helper()
	result, err := p.Terminate(testContext(t), options)
	if err != nil {
		t.Fatal(err)
	}
	record, exited := p.Exit()
	if !exited || record != result.Exit {
		t.Errorf("returned before the exit: %+v, %+v", result, record)
	}
	if result.Verified && !p.supervisor.adoptsOrphans {
		t.Error("claims to have verified what it cannot see")
	}
	return result
}

func TestTerminate_Forced(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		for _, spec := range []Spec{program("ignore-term"), onTerminal(program("ignore-term"), 0, 0)} {
			p := start(spec)
			readLog(t, p).until("ready")
			result := terminate(t, p, Termination{})
			if !result.WasRunning || result.Method != MethodProcessGroup {
				t.Errorf("%+v", result)
			}
			if result.Exit.Signal != syscall.SIGKILL || result.Exit.Cause != CauseTerminated {
				t.Errorf("%+v", result.Exit)
			}
			waitClosed(t, p)
		}
	})
}

func TestTerminate_Graceful(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		p := start(program("trap-term"))
		l := readLog(t, p)
		l.until("ready")
		result := terminate(t, p, Termination{Graceful: true, Timeout: testTimeout})
		if !result.WasRunning || result.Exit.Code != 7 || result.Exit.Signal != 0 || result.Exit.Cause != CauseTerminated {
			t.Errorf("%+v", result)
		}
		if output := l.all(); output.stdout != "ready\nterminated\n" {
			t.Errorf("%q", output.stdout)
		}
	})
}

func TestTerminate_GracefulTimeout_Kills(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		p := start(program("ignore-term"))
		readLog(t, p).until("ready")
		result := terminate(t, p, Termination{Graceful: true, Timeout: 10 * time.Millisecond, Cause: CauseLimit})
		if result.Exit.Signal != syscall.SIGKILL || result.Exit.Cause != CauseLimit {
			t.Errorf("%+v", result)
		}
		waitClosed(t, p)
	})
}

func TestTerminate_Graceful_ContinuesStoppedProcess(t *testing.T) {
	p := start(t, program("trap-term"))
	readLog(t, p).until("ready")
	if err := p.Signal(syscall.SIGSTOP, TargetProcess); err != nil {
		t.Fatal(err)
	}
	result := terminate(t, p, Termination{Graceful: true, Timeout: testTimeout})
	if result.Exit.Code != 7 {
		t.Errorf("%+v", result)
	}
	waitClosed(t, p)
}

// onOwnThread runs f on a thread that ends with it. The main thread does not end, and its user is that of
// the program for all others.
func onOwnThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		if unix.Gettid() != os.Getpid() {
			f()
			return
		}
		onOwnThread(f)
		runtime.UnlockOSThread()
	}()
	<-done
}

// asOtherUser runs f on a thread of its own that has given up this user's rights over processes.
func asOtherUser(t *testing.T, f func()) {
	t.Helper()
	const nobody = 65534
	var errno syscall.Errno
	onOwnThread(func() {
		// The raw call changes this thread alone.
		if _, _, errno = syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody); errno == 0 {
			f()
		}
	})
	if errno != 0 {
		t.Fatalf("failed to become another user, which needs root: %v", errno)
	}
}

func TestTerminate_PermissionDenied_IsNotCause(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		p := start(piped(program("echo")))
		asOtherUser(t, func() {
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
		if record := waitClosed(t, p); record.Cause != CauseExited || record.Signal != 0 {
			t.Errorf("%+v", record)
		}
	})
}

func TestTerminate_Concurrent_EarliestDeadlineCounts(t *testing.T) {
	p := start(t, program("ignore-term"))
	readLog(t, p).until("ready")
	var all sync.WaitGroup
	for _, options := range []Termination{
		{Graceful: true, Timeout: time.Hour},
		{Graceful: true, Timeout: time.Millisecond},
		{Graceful: true, Timeout: time.Hour},
	} {
		all.Go(func() {
			if result := terminate(t, p, options); result.Exit.Signal != syscall.SIGKILL {
				t.Errorf("%+v", result)
			}
		})
	}
	all.Wait()
	waitClosed(t, p)
}

func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// childrenOf waits for a tree and returns the pids of the children.
func childrenOf(t *testing.T, p *Process) []int {
	t.Helper()
	output := readLog(t, p).until("\n")
	var pids []int
	for _, field := range strings.Fields(output.stdout)[1:] {
		pid, err := strconv.Atoi(field)
		if err != nil || !alive(pid) {
			t.Fatalf("%q: %v", output.stdout, err)
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

func TestTerminate_KillsGroup(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		for _, options := range []Termination{{}, {Graceful: true, Timeout: testTimeout}} {
			p := start(program("tree", "5"))
			pids := childrenOf(t, p)
			terminate(t, p, options)
			wantDead(t, pids)
			waitClosed(t, p)
		}
	})
}

func TestTerminate_Graceful_KillsMembersThatIgnoreSIGTERM(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		script := "sh -c 'trap \"\" TERM; echo ready $$; exec sleep 1000 >/dev/null 2>&1' & wait"
		p := start(shell(script))
		pids := childrenOf(t, p)
		terminate(t, p, Termination{Graceful: true, Timeout: testTimeout})
		waitFor(t, "closed", p.Closed()) // long before the timeout, for it holds no stream
		wantDead(t, pids)
	})
}

func TestTerminate_LeaderExited_KillsPipeHolders(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		for _, options := range []Termination{{}, {Graceful: true, Timeout: testTimeout}} {
			p := start(program("hold-pipes", filepath.Join(t.TempDir(), "never")))
			waitFor(t, "exited", p.Exited())
			result := terminate(t, p, options)
			if result.WasRunning || result.Method != MethodProcessGroup || result.Exit.Code != 3 || result.Exit.Cause != CauseExited {
				t.Errorf("%+v", result)
			}
			waitClosed(t, p)
		}
	})
}

func TestTerminate_Closed_DoesNothing(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		p := start(shell("exit 6"))
		waitClosed(t, p)
		for _, options := range []Termination{{}, {Graceful: true}} {
			result := terminate(t, p, options)
			if result.WasRunning || result.Method != MethodNone || result.Exit.Code != 6 || result.Exit.Cause != CauseExited {
				t.Errorf("%+v", result)
			}
		}
		for _, target := range []Target{TargetGroup, TargetProcess} {
			wantKind(t, p.Signal(syscall.SIGTERM, target), AlreadyExited)
		}
	})
}

func TestTerminate_ContextEnds_Continues(t *testing.T) {
	p := start(t, program("ignore-term"))
	readLog(t, p).until("ready")
	gone := errors.New("client gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(gone)
	result, err := p.Terminate(ctx, Termination{Graceful: true, Timeout: 5 * time.Millisecond})
	if !errors.Is(err, gone) || !result.WasRunning {
		t.Errorf("%+v, %v", result, err)
	}
	if record := waitClosed(t, p); record.Signal != syscall.SIGKILL || record.Cause != CauseTerminated {
		t.Errorf("%+v", record)
	}
}

func TestSignal_Targets(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		for target, want := range map[Target]string{TargetGroup: "child leader", TargetProcess: "leader"} {
			file := filepath.Join(t.TempDir(), "received")
			script := "sh -c 'trap \"echo child >> " + file + "; exit 0\" USR1; echo -n re; while :; do sleep 0.01; done' &" +
				"trap 'kill $!; wait $!; echo leader >> " + file + "; exit 0' USR1; echo -n ady; while :; do sleep 0.01; done"
			if target == TargetGroup {
				script = strings.Replace(script, "kill $!; ", "", 1)
			}
			p := start(shell(script))
			l := readLog(t, p)
			for output := ""; !strings.Contains(output, "re") || !strings.Contains(output, "ady"); output = l.got.stdout {
				l.next()
			}
			if err := p.Signal(syscall.SIGUSR1, target); err != nil {
				t.Fatal(err)
			}
			if record := waitClosed(t, p); record.Code != 0 || record.Cause != CauseExited {
				t.Errorf("%+v", record)
			}
			text, _ := os.ReadFile(file)
			if got := strings.Join(strings.Fields(string(text)), " "); got != want {
				t.Errorf("target %d: %q, want %q", target, got, want)
			}
		}
	})
}

func TestSignal_GroupAfterLeaderExited(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		p := start(program("hold-pipes", filepath.Join(t.TempDir(), "never")))
		waitFor(t, "exited", p.Exited())
		wantKind(t, p.Signal(syscall.SIGTERM, TargetProcess), AlreadyExited)
		if err := p.Signal(syscall.SIGTERM, TargetGroup); err != nil {
			t.Error(err)
		}
		waitClosed(t, p)
	})
}

func TestSignal_Invalid(t *testing.T) {
	p := start(t, shell("exec sleep 1000"))
	for _, sig := range []syscall.Signal{-1, 0, 65} {
		wantKind(t, p.Signal(sig, TargetGroup), InvalidArgument)
	}
	wantKind(t, p.Signal(syscall.SIGTERM, Target(9)), InvalidArgument)
	if err := p.Signal(unix.SIGKILL, TargetGroup); err != nil {
		t.Fatal(err)
	}
	if record := waitClosed(t, p); record.Signal != syscall.SIGKILL || record.Cause != CauseExited {
		t.Errorf("%+v", record)
	}
}

func TestTimeout_KillsGroup(t *testing.T) {
	onEachKernel(t, func(t *testing.T, start func(Spec) *Process) {
		spec := shell("(trap '' TERM; exec sleep 1000) & echo ready $!; exec sleep 1000")
		spec.Timeout = 2 * time.Second // it must be ready, and seen, before
		p := start(spec)
		pids := childrenOf(t, p)
		if record := waitClosed(t, p); record.Signal != syscall.SIGKILL || record.Cause != CauseTimeout {
			t.Errorf("%+v", record)
		}
		wantDead(t, pids)
	})
}

func TestTimeout_AfterExit_KillsPipeHolders(t *testing.T) {
	spec := shell("sleep 1000 & exit 2")
	spec.Timeout = 2 * time.Second // the shell must exit before
	p := start(t, spec)
	if record := waitClosed(t, p); record.Code != 2 || record.Cause != CauseExited {
		t.Errorf("%+v", record)
	}
}

func TestTimeout_NotReached(t *testing.T) {
	spec := shell("exit 2")
	spec.Timeout = time.Hour
	if _, record := run(t, spec); record.Code != 2 || record.Cause != CauseExited {
		t.Errorf("%+v", record)
	}
}

func TestTerminate_RacesWithExitTimeoutAndSignals(t *testing.T) {
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
			record := waitClosed(t, p)
			if record.Code == 1 == (record.Signal != 0) {
				t.Errorf("%+v", record)
			}
		}
	})
}
