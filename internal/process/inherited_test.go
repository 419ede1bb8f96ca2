package process

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/testproc"
)

func init() {
	testproc.Register("hostile-start", hostileStart)
	testproc.Register("hostile-supervisor", hostileSupervisor)
}

// hostileStart executes a supervisor the way a careless parent would: with signals ignored and blocked, descriptors
// open, and a low limit of descriptors.
func hostileStart([]string) int {
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
	argv := testproc.Argv("hostile-supervisor")
	fmt.Fprintln(os.Stderr, unix.Exec(argv[0], argv, os.Environ()))
	return 93
}

// hostileFacts is what the hostile supervisor prints.
type hostileFacts struct {
	ServerIgnored int    // signals this process was started to ignore
	ServerMasked  bool   // it was started with a mask
	Restored      bool   // it ignores SIGHUP and SIGINT again in the end
	Status        string // /proc/self/status of a child
	Descriptors   string // of a child
	Limit         string // of descriptors, of a child
	Terminal      string // status of a child with a terminal
}

func hostileSupervisor([]string) int {
	facts := hostileFacts{ServerIgnored: len(ignoredSignals()), ServerMasked: masksSignals()}
	s := NewSupervisor(Config{})
	t := &failing{}
	say := func(terminal *WindowSize, script string) string {
		spec := shell(script)
		spec.Terminal = terminal
		p, err := s.Start(testContext(t), spec)
		if err != nil {
			return err.Error()
		}
		heard := listen(t, p).all()
		return heard.stdout + heard.terminal
	}
	facts.Status = say(nil, "exec cat /proc/self/status")
	facts.Terminal = say(&WindowSize{}, "exec cat /proc/self/status")
	facts.Descriptors = say(nil, "exec ls /proc/self/fd")
	facts.Limit = say(nil, "ulimit -Sn; ulimit -Hn")
	if ignores(unix.SIGHUP) || unix.Kill(os.Getpid(), unix.SIGHUP) != nil { // does not end us, although no longer ignored
		return 95
	}
	if err := s.Close(testContext(t)); err != nil {
		return 94
	}
	facts.Restored = ignores(unix.SIGHUP) && ignores(unix.SIGINT)
	_ = json.NewEncoder(os.Stdout).Encode(facts)
	return 0
}

// failing is a testing.TB outside a test.
type failing struct{ testing.TB }

func (failing) Helper()                        {}
func (failing) Cleanup(func())                 {}
func (failing) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
func (failing) Fatal(a ...any)                 { panic(fmt.Sprint(a...)) }

func TestChildrenInheritNothingFromAHostileStart(t *testing.T) {
	argv := testproc.Argv("hostile-start")
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	facts := decode[hostileFacts](t, string(out))
	if facts.ServerIgnored == 0 || !facts.ServerMasked {
		t.Errorf("the supervisor was not started hostilely: %+v", facts)
	}
	if !facts.Restored {
		t.Error("after Close the supervisor does not ignore what it was started to ignore")
	}
	for _, status := range []string{facts.Status, facts.Terminal} {
		for _, field := range []string{"SigBlk", "SigIgn"} {
			if !strings.Contains(status, field+":\t0000000000000000") {
				t.Errorf("%s is not empty:\n%s", field, status)
			}
		}
	}
	if got := strings.Fields(facts.Descriptors); len(got) != 4 { // 0, 1, 2 and that of the listing
		t.Errorf("descriptors %v", got)
	}
	if facts.Limit != "777\n5000\n" {
		t.Errorf("limits of descriptors %q", facts.Limit)
	}
}

func ignores(sig os.Signal) bool {
	for _, ignored := range ignoredSignals() {
		if ignored == sig {
			return true
		}
	}
	return false
}
