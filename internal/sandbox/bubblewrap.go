package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// bubblewrap enforces a plan by the program bwrap.
type bubblewrap struct {
	program  string
	plan     *Plan
	mounts   []mount
	kind     filterKind
	starters *starterFiles
	network  *emptyNetwork
	reserved *placeholders
}

// mount is one place of the view that a program gets.
type mount struct {
	path   string
	access Access // AccessNone: it is hidden
	// kept tells that the program could put something else there: what does not exist, perhaps not any more, is made.
	kept bool
	// opened tells that something below it is granted, though it is hidden itself.
	opened bool
	is     identity // what was found there; zero if it is kept, because that may come and go, or not known
}

// own are the places that every program gets fresh.
var own = []string{"/proc", "/dev"}

// expressBubblewrap tells what of a plan bubblewrap cannot enforce, or makes its enforcer.
func expressBubblewrap(program string, plan *Plan, starters *starterFiles, network *emptyNetwork, reserved *placeholders) (*bubblewrap, error) {
	b := &bubblewrap{program: program, plan: plan, starters: starters, network: network, reserved: reserved}
	b.kind = filterKind{network: plan.network == NetworkRestricted, sealed: unix.Geteuid() == 0}
	steps := plan.steps()
	for i, s := range steps {
		if slices.ContainsFunc(own, func(dir string) bool { return within(s.path, dir) }) {
			if s.access < s.above {
				return nil, fmt.Errorf("it cannot keep a program from %s: /proc and /dev are its own there; remove the entry", s.path)
			}
			continue
		}
		m := mount{path: s.path, access: s.access, kept: s.access < s.above && s.above == AccessWrite}
		if m.access == AccessNone {
			m.opened = slices.ContainsFunc(steps[i+1:], func(below step) bool { return within(below.path, s.path) })
		}
		if !m.kept {
			m.is = s.is
		} else {
			b.pin(steps[:i], s.path)
		}
		b.mounts = append(b.mounts, m)
	}
	b.protectItself(steps)
	slices.SortFunc(b.mounts, func(a, b mount) int { return comparePaths(a.path, b.path) })
	return b, nil
}

