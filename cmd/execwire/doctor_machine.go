package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// machine is what can be found out about a machine. The root is that of its file
// system; empty of a machine elsewhere.
type machine struct{ root string }

// nowhere is a machine that only its server knows.
var nowhere = machine{}

// setting reads a number of /proc/sys.
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

// userNamespaces are the settings by which systems keep ordinary users from making
// user namespaces, and what they are where they do not.
var userNamespaces = []struct {
	name      string
	bad, good int
}{
	{"user.max_user_namespaces", 0, 15000},
	{"kernel.unprivileged_userns_clone", 0, 1},
	{"kernel.apparmor_restrict_unprivileged_userns", 1, 0},
}

// mend says what to do about a sandbox that does not work, beside what the problem
// says itself.
func (m machine) mend(status *execwirev1.SandboxStatus) string {
	if status.GetBackend() != execwirev1.SandboxBackend_SANDBOX_BACKEND_BUBBLEWRAP || status.GetProgram() == "" {
		return ""
	}
	for _, s := range userNamespaces {
		if value, known := m.setting(s.name); known && value == s.bad {
			return fmt.Sprintf("this machine keeps user namespaces from programs: as root, sysctl %s=%d", s.name, s.good)
		}
	}
	if strings.Contains(status.GetProblem(), "switched off") {
		return "sandbox_backends = auto uses it"
	}
	return "bubblewrap needs user namespaces and a /proc that nothing covers; a container has to allow both, as Docker does with " +
		"--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"
}

// fewDescriptors and fewWatches are where it gets tight.
const (
	fewDescriptors = 4096
	fewWatches     = 8192
)

// descriptors checks how many files may be open.
func (m machine) descriptors() check {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return check{Check: checkDescriptors, Detail: err.Error()}
	}
	c := check{Check: checkDescriptors, Works: limit.Max >= fewDescriptors, Detail: fmt.Sprintf("%d at most", limit.Max)}
	if !c.Works {
		c.Fix = "raise it with ulimit -Hn, or LimitNOFILE= of the unit: a process takes 3 and a handle of a file 1"
	}
	return c
}

// watches checks what the kernel lets a user watch.
func (m machine) watches() check {
	const setting = "fs.inotify.max_user_watches"
	directories, known := m.setting(setting)
	instances, _ := m.setting("fs.inotify.max_user_instances")
	c := check{Check: checkWatches, Works: known && directories >= fewWatches && instances > 0,
		Detail: fmt.Sprintf("%d directories, by %d programs of a user", directories, instances)}
	if !c.Works {
		c.Fix = fmt.Sprintf("as root, sysctl %s=524288 fs.inotify.max_user_instances=128", setting)
	}
	return c
}
