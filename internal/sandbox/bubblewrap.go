package sandbox

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/sandbox/innerexec"
	"github.com/execwire/execwire/internal/sandbox/openfiles"
)

// bubblewrap enforces a plan with the program bwrap.
type bubblewrap struct {
	program string
	plan    *Plan
	mounts  []mount
	kind    filterKind
	// readOnlyDevices is set for root, who could change the mode and the owner of the
	// machine's devices, also in a user namespace.
	readOnlyDevices bool
	self            *selfFile
	namespaces      *sharedNamespaces
	placeholders    *placeholders
}

// mount is a path of the plan with its mount in the sandbox.
type mount struct {
	path   string
	access Access // AccessNone hides it
	// replaceable is set if the program could replace the file at the path, or create
	// it. If it does not exist, a placeholder is created.
	replaceable bool
	// grantedBelow is set if the path is hidden, but a path below it is not.
	grantedBelow bool
	id           fileID // zero if it is replaceable, so that it may change, or unknown
}

// virtualDirs are the file systems of which every sandbox has its own.
var virtualDirs = []string{"/proc", "/dev"}

// resolveMounts determines the mounts for the plan, or returns why bubblewrap cannot
// enforce it.
func (b *bubblewrap) resolveMounts() error {
	b.kind = filterKind{network: b.plan.network == NetworkRestricted}
	b.readOnlyDevices = unix.Geteuid() == 0
	plan, err := b.plan.WithProgram() // it is executed inside
	if err != nil {
		return err
	}
	b.plan = plan
	changes := plan.accessChanges()
	for i, s := range changes {
		if slices.ContainsFunc(virtualDirs, func(dir string) bool { return within(s.path, dir) }) {
			if s.access < s.parentAccess {
				return fmt.Errorf("it cannot deny %s: a program has its own /proc and /dev; remove the entry", s.path)
			}
			continue
		}
		m := mount{path: s.path, access: s.access, replaceable: s.access < s.parentAccess && s.parentAccess == AccessWrite}
		if m.access == AccessNone {
			m.grantedBelow = slices.ContainsFunc(changes[i+1:], func(below accessChange) bool { return within(below.path, s.path) })
		}
		if !m.replaceable {
			m.id = s.id
		} else {
			b.mountParents(changes[:i], s.path)
		}
		b.mounts = append(b.mounts, m)
	}
	b.protectBwrap(changes)
	slices.SortFunc(b.mounts, func(a, b mount) int { return comparePaths(a.path, b.path) })
	return nil
}

// mountParents adds mounts for the directories between a path that is not writable and
// the writable directory above it. Otherwise the program could rename them, so that the
// next program would not find the path that it is denied.
func (b *bubblewrap) mountParents(above []accessChange, path string) {
	root := "/"
	for _, s := range above {
		if within(path, s.path) {
			root = s.path
		}
	}
	for dir := filepath.Dir(path); dir != root && dir != "/"; dir = filepath.Dir(dir) {
		if !slices.ContainsFunc(b.mounts, func(m mount) bool { return m.path == dir }) {
			b.mounts = append(b.mounts, mount{path: dir, access: AccessWrite})
		}
	}
}

// protectBwrap makes bwrap, which runs outside of the sandbox, read-only if it is in a
// writable directory.
func (b *bubblewrap) protectBwrap(changes []accessChange) {
	if b.plan.unrestricted || b.plan.Access(b.program) != AccessWrite {
		return
	}
	if i := slices.IndexFunc(b.mounts, func(m mount) bool { return m.path == b.program }); i >= 0 {
		b.mounts[i].access = AccessRead
		return
	}
	b.mountParents(changes, b.program)
	b.mounts = append(b.mounts, mount{path: b.program, access: AccessRead})
}

func (b *bubblewrap) report() Report {
	return Report{
		Backend: Bubblewrap, Network: b.plan.network, Files: !b.plan.unrestricted, HidesProcesses: true, ExitByCode: true,
	}
}

