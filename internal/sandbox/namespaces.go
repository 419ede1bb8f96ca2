package sandbox

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/sandbox/innerexec"
)

// sharedNamespaces are namespaces that sandboxed programs share, besides those that
// bubblewrap creates for each: an empty network namespace for programs with a
// restricted network, whose filter refuses all sockets anyway; and, if this process may
// not mount, a user namespace in which it may. Creating a network namespace for each
// program would take 0.4 to 2.2 ms. The zero value is ready to use.
type sharedNamespaces struct {
	mu      sync.Mutex
	made    bool     // guarded by mu, like the following
	users   *os.File // nil: not needed
	network *os.File // nil: failed to create one
}

// open returns descriptors of the namespaces, which are valid until close. users is -1
// if this process may mount. network is -1 if none can be created; then each program
// gets its own.
func (n *sharedNamespaces) open() (users, network int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.made {
		withUsers := !mayMount()
		if n.users, n.network, err = newNamespaces(withUsers); err != nil && withUsers {
			return -1, -1, err
		}
		n.made = true
	}
	descriptor := func(file *os.File) int {
		if file == nil {
			return -1
		}
		return int(file.Fd())
	}
	return descriptor(n.users), descriptor(n.network), nil
}

func (n *sharedNamespaces) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, file := range []*os.File{n.users, n.network} {
		if file != nil {
			_ = file.Close()
		}
	}
	n.users, n.network, n.made = nil, nil, false
}

// newNamespaces creates a network namespace and, if withUsers is set, a user namespace, in
// a temporary process.
func newNamespaces(withUsers bool) (users, network *os.File, err error) {
	input, inputEnd, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer input.Close()
	defer inputEnd.Close()
	flags := uintptr(unix.CLONE_NEWNET)
	if withUsers {
		flags |= unix.CLONE_NEWUSER
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"execwire-namespaces"}, &syscall.ProcAttr{
		Dir: "/", Env: []string{innerexec.EnvWait + "="}, Files: []uintptr{input.Fd()},
		Sys: &syscall.SysProcAttr{Setpgid: true, Cloneflags: flags},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("failed to create namespaces: %w", err)
	}
	defer killGroup(pid)
	dir := "/proc/" + strconv.Itoa(pid)
	if network, err = os.Open(dir + "/ns/net"); err != nil || !withUsers {
		return nil, network, err
	}
	if err = mapToSelf(dir); err == nil {
		users, err = os.Open(dir + "/ns/user")
	}
	if err != nil {
		_ = network.Close()
		return nil, nil, fmt.Errorf("failed to set up a user namespace: %w", err)
	}
	return users, network, nil
}

// mapToSelf maps the current user and group to themselves in the user namespace of the
// process with that /proc directory. The process must have executed its binary: until
// then the files of a server that is not dumpable belong to root. That is why
// syscall.SysProcAttr.UidMappings cannot be used.
func mapToSelf(dir string) error {
	for _, file := range []struct{ name, text string }{
		{"/uid_map", fmt.Sprintf("%[1]d %[1]d 1", unix.Geteuid())},
		{"/setgroups", "deny"},
		{"/gid_map", fmt.Sprintf("%[1]d %[1]d 1", unix.Getegid())},
	} {
		if err := os.WriteFile(dir+file.name, []byte(file.text), 0); err != nil {
			return err
		}
	}
	return nil
}
