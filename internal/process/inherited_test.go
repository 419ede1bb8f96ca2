package process

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/testproc"
)

func init() {
	testproc.Register("inherited-start", startWithInheritedState)
	testproc.Register("inherited-report", reportInheritedState)
}

// startWithInheritedState executes a supervisor with signals ignored and blocked, descriptors open,
// and a low limit of descriptors.
func startWithInheritedState([]string) int {
	signal.Ignore(unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGTERM, unix.SIGPIPE, unix.SIGUSR2, unix.SIGTSTP, unix.SIGCHLD, syscall.Signal(45))
	runtime.LockOSThread()
	var mask unix.Sigset_t
	for _, sig := range []unix.Signal{unix.SIGUSR1, unix.SIGTERM, unix.SIGWINCH, unix.Signal(50)} {
		mask.Val[(sig-1)/64] |= 1 << ((sig - 1) % 64)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &mask, nil); err != nil {
		return 90
	}
	for range 3 {
		fd, err := unix.Open("/", unix.O_RDONLY, 0)
		if err != nil || fd < 3 {
			return 91
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 777, Max: 5000}); err != nil {
		return 92
	}
	argv := testproc.Argv("inherited-report")
	fmt.Fprintln(os.Stderr, unix.Exec(argv[0], argv, os.Environ()))
	return 93
}

// inheritedFacts is the output of inherited-report.
type inheritedFacts struct {
	ServerIgnored int    // signals this process was started to ignore
	ServerMasked  bool   // it was started with a signal mask
	Unchanged     bool   // it ignores the same signals while it has children
	Status        string // /proc/self/status of a child
	Descriptors   string // of a child
	Limit         string // of descriptors, of a child
	Terminal      string // status of a child with a terminal
}

func reportInheritedState([]string) int {
	ignored := ignoredSignals()
	facts := inheritedFacts{ServerIgnored: len(ignored), ServerMasked: hasSignalMask()}
	s := NewSupervisor(Config{})
	t := &failing{}
	runScript := func(terminal *WindowSize, script string) string {
		spec := shell(script)
		spec.Terminal = terminal
		p, err := s.Start(testContext(t), spec)
		if err != nil {
			return err.Error()
		}
		output := readLog(t, p).all()
		return output.stdout + output.terminal
	}
	facts.Status = runScript(nil, "exec cat /proc/self/status")
	facts.Terminal = runScript(&WindowSize{}, "exec cat /proc/self/status")
	facts.Descriptors = runScript(nil, "exec ls /proc/self/fd")
	facts.Limit = runScript(nil, "ulimit -Sn; ulimit -Hn")
	facts.Unchanged = slices.Equal(ignoredSignals(), ignored) && slices.Contains(ignored, unix.SIGHUP)
	if err := s.Close(testContext(t)); err != nil {
		return 94
	}
	_ = json.NewEncoder(os.Stdout).Encode(facts)
	return 0
}

// failing is a testing.TB outside a test.
type failing struct{ testing.TB }

func (failing) Helper()                        {}
func (failing) Cleanup(func())                 {}
func (failing) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
func (failing) Fatal(a ...any)                 { panic(fmt.Sprint(a...)) }

func TestNewSupervisor_InheritedStateIsReset(t *testing.T) {
	argv := testproc.Argv("inherited-start")
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	facts := decode[inheritedFacts](t, string(out))
	if facts.ServerIgnored == 0 || !facts.ServerMasked {
		t.Errorf("the supervisor inherited nothing: %+v", facts)
	}
	if !facts.Unchanged {
		t.Error("the supervisor does not ignore the signals any more that it was started to ignore")
	}
	for _, status := range []string{facts.Status, facts.Terminal} {
		for _, field := range []string{"SigBlk", "SigIgn"} {
			if !strings.Contains(status, field+":\t0000000000000000") {
				t.Errorf("%s is not empty:\n%s", field, status)
			}
		}
	}
	if got := strings.Fields(facts.Descriptors); len(got) != 4 { // 0, 1, 2 and the one of ls
		t.Errorf("descriptors %v", got)
	}
	if facts.Limit != "777\n5000\n" {
		t.Errorf("limits of descriptors %q", facts.Limit)
	}
}

// hasSignalMask reports whether this thread blocks any signal. Go gives all threads the mask that
// the program was started with.
func hasSignalMask() bool {
	var mask unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, nil, &mask); err != nil {
		return true
	}
	return mask != unix.Sigset_t{}
}
