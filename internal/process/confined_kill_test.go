package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/sandbox"
)

// confinedTribe is a hostile process with its descendants, confined. They are known by what their command line says:
// inside of a namespace they have other numbers.
func confinedTribe(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement, args ...string) (h *tribe, alive func() []int) {
	t.Helper()
	dir := directory(t)
	h = newTribe(t, args...)
	h.report = filepath.Join(dir, "report")
	h.spec = confined(program("hostile", append([]string{"-report", h.report}, args...)...), confine(writableOnly(dir)))
	return h, func() []int { return runningWith(t, h.report) }
}

// runningWith lists the processes with a text in their command line.
func runningWith(t *testing.T, text string) (pids []int) {
	t.Helper()
	procs, err := readProcs()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
		if err == nil && !p.dead && bytes.Contains(line, []byte(text)) {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

var confinedWays = [][]string{{"child", "stopped"}, {"-hold", "group", "session"}, {"-hold", "daemon", "daemon"}, {"-chain", "300ms", "daemon-chain"}}

func TestNobodyConfinedSurvivesATermination(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		for _, strength := range []strength{{true, true}, {false, true}} {
			for i, way := range confinedWays {
				how := []Termination{{}, {Graceful: true, Timeout: 50 * time.Millisecond}}[i%2]
				t.Run(fmt.Sprintf("%v,%s", strength, strings.Join(way, " ")), func(t *testing.T) {
					h, alive := confinedTribe(t, confine, way...)
					p := h.startReady(strength.supervisor(t))
					if !slices.Contains(way, "daemon-chain") && len(alive()) < 2 { // each of a chain is there for a moment only
						t.Error("its descendants are not found")
					}
					result := terminate(t, p, how)
					if left := alive(); len(left) > 0 {
						t.Errorf("%v are alive", left)
					}
					if !result.WasRunning || !result.Verified || result.Exit.Signal != syscall.SIGKILL || result.Exit.Cause != CauseTerminated {
						t.Errorf("%+v", result)
					}
					wantEnd(t, p)
				})
			}
		}
	})
}

// What is left of a confined process when it closes is killed, unless it is to be left: then it ends with the
// supervisor.
func TestWhatAConfinedProcessLeaves(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		for _, strength := range []strength{{true, true}, {false, true}} {
			for _, leave := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v,leave=%v", strength, leave), func(t *testing.T) {
					h, alive := confinedTribe(t, confine, "-leave", "session", "daemon", "child")
					h.spec.LeaveDescendants = leave
					s := strength.supervisor(t)
					p := h.start(s)
					if record := exit(t, p); record.Code != 3 || record.Cause != CauseExited {
						t.Errorf("%+v", record)
					}
					if leave && len(alive()) < 3 {
						t.Errorf("only %v were left", alive())
					}
					if leave {
						if err := s.Close(testContext(t)); err != nil {
							t.Fatal(err)
						}
					}
					poll(t, "the end of all", func() bool { return len(alive()) == 0 })
				})
			}
		}
	})
}

func TestAConfinedProcessIsAskedToEnd(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		p := start(t, confined(program("trap-term"), confine(readOnly)))
		l := listen(t, p)
		l.until("ready")
		result := terminate(t, p, Termination{Graceful: true, Timeout: patience})
		if heard := l.all(); result.Exit.Code != 7 || result.Exit.Signal != 0 || result.Exit.Cause != CauseTerminated || heard.stdout != "ready\nterminated\n" {
			t.Errorf("%+v, %q", result, heard.stdout)
		}
		exit(t, p)
	})
}

func TestAConfinedProcessTimesOut(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		spec := confined(program("ignore-term"), confine(readOnly))
		spec.Timeout = 200 * time.Millisecond
		if record := exit(t, start(t, spec)); record.Signal != syscall.SIGKILL || record.Cause != CauseTimeout {
			t.Errorf("%+v", record)
		}
	})
}

// Signals reach the program, also where another process stands for it.
func TestSignalsReachAConfinedProgram(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		by := confine(readOnly)
		for _, target := range []Target{TargetGroup, TargetProcess} {
			p := start(t, confined(program("trap-term"), by))
			listen(t, p).until("ready")
			for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT, syscall.SIGTERM} {
				if err := p.Signal(sig, target); err != nil {
					t.Errorf("target %d, signal %v: %v", target, sig, err)
				}
			}
			if record := exit(t, p); record.Code != 7 || record.Cause != CauseExited {
				t.Errorf("target %d: %+v", target, record)
			}
			wantKind(t, p.Signal(syscall.SIGTERM, target), AlreadyExited)
			p = start(t, confined(program("ignore-term"), by))
			listen(t, p).until("ready")
			if err := p.Signal(syscall.SIGKILL, target); err != nil {
				t.Errorf("target %d: %v", target, err)
			}
			if record := exit(t, p); record.Signal != syscall.SIGKILL && record.Code != 128+int(syscall.SIGKILL) || record.Cause != CauseExited {
				t.Errorf("target %d: %+v", target, record)
			}
		}
	})
}