// pin makes mounts of the directories between a place that is not writable and the writable place around it. Otherwise
// one of them could be renamed, and the next program would find nothing to deny where it was.
func (b *bubblewrap) pin(above []step, path string) {
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

// protectItself keeps the program bwrap, which the next start runs outside, from being replaced where it is in a writable
// place.
func (b *bubblewrap) protectItself(steps []step) {
	if b.plan.unrestricted || b.plan.Access(b.program) != AccessWrite {
		return
	}
	if i := slices.IndexFunc(b.mounts, func(m mount) bool { return m.path == b.program }); i >= 0 {
		b.mounts[i].access = AccessRead
		return
	}
	b.pin(steps, b.program)
	b.mounts = append(b.mounts, mount{path: b.program, access: AccessRead})
}

func (b *bubblewrap) report() Report {
	return Report{
		Backend: Bubblewrap, Network: b.plan.network, Files: !b.plan.unrestricted, HidesProcesses: true, ExitByCode: true,
	}
}

// sharedMemoryBytes bounds /dev/shm, which is fresh.
const sharedMemoryBytes = 256 << 20

func (b *bubblewrap) wrap(p Program, l *launch) (Program, error) {
	files, err := l.files(p, b.starters, b.kind)
	if err != nil {
		return Program{}, err
	}
	if err := l.listen(); err != nil {
		return Program{}, failed(NotStarted, "", "there are no descriptors for the sandbox", err)
	}
	// What bubblewrap has open, programs can open too, by /proc/1/fd: nothing of outside.
	files[0], files[1], files[2] = l.messagesEnd, l.messagesEnd, l.messagesEnd
	a := arguments{files: files, launch: l}
	// Bubblewrap's own process inside belongs to the same user, who may write into its memory: it needs the filter too.
	filter, err := b.starters.early(b.kind)
	if err != nil {
		return Program{}, failed(NotStarted, "", "there is no filter", err)
	}
	a.add("--seccomp", a.give(filter))
	a.add("--unshare-user", "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL")
	if b.kind.sealed {
		a.add("--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP") // for the starter, which drops them
	}
	if b.plan.network == NetworkRestricted {
		if l.network = b.network.file(); l.network < 0 {
			a.add("--unshare-net")
		}
	}
	if err := b.view(&a, p); err != nil {
		return Program{}, err
	}
	if b.kind.sealed && !b.plan.unrestricted && mayFreeze() {
		l.frozen = b.mounts
	}
	a.add("--chdir", p.Dir)
	fd, err := a.file()
	if err != nil {
		return Program{}, failed(NotStarted, "", "bubblewrap's arguments cannot be passed", err)
	}
	path := p.Path
	if p.Image > 0 {
		a.files = append(a.files, p.Image)
		path = "/proc/self/fd/" + strconv.Itoa(len(a.files)-1)
	}
	argv := []string{"bwrap", "--args", strconv.Itoa(fd), "--", "/proc/self/fd/" + strconv.Itoa(starterSelf), path}
	wrapped := Program{
		Path: b.program, Argv: append(argv, p.Argv...), Env: prefixed(p.Env), Dir: "/", Files: a.files, Terminal: -1, KeepMask: true,
	}
	if p.Terminal >= 0 {
		wrapped.Terminal = starterStreams + p.Terminal
	}
	return wrapped, nil
}

// view says what the program sees.
func (b *bubblewrap) view(a *arguments, p Program) error {
	var seal []string // what is read-only as soon as everything in it is in place
	if len(b.mounts) == 0 || b.mounts[0].path != "/" {
		seal = append(seal, "/")
	}
	mounts := b.mounts
	if len(mounts) > 0 && mounts[0].path == "/" {
		if err := b.mount(a, mounts[0]); err != nil {
			return err
		}
		mounts = mounts[1:]
	}
	a.add("--proc", "/proc", "--dev", "/dev", "--size", strconv.Itoa(sharedMemoryBytes), "--perms", "1777", "--tmpfs", "/dev/shm")
	if err := a.console(p); err != nil {
		return err
	}
	for _, m := range mounts {
		if err := b.mount(a, m); err != nil {
			return err
		}
		if m.access == AccessNone && m.opened {
			seal = append(seal, m.path)
		}
	}
	b.addLinks(a)
	seal = append(seal, "/dev")
	if p.SealProc || unix.Geteuid() == 0 {
		// To the kernel the root of the namespace is root: it may write system settings, /proc/sys/kernel/core_pattern
		// for one, and with them run a program outside.
		seal = append(seal, "/proc")
	}
	for _, path := range seal {
		a.add("--remount-ro", path)
	}
	return nil
}

// mount puts one place into the view.
func (b *bubblewrap) mount(a *arguments, m mount) error {
	if m.kept {
		there, err := b.reserved.hold(m.path, a.launch)
		if err != nil {
			return failed(NotStarted, m.path, "does not exist and cannot be kept from coming into being", err)
		}
		if !there {
			return nil
		}
	} else {
		b.reserved.share(m.path, a.launch)
	}
	place, err := openSame(m.path, m.is)
	if err != nil {
		return failed(NotStarted, m.path, "is not what it was when the policy was resolved", err)
	}
	switch m.access {
	case AccessRead:
		a.add("--ro-bind-fd", a.give(place), m.path)
	case AccessWrite:
		a.add("--bind-fd", a.give(place), m.path)
	default:
		directory, err := isDirectory(place)
		a.launch.give(place)
		switch {
		case err != nil:
			return failed(NotStarted, m.path, "cannot be looked at", err)
		case !directory:
			a.add("--perms", "0000", "--ro-bind-data", a.empty(), m.path)
		case m.opened:
			a.add("--perms", "0111", "--tmpfs", m.path)
		default:
			a.add("--perms", "0000", "--tmpfs", m.path, "--remount-ro", m.path)
		}
	}
	return nil
}

// addLinks makes the links on the way to what is granted, where the view has nothing of the real directories they are in.
func (b *bubblewrap) addLinks(a *arguments) {
	for _, l := range b.plan.links {
		if !slices.ContainsFunc(b.mounts, func(m mount) bool { return within(l.path, m.path) }) {
			a.add("--symlink", l.target, l.path)
		}
	}
}

// arguments are those of one bubblewrap, and the files it gets.
type arguments struct {
	list   []string
	files  []int
	launch *launch
}

func (a *arguments) add(arguments ...string) { a.list = append(a.list, arguments...) }

// give hands a descriptor to bubblewrap, and returns its number there.
func (a *arguments) give(fd int) string {
	a.launch.give(fd)
	a.files = append(a.files, fd)
	return strconv.Itoa(len(a.files) - 1)
}

// empty returns the number of an empty file. Bubblewrap closes each that it is given.
func (a *arguments) empty() string {
	a.files = append(a.files, a.launch.null)
	return strconv.Itoa(len(a.files) - 1)
}

// console makes the program's terminal /dev/console, under which programs find its name.
func (a *arguments) console(p Program) error {
	if p.Terminal < 0 {
		return nil
	}
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(p.Files[p.Terminal]))
	if err != nil {
		return failed(NotStarted, "", "the terminal has no name", err)
	}
	a.add("--dev-bind", name, "/dev/console")
	return nil
}

// file makes the file that bubblewrap reads its arguments from.
func (a *arguments) file() (int, error) {
	for _, argument := range a.list {
		if hasNUL(argument) {
			return 0, errors.New("one has a NUL byte")
		}
	}
	file, err := memoryFile("execwire-bwrap", unix.MFD_NOEXEC_SEAL, []byte(strings.Join(a.list, "\x00")+"\x00"))
	if err != nil {
		return 0, err
	}
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	_ = file.Close()
	if err != nil {
		return 0, err
	}
	number, err := strconv.Atoi(a.give(fd))
	return number, err
}
