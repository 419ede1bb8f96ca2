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

	"golang.org/x/sys/unix"
)

// bubblewrap enforces a plan by the program bwrap.
type bubblewrap struct {
	program  string
	plan     *Plan
	mounts   []mount
	kind     filterKind
	starters *starterFiles
	shared   *sharedNamespaces
	reserved *placeholders
	preparer *preparerFile
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
func expressBubblewrap(program string, plan *Plan, starters *starterFiles, shared *sharedNamespaces, reserved *placeholders, preparer *preparerFile) (*bubblewrap, error) {
	b := &bubblewrap{program: program, plan: plan, starters: starters, shared: shared, reserved: reserved, preparer: preparer}
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
		a.add("--cap-add", "CAP_SETPCAP") // for the starter, which drops it
	}
	users, network := b.shared.files(b.preparer)
	if b.plan.network != NetworkRestricted {
		network = -1
	} else if network < 0 {
		a.add("--unshare-net")
	}
	v, err := b.view(&a, p)
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
	terminal, err := terminalName(p)
	if err != nil {
		return Program{}, err
	}
	preparer, err := b.prepare(v, &a, users, network, terminal)
	if err != nil {
		return Program{}, err
	}
	program := b.program
	if v.program != "" {
		program = preparer // whose descriptor it gets
	}
	argv := []string{"execwire-preparer", program, "bwrap", "--args", strconv.Itoa(fd), "--", ownDescriptor(starterSelf), path}
	wrapped := Program{
		Path: preparer, Argv: append(argv, p.Argv...), Env: prefixed(p.Env), Dir: "/", Files: a.files, Terminal: -1, KeepMask: true,
	}
	if p.Terminal >= 0 {
		wrapped.Terminal = starterStreams + p.Terminal
	}
	return wrapped, nil
}

// prepare has everything prepared for bubblewrap, and returns the path of who does it. What only that one is given comes
// behind what bubblewrap is given.
func (b *bubblewrap) prepare(v *view, a *arguments, users, network int, terminal string) (string, error) {
	own := len(a.files)
	preparer, err := b.preparer.descriptor()
	if err != nil {
		return "", failed(NotStarted, "", "there is no preparer", err)
	}
	a.files = append(a.files, preparer)
	enter := func(namespace, kind int, doing string) {
		v.about("", doing)
		v.call(unix.SYS_SETNS, literal(len(a.files)), literal(kind))
		a.files = append(a.files, namespace)
	}
	switch {
	case users >= 0:
		enter(users, unix.CLONE_NEWUSER, "the users' namespace cannot be entered")
	case !mayMount():
		v.ownUsers()
	}
	if network >= 0 {
		enter(network, unix.CLONE_NEWNET, "the empty network cannot be entered")
	}
	v.prepare(terminal, b.kind.sealed, own)
	v.about("", "descriptors cannot be closed")
	v.call(unix.SYS_DUP3, literal(0), literal(preparerCalls), literal(0))
	v.call(unix.SYS_CLOSE_RANGE, literal(own), literal(math.MaxInt32), literal(unix.CLOSE_RANGE_CLOEXEC))
	if a.files[preparerCalls], err = v.give(a.launch); err != nil {
		return "", failed(NotStarted, "", "what is to be prepared for bubblewrap cannot be passed", err)
	}
	a.launch.preparation = &v.preparation
	return ownDescriptor(own), nil
}

// view looks at what the program is to see, and has bubblewrap take that over.
func (b *bubblewrap) view(a *arguments, p Program) (*view, error) {
	v := &view{}
	if b.plan.Access(b.program) < AccessRead {
		v.program = b.program
	}
	root := len(b.mounts) > 0 && b.mounts[0].path == "/"
	if root {
		a.add("--dev-bind", "/", "/", "--proc", "/proc")
	} else {
		a.add("--proc", "/proc", "--dev-bind", "/dev", "/dev")
	}
	var around *layer
	for _, m := range b.mounts {
		for around != nil && !within(m.path, around.path) {
			around = around.around
		}
		y := &layer{mount: m, around: around}
		there, err := b.open(y, a)
		if err != nil {
			return nil, err
		}
		if there {
			v.layers, around = append(v.layers, y), y
		}
	}
	b.addLinks(a)
	if !root {
		a.add("--remount-ro", "/")
	}
	if p.SealProc || unix.Geteuid() == 0 {
		// To the kernel the root of the namespace is root: it may write system settings, /proc/sys/kernel/core_pattern
		// for one, and with them run a program outside.
		a.add("--remount-ro", "/proc")
	}
	return v, nil
}

// open looks at one place, and tells whether there is something. Bubblewrap is told of it if it is in none.
func (b *bubblewrap) open(y *layer, a *arguments) (bool, error) {
	if y.kept {
		there, err := b.reserved.hold(y.path, a.launch)
		if err != nil {
			return false, failed(NotStarted, y.path, "does not exist and cannot be kept from coming into being", err)
		}
		if !there {
			return false, nil
		}
	} else {
		b.reserved.share(y.path, a.launch)
	}
	place, err := openSame(y.path, y.is)
	if err != nil {
		return false, failed(NotStarted, y.path, changed, err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(place, &stat); err != nil {
		_ = unix.Close(place)
		return false, failed(NotStarted, y.path, "cannot be looked at", err)
	}
	y.is, y.directory = identityOf(&stat), stat.Mode&unix.S_IFMT == unix.S_IFDIR
	if y.around == nil && y.path != "/" {
		a.add("--bind-fd", a.give(place), y.path)
	} else {
		_ = unix.Close(place)
	}
	return true, nil
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

// terminalName is what the program's terminal, which becomes /dev/console, is called outside, or "" if there is none.
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

// file makes the file that bubblewrap reads its arguments from.
func (a *arguments) file() (int, error) {
	for _, argument := range a.list {
		if hasNUL(argument) {
			return 0, errors.New("one has a NUL byte")
		}
	}
	fd, err := memoryDescriptor("execwire-bwrap", unix.MFD_NOEXEC_SEAL, []byte(strings.Join(a.list, "\x00")+"\x00"))
	if err != nil {
		return 0, err
	}
	number, err := strconv.Atoi(a.give(fd))
	return number, err
}