// A group that was stopped has the program alone continued, or killed: who stands for it tells its end all the same.
func TestAProgramEndsWhoseGroupWasStopped(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		by := confine(readOnly)
		for name, signals := range map[string][]syscall.Signal{
			"continued": {syscall.SIGCONT, syscall.SIGTERM}, "killed": {syscall.SIGKILL}, "killed later": {syscall.SIGTERM, syscall.SIGKILL},
		} {
			for _, stopped := range []Target{TargetGroup, TargetForeground} {
				p := start(t, onTerminal(confined(program("trap-term"), by), 0, 0))
				listen(t, p).until("ready")
				if err := p.Signal(syscall.SIGSTOP, stopped); err != nil {
					t.Fatal(err)
				}
				for _, sig := range signals {
					if err := p.Signal(sig, TargetProcess); err != nil {
						t.Errorf("%s, signal %v: %v", name, sig, err)
					}
				}
				record := exit(t, p)
				killed := record.Signal == syscall.SIGKILL || record.Code == 128+int(syscall.SIGKILL)
				if record.Code != 7 && !killed || killed != (name != "continued") || record.Cause != CauseExited {
					t.Errorf("%s: %+v", name, record)
				}
			}
		}
	})
}

// A confined terminal is that of the program: its size, changes of that, its keys and its jobs.
func TestAConfinedProcessHasItsTerminal(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		by := confine(readOnly)
		p := start(t, onTerminal(confined(program("winsize"), by), 30, 90))
		l := listen(t, p)
		l.until("30x90\r\n")
		if err := p.Resize(WindowSize{50, 132}); err != nil {
			t.Fatal(err)
		}
		l.until("50x132\r\n")
		mustWrite(t, p, "\x04")
		if record := exit(t, p); record.Code != 0 {
			t.Errorf("%+v", record)
		}
		p = start(t, onTerminal(confined(shell("echo ready; exec sleep 1000"), by), 0, 0))
		listen(t, p).until("ready")
		mustWrite(t, p, "\x03")
		if record := exit(t, p); record.Signal != syscall.SIGINT && record.Code != 128+int(syscall.SIGINT) {
			t.Errorf("%+v", record)
		}
	})
}

// A shell with jobs leaves the group that it was started in, if it is not a leader. Those who mean that group mean it.
func TestSignalsReachAConfinedShellWithJobs(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		spec := Spec{Argv: []string{"/bin/bash", "--norc", "--noediting", "-i"}, Cwd: "/", Env: []string{"PATH=/usr/bin:/bin", "PS1=ready$ "}}
		p := start(t, onTerminal(confined(spec, confine(readOnly)), 0, 0))
		l := listen(t, p)
		l.until("ready$ ")
		mustWrite(t, p, "trap 'echo got''ten' USR1; stty noflsh; echo tr''apped; sleep 1000 &\n")
		l.until("trapped\r\n")
		mustWrite(t, p, "echo be''gun; cat\n")
		l.until("begun\r\n")
		mustWrite(t, p, "hello\n")
		l.until("hello\r\nhello\r\n")
		if err := p.Signal(syscall.SIGINT, TargetForeground); err != nil { // cat alone
			t.Fatal(err)
		}
		l.until("hello\r\nhello\r\n\r\nready$ ")
		if err := p.Signal(syscall.SIGUSR1, TargetGroup); err != nil {
			t.Fatal(err)
		}
		l.until("gotten\r\n")
		result := terminate(t, p, Termination{})
		if result.Exit.Signal != syscall.SIGKILL || result.Exit.Cause != CauseTerminated {
			t.Errorf("%+v", result)
		}
		exit(t, p)
	})
}