func (b *bubblewrap) wrap(p Program, l *launch) (Program, error) {
	if err := l.open(); err != nil {
		return Program{}, failed(NotStarted, "", "the pipes of the sandbox cannot be created", err)
	}
	// Programs can open the descriptors of bwrap through /proc/1/fd, so these must not
	// give access to anything outside.
	a := arguments{files: []int{l.messagesEnd, l.messagesEnd, l.messagesEnd}, launch: l}
	a.files = append(a.files, p.Files...) // at innerexec.StreamsFD
	a.files = append(a.files, l.statusEnd, l.statusEnd)
	// bwrap has a process in the sandbox, whose memory the program can write: it must
	// have the filter, too.
	filter, err := memoryFile("execwire-filter", unix.MFD_NOEXEC_SEAL, b.kind.program())
	if err != nil {
		return Program{}, failed(NotStarted, "", "the filter cannot be created", err)
	}
	a.add("--seccomp", a.passFD(filter))
	a.add("--unshare-user", "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL")
	if b.readOnlyDevices && (p.User == nil || p.User.UID == 0) {
		a.add("--cap-add", "CAP_SETPCAP") // package innerexec needs it, and drops it
	}
	users, network, err := b.namespaces.open()
	if err != nil {
		return Program{}, failed(NotStarted, "", "the shared namespaces cannot be created", err)
	}
	if b.plan.network != NetworkRestricted {
		network = -1
	} else if network < 0 {
		a.add("--unshare-net")
	}
	v, err := b.newView(&a, p)
	if err != nil {
		return Program{}, err
	}
	a.add("--chdir", p.Dir)
	fd, err := a.file()
	if err != nil {
		return Program{}, failed(NotStarted, "", "bubblewrap's arguments cannot be passed", err)
	}
	path := p.Path
	if p.Image > 0 {
		a.files = append(a.files, p.Image)
		path = ownDescriptor(len(a.files) - 1)
	}
	// Signals that the program handles must not kill bwrap. The calls of the child open
	// files besides those of this process, which may be more than the program may open.
	wrapped := Program{
		Path: b.program, Argv: append([]string{"bwrap", "--args", strconv.Itoa(fd), "--", ownDescriptor(innerexec.SelfFD), path}, p.Argv...),
		Env: innerEnvironment(p), Dir: "/", Terminal: -1, Limits: raisedLimits(p.Limits), Nice: p.Nice, OOMScore: p.OOMScore,
		ResetSignals: p.ResetSignals, setUpInside: true, calls: &v.childCalls,
	}
	if p.Terminal >= 0 {
		wrapped.Terminal = innerexec.StreamsFD + p.Terminal
	}
	return wrapped, b.addChildCalls(v, &a, p, &wrapped, users, network)
}

// innerEnvironment returns the environment of bwrap and of package innerexec. It
// contains the program's environment, with a number and a dot before each entry. So
// these have no effect on bwrap, which runs outside (think of LD_PRELOAD), and
// duplicates are preserved.
func innerEnvironment(p Program) []string {
	all := slices.Clone(p.Limits)
	if !slices.ContainsFunc(all, func(l Limit) bool { return l.Resource == unix.RLIMIT_NOFILE }) {
		limit, _ := openfiles.Children()
		all = append(all, Limit{Resource: unix.RLIMIT_NOFILE, Soft: limit.Soft, Hard: limit.Hard})
	}
	limits := make([]string, len(all))
	for i, limit := range all {
		limits[i] = fmt.Sprintf("%d:%d:%d", limit.Resource, limit.Soft, limit.Hard)
	}
	entries := make([]string, 0, len(p.Env)+3)
	entries = append(entries, innerexec.EnvExec+"="+strings.Join(limits, ","), "GOMAXPROCS=1", "GOGC=off")
	for i, entry := range p.Env {
		entries = append(entries, strconv.Itoa(i)+"."+entry)
	}
	return entries
}

// raisedLimits returns the limits of bwrap. Those of the program are set inside, because
// they do not apply to the setup of the sandbox. Only hard limits above those of this
// process have to be raised outside, because that needs privileges.
func raisedLimits(limits []Limit) (raised []Limit) {
	for _, limit := range limits {
		var own unix.Rlimit
		if err := unix.Prlimit(0, limit.Resource, nil, &own); err == nil && limit.Hard > own.Max {
			raised = append(raised, Limit{Resource: limit.Resource, Soft: own.Cur, Hard: limit.Hard})
		}
	}
	return raised
}

// addChildCalls adds the calls that the child makes before it executes bwrap, and the
// descriptors that they use, after those of bwrap.
func (b *bubblewrap) addChildCalls(v *view, a *arguments, p Program, wrapped *Program, users, network int) error {
	terminal, err := terminalName(p)
	if err != nil {
		return err
	}
	if b.readOnlyDevices {
		if v.null, err = nullStreams(p.Files); err != nil {
			return err
		}
	}
	own := len(a.files)
	if path, is := b.self.path(); path != "" {
		v.executables = append(v.executables, executable{path: path, id: is, fd: innerexec.SelfFD})
	} else if a.files[innerexec.SelfFD], err = b.self.descriptor(); err != nil {
		return failed(NotStarted, "", "this program's own file cannot be copied", err)
	}
	if b.plan.Access(b.program) < AccessRead {
		v.executables = append(v.executables, executable{path: b.program, fd: len(a.files), flags: unix.O_CLOEXEC})
		wrapped.Path = ownDescriptor(len(a.files))
		a.files = append(a.files, a.launch.statusEnd) // a placeholder that the calls replace
	}
	enter := func(namespace, kind int, doing string) {
		v.describe("", doing)
		v.call(unix.SYS_SETNS, literal(len(a.files)), literal(kind))
		a.files = append(a.files, namespace)
	}
	if users >= 0 {
		enter(users, unix.CLONE_NEWUSER, "the user namespace cannot be entered")
	}
	if network >= 0 {
		enter(network, unix.CLONE_NEWNET, "the network namespace cannot be entered")
	}
	v.build(terminal, b.readOnlyDevices)
	v.describe("", "descriptors cannot be closed")
	v.call(unix.SYS_CLOSE_RANGE, literal(own), literal(math.MaxInt32), literal(unix.CLOSE_RANGE_CLOEXEC))
	if p.User != nil {
		v.becomeUser(*p.User, "/")
	}
	v.execFailed = func(errno syscall.Errno) error {
		if errno == unix.E2BIG {
			return errno // the arguments and environment of the program are part of bwrap's
		}
		return failed(NotStarted, "", "bubblewrap cannot be executed", errno)
	}
	wrapped.Files = a.files
	return nil
}

