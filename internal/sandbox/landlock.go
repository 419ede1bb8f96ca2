package sandbox

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Access rights of files, up to landlockABI.
const (
	landlockRead  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	landlockWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	// landlockFile are the rights that apply to files other than directories.
	landlockFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	landlockDevice = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	landlockTCP    = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	landlockScopes = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
)

// landlockABI is the required version of Landlock. It is the first that restricts
// signals and abstract sockets.
const landlockABI = 6

// landlockDevices are accessible to every program, if they exist.
var landlockDevices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// landlockListed are directories that can only be listed, even if a policy grants more:
// bubblewrap has its own /dev. Files below them can be granted by name.
var landlockListed = []string{"/dev", "/dev/pts"}

// checkLandlock returns why Landlock cannot be used, or nil.
func checkLandlock() error {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch {
	case errno == unix.EOPNOTSUPP:
		return errors.New("the kernel has Landlock, but not enabled: add landlock to its lsm= parameter")
	case errno != 0:
		return fmt.Errorf("the kernel has no Landlock: Linux 6.12 or later is needed: %w", errno)
	case abi < landlockABI:
		return fmt.Errorf("the kernel's Landlock is version %d: %d (Linux 6.12) or later is needed, which fences signals", abi, landlockABI)
	}
	return nil
}

// newLandlock returns an enforcer of the plan, or why Landlock cannot enforce it.
func newLandlock(plan *Plan) (*landlock, error) {
	for _, s := range plan.accessChanges() {
		switch {
		case s.missing:
			return nil, fmt.Errorf("it cannot prevent the creation of %s", s.path)
		case s.access < s.parentAccess:
			return nil, fmt.Errorf("it cannot grant only %v at %s, in a directory with %v", s.access, s.path, s.parentAccess)
		}
	}
	kind := filterKind{network: plan.network == NetworkRestricted, metadata: !plan.unrestricted, outside: true}
	return &landlock{plan: plan, kind: kind}, nil
}

// within reports whether a path is dir or below it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || len(path) > len(dir) && path[:len(dir)] == dir && path[len(dir)] == '/'
}

// landlock enforces a plan with Landlock.
type landlock struct {
	plan *Plan
	kind filterKind
}

func (e *landlock) report() Report {
	return Report{
		Backend: Landlock, Network: e.plan.network, Files: !e.plan.unrestricted, FreezesMetadata: e.kind.metadata,
	}
}

func (e *landlock) wrap(p Program, l *launch) (Program, error) {
	rules, err := e.ruleset(p)
	if err != nil {
		return Program{}, err
	}
	l.closeAfterFork(rules)
	wrapped, path := p, p.Path
	wrapped.Files = append(slices.Clone(p.Files), rules)
	if p.Image > 0 {
		wrapped.Files = append(wrapped.Files, p.Image)
		wrapped.Path = ownDescriptor(len(wrapped.Files) - 1)
	}
	wrapped.calls = &childCalls{execFailed: func(errno syscall.Errno) error {
		return &Error{Kind: NotExecuted, Path: path, Errno: errno, Err: fmt.Errorf("cannot be executed inside the sandbox: %w", errno)}
	}}
	wrapped.calls.restrictSelf(len(p.Files), e.kind.program())
	return wrapped, nil
}

// restrictSelf adds calls that enforce an open ruleset and a filter. The filter is
// last, because it refuses some of the other calls. Nobody needs the bounding set to be empty: with
// no_new_privs, which cannot be unset, execve adds nothing to the empty sets, for root neither.
func (p *childCalls) restrictSelf(rules int, filter []byte) {
	p.describe("", "descriptors cannot be closed")
	p.call(unix.SYS_CLOSE_RANGE, literal(rules), literal(math.MaxInt32), literal(unix.CLOSE_RANGE_CLOEXEC))
	p.describe("", "privileges cannot be given up")
	p.call(unix.SYS_PRCTL, literal(unix.PR_SET_NO_NEW_PRIVS), literal(1))
	p.call(unix.SYS_PRCTL, literal(unix.PR_CAP_AMBIENT), literal(unix.PR_CAP_AMBIENT_CLEAR_ALL))
	p.call(unix.SYS_CAPSET, p.words(unix.LINUX_CAPABILITY_VERSION_3), p.words(0, 0, 0)) // of this process; empty sets
	p.describe("", "Landlock's rules cannot be enforced")
	p.call(unix.SYS_LANDLOCK_RESTRICT_SELF, literal(rules))
	p.describe("", "the filter cannot be loaded")
	code := p.point(filter)
	p.call(unix.SYS_SECCOMP, literal(unix.SECCOMP_SET_MODE_FILTER), literal(0), p.words(uint64(len(filter)/unix.SizeofSockFilter), uint64(code.value)))
}

