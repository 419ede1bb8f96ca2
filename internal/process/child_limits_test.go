package process

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/sandbox"
)

// printLimits prints oom_score_adj and RLIMIT_NPROC.
const printLimits = `cat /proc/self/oom_score_adj; ulimit -u; ulimit -H -u`

// startWithChildLimits returns the output of a process that is started with child limits.
func startWithChildLimits(t *testing.T, spec Spec) string {
	t.Helper()
	p, err := newSupervisor(t, Config{OOMScoreAdjust: 300, UserProcesses: 12345}).Start(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	return readLog(t, p).all().stdout
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
	bash := Spec{Argv: []string{"/bin/bash", "-c", printLimits}, Cwd: "/", Env: []string{"PATH=/bin:/usr/bin"}}
	if got := startWithChildLimits(t, bash); got != want {
		t.Errorf("a process has %q, want %q", got, want)
	}
	limited := bash
	limited.ResourceLimits = []Limit{{Resource: ResourceUserProcesses, Soft: 20000, Hard: 20000}, {Resource: ResourceOpenFiles, Soft: 64, Hard: 64}}
	if got := startWithChildLimits(t, limited); got != want {
		t.Errorf("a process that asks for more has %q, want %q", got, want)
	}
	limited.ResourceLimits[0] = Limit{Resource: ResourceUserProcesses, Soft: 7000, Hard: 8000}
	if got, want := startWithChildLimits(t, limited), strings.ReplaceAll(want, "12345\n12345", "7000\n8000"); got != want {
		t.Errorf("a process that asks for less has %q, want %q", got, want)
	}
	// The processes of another user leave this user's to this program.
	own, err = exec.Command("/bin/bash", "-c", "ulimit -u; ulimit -H -u").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := startWithChildLimits(t, ofNobody(bash)), strings.ReplaceAll(want, "12345\n12345\n", string(own)); got != want {
		t.Errorf("a process of another user has %q, want %q", got, want)
	}
	eachBackend(t, func(t *testing.T, confine func(sandbox.Policy) *sandbox.Confinement) {
		if got := startWithChildLimits(t, confined(bash, confine(readOnly))); got != want {
			t.Errorf("a confined process has %q, want %q", got, want)
		}
	})
}
