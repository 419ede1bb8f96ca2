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
	"weak"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/cgroup"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/testrace"
)

func TestClose_KillsAllProcesses(t *testing.T) {
	leakcheck.Check(t)
	s := NewSupervisor(Config{})
	var processes []*Process
	for _, spec := range []Spec{
		program("ignore-term"),
		onTerminal(program("ignore-term"), 0, 0),
		piped(program("never-read")),
		shell("exec yes"),
		shell("exec yes >&2"),
	} {
		p, err := s.Start(testContext(t), spec)
		if err != nil {
			t.Fatal(err)
		}
		processes = append(processes, p)
	}
	owner, err := processes[3].Log().Own(0) // reads nothing, so yes is blocked
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range processes {
		record, ok := p.Exit()
		if !ok || p.State() != StateClosed || record.Signal != syscall.SIGKILL || record.Cause != CauseServerShutdown {
			t.Errorf("%q: %v %+v", p.Spec().Argv, p.State(), record)
		}
	}
	owner.Release(false)
	_, err = s.Start(testContext(t), shell("exit 0"))
	wantKind(t, err, ShuttingDown)
}

func TestClose_DoesNotWaitForDescendantsOutsideGroup(t *testing.T) {
	leakcheck.Check(t)
	s := NewSupervisor(Config{})
	file := filepath.Join(t.TempDir(), "go")
	p, err := s.Start(testContext(t), program("hold-pipes", file, "setsid"))
	if err != nil {
		t.Fatal(err)
	}
	l := readLog(t, p)
	output := l.until("\n").stdout
	waitFor(t, "exited", p.Exited())
	if err := s.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if output := l.all(); strings.Join(output.kinds, " ") != "stdout exited closed" {
		t.Errorf("events %v", output.kinds)
	}
	write(t, file, "", 0o600)
	pid, _ := strconv.Atoi(strings.Fields(output)[1])
	wantDead(t, []int{pid}) // it ends on its own, by SIGPIPE
}

func TestClose_KeepsEarlierOutput(t *testing.T) {
	s := NewSupervisor(Config{})
	spec := shell("head -c 60000 /dev/zero; exec sleep 1000")
	spec.Output.WindowBytes = 4096
	p, err := s.Start(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	owner, err := p.Log().Own(0) // reads nothing, so most of the output stays in the pipe
	if err != nil {
		t.Fatal(err)
	}
	poll(t, "the shell to become sleep", func() bool {
		name, _ := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/comm")
		return string(name) == "sleep\n"
	})
	if err := s.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if total := p.Log().Stats().Totals[eventlog.Stdout]; total != 60000 {
		t.Errorf("%d bytes", total)
	}
	owner.Release(false)
}

func TestProcessClosed_IsGarbageCollected(t *testing.T) {
	s := newSupervisor(t, Config{})
	start := func() weak.Pointer[Process] {
		spec := program("trap-term")
		spec.Timeout = time.Hour
		p, err := s.Start(testContext(t), spec)
		if err != nil {
			t.Fatal(err)
		}
		poll(t, "ready", func() bool { return p.Log().Stats().LastSeq > 0 })
		terminate(t, p, Termination{Graceful: true, Timeout: time.Hour})
		waitClosed(t, p)
		return weak.Make(p)
	}
	p := start()
	poll(t, "the process to be forgotten", func() bool {
		runtime.GC()
		return p.Value() == nil
	})
}

func TestClose_ContextEnds(t *testing.T) {
	s := NewSupervisor(Config{})
	p, err := s.Start(testContext(t), program("ignore-term"))
	if err != nil {
		t.Fatal(err)
	}
	ended := errors.New("context ended")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ended)
	if err := s.Close(ctx); err != nil && !errors.Is(err, ended) {
		t.Error(err)
	}
	if err := s.Close(testContext(t)); err != nil {
		t.Error(err)
	}
	waitClosed(t, p)
}

func TestStart_ContextEnded(t *testing.T) {
	gone := errors.New("client gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(gone)
	if _, err := newSupervisor(t, Config{}).Start(ctx, shell("exit 0")); !errors.Is(err, gone) {
		t.Error(err)
	}
}

func TestStart_RacesWithClose(t *testing.T) {
	leakcheck.Check(t)
	for range 5 {
		s := NewSupervisor(Config{})
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for {
					p, err := s.Start(testContext(t), shell("exec sleep 1000"))
					if err != nil {
						wantKind(t, err, ShuttingDown)
						return
					}
					waitClosed(t, p)
				}
			})
		}
		poll(t, "some to run", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.processes) == 8
		})
		if err := s.Close(testContext(t)); err != nil {
			t.Fatal(err)
		}
		all.Wait()
	}
}

