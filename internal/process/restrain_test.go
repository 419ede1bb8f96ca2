package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/sandbox"
)

// whatItHas prints its oom_score_adj and RLIMIT_NPROC when it was asked to: by then the
// start has returned.
const whatItHas = `read x; cat /proc/self/oom_score_adj; ulimit -u; ulimit -H -u`

// restrained returns what a process prints that is started with restraints.
func restrained(t *testing.T, spec Spec) string {
	t.Helper()
	spec.PipeStdin = true
	p, err := newSupervisor(t, Config{OOMScoreAdjust: 300, UserProcesses: 12345}).Start(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.WriteStdin(testContext(t), []byte("x\n")); err != nil {
		t.Fatal(err)
	}
	return listen(t, p).all().stdout
}

func TestStart_ChildHasHigherOOMScoreAndFewerProcesses(t *testing.T) {
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(own)))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%d\n12345\n12345\n", min(score+300, 1000))
	bash := Spec{Argv: []string{"/bin/bash", "-c", whatItHas}, Cwd: "/", Env: []string{"PATH=/bin:/usr/bin"}}
	if got := restrained(t, bash); got != want {
		t.Errorf("a process has %q, want %q", got, want)
	}
	limited := bash
	limited.ResourceLimits = []Limit{{Resource: ResourceUserProcesses, Soft: 20000, Hard: 20000}, {Resource: ResourceOpenFiles, Soft: 64, Hard: 64}}
	if got := restrained(t, limited); got != want {
		t.Errorf("a process that asks for more has %q, want %q", got, want)
	}
	limited.ResourceLimits[0] = Limit{Resource: ResourceUserProcesses, Soft: 7000, Hard: 8000}
	if got, want := restrained(t, limited), strings.ReplaceAll(want, "12345\n12345", "7000\n8000"); got != want {
		t.Errorf("a process that asks for less has %q, want %q", got, want)
	}
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		if got := restrained(t, confined(bash, confine(readOnly))); got != want {
			t.Errorf("a confined process has %q, want %q", got, want)
		}
	})
}

// Descendants that were there before the restraint get it as well.
func TestRestraint_EarlyDescendants_HaveIt(t *testing.T) {
	p := start(t, shell(`sh -c 'sh -c "echo ready; sleep 1000; :"; :'; :`))
	listen(t, p).until("ready")
	restraint{userProcesses: 4321}.apply(p.pid)
	pid := p.pid
	for range 3 {
		var limit unix.Rlimit
		if err := unix.Prlimit(pid, unix.RLIMIT_NPROC, nil, &limit); err != nil || limit.Cur != 4321 || limit.Max != 4321 {
			t.Errorf("process %d has %+v, %v", pid, limit, err)
		}
		if children := earlyChildren(pid); len(children) == 1 {
			pid = children[0]
		}
	}
	p.kill(CauseTerminated)
	exit(t, p)
}

func TestLimitGroup_ControllerIsPassedOnWhenItIsMissing(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "execwire-1")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := limitGroup(dir, 100); err == nil {
		t.Error("a tree without controllers is no error")
	}
	control := write(t, filepath.Join(parent, "cgroup.subtree_control"), "", 0o644)
	if err := limitGroup(dir, 100); err == nil {
		t.Error("a limit that did not appear is no error")
	}
	if text, _ := os.ReadFile(control); string(text) != "+pids" {
		t.Errorf("the parent passes %q on, want +pids", text)
	}
	file := write(t, filepath.Join(dir, "pids.max"), "max", 0o644)
	if err := limitGroup(dir, 100); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(file); string(text) != "100" {
		t.Errorf("pids.max is %q, want 100", text)
	}
}