// ruleset creates the ruleset of one program.
func (e *landlock) ruleset(p Program) (int, error) {
	attr := unix.LandlockRulesetAttr{Scoped: landlockScopes}
	if !e.plan.unrestricted {
		attr.Handled_access_fs = landlockRead | landlockWrite
	}
	if e.plan.network == NetworkRestricted {
		attr.Handled_access_net = landlockTCP
	}
	size := unsafe.Offsetof(attr.Scoped) + unsafe.Sizeof(attr.Scoped)
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return -1, failed(NotStarted, "", "Landlock's rules cannot be made", errno)
	}
	rules := int(fd)
	if e.plan.unrestricted {
		return rules, nil
	}
	if err := e.fill(rules, p); err != nil {
		_ = unix.Close(rules)
		return -1, err
	}
	return rules, nil
}

func (e *landlock) fill(rules int, p Program) error {
	for _, s := range e.plan.accessChanges() {
		rights := uint64(landlockRead)
		if s.access == AccessWrite {
			rights |= landlockWrite
		}
		file, err := openUnchanged(s.path, s.id)
		if err != nil {
			return failed(NotStarted, s.path, pathChanged, err)
		}
		switch {
		case s.path == "/" && s.access == AccessRead:
			err = grantRoot(rules, file, rights)
			_ = unix.Close(file)
		case slices.Contains(landlockListed, s.path):
			err = grant(rules, unix.LANDLOCK_ACCESS_FS_READ_DIR, file, nil)
		default:
			err = grant(rules, rights, file, nil)
		}
		if err != nil {
			return failed(NotStarted, s.path, "cannot be granted", err)
		}
	}
	if err := e.grantDevices(rules); err != nil {
		return err
	}
	return e.grantProcess(rules, p)
}

// grant grants rights to a file that was opened with the given error, and closes it.
func grant(rules int, rights uint64, file int, err error) error {
	if err != nil {
		return err
	}
	defer unix.Close(file)
	return addRule(rules, file, rights)
}

// grantDevices grants landlockDevices, and devices that the plan names.
func (e *landlock) grantDevices(rules int) error {
	for _, r := range e.plan.sorted() {
		if !within(r.path, "/dev") || slices.Contains(landlockListed, r.path) || r.access != AccessRead || r.isMissing() {
			continue
		}
		file, err := openUnchanged(r.path, r.id)
		if err := grant(rules, landlockRead, file, err); err != nil {
			return failed(NotStarted, r.path, "cannot be granted", err)
		}
	}
	for _, device := range landlockDevices {
		file, err := openNoSymlinks(device)
		if err != nil {
			continue // it does not exist
		}
		if err := grant(rules, landlockDevice, file, nil); err != nil {
			return failed(NotStarted, device, "cannot be granted", err)
		}
	}
	return nil
}

// grantRoot grants rights to everything in the open root directory but /dev, which
// would include the terminals of others. Files that are created in the root directory
// later are not granted.
func grantRoot(rules, root int, rights uint64) error {
	if err := addRule(rules, root, unix.LANDLOCK_ACCESS_FS_READ_DIR); err != nil {
		return err
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() == "dev" || entry.Type() == os.ModeSymlink {
			continue // links need no rule
		}
		file, err := unix.Openat(root, entry.Name(), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err := grant(rules, rights, file, err); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("%s: %w", entry.Name(), err)
		}
	}
	return nil
}

// grantProcess grants what programs also have in bubblewrap: /proc, their terminal, and
// their executable.
func (e *landlock) grantProcess(rules int, p Program) error {
	granted := map[string]uint64{"/proc": landlockRead}
	if p.Terminal >= 0 {
		granted[ownDescriptor(p.Files[p.Terminal])] = landlockDevice
	}
	if p.Image > 0 {
		granted[ownDescriptor(p.Image)] = landlockRead
	}
	for path, rights := range granted {
		file, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err := grant(rules, rights, file, err); err != nil {
			return failed(NotStarted, path, "cannot be granted", err)
		}
	}
	return nil
}

// addRule grants the rights that apply to an open file: some do only to directories.
func addRule(rules, file int, rights uint64) error {
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(file)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	switch {
	case errno == unix.EINVAL && rights&^landlockFile != 0:
		return addRule(rules, file, rights&landlockFile)
	case errno != 0:
		return errno
	}
	return nil
}
