package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/testrace"
)

// limits returns a Spec with limits.
func limits(spec Spec, limits ...Limit) Spec {
	spec.ResourceLimits = limits
	return spec
}

func TestResourceLimits_ApplyFromStart(t *testing.T) {
	for name, test := range map[string]struct {
		resource   Resource
		soft, hard uint64
		line       string // of /proc/self/limits
	}{
		"cpu":           {ResourceCPUSeconds, 7, 9, "Max cpu time 7 9"},
		"file":          {ResourceFileBytes, 4096, NoLimit, "Max file size 4096 unlimited"},
		"data":          {ResourceDataBytes, 1 << 30, 1 << 31, "Max data size 1073741824 2147483648"},
		"stack":         {ResourceStackBytes, 1 << 20, 1 << 20, "Max stack size 1048576 1048576"},
		"core":          {ResourceCoreBytes, 0, 0, "Max core file size 0 0"},
		"processes":     {ResourceUserProcesses, 5000, 6000, "Max processes 5000 6000"},
		"files":         {ResourceOpenFiles, 20, 30, "Max open files 20 30"},
		"locked":        {ResourceLockedBytes, 8192, 8192, "Max locked memory 8192 8192"},
		"address space": {ResourceAddressSpaceBytes, 1 << 32, NoLimit, "Max address space 4294967296 unlimited"},
	} {
		t.Run(name, func(t *testing.T) {
			output, _ := run(t, limits(shell("exec cat /proc/self/limits"), Limit{test.resource, test.soft, test.hard}))
			for line := range strings.Lines(output.stdout) {
				if strings.HasPrefix(strings.Join(strings.Fields(line), " "), test.line) {
					return
				}
			}
			t.Errorf("no line %q in\n%s%s", test.line, output.stdout, output.stderr)
		})
	}
}

func TestNice(t *testing.T) {
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	own := 20 - raw
	for _, add := range []int{1, 5, MaxNice} {
		spec := shell("nice; true & wait; nice -n 0 nice")
		spec.Nice = add
		want := min(19, own+add)
		if output, _ := run(t, spec); output.stdout != fmt.Sprintf("%d\n%d\n", want, want) {
			t.Errorf("with %d added to %d the process and its child print %q", add, own, output.stdout)
		}
	}
	if again, _ := unix.Getpriority(unix.PRIO_PROCESS, 0); again != raw {
		t.Error("the tests' own nice value was changed")
	}
}

// Terminal, input, signals and exit are as without limits, and the process is not traced.
func TestResourceLimits_ProcessIsNotTraced(t *testing.T) {
	spec := limits(shell("grep TracerPid /proc/self/status; test -t 0 && read x; kill -TERM $$"), Limit{ResourceOpenFiles, 64, 64})
	spec.Terminal = &WindowSize{}
	p := start(t, spec)
	output := readLog(t, p)
	if output := output.until("\n"); output.terminal != "TracerPid:\t0\r\n" {
		t.Errorf("it prints %q", output.terminal)
	}
	if err := p.WriteStdin(testContext(t), []byte("\n")); err != nil {
		t.Fatal(err)
	}
	if record := waitClosed(t, p); record.Signal != syscall.SIGTERM || record.Cause != CauseExited {
		t.Errorf("it ended with %+v", record)
	}
}

func TestResourceLimits_ConcurrentStarts(t *testing.T) {
	s := newSupervisor(t, Config{})
	ended := make(chan ExitRecord)
	const n = 50
	for range n {
		go func() {
			p, err := s.Start(testContext(t), limits(shell("exit 3"), Limit{ResourceOpenFiles, 64, 64}))
			if err != nil {
				t.Error(err)
				ended <- ExitRecord{}
				return
			}
			<-p.Closed()
			record, _ := p.Exit()
			ended <- record
		}()
	}
	for range n {
		if record := <-ended; record.Code != 3 || record.Cause != CauseExited {
			t.Errorf("one ended with %+v", record)
		}
	}
}

func TestExitRecord_LimitExceeded_CauseLimit(t *testing.T) {
	testrace.Slow(t) // uses up processor time
	file := filepath.Join(t.TempDir(), "file")
	spin := "while :; do :; done"
	for name, test := range map[string]struct {
		spec   Spec
		signal syscall.Signal
		cause  Cause
	}{
		"soft cpu":          {limits(shell(spin), Limit{ResourceCPUSeconds, 1, 5}), syscall.SIGXCPU, CauseLimit},
		"hard cpu":          {limits(shell(spin), Limit{ResourceCPUSeconds, 1, 1}), syscall.SIGKILL, CauseLimit},
		"file":              {limits(shell("ulimit -c 0; exec head -c 10000 /dev/zero >"+file), Limit{ResourceFileBytes, 4096, 4096}), syscall.SIGXFSZ, CauseLimit},
		"almost":            {limits(shell("ulimit -S -t 1; trap 'kill -KILL $$' XCPU; "+spin), Limit{ResourceCPUSeconds, 2, 2}), syscall.SIGKILL, CauseExited},
		"a kill without":    {limits(shell("kill -KILL $$"), Limit{ResourceCPUSeconds, 1, 1}), syscall.SIGKILL, CauseExited},
		"not its own limit": {limits(shell("kill -XCPU $$"), Limit{ResourceFileBytes, 1, 1}), syscall.SIGXCPU, CauseExited},
		"no limit at all":   {shell("kill -XFSZ $$"), syscall.SIGXFSZ, CauseExited},
	} {
		t.Run(name, func(t *testing.T) {
			if _, record := run(t, test.spec); record.Signal != test.signal || record.Cause != test.cause {
				t.Errorf("it ended with %+v, want %v for %v", record, test.signal, test.cause)
			}
		})
	}
	if size, err := os.Stat(file); err != nil || size.Size() != 4096 {
		t.Errorf("the file is %v, %v", size, err)
	}
}

