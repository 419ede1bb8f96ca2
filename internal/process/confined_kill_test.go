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

	"github.com/execwire/execwire/internal/procfs"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/testrace"
)

// newConfinedHostileTree returns a confined hostile tree. Its processes are found by their command
// lines, because they have other PIDs in their namespace.
func newConfinedHostileTree(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement, args ...string) (h *hostileTree, alive func() []int) {
	t.Helper()
	dir := directory(t)
	h = newHostileTree(t, args...)
	h.report = filepath.Join(dir, "report")
	h.spec = confined(program("hostile", append([]string{"-report", h.report}, args...)...), confine(writableOnly(dir)))
	return h, func() []int { return runningWith(t, h.report) }
}

// runningWith lists the processes with text in their command line.
func runningWith(t *testing.T, text string) (pids []int) {
	t.Helper()
	procs, err := procfs.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if err == nil && !p.Dead && bytes.Contains(line, []byte(text)) {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

var confinedHostileWays = [][]string{{"child", "stopped"}, {"-hold", "group", "session"}, {"-hold", "daemon", "daemon"}, {"-chain", "300ms", "daemon-chain"}}

// confinedKillSetups are the setups of a server that confines. An ordinary user has no control groups.
func confinedKillSetups() []killSetup {
	if os.Geteuid() != 0 {
		return []killSetup{{false, true}}
	}
	return []killSetup{{true, true}, {false, true}}
}

func TestTerminate_Confined_LeavesNoDescendant(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		for _, setup := range confinedKillSetups() {
			for i, way := range confinedHostileWays {
				options := []Termination{{}, {Graceful: true, Timeout: 50 * time.Millisecond}}[i%2]
				t.Run(fmt.Sprintf("%v,%s", setup, strings.Join(way, " ")), func(t *testing.T) {
					h, alive := newConfinedHostileTree(t, confine, way...)
					p := h.startReady(setup.supervisor(t))
					if !slices.Contains(way, "daemon-chain") && len(alive()) < 2 { // each of a chain is there for a moment only
						t.Error("its descendants were not found")
					}
					result := terminate(t, p, options)
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

// The descendants of a confined process are killed when it closes, unless they are to be left
// running: then they end with the supervisor.
func TestLeaveDescendants_Confined(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		for _, setup := range confinedKillSetups() {
			for _, leave := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v,leave=%v", setup, leave), func(t *testing.T) {
					h, alive := newConfinedHostileTree(t, confine, "-leave", "session", "daemon", "child")
					h.spec.LeaveDescendants = leave
					s := setup.supervisor(t)
					p := h.start(s)
					if record := waitClosed(t, p); record.Code != 3 || record.Cause != CauseExited {
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

func TestTerminate_ConfinedGraceful_SendsSIGTERM(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		p := start(t, confined(program("trap-term"), confine(readOnly)))
		l := readLog(t, p)
		l.until("ready")
		result := terminate(t, p, Termination{Graceful: true, Timeout: testTimeout})
		if output := l.all(); result.Exit.Code != 7 || result.Exit.Signal != 0 || result.Exit.Cause != CauseTerminated || output.stdout != "ready\nterminated\n" {
			t.Errorf("%+v, %q", result, output.stdout)
		}
		waitClosed(t, p)
	})
}

func TestTimeout_Confined(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		spec := confined(program("ignore-term"), confine(readOnly))
		spec.Timeout = 200 * time.Millisecond
		if record := waitClosed(t, start(t, spec)); record.Signal != syscall.SIGKILL || record.Cause != CauseTimeout {
			t.Errorf("%+v", record)
		}
	})
}

// Signals reach the program also if the leader is a wrapper.
func TestSignal_Confined_ReachesProgram(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		by := confine(readOnly)
		for _, target := range []Target{TargetGroup, TargetProcess} {
			p := start(t, confined(program("trap-term"), by))
			readLog(t, p).until("ready")
			for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT, syscall.SIGTERM} {
				if err := p.Signal(sig, target); err != nil {
					t.Errorf("target %d, signal %v: %v", target, sig, err)
				}
			}
			if record := waitClosed(t, p); record.Code != 7 || record.Cause != CauseExited {
				t.Errorf("target %d: %+v", target, record)
			}
			wantKind(t, p.Signal(syscall.SIGTERM, target), AlreadyExited)
			p = start(t, confined(program("ignore-term"), by))
			readLog(t, p).until("ready")
			if err := p.Signal(syscall.SIGKILL, target); err != nil {
				t.Errorf("target %d: %v", target, err)
			}
			if record := waitClosed(t, p); record.Signal != syscall.SIGKILL && record.Code != 128+int(syscall.SIGKILL) || record.Cause != CauseExited {
				t.Errorf("target %d: %+v", target, record)
			}
		}
	})
}

// After its whole group was stopped the program alone is continued or killed. Its end is reported
// also through a wrapper.
func TestSignal_ConfinedGroupStopped_EndIsReported(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		by := confine(readOnly)
		for name, signals := range map[string][]syscall.Signal{
			"continued": {syscall.SIGCONT, syscall.SIGTERM}, "killed": {syscall.SIGKILL}, "killed later": {syscall.SIGTERM, syscall.SIGKILL},
		} {
			for _, stopped := range []Target{TargetGroup, TargetForeground} {
				p := start(t, onTerminal(confined(program("trap-term"), by), 0, 0))
				readLog(t, p).until("ready")
				if err := p.Signal(syscall.SIGSTOP, stopped); err != nil {
					t.Fatal(err)
				}
				for _, sig := range signals {
					if err := p.Signal(sig, TargetProcess); err != nil {
						t.Errorf("%s, signal %v: %v", name, sig, err)
					}
				}
				record := waitClosed(t, p)
				killed := record.Signal == syscall.SIGKILL || record.Code == 128+int(syscall.SIGKILL)
				if record.Code != 7 && !killed || killed != (name != "continued") || record.Cause != CauseExited {
					t.Errorf("%s: %+v", name, record)
				}
			}
		}
	})
}

// The terminal of a confined program has size, resizes, keys and jobs.
func TestTerminal_Confined(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		by := confine(readOnly)
		p := start(t, onTerminal(confined(program("winsize"), by), 30, 90))
		l := readLog(t, p)
		l.until("30x90\r\n")
		if err := p.Resize(WindowSize{50, 132}); err != nil {
			t.Fatal(err)
		}
		l.until("50x132\r\n")
		mustWrite(t, p, "\x04")
		if record := waitClosed(t, p); record.Code != 0 {
			t.Errorf("%+v", record)
		}
		p = start(t, onTerminal(confined(shell("echo ready; exec sleep 1000"), by), 0, 0))
		readLog(t, p).until("ready")
		mustWrite(t, p, "\x03")
		if record := waitClosed(t, p); record.Signal != syscall.SIGINT && record.Code != 128+int(syscall.SIGINT) {
			t.Errorf("%+v", record)
		}
	})
}

