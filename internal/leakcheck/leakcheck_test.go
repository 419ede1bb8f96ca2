package leakcheck

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// leakEnv makes this test binary leak what the variable names and then call run.
const leakEnv = "LEAKCHECK_TEST_LEAK"

func TestMain(m *testing.M) {
	leakTimeout = 2 * time.Second // these tests leak
	if leak := os.Getenv(leakEnv); leak != "" {
		Main(runnerFunc(func() int { return leaks[leak]() }))
	}
	Main(m)
}

type runnerFunc func() int

func (f runnerFunc) Run() int { return f() }

// keep keeps leaks reachable.
var keep []any

var leaks = map[string]func() int{
	"nothing": func() int {
		r, w, _ := os.Pipe()
		_ = r.Close()
		_ = w.Close()
		return 0
	},
	"ignored signals": func() int { // of its children
		out, err := exec.Command("/bin/sh", "-c", "grep SigIgn /proc/self/status").Output()
		if err != nil {
			return 4
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(strings.TrimPrefix(string(out), "SigIgn:")), 16, 64)
		if err != nil {
			return 4
		}
		for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
			if mask&(1<<(sig-1)) != 0 {
				return 5
			}
		}
		return 0
	},
	"options of the race detector": func() int { // of its children
		out, err := exec.Command("/bin/sh", "-c", `printf %s "$GORACE"`).Output()
		if err != nil {
			return 4
		}
		if string(out) != "halt_on_error=1 atexit_sleep_ms=0" {
			return 5
		}
		return 0
	},
	"failure": func() int {
		go func() { select {} }()
		return 3
	},
	"goroutine": func() int {
		go func() { select {} }()
		return 0
	},
	"descriptor": func() int {
		r, w, err := os.Pipe()
		keep = append(keep, r, w, err)
		return 0
	},
	"child": func() int {
		cmd := exec.Command("/bin/sleep", "4")
		if err := cmd.Start(); err != nil {
			return 4
		}
		return 0
	},
	"zombie": func() int {
		if err := exec.Command("/bin/true").Start(); err != nil {
			return 4
		}
		return 0
	},
	"file": func() int {
		if err := os.WriteFile(os.TempDir()+"/forgotten", nil, 0o600); err != nil {
			return 4
		}
		return 0
	},
	"late": func() int { // gone before leakTimeout: no leak
		go time.Sleep(300 * time.Millisecond)
		return 0
	},
}

func TestMain_FindsEachKindOfLeak(t *testing.T) {
	for _, test := range []struct {
		leak string
		code int
		says string
	}{
		{"nothing", 0, ""},
		{"late", 0, ""},
		{"failure", 3, ""},
		{"goroutine", 1, "goroutines: "},
		{"descriptor", 1, "descriptor left: "},
		{"child", 1, "child process left: "},
		{"zombie", 1, "state Z"},
		{"file", 1, "temporary file left: forgotten"},
	} {
		t.Run(test.leak, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), leakEnv+"="+test.leak)
			out, _ := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != test.code {
				t.Fatalf("exit code %d, want %d; output:\n%s", got, test.code, out)
			}
			if !strings.Contains(string(out), test.says) {
				t.Errorf("output lacks %q:\n%s", test.says, out)
			}
		})
	}
}

// recorder records a failure instead of failing.
type recorder struct {
	testing.TB
	cleanup func()
	failed  bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Cleanup(f func())      { r.cleanup = f }
func (r *recorder) Errorf(string, ...any) { r.failed = true }

func TestMain_HandlesIgnoredSignals(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", "trap '' HUP INT QUIT TERM; exec "+self)
	cmd.Env = append(os.Environ(), leakEnv+"=ignored signals")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("a child of a test ignores signals that the test was started to ignore: %v: %s", err, out)
	}
}

func TestMain_KeepsRaceDetectorOptions(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), leakEnv+"=options of the race detector", "GORACE=halt_on_error=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("a child of a test has other options: %v: %s", err, out)
	}
}

func TestCheck_FailsOnlyLeakingTest(t *testing.T) {
	clean := &recorder{TB: t}
	Check(clean)
	clean.cleanup()
	if clean.failed {
		t.Error("a test without leaks failed")
	}

	leaking := &recorder{TB: t}
	Check(leaking)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	leaking.cleanup()
	_ = r.Close()
	_ = w.Close()
	if !leaking.failed {
		t.Error("a test with leaked descriptors passed")
	}
}
