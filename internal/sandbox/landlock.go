package sandbox

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What Landlock can restrict of files, up to the ABI that is needed.
const (
	landlockRead  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	landlockWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	// landlockFile is what can be granted of something that is no directory.
	landlockFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	landlockDevice = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	landlockTCP    = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	landlockScopes = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
)

// landlockABI is the version of Landlock that is needed: it fences signals and abstract sockets.
const landlockABI = 6

// landlockDevices are open to every program, as far as they exist.
var landlockDevices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// landlockListed can be listed where a policy grants them, and no more: bubblewrap has a /dev of its own. What a policy
// names below them is granted.
var landlockListed = []string{"/dev", "/dev/pts"}

// checkLandlock tells why Landlock cannot be used at all.
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

// expressLandlock tells what of a plan Landlock cannot enforce, or makes its enforcer.
func expressLandlock(plan *Plan, starters *starterFiles) (*landlock, error) {
	for _, s := range plan.steps() {
		switch {
		case s.missing:
			return nil, fmt.Errorf("it cannot keep %s from coming into being", s.path)
		case s.access < s.above:
			return nil, fmt.Errorf("it cannot grant %v at %s and only %v at what is below, %s", s.above, parent(plan, s), s.access, s.path)
		}
	}
	kind := filterKind{network: plan.network == NetworkRestricted, metadata: !plan.unrestricted, outside: true, landlock: true}
	return &landlock{plan: plan, kind: kind, starters: starters}, nil
}

// parent is the place that gives a step the access around it.
func parent(plan *Plan, of step) string {
	at := "/"
	for _, s := range plan.steps() {
		if s.path != of.path && within(of.path, s.path) {
			at = s.path
		}
	}
	return at
}

// within tells whether a path is a directory or below it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || len(path) > len(dir) && path[:len(dir)] == dir && path[len(dir)] == '/'
}

// landlock enforces a plan by Landlock.
type landlock struct {
	plan     *Plan
	kind     filterKind
	starters *starterFiles
}

func (e *landlock) report() Report {
	return Report{
		Backend: Landlock, Network: e.plan.network, Files: !e.plan.unrestricted, FreezesMetadata: e.kind.metadata,
	}
}

func (e *landlock) wrap(p Program, l *launch) (Program, error) {
	files, err := l.files(p, e.starters, e.kind)
	if err != nil {
		return Program{}, err
	}
	rules, err := e.ruleset(p)
	if err != nil {
		return Program{}, err
	}
	l.give(rules)
	files[starterRules] = rules
	path := p.Path
	if p.Image > 0 {
		files = append(files, p.Image)
		path = "/proc/self/fd/" + strconv.Itoa(len(files)-1)
	}
	wrapped := Program{
		Path: "/proc/self/fd/" + strconv.Itoa(starterSelf), Argv: append([]string{"execwire-starter", path}, p.Argv...),
		Env: prefixed(p.Env), Dir: p.Dir, Files: files, Terminal: -1,
	}
	if p.Terminal >= 0 {
		wrapped.Terminal = starterStreams + p.Terminal
	}
	return wrapped, nil
}

// ruleset makes the rules for one program.
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
	for _, s := range e.plan.steps() {
		rights := uint64(landlockRead)
		if s.access == AccessWrite {
			rights |= landlockWrite
		}
		place, err := openSame(s.path, s.is)
		if err != nil {
			return failed(NotStarted, s.path, "is not what it was when the policy was resolved", err)
		}
		switch {
		case s.path == "/" && s.access == AccessRead:
			err = grantRoot(rules, place, rights)
		case slices.Contains(landlockListed, s.path):
			err = addRule(rules, place, unix.LANDLOCK_ACCESS_FS_READ_DIR)
		default:
			err = addRule(rules, place, rights)
		}
		_ = unix.Close(place)
		if err != nil {
			return failed(NotStarted, s.path, "cannot be granted", err)
		}
	}
	if err := e.grantDevices(rules); err != nil {
		return err
	}
	return e.grantProcess(rules, p)
}

// grantDevices grants what is open to every program, and what the plan names in /dev and reads no less of around it.
func (e *landlock) grantDevices(rules int) error {
	for _, r := range e.plan.sorted() {
		if !within(r.path, "/dev") || slices.Contains(landlockListed, r.path) || r.access != AccessRead || r.isMissing() {
			continue
		}
		place, err := openSame(r.path, r.is)
		if err == nil {
			err = addRule(rules, place, landlockRead)
			_ = unix.Close(place)
		}
		if err != nil {
			return failed(NotStarted, r.path, "cannot be granted", err)
		}
	}
	for _, device := range landlockDevices {
		place, err := openPlace(device)
		if err != nil {
			continue // it does not exist here
		}
		err = addRule(rules, place, landlockDevice)
		_ = unix.Close(place)
		if err != nil {
			return failed(NotStarted, device, "cannot be granted", err)
		}
	}
	return nil
}

// grantRoot grants rights at everything in the open root directory but /dev, which can only be listed: what is below the
// root would include the terminals of others. What comes into being there later is not granted.
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
			continue // a link grants nothing, and what it points to has a rule
		}
		place, err := unix.Openat(root, entry.Name(), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			err = addRule(rules, place, rights)
			_ = unix.Close(place)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("%s: %w", entry.Name(), err)
		}
	}
	return nil
}

// grantProcess grants what every program has in bubblewrap too: /proc, the terminal that it was given, and its own file.
func (e *landlock) grantProcess(rules int, p Program) error {
	places := map[string]uint64{"/proc": landlockRead}
	if p.Terminal >= 0 {
		places["/proc/self/fd/"+strconv.Itoa(p.Files[p.Terminal])] = landlockDevice
	}
	if p.Image > 0 {
		places["/proc/self/fd/"+strconv.Itoa(p.Image)] = landlockRead
	}
	for path, rights := range places {
		place, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err == nil {
			err = addRule(rules, place, rights)
			_ = unix.Close(place)
		}
		if err != nil {
			return failed(NotStarted, path, "cannot be granted", err)
		}
	}
	return nil
}

// addRule grants rights at an open place, as far as they apply to it.
func addRule(rules, place int, rights uint64) error {
	directory, err := isDirectory(place)
	if err != nil {
		return err
	}
	if !directory {
		rights &= landlockFile
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(place)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