// nullStreams returns the descriptors of package innerexec for streams that are
// /dev/null.
func nullStreams(files []int) (streams []int, err error) {
	for i, fd := range files {
		var stat unix.Stat_t
		if err := unix.Fstat(fd, &stat); err != nil {
			return nil, failed(NotStarted, "", "a stream cannot be examined", err)
		}
		if stat.Mode&unix.S_IFMT == unix.S_IFCHR && stat.Rdev == unix.Mkdev(1, 3) {
			streams = append(streams, innerexec.StreamsFD+i)
		}
	}
	return streams, nil
}

// newView opens the mounts of the plan and adds the arguments with which bwrap uses
// them.
func (b *bubblewrap) newView(a *arguments, p Program) (*view, error) {
	v := &view{}
	root := len(b.mounts) > 0 && b.mounts[0].path == "/"
	if root {
		a.add("--dev-bind", "/", "/", "--proc", "/proc")
	} else {
		a.add("--proc", "/proc", "--dev-bind", "/dev", "/dev")
	}
	var parent *viewMount
	for _, planned := range b.mounts {
		for parent != nil && !within(planned.path, parent.path) {
			parent = parent.parent
		}
		m := &viewMount{mount: planned, parent: parent}
		exists, err := b.openMount(m, a)
		if err != nil {
			return nil, err
		}
		if exists {
			v.mounts, parent = append(v.mounts, m), m
		}
	}
	b.addLinks(a)
	if !root {
		a.add("--remount-ro", "/")
	}
	if p.SealProc || unix.Geteuid() == 0 {
		// The kernel treats the root of the namespace as root: it could write system
		// settings such as /proc/sys/kernel/core_pattern, which lets it execute a
		// program outside.
		a.add("--remount-ro", "/proc")
	}
	return v, nil
}

// openMount examines the path of a mount, and returns false if there is nothing to
// mount on. If the mount is not inside another one, it adds an argument for bwrap.
func (b *bubblewrap) openMount(m *viewMount, a *arguments) (bool, error) {
	if m.replaceable {
		exists, err := b.placeholders.acquire(m.path, a.launch)
		if err != nil {
			return false, failed(NotStarted, m.path, "does not exist, and a placeholder cannot be created", err)
		}
		if !exists {
			return false, nil
		}
	} else {
		b.placeholders.acquireExisting(m.path, a.launch)
	}
	file, err := openUnchanged(m.path, m.id)
	if err != nil {
		return false, failed(NotStarted, m.path, pathChanged, err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(file, &stat); err != nil {
		_ = unix.Close(file)
		return false, failed(NotStarted, m.path, "cannot be examined", err)
	}
	m.id, m.directory = fileIDOf(&stat), stat.Mode&unix.S_IFMT == unix.S_IFDIR
	if m.parent == nil && m.path != "/" {
		a.add("--bind-fd", a.passFD(file), m.path)
	} else {
		_ = unix.Close(file)
	}
	return true, nil
}

// addLinks adds symbolic links that lead to granted paths, in directories that are not
// mounted.
func (b *bubblewrap) addLinks(a *arguments) {
	for _, l := range b.plan.links {
		if !slices.ContainsFunc(b.mounts, func(m mount) bool { return within(l.path, m.path) }) {
			a.add("--symlink", l.target, l.path)
		}
	}
}

// arguments are the arguments of bwrap and its descriptors.
type arguments struct {
	list   []string
	files  []int
	launch *launch
}

func (a *arguments) add(arguments ...string) { a.list = append(a.list, arguments...) }

// passFD adds a descriptor and returns its number in bwrap.
func (a *arguments) passFD(fd int) string {
	a.launch.closeAfterFork(fd)
	a.files = append(a.files, fd)
	return strconv.Itoa(len(a.files) - 1)
}

// terminalName returns the path of the program's terminal outside, or "" if it has
// none. Inside it is /dev/console.
func terminalName(p Program) (string, error) {
	if p.Terminal < 0 {
		return "", nil
	}
	name, err := os.Readlink(ownDescriptor(p.Files[p.Terminal]))
	if err != nil {
		return "", failed(NotStarted, "", "the terminal has no name", err)
	}
	return name, nil
}

// file writes the arguments to a memory file, and returns its descriptor in bwrap.
func (a *arguments) file() (int, error) {
	for _, argument := range a.list {
		if hasNUL(argument) {
			return 0, errors.New("one has a NUL byte")
		}
	}
	fd, err := memoryFile("execwire-bwrap", unix.MFD_NOEXEC_SEAL, []byte(strings.Join(a.list, "\x00")+"\x00"))
	if err != nil {
		return 0, err
	}
	number, err := strconv.Atoi(a.passFD(fd))
	return number, err
}
