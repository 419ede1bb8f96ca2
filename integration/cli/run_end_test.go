package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/execwire/execwire/integration/harness"
	"golang.org/x/sys/unix"
)

// runInvocation is one `execwire run` of a shell script.
type runInvocation struct {
	*harness.Command
	mark   string // a variable that all processes of the script have
	stdout *harness.LockedBuffer
}

var runMarks atomic.Int64

// startRun starts `execwire run` with these flags, and waits until the script has so many
// processes named sleep.
func startRun(t *testing.T, sleeps int, flags []string, script string) runInvocation {
	t.Helper()
	mark := fmt.Sprintf("RUN_MARK=%d-%d", os.Getpid(), runMarks.Add(1))
	r := runInvocation{Command: harness.NewCommand(slices.Concat([]string{"run", "--env", mark}, flags, []string{"--", "sh", "-c", script})...), mark: mark, stdout: &harness.LockedBuffer{}}
	r.Stdout = r.stdout
	r.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a shell does
	r.Launch(t)
	t.Cleanup(func() { // of what is only left if the test has failed
		for _, k := range r.processes() {
			_ = unix.Kill(k.Pid, unix.SIGKILL)
		}
	})
	harness.Eventually(t, "the script has started everything", func() bool {
		isSleep := func(k harness.ProcessInfo) bool { return k.Name == "sleep" }
		all := r.processes()
		return len(slices.DeleteFunc(all, func(k harness.ProcessInfo) bool { return !isSleep(k) })) == sleeps
	})
	return r
}

// processes lists the processes of the script that are alive.
func (r runInvocation) processes() (found []harness.ProcessInfo) {
	for _, k := range harness.ListProcesses() {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", k.Pid))
		if err == nil && !k.Dead && slices.Contains(strings.Split(string(environ), "\x00"), r.mark) {
			found = append(found, k)
		}
	}
	return found
}

// expectEnd waits for the end and checks the exit code and that no process remains.
func (r runInvocation) expectEnd(t *testing.T, code int) {
	t.Helper()
	if got := r.Await(t); got != code {
		t.Errorf("exit code %d, want %d; stderr:\n%s", got, code, r.Errors.String())
	}
	if left := r.processes(); len(left) > 0 {
		t.Errorf("left behind: %+v", left)
	}
}

// withServers calls test with the flags for an embedded server, and for a separate server by
// gRPC and by JSON-RPC.
func withServers(t *testing.T, test func(t *testing.T, flags []string)) {
	server := harness.Serve(t)
	for name, flags := range map[string][]string{
		"embedded": nil,
		"gRPC":     {"--server", server.URLs[harness.TCPTransport]},
		"JSON-RPC": {"--server", server.URLs[harness.WebsocketTransport]},
	} {
		t.Run(name, func(t *testing.T) { harness.Waits(t); test(t, flags) })
	}
}

// leavesSession is a script whose descendant leaves its process group and keeps its output
// open.
const leavesSession = "setsid sleep 1000 & sleep 1000"

func TestRun_TerminatingSignal_EndsDescendantsThatHoldTheOutput(t *testing.T) {
	harness.Waits(t)
	withServers(t, func(t *testing.T, flags []string) {
		for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
			r := startRun(t, 2, flags, "ulimit -c 0; "+leavesSession)
			r.Send(t, sig)
			r.expectEnd(t, 128+int(sig))
		}
	})
}

// The process handles the signal, and what it leaves ignores it.
func TestRun_TerminatingSignal_KillsDescendantsThatIgnoreIt(t *testing.T) {
	harness.Waits(t)
	withServers(t, func(t *testing.T, flags []string) {
		r := startRun(t, 2, flags, `(trap "" TERM; exec setsid sleep 1000) & trap "exit 7" TERM; sleep 1000 & wait`)
		r.Send(t, unix.SIGTERM)
		r.expectEnd(t, 7)
	})
}

func TestRun_SecondSIGTERM_KillsTheTree(t *testing.T) {
	harness.Waits(t)
	withServers(t, func(t *testing.T, flags []string) {
		r := startRun(t, 2, flags, `trap "" TERM; `+leavesSession)
		over := make(chan struct{})
		go func() { defer close(over); r.Await(t) }()
		for done := false; !done; {
			_ = r.Process.Signal(unix.SIGTERM) // fails once it has ended
			select {
			case <-over:
				done = true
			case <-time.After(time.Second): // two within half of that are one
			}
		}
		r.expectEnd(t, 128+9)
		if !strings.Contains(r.Errors.String(), "you sent SIGTERM twice") {
			t.Errorf("stderr is %q", r.Errors.String())
		}
	})
}

