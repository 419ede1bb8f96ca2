package sandbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Backend is a way to enforce a plan.
type Backend uint8

// The backends, the strongest first. There is no zero backend.
const (
	Bubblewrap Backend = iota + 1 // mounts and namespaces, made by the program bwrap
	Landlock                      // rules of the kernel's Landlock
)

func (b Backend) String() string {
	switch b {
	case Bubblewrap:
		return "bubblewrap"
	case Landlock:
		return "landlock"
	}
	return fmt.Sprintf("backend(%d)", uint8(b))
}

// Program is what is to be executed, or what is executed in its place.
type Program struct {
	// Path is the absolute path of the file to execute.
	Path string
	// Image is a descriptor of the file to execute in place of Path, which then need not be seen inside. 0: Path it is.
	Image int
	// SealProc makes /proc read-only inside where it is not anyway.
	SealProc bool
	// Argv is what it is given, argv[0] first.
	Argv []string
	// Env is exactly its environment, as NAME=value.
	Env []string
	// Dir is the working directory, absolute.
	Dir string
	// Files are its descriptors from 0 on, blocking. Of the program to be executed there are three.
	Files []int
	// Terminal is the one of Files that becomes the controlling terminal, or -1.
	Terminal int
	// KeepMask tells whoever forks to leave the signal mask of the thread as it is. Set by Start.
	KeepMask bool
}

// Report says what is enforced.
type Report struct {
	// Backend is what enforces it.
	Backend Backend
	// Network says whether the network is reached.
	Network Network
	// Files tells that access to files is restricted.
	Files bool
	// HidesProcesses tells that processes outside are not seen. Otherwise they are seen, but not touched.
	HidesProcesses bool
	// FreezesMetadata tells that mode, owner, times and extended attributes of files cannot be changed anywhere.
	FreezesMetadata bool
	// ExitByCode tells that an end by signal n is reported as code 128+n.
	ExitByCode bool
}

// Confinement starts programs as a plan says. It may be used for many, and concurrently.
type Confinement struct {
	enforce  enforcer
	plan     *Plan
	reserved *placeholders
}

// enforcer is a plan as a backend enforces it.
type enforcer interface {
	// wrap makes the program that is forked. What it opens it hands to the launch.
	wrap(p Program, l *launch) (Program, error)
	// report says what is enforced.
	report() Report
}

// Report says what is enforced.
func (c *Confinement) Report() Report { return c.enforce.report() }

// Start starts a program confined. It calls spawn once at most, with the program that is to be forked and executed, which
// spawn does before it returns, on the goroutine and thread that it is called on, which may not be the caller's. It
// blocks until the program itself was executed inside the sandbox, which takes a few milliseconds, or ctx is done.
//
// Without an error spawn was called, and the program runs; release is to be called when nothing of it is left. The
// error is spawn's own, unless it returned nil: then the child that it started is not what was asked for, and the
// caller kills and reaps it. Such errors have the kind NotExecuted when the program could not be executed inside the
// sandbox, with the Errno, NoDirectory, or NotStarted, and are the cause of ctx when it was done before that was known.
func (c *Confinement) Start(ctx context.Context, p Program, spawn func(Program) error) (release func(), err error) {
	if len(p.Files) != 3 {
		return nil, fmt.Errorf("sandbox: a program has %d files; give it three", len(p.Files))
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	l, err := newLaunch()
	if err != nil {
		return nil, failed(NotStarted, "", "there are no descriptors for the sandbox", err)
	}
	defer l.close()
	release = func() { c.reserved.release(l.held) }
	if err := c.start(ctx, p, l, spawn); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

func (c *Confinement) start(ctx context.Context, p Program, l *launch, spawn func(Program) error) error {
	wrapped, err := c.enforce.wrap(p, l)
	if err != nil {
		return err
	}
	if wrapped.KeepMask {
		restore, err := blockSignals()
		if err != nil {
			return failed(NotStarted, "", "signals cannot be blocked", err)
		}
		err = spawn(wrapped)
		restore()
		if err != nil {
			return err
		}
	} else if err := spawn(wrapped); err != nil {
		return err
	}
	l.closeChild()
	return l.await(ctx, p.Path)
}

// blockSignals blocks all signals of this goroutine's thread until restore is called, and so those of bubblewrap, which
// would end of one that the program handles. The starter unblocks them.
func blockSignals() (restore func(), err error) {
	var all, old unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	runtime.LockOSThread()
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &old); err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	return func() {
		_ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
		runtime.UnlockOSThread()
	}, nil
}

// launch is the way from the fork to the program: what is open for it.
type launch struct {
	status   *os.File // what the starter says
	messages *os.File // what bubblewrap says
	// The child's ends, and what else it is given.
	statusEnd, messagesEnd, null int
	given                        []int
	held                         []string     // placeholders that the program needs
	preparation                  *preparation // what is done before bubblewrap; nil: nothing
}

func newLaunch() (*launch, error) {
	l := &launch{statusEnd: -1, messagesEnd: -1, null: -1}
	var err error
	if l.null, err = unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return nil, err
	}
	if l.status, l.statusEnd, err = pipe("status"); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func pipe(name string) (ours *os.File, theirs int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, -1, err
	}
	if err := unix.SetNonblock(p[0], true); err != nil {
		_, _ = unix.Close(p[0]), unix.Close(p[1])
		return nil, -1, err
	}
	return os.NewFile(uintptr(p[0]), name), p[1], nil
}

