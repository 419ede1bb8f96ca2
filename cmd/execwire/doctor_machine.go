package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/daemon"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/syslimit"
)

// machine reads properties of a machine. root is its file system; empty for another
// machine.
type machine struct{ root string }

// unknownMachine is a machine other than this one.
var unknownMachine = machine{}

// setting reads a number from /proc/sys.
func (m machine) setting(name string) (value int, known bool) {
	if m.root == "" {
		return 0, false
	}
	text, err := os.ReadFile(filepath.Join(m.root, "proc/sys", strings.ReplaceAll(name, ".", "/")))
	if err != nil {
		return 0, false
	}
	value, err = strconv.Atoi(strings.TrimSpace(string(text)))
	return value, err == nil
}

// userNamespaces are the sysctls that disable unprivileged user namespaces, with the
// values that do not.
var userNamespaces = []struct {
	name      string
	bad, good int
}{
	{"user.max_user_namespaces", 0, 15000},
	{"kernel.unprivileged_userns_clone", 0, 1},
	{"kernel.apparmor_restrict_unprivileged_userns", 1, 0},
}

// sandboxFix returns a fix for a sandbox backend, in addition to its problem.
func (m machine) sandboxFix(status *execwirev1.SandboxStatus) string {
	if status.GetBackend() != execwirev1.SandboxBackend_SANDBOX_BACKEND_BUBBLEWRAP || status.GetProgram() == "" {
		return ""
	}
	for _, s := range userNamespaces {
		if value, known := m.setting(s.name); known && value == s.bad {
			return fmt.Sprintf("user namespaces are disabled on this machine: as root, sysctl %s=%d", s.name, s.good)
		}
	}
	if strings.Contains(status.GetProblem(), "switched off") {
		return "sandbox_backends = auto uses it"
	}
	return "bubblewrap needs user namespaces and a /proc that nothing covers; a container has to allow both, as Docker does with " +
		"--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"
}

// fewDescriptors and fewWatches are the limits for warnings.
const (
	fewDescriptors = 4096
	fewWatches     = 8192
)

// descriptors checks the limit of open files.
func (m machine) descriptors() check {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return check{Check: checkDescriptors, Detail: err.Error()}
	}
	detail := fmt.Sprintf("%d at most", limit.Max)
	return newCheck(checkDescriptors, limit.Max >= fewDescriptors, detail, detail,
		"raise it with ulimit -Hn, or LimitNOFILE= of the unit: a process takes 3 and a handle of a file 1")
}

// watches checks the inotify limits.
func (m machine) watches() check {
	const setting = "fs.inotify.max_user_watches"
	directories, known := m.setting(setting)
	instances, _ := m.setting("fs.inotify.max_user_instances")
	detail := fmt.Sprintf("%d directories, by %d programs of a user", directories, instances)
	return newCheck(checkWatches, known && directories >= fewWatches && instances > 0, detail, detail,
		fmt.Sprintf("as root, sysctl %s=524288 fs.inotify.max_user_instances=128", setting))
}

// processLimit checks whether processes can use up all processes and threads of the
// server.
func processLimit(r daemon.ProcessReserve) check {
	good := ""
	switch {
	case r.Limit == 0:
		good = "only the machine limits the server's processes and threads; it creates threads in advance"
	case r.ControlGroup > 0:
		good = fmt.Sprintf("%d processes and threads, of which processes get %d by a control group", r.Limit, r.ControlGroup)
	case r.UserProcesses > 0:
		good = fmt.Sprintf("%d processes and threads, and RLIMIT_NPROC of processes is %d", r.Limit, r.UserProcesses)
	}
	return newCheck(checkProcessLimit, good != "", good,
		fmt.Sprintf("%d processes and threads, and processes can use all of them: only threads created in advance protect the server", r.Limit),
		"set reserved_processes, and give the server a cgroup v2 tree with the controller pids that it may write to, as systemd does with Delegate=yes, or run it as an ordinary user with a limit (ulimit -u)")
}

// lowMemory is the limit for a warning.
const lowMemory = 256 << 20

// memory checks the memory limit.
func (m machine) memory(cfg config.Config) check {
	most, source := syslimit.System{Root: m.root}.Memory()
	if most == 0 {
		return check{Check: checkMemoryLimit, Detail: "the memory of this machine is unknown, so nothing is derived from it",
			Fix: "mount /proc, and set GOMEMLIMIT and retained_output_bytes_total"}
	}
	kept := "a quarter of it, 2GiB at most, for output of processes"
	if cfg.RetainedTotal != 0 {
		kept = fmt.Sprintf("%v for output of processes (retained_output_bytes_total)", cfg.RetainedTotal)
	}
	detail := fmt.Sprintf("%d MiB by %s; a half for the server, %s", most>>20, source, kept)
	return newCheck(checkMemoryLimit, most >= lowMemory, detail, detail,
		"few processes can run at once: give the control group 256 MiB or more, or lower retained_output_bytes_per_process")
}

// oomScore checks which process the kernel kills when memory is exhausted.
func oomScore(cfg config.Config) check {
	return newCheck(checkOOMScore, cfg.OOMScoreAdjust > 0, fmt.Sprintf("processes have %d more than the server, up to 1000", cfg.OOMScoreAdjust),
		"the kernel may kill the server instead of the process that uses the memory", "set oom_score_adjust, to 1000 perhaps")
}