// timeout(1) sends a signal to its command, and immediately again to the process group. The
// process ends after the second one: on a busy machine it could be over before.
func TestRun_SignalAsByTimeout_IsPassedOnOnce(t *testing.T) {
	harness.Waits(t)
	const script = `trap "until [ -e %s ]; do sleep 0.01; done; exit 7" TERM; setsid sleep 1000 & sleep 1000 & wait`
	withServers(t, func(t *testing.T, flags []string) {
		release := harness.ShortDir(t) + "/go"
		r := startRun(t, 2, flags, fmt.Sprintf(script, release))
		r.Send(t, unix.SIGTERM)
		if err := unix.Kill(-r.Process.Pid, unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(release, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		r.expectEnd(t, 7)
	})
}

// Without a signal run waits until the output has ended, as ssh does.
func TestRun_DescendantHoldsTheOutput_IsWaitedForUnlessAsked(t *testing.T) {
	harness.Waits(t)
	const script = "echo before; (until [ -e %[1]s ]; do sleep 0.01; done; echo after) & exit 5"
	withServers(t, func(t *testing.T, flags []string) {
		release := harness.ShortDir(t) + "/go"
		args := func(more ...string) []string {
			return slices.Concat([]string{"run"}, flags, more, []string{"--", "sh", "-c", fmt.Sprintf(script, release)})
		}
		got := harness.Run(t, nil, args("--no-wait-descendants")...)
		if want := (harness.Result{Code: 5, Stdout: "before\n"}); got != want {
			t.Errorf("with --no-wait-descendants: %+v, want %+v", got, want)
		}
		waiting := harness.NewCommand(args()...)
		output, err := waiting.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		waiting.Launch(t)
		line := make([]byte, 64)
		if n, err := output.Read(line); err != nil || string(line[:n]) != "before\n" {
			t.Fatalf("read %q, %v", line[:n], err)
		}
		if err := os.WriteFile(release, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if n, err := output.Read(line); err != nil || string(line[:n]) != "after\n" {
			t.Errorf("read %q, %v", line[:n], err)
		}
		if code := waiting.Await(t); code != 5 {
			t.Errorf("exit code %d, want 5", code)
		}
	})
}

// No process remains when a run with an embedded server, or the server, is killed.
func TestRun_KilledWithItsServer_LeavesNothing(t *testing.T) {
	harness.Waits(t)
	const script = `trap "" TERM HUP INT
setsid sh -c 'setsid sleep 1000 & exec sleep 1000' &
sleep 1000 & sleep 1000`
	t.Run("the run", func(t *testing.T) {
		r := startRun(t, 4, nil, script)
		r.Send(t, unix.SIGKILL)
		_ = r.Await(t)
		harness.Eventually(t, "nothing is left", func() bool { return len(r.processes()) == 0 })
		harness.Eventually(t, "its server has ended", func() bool {
			return !slices.ContainsFunc(harness.ListProcesses(), func(k harness.ProcessInfo) bool {
				group, err := unix.Getpgid(k.Pid)
				return err == nil && group == r.Process.Pid && !k.Dead
			})
		})
	})
	t.Run("the server", func(t *testing.T) {
		r := startRun(t, 4, nil, script)
		r.KillServer(t)
		r.expectEnd(t, 128+9)
	})
}

// A key of a terminal reaches the run and its guardian, but counts once.
func TestRun_InterruptToTheGroup_IsPassedOnOnce(t *testing.T) {
	harness.Waits(t)
	r := startRun(t, 1, nil, `trap "echo interrupted" INT; trap "exit 7" TERM; sleep 1000 & while :; do wait; done`)
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM} {
		if err := unix.Kill(-r.Process.Pid, sig); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "the signal is passed on", func() bool { return sig == unix.SIGTERM || r.stdout.String() != "" })
	}
	r.expectEnd(t, 7)
	if got := r.stdout.String(); got != "interrupted\n" {
		t.Errorf("stdout is %q", got)
	}
}

// A process that ends leaves only its control group to the next one: descendants of the next
// one in the background are waited for.
func TestRun_OrphanInAReusedControlGroup_IsNotKilled(t *testing.T) {
	server := harness.Serve(t)
	for range 15 {
		got := harness.Run(t, nil, server.Through(harness.UnixTransport, "--", "sh", "-c", `(setsid sh -c "echo begun; sleep 0.1; echo slept" &)`)...)
		if want := (harness.Result{Stdout: "begun\nslept\n"}); got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	}
}