// A shell with job control in a wrapper leaves the group that it was started in. Signals to that
// group reach the shell.
func TestSignal_ConfinedShellWithJobs(t *testing.T) {
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		spec := Spec{Argv: []string{"/bin/bash", "--norc", "--noediting", "-i"}, Cwd: "/", Env: []string{"PATH=/usr/bin:/bin", "PS1=ready$ "}}
		p := start(t, onTerminal(confined(spec, confine(readOnly)), 0, 0))
		l := readLog(t, p)
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
		waitClosed(t, p)
	})
}

// A placeholder for a path that must not be created exists as long as any process of the tree.
func TestClose_ConfinedPlaceholder_IsRemoved(t *testing.T) {
	dir := directory(t)
	placeholder := filepath.Join(dir, ".git")
	policy := writableOnly(dir)
	policy.WorkspaceRoots = []string{dir}
	policy.Entries = append(policy.Entries, sandbox.Entry{Path: placeholder, Access: sandbox.AccessRead})
	p := start(t, confined(program("ignore-term"), confinedBy(t, sandbox.Bubblewrap)(policy)))
	readLog(t, p).until("ready")
	if _, err := os.Lstat(placeholder); err != nil {
		t.Errorf("there is no placeholder: %v", err)
	}
	terminate(t, p, Termination{})
	waitClosed(t, p)
	poll(t, "the placeholder to be removed", func() bool { _, err := os.Lstat(placeholder); return errors.Is(err, os.ErrNotExist) })
}

func TestExitRecord_ConfinedLimitExceeded_CauseLimit(t *testing.T) {
	testrace.Slow(t) // uses up processor time
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

// The exit record has the usage of the program also through a wrapper.
func TestExitRecord_Confined_HasUsage(t *testing.T) {
	testrace.Slow(t) // much memory
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		spec := confined(shell("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; sleep 1000 &"), confine(readOnly))
		spec.LeaveDescendants = true
		s := newSupervisor(t, Config{AdoptOrphans: true})
		p, err := s.Start(testContext(t), spec)
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, "exited", p.Exited())
		if record, _ := p.Exit(); record.UserTime+record.SystemTime < procfs.Tick || record.UserTime+record.SystemTime > testTimeout {
			t.Errorf("%+v", record)
		}
		terminate(t, p, Termination{})
		const size = 512 << 20 // more than this test, whatever ran in it before
		spec = confined(shell(fmt.Sprintf("exec dd if=/dev/zero of=/dev/null bs=%d count=1 status=none", size)), confine(readOnly))
		if p, err = s.Start(testContext(t), spec); err != nil {
			t.Fatal(err)
		}
		if record := waitClosed(t, p); record.MaxRSSBytes < size || record.MaxRSSBytes > 2*size {
			t.Errorf("%+v", record)
		}
	})
}

// SandboxDenied depends on the exit and on the output, however it is split into events.
func TestExitRecord_SandboxDenied(t *testing.T) {
	for name, tt := range map[string]struct {
		script   string
		terminal bool
		want     bool
	}{
		"success":           {"echo Permission denied", false, false},
		"printed":           {"echo Permission Denied; exit 1", false, true},
		"printed on stderr": {"echo 'READ-ONLY file system' >&2; exit 1", false, true},
		"on a terminal":     {"echo 'sandbox: no'; exit 1", true, true},
		"cut":               {"printf 'operation not per'; sleep 0.05; echo 'between' >&2; sleep 0.05; printf mitted; exit 3", false, true},
		"not printed":       {"printf permission; echo ' denied' >&2; exit 1", false, false},
		"printed with 127":  {"echo landlock; exit 127", false, true},
		"127":               {"exit 127", false, false},
		"159":               {"exit 159", false, true},
		"1":                 {"exit 1", false, false},
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

func TestDenialScanner_SplitMessages(t *testing.T) {
	for _, denial := range denialMessages {
		text := "before " + strings.ToUpper(string(denial)) + " after"
		for cut := range len(text) {
			var s denialScanner
			if first := s.scan([]byte(text[:cut])); !s.scan([]byte(text[cut:])) && !first {
				t.Errorf("%q cut at %d is not found", text, cut)
			}
			s = denialScanner{}
			for i := range len(text) {
				if s.scan([]byte(text[i : i+1])) {
					break
				}
				if i == len(text)-1 {
					t.Errorf("%q byte by byte is not found", text)
				}
			}
		}
	}
	var s denialScanner
	if s.scan([]byte("permission")) || s.scan([]byte("xdenied")) {
		t.Error("a message was found that is not there")
	}
}