func TestResourceLimits_Invalid(t *testing.T) {
	files := Limit{ResourceOpenFiles, 10, 10}
	for field, change := range map[string]func(*Spec){
		"timeout":             func(s *Spec) { s.Timeout = -1 },
		"no_output_timeout":   func(s *Spec) { s.NoOutputTimeout = -1 },
		"nice":                func(s *Spec) { s.Nice = MaxNice + 1 },
		"resource_limits[0]":  func(s *Spec) { s.ResourceLimits = []Limit{{}} },
		"resource_limits[1]":  func(s *Spec) { s.ResourceLimits = []Limit{files, files} },
		"resource_limits[01]": func(s *Spec) { s.ResourceLimits = []Limit{{ResourceOpenFiles, 2, 1}} },
		"resource_limits[00]": func(s *Spec) { s.ResourceLimits = []Limit{{200, 1, 1}} },
	} {
		spec := shell("true")
		change(&spec)
		_, err := newSupervisor(t, Config{}).Start(testContext(t), spec)
		wantKind(t, err, InvalidArgument)
		want := strings.NewReplacer("[01]", "[0]", "[00]", "[0]").Replace(field)
		if typed, ok := err.(*Error); !ok || typed.Field != want {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

// The system refuses more descriptors per process than it knows at all, also to root. The child that had its program
// already is gone without having run any of it.
func TestResourceLimits_NotPermitted_FailsStart(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "ran")
	for range 20 {
		_, err := newSupervisor(t, Config{}).Start(testContext(t), limits(shell("touch "+marker),
			Limit{ResourceCoreBytes, 0, 0}, Limit{ResourceOpenFiles, 1 << 40, 1 << 40}))
		wantKind(t, err, PermissionDenied)
		if typed, ok := err.(*Error); !ok || typed.Field != "resource_limits[1]" {
			t.Errorf("%v does not name the limit", err)
		}
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the program ran")
	}
}

// The error names the limit also if it would be set inside a sandbox.
func TestResourceLimits_NotPermittedInSandbox_NamesTheLimit(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		spec := limits(shell("true"), Limit{ResourceCoreBytes, 0, 0}, Limit{ResourceOpenFiles, 1 << 40, 1 << 40})
		_, err := newSupervisor(t, Config{}).Start(testContext(t), confined(spec, confine(readOnly)))
		wantKind(t, err, PermissionDenied)
		if typed, ok := err.(*Error); !ok || typed.Field != "resource_limits[1]" {
			t.Errorf("%v does not name the limit", err)
		}
	})
}

func TestNoOutputTimeout_KillsSilentProcess(t *testing.T) {
	for name, script := range map[string]string{
		"from its start":        "sleep 1000",
		"after output":          "echo once; sleep 1000",
		"with its streams shut": "exec >&- 2>&-; sleep 1000",
	} {
		t.Run(name, func(t *testing.T) {
			spec := shell(script)
			spec.NoOutputTimeout = 50 * time.Millisecond
			if record := waitClosed(t, start(t, spec)); record.Signal != syscall.SIGKILL || record.Cause != CauseNoOutput {
				t.Errorf("it ended with %+v", record)
			}
		})
	}
}

// Output on either stream begins the count anew: at no time is the process silent for long, and it runs much longer
// than the timeout.
func TestNoOutputTimeout_OutputRestartsTimer(t *testing.T) {
	testrace.Slow(t) // a process that speaks now and then
	spec := shell("for i in 1 2 3 4 5 6 7 8 9 10 11 12 13; do sleep 0.2; echo $i; sleep 0.2; echo $i >&2; done")
	spec.NoOutputTimeout = 2500 * time.Millisecond
	if record := waitClosed(t, start(t, spec)); record.Code != 0 || record.Signal != 0 || record.WallTime < 2*spec.NoOutputTimeout {
		t.Errorf("it ended with %+v", record)
	}
}

// A process that its owner keeps from writing is not silent; once the owner reads again, the count begins anew.
func TestNoOutputTimeout_BlockedOutputDoesNotCount(t *testing.T) {
	testrace.Slow(t) // waits for several timeouts
	spec := shell("read x; head -c 500000 /dev/zero; sleep 1000")
	spec.NoOutputTimeout = 2 * time.Second // the shell has to start within it
	p, owner := startOwned(t, spec)
	poll(t, "output to be blocked", p.OutputBlocked)
	select {
	case <-p.Exited():
		t.Error("it was killed while its output was blocked")
	case <-time.After(spec.NoOutputTimeout + spec.NoOutputTimeout/2):
	}
	if total, _ := drain(t, owner); total != 500_000 {
		t.Errorf("the owner got %d bytes", total)
	}
	if record := waitClosed(t, p); record.Cause != CauseNoOutput {
		t.Errorf("it ended with %+v", record)
	}
}
