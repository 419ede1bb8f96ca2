package sandbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Backend is a mechanism that enforces plans.
type Backend uint8

// The backends, the strongest first.
const (
	Bubblewrap Backend = iota + 1 // namespaces and mounts, by the program bwrap
	Landlock                      // the Landlock LSM
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

// Program is a program to execute.
type Program struct {
	// Path is the absolute path of the executable.
	Path string
	// Image is a descriptor of the executable, which then need not be accessible
	// inside the sandbox. 0 executes Path.
	Image int
	// SealProc makes /proc read-only in the sandbox. For root it always is.
	SealProc bool
	// Argv are the arguments, argv[0] included.
	Argv []string
	// Env is the complete environment, as NAME=value.
	Env []string
	// Dir is the working directory, an absolute path.
	Dir string
	// Files are the descriptors of the program from 0 on, three of them. They must be
	// blocking.
	Files []int
	// Terminal is the index in Files of the controlling terminal, or -1.
	Terminal int
	// Limits are the resource limits, at most one for each resource, set right before
	// execve.
	Limits []Limit
	// Nice is added to the nice value of this process. The sum is clamped to -20 and 19.
	Nice int
	// OOMScore is the oom_score_adj, if the child may set it. Empty: that of this process.
	OOMScore string
	// OOMScoreDenied, unless it is nil, is set by ForkExec if the child may not set
	// OOMScore: until execve its files in /proc belong to root if this process is not
	// dumpable.
	OOMScoreDenied *bool
	// User is who the program runs as. Nil: the user of this process, with its groups.
	User *Credential
	// ResetSignals are signals that this process ignores, and the program must not.
	ResetSignals []syscall.Signal

	// setUpInside is set if package innerexec unblocks signals and sets the limit of open
	// files. Until then all signals are blocked, and the limit is that of this process.
	setUpInside bool
	calls       *childCalls // further calls between fork and execve; nil: none
}

// Credential is a user with all its groups.
type Credential struct {
	// UID and GID are the user and the group.
	UID, GID uint32
	// Groups are the supplementary groups.
	Groups []uint32
}

// CredentialError is the error of [Program.ForkExec] if the program cannot become another user.
type CredentialError struct {
	// Err is the errno.
	Err error
}

func (e *CredentialError) Error() string {
	return "sandbox: the user cannot be changed: " + e.Err.Error()
}

func (e *CredentialError) Unwrap() error { return e.Err }

// Limit is a resource limit.
type Limit struct {
	Resource   int // RLIMIT_*
	Soft, Hard uint64
}

// ResourceNice stands for the nice value in a [LimitError].
const ResourceNice = -1

// LimitError is the error of [Program.ForkExec] if a limit or the nice value cannot be
// set.
type LimitError struct {
	Resource int // RLIMIT_* or ResourceNice
	Err      error
}

func (e *LimitError) Error() string { return "sandbox: a limit cannot be set: " + e.Err.Error() }

func (e *LimitError) Unwrap() error { return e.Err }

// Report describes what a sandbox enforces.
type Report struct {
	// Backend is the backend.
	Backend Backend
	// Network is the access to the network.
	Network Network
	// Files is set if access to files is restricted.
	Files bool
	// HidesProcesses is set if processes outside are invisible. Otherwise they are
	// visible, but cannot be signalled or read.
	HidesProcesses bool
	// FreezesMetadata is set if mode, owner, times and extended attributes of files
	// cannot be changed, also in writable directories.
	FreezesMetadata bool
	// ExitByCode is set if a program that is killed by signal n is reported with exit
	// code 128+n.
	ExitByCode bool
}

// Confinement starts programs in a sandbox with a fixed plan. It may be used
// concurrently, for any number of programs.
type Confinement struct {
	enforce      enforcer
	plan         *Plan
	placeholders *placeholders
}

// enforcer enforces a plan with one backend.
type enforcer interface {
	// wrap returns the program to fork in place of p. The launch owns what it opens.
	// If the program reports its execution itself, wrap opens the status of the
	// launch; otherwise it has been executed when ForkExec returns.
	wrap(p Program, l *launch) (Program, error)
	// report describes what is enforced.
	report() Report
}

// Report describes what is enforced.
func (c *Confinement) Report() Report { return c.enforce.report() }

// Start starts a program in the sandbox. It calls spawn at most once, with the program
// to fork. spawn must call [Program.ForkExec] before it returns. Start blocks until the
// program was executed inside the sandbox, which takes a few milliseconds, or until ctx
// ends.
//
// On success, the caller calls Release when the program and its descendants have ended.
// If spawn fails, the error is that of spawn. Start can also fail after spawn has
// succeeded; the caller then kills and reaps the child. The kind of such an error is
// NotExecuted, NoDirectory or NotStarted; if ctx has ended, the error is its cause.
func (c *Confinement) Start(ctx context.Context, p Program, spawn func(Program) error) (*Usage, error) {
	if len(p.Files) != 3 {
		return nil, fmt.Errorf("sandbox: a program has %d files; give it three", len(p.Files))
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	l := newLaunch()
	defer l.close()
	if err := c.start(ctx, p, l, spawn); err != nil {
		c.placeholders.release(l.placeholders)
		return nil, err
	}
	return &Usage{placeholders: c.placeholders, paths: l.placeholders}, nil
}

func (c *Confinement) start(ctx context.Context, p Program, l *launch, spawn func(Program) error) error {
	wrapped, err := c.enforce.wrap(p, l)
	if err != nil {
		return err
	}
	if err := spawn(wrapped); err != nil || l.status == nil {
		return err
	}
	l.closeChild()
	return l.await(ctx, p.Path)
}

// launch has the resources of one start.
type launch struct {
	status   *os.File // where package innerexec reports; nil: it is not used
	messages *os.File // standard output and standard error of bwrap
	// Ends of the pipes and other descriptors that are closed after the fork.
	statusEnd, messagesEnd int
	childFDs               []int
	placeholders           []string // used by the program, until release
}

func newLaunch() *launch { return &launch{statusEnd: -1, messagesEnd: -1} }

// open opens the pipes.
func (l *launch) open() (err error) {
	if l.status, l.statusEnd, err = pipe("status"); err != nil {
		return err
	}
	l.messages, l.messagesEnd, err = pipe("messages")
	return err
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

// closeAfterFork adds a descriptor that is closed after the fork.
func (l *launch) closeAfterFork(fd int) { l.childFDs = append(l.childFDs, fd) }

func (l *launch) closeChild() {
	for _, fd := range append(l.childFDs, l.statusEnd, l.messagesEnd) {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	l.childFDs, l.statusEnd, l.messagesEnd = nil, -1, -1
}

func (l *launch) close() {
	l.closeChild()
	for _, file := range []*os.File{l.status, l.messages} {
		if file != nil {
			_ = file.Close()
		}
	}
}

// await waits until package innerexec has executed the program, and returns why it did
// not.
func (l *launch) await(ctx context.Context, path string) error {
	stop := context.AfterFunc(ctx, func() { _ = l.status.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	status, err := io.ReadAll(l.status)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		rest, over := readAtOnce(l.status)
		if !over {
			return context.Cause(ctx)
		}
		status, err = append(status, rest...), nil // the program was executed before ctx ended
	}
	if err != nil {
		return failed(NotStarted, "", "the report of the sandbox cannot be read", err)
	}
	ready := 0
	if len(status) == 1 || len(status) == 9 {
		ready = 1
	}
	switch report := status[ready:]; {
	case len(report) == 8 && ready == 1:
		errno := readErrno(report)
		return &Error{Kind: NotExecuted, Path: path, Errno: errno, Err: fmt.Errorf("cannot be executed inside the sandbox: %w", errno)}
	case len(report) == 8:
		errno := readErrno(report)
		return &Error{Kind: NotStarted, Errno: errno, Err: fmt.Errorf("the program could not be set up inside the sandbox: %w", errno)}
	case ready == 0:
		message := l.bwrapMessage()
		if strings.HasPrefix(message, noDirectory) {
			return &Error{Kind: NoDirectory, Err: errors.New(message)}
		}
		return &Error{Kind: NotStarted, Err: errors.New(message)}
	}
	return nil
}

// readAtOnce reads what is in a nonblocking pipe. over is set at the end of the file.
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

// readErrno decodes an errno from package innerexec.
func readErrno(report []byte) syscall.Errno { return syscall.Errno(binary.LittleEndian.Uint64(report)) }

// noDirectory is how bwrap's message begins if the working directory does not exist.
const noDirectory = "bwrap: Can't chdir to "

// maxMessageBytes bounds the messages of bwrap and the stderr of workers.
const maxMessageBytes = 4096

// bwrapMessage returns the message of bwrap, or that it has ended.
func (l *launch) bwrapMessage() string {
	text := make([]byte, maxMessageBytes)
	n, _ := unix.Read(int(l.messages.Fd()), text)
	if message := sanitize(string(text[:max(n, 0)])); message != "" {
		return withAdvice(message)
	}
	return "bubblewrap ended before the program began"
}