// A place that must not come into being is kept for as long as anything of the process is left.
func TestWhatKeepsAPlaceIsRemovedInTheEnd(t *testing.T) {
	dir := directory(t)
	kept := filepath.Join(dir, ".git")
	policy := writableOnly(dir)
	policy.WorkspaceRoots = []string{dir}
	policy.Entries = append(policy.Entries, sandbox.Entry{Path: kept, Access: sandbox.AccessRead})
	p := start(t, confined(program("ignore-term"), confinedBy(t, sandbox.Bubblewrap)(policy)))
	listen(t, p).until("ready")
	if _, err := os.Lstat(kept); err != nil {
		t.Errorf("it is not kept: %v", err)
	}
	terminate(t, p, Termination{})
	exit(t, p)
	poll(t, "the place to be free", func() bool { _, err := os.Lstat(kept); return errors.Is(err, os.ErrNotExist) })
}

func TestExceedingALimitConfinedIsTheCause(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: uses up processor time")
	}
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		dir := directory(t)
		by := confine(writableOnly(dir))
		for name, spec := range map[string]Spec{
			"file":     limits(shell("exec dd if=/dev/zero of="+dir+"/file bs=4096 count=4"), Limit{ResourceFileBytes, 4096, 4096}, Limit{Resource: ResourceCoreBytes}),
			"hard cpu": limits(shell("while :; do :; done"), Limit{ResourceCPUSeconds, 1, 1}),
		} {
			if _, record := run(t, confined(spec, by)); record.Cause != CauseLimit {
				t.Errorf("%s: %+v", name, record)
			}
		}
	})
}

// The record tells what the program cost, also where another process stands for it.
func TestTheRecordOfAConfinedProcessTellsWhatItCost(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: much memory")
	}
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		spec := confined(shell("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; sleep 1000 &"), confine(readOnly))
		spec.LeaveDescendants = true
		s := newSupervisor(t, Config{AdoptOrphans: true})
		p, err := s.Start(testContext(t), spec)
		if err != nil {
			t.Fatal(err)
		}
		wait(t, "exited", p.Exited())
		if record, _ := p.Exit(); record.UserTime+record.SystemTime < tickNanos || record.UserTime+record.SystemTime > patience {
			t.Errorf("%+v", record)
		}
		terminate(t, p, Termination{})
		const size = 512 << 20 // more than this test, whatever ran in it before
		spec = confined(shell(fmt.Sprintf("exec dd if=/dev/zero of=/dev/null bs=%d count=1 status=none", size)), confine(readOnly))
		if p, err = s.Start(testContext(t), spec); err != nil {
			t.Fatal(err)
		}
		if record := exit(t, p); record.MaxRSSBytes < size || record.MaxRSSBytes > 2*size {
			t.Errorf("%+v", record)
		}
	})
}

// What is denied is said in the exit record, by what the program said, however the output was cut.
func TestADenialIsRecognised(t *testing.T) {
	for name, tt := range map[string]struct {
		script   string
		terminal bool
		want     bool
	}{
		"success":            {"echo Permission denied", false, false},
		"said":               {"echo Permission Denied; exit 1", false, true},
		"said on stderr":     {"echo 'READ-ONLY file system' >&2; exit 1", false, true},
		"said to a terminal": {"echo 'sandbox: no'; exit 1", true, true},
		"cut":                {"printf 'operation not per'; sleep 0.05; echo 'between' >&2; sleep 0.05; printf mitted; exit 3", false, true},
		"not said":           {"printf permission; echo ' denied' >&2; exit 1", false, false},
		"said with 127":      {"echo landlock; exit 127", false, true},
		"127":                {"exit 127", false, false},
		"159":                {"exit 159", false, true},
		"1":                  {"exit 1", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := confined(shell(tt.script), confinedBy(t, sandbox.Landlock)(readOnly))
			if tt.terminal {
				spec = onTerminal(spec, 0, 0)
			}
			if _, record := run(t, spec); record.SandboxDenied != tt.want {
				t.Errorf("%+v", record)
			}
			if _, record := run(t, shell(tt.script)); record.SandboxDenied {
				t.Errorf("without a sandbox: %+v", record)
			}
		})
	}
}

func TestEveryDenialIsFoundWhereverItIsCut(t *testing.T) {
	for _, denial := range denials {
		text := "before " + strings.ToUpper(string(denial)) + " after"
		for cut := range len(text) {
			var s denialSearch
			if first := s.finds([]byte(text[:cut])); !s.finds([]byte(text[cut:])) && !first {
				t.Errorf("%q cut at %d is not found", text, cut)
			}
			s = denialSearch{}
			for i := range len(text) {
				if s.finds([]byte(text[i : i+1])) {
					break
				}
				if i == len(text)-1 {
					t.Errorf("%q byte by byte is not found", text)
				}
			}
		}
	}
	var s denialSearch
	if s.finds([]byte("permission")) || s.finds([]byte("xdenied")) {
		t.Error("something was found that was not said")
	}
}