// files are the child's descriptors as the starter knows them, without rules and with nowhere for messages.
func (l *launch) files(p Program, starters *starterFiles, kind filterKind) ([]int, error) {
	starter, err := starters.file(kind)
	if err != nil {
		return nil, failed(NotStarted, "", "there is no starter", err)
	}
	return []int{l.null, l.null, l.null, p.Files[0], p.Files[1], p.Files[2], l.statusEnd, l.null, starter}, nil
}

// give hands over what is opened for the child, and closed when it was forked.
func (l *launch) give(fd int) { l.given = append(l.given, fd) }

func (l *launch) closeChild() {
	for _, fd := range append(l.given, l.statusEnd, l.messagesEnd, l.null) {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	l.given, l.statusEnd, l.messagesEnd, l.null = nil, -1, -1, -1
}

func (l *launch) close() {
	l.closeChild()
	for _, file := range []*os.File{l.status, l.messages} {
		if file != nil {
			_ = file.Close()
		}
	}
}

// await waits until the starter has executed the program, and otherwise says what went wrong.
func (l *launch) await(ctx context.Context, path string) error {
	stop := context.AfterFunc(ctx, func() { _ = l.status.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	said, err := io.ReadAll(l.status)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		rest, over := readAtOnce(l.status)
		if !over {
			return context.Cause(ctx)
		}
		said, err = append(said, rest...), nil // it was faster
	}
	switch {
	case err != nil:
		return failed(NotStarted, "", "what became of the sandbox is not known", err)
	}
	if len(said) == preparerReport && l.preparation != nil {
		return l.preparation.failure(said)
	}
	ready := 0
	if len(said) == 1 || len(said) == 9 {
		ready = 1
	}
	switch report := said[ready:]; {
	case len(report) == 8 && ready == 1:
		errno := readErrno(report)
		return &Error{Kind: NotExecuted, Path: path, Errno: errno, Err: fmt.Errorf("cannot be executed inside the sandbox: %w", errno)}
	case len(report) == 8:
		errno := readErrno(report)
		return &Error{Kind: NotStarted, Errno: errno, Err: fmt.Errorf("the starter could not set up the program: %w", errno)}
	case ready == 0:
		said := l.complaint()
		if strings.HasPrefix(said, noDirectory) {
			return &Error{Kind: NoDirectory, Err: errors.New(said)}
		}
		return &Error{Kind: NotStarted, Err: errors.New(said)}
	}
	return nil
}

// readAtOnce reads what there is in a pipe that does not block, and tells whether nothing can follow.
func readAtOnce(pipe *os.File) (text []byte, over bool) {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return nil, false
	}
	part := make([]byte, 64)
	for {
		n := 0
		if controlled := conn.Control(func(fd uintptr) { n, err = unix.Read(int(fd), part) }); controlled != nil {
			return nil, false
		}
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || n == 0:
			return text, err == nil
		default:
			text = append(text, part[:n]...)
		}
	}
}

// readErrno reads what a system call returned.
func readErrno(report []byte) syscall.Errno {
	return syscall.Errno(-int64(binary.NativeEndian.Uint64(report)))
}

// noDirectory begins what bubblewrap says when the working directory is not there.
const noDirectory = "bwrap: Can't chdir to "

// maxComplaint is the most that is read of what bubblewrap says.
const maxComplaint = 4096

// listen opens a pipe for messages of what is between the fork and the starter.
func (l *launch) listen() (err error) {
	l.messages, l.messagesEnd, err = pipe("messages")
	return err
}

// complaint is what bubblewrap had to say.
func (l *launch) complaint() string {
	if l.messages == nil {
		return "the starter was ended before the program began"
	}
	text := make([]byte, maxComplaint)
	n, _ := unix.Read(int(l.messages.Fd()), text)
	if said := clean(string(text[:max(n, 0)])); said != "" {
		return advised(said)
	}
	return "bubblewrap ended before the program began"
}

// prefixed is the environment as the starter is given it.
func prefixed(env []string) []string {
	entries := make([]string, len(env))
	for i, entry := range env {
		entries[i] = environmentPrefix + entry
	}
	return entries
}