// blockStarts makes starts in the directory dead hang, as on the mount of a server that is gone.
func blockStarts(s *Supervisor, dead string) (arrived chan struct{}, unblock func()) {
	arrived = make(chan struct{})
	answer := make(chan struct{})
	s.checkDirectory = func(dir string) error {
		if dir != dead {
			return checkDirectory(dir)
		}
		close(arrived)
		<-answer
		return nil
	}
	return arrived, sync.OnceFunc(func() { close(answer) })
}

func TestStart_HangingFileSystem_BlocksOnlyItself(t *testing.T) {
	leakcheck.Check(t)
	s := NewSupervisor(Config{})
	spec := shell("sleep 1000 & exec sleep 1000")
	spec.Cwd = t.TempDir()
	arrived, unblock := blockStarts(s, spec.Cwd)
	defer unblock()
	result := make(chan error, 1)
	go func() {
		_, err := s.Start(testContext(t), spec)
		result <- err
	}()
	waitFor(t, "the start to hang", arrived)
	p, err := s.Start(testContext(t), shell("exec sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}

	ended := errors.New("context ended")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ended)
	for range 2 {
		if err := s.Close(ctx); !errors.Is(err, ended) {
			t.Errorf("Close = %v", err)
		}
		waitFor(t, "exited", p.Exited())
	}
	if record := waitClosed(t, p); record.Cause != CauseServerShutdown {
		t.Errorf("%+v", record)
	}

	descriptors := openDescriptors(t)
	unblock()
	wantKind(t, <-result, ShuttingDown)
	if err := s.Close(testContext(t)); err != nil {
		t.Errorf("Close = %v", err)
	}
	if left := openDescriptors(t); left > descriptors {
		t.Errorf("the late start leaked %d descriptors", left-descriptors)
	}
	if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); !errors.Is(err, unix.ECHILD) {
		t.Errorf("the late start left a child: %v", err)
	}
}

func TestStart_ManyShortProcesses_LeaksNothing(t *testing.T) {
	leakcheck.Check(t)
	s := newSupervisor(t, Config{})
	var all sync.WaitGroup
	for worker := range 10 {
		all.Go(func() {
			for round := range 50 {
				spec := shell("echo out; echo err >&2; exit " + strconv.Itoa(round))
				spec.PipeStdin = round%3 == 0
				if round%10 == worker {
					spec.Terminal = &WindowSize{}
				}
				p, err := s.Start(testContext(t), spec)
				if err != nil {
					t.Error(err)
					return
				}
				output := readLog(t, p).all()
				if record := waitClosed(t, p); record.Code != round || record.Signal != 0 {
					t.Errorf("%+v", record)
				}
				text := strings.ReplaceAll(output.stdout+output.stderr+output.terminal, "\r", "")
				if n := len(output.kinds); text != "out\nerr\n" || output.kinds[n-2] != "exited" || output.kinds[n-1] != "closed" {
					t.Errorf("%+v", output)
				}
			}
		})
	}
	all.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.processes) != 0 {
		t.Errorf("%d processes are still known", len(s.processes))
	}
}

func openDescriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func memoryInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapInuse + stats.StackInuse
}

func TestProcess_IdleMemory(t *testing.T) {
	testrace.MeasuresMemory(t)
	const count = 100
	for name, test := range map[string]struct {
		spec        Spec
		descriptors int
	}{
		"pipes":    {shell("echo ready; exec sleep 1000"), 3},
		"stdin":    {piped(shell("echo ready; exec sleep 1000")), 4},
		"terminal": {onTerminal(shell("echo ready; exec sleep 1000"), 0, 0), 2},
	} {
		t.Run(name, func(t *testing.T) {
			groups, err := cgroup.Open("auto")
			if err != nil {
				t.Fatal(err)
			}
			s := newSupervisor(t, Config{Cgroups: groups, AdoptOrphans: true})
			descriptors, before := openDescriptors(t), memoryInUse()
			processes := make([]*Process, count)
			for i := range processes {
				p, err := s.Start(testContext(t), test.spec)
				if err != nil {
					t.Fatal(err)
				}
				poll(t, "ready", func() bool { return p.Log().Stats().LastSeq > 0 })
				processes[i] = p
			}
			if got := openDescriptors(t) - descriptors; got != count*test.descriptors {
				t.Errorf("%d descriptors for %d processes", got, count)
			}
			each := (int64(memoryInUse()) - int64(before)) / count
			t.Logf("%d bytes each", each)
			if each > 40<<10 {
				t.Errorf("%d bytes each", each)
			}
			runtime.KeepAlive(processes)
		})
	}
}
