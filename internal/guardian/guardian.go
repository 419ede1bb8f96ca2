//go:build linux

// Package guardian runs a server below a parent process that kills what the server leaves when it
// ends.
package guardian

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/cgroup"
	"github.com/execwire/execwire/internal/syslimit"
)

const (
	// PipeVariable is the environment variable that tells a server that it has a guardian. Its
	// value is the descriptor of a pipe whose write end the guardian holds.
	PipeVariable = "EXECWIRE_GUARDIAN_PIPE"
	// pipeFD is that descriptor.
	pipeFD = 3
	// maxIdleScans is after how many scans in a row in which nothing died the guardian gives up
	// killing what its server has left: after 10 seconds, or later on a busy machine, where a
	// time alone could be over after few scans.
	maxIdleScans = 200
)

// forwardedSignals are the signals that a guardian forwards to its server.
var forwardedSignals = []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2}

// Options are the options of [Run].
type Options struct {
	// Cgroups is the location of the server's control groups, as for [cgroup.Open].
	Cgroups string
	// ReadsInput is whether the server reads its standard input.
	ReadsInput bool
	// SharesGroup keeps the server in the process group of this process, so that job control of a
	// shell, keys of a terminal and signals to the group reach both. SIGTERM, SIGINT, SIGHUP and
	// SIGQUIT to this process are then not sent to the server as signals. They arrive at
	// [Watch.Signals], and the server counts a signal that reached both processes once.
	// ReadsInput is ignored.
	SharesGroup bool
}

// Run runs this program again as a server, with the same arguments, environment and standard
// streams, and makes this process its guardian. When the server ends, for any reason, its
// descendants become children of the guardian and are killed. The processes in the control groups
// of the server are killed too, and the groups are removed. Run blocks until then, forwards
// signals, and returns the exit code for this process: that of the server, or 128+n if signal n
// ended it. An error with a code means that a signal ended the server, or names what could not be
// killed. An error without a code means that there was no server.
//
// Run is for a program that is about to become a server and has done nothing else: it changes how
// this process handles signals, and reaps all its children. Children from before, for example after
// an exec from a shell with background jobs, are left alone as long as they stay in the session of
// this process.
//
// The server detects its guardian with [Guarded]. Unless SharesGroup is set, it gets a process
// group of its own, so that keys of a terminal reach it once, through the guardian. If it then
// reads its standard input, and that is a terminal with this process in the foreground, the server
// gets the foreground, because the kernel stops any other reader. The keys then reach it directly,
// and this process takes the foreground back at the end. Neither process can be suspended then.
func Run(options Options) (code int, err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, guardError(fmt.Errorf("cannot become a child subreaper: %w", err))
	}
	signals := make(chan os.Signal, 16)
	forwarded := forwardedSignals
	if options.SharesGroup {
		forwarded = forwardedSignals[:4] // the others end this process, and with it the server
	}
	for _, sig := range forwarded {
		if !signal.Ignored(sig) { // signals that nohup ignores stay ignored
			signal.Notify(signals, sig)
		}
	}
	g := &guardian{
		preexisting: map[int]bool{},
		sharesGroup: options.SharesGroup,
		foreground:  !options.SharesGroup && options.ReadsInput && inForeground(),
	}
	if g.foreground {
		// The kernel stops a background process that changes the foreground, and nothing would
		// continue a suspended server.
		signal.Ignore(unix.SIGTTOU, unix.SIGTSTP)
		defer takeForeground()
	}
	if err := g.startServer(); err != nil {
		return 0, guardError(err)
	}
	defer func() { _ = g.pipe.Close() }()
	// Runs until this process ends, because a late signal must not end it.
	go g.forward(signals)
	debug.FreeOSMemory()
	syslimit.ReleaseProgram()
	status, err := g.waitServer()
	if err != nil {
		return 0, guardError(err)
	}
	if err := g.cleanUp(options.Cgroups); err != nil {
		return exitCode(status), guardError(err)
	}
	if status.Signaled() {
		return exitCode(status), fmt.Errorf("the server was killed by a signal (%v); all processes that it had started were killed", status.Signal())
	}
	return exitCode(status), nil
}

// cleanUp kills what is left of the server.
func (g *guardian) cleanUp(cgroups string) error {
	// First, because the kernel kills a control group atomically. Repeated at the end to remove
	// groups that were still busy.
	_ = cgroup.RemoveStale(cgroups)
	return errors.Join(g.killDescendants(), cgroup.RemoveStale(cgroups))
}

// exitCode returns the exit code that a shell reports.
func exitCode(status unix.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

func guardError(err error) error {
	return fmt.Errorf("failed to guard the server: %w", err)
}

// guardian is the parent of a server.
type guardian struct {
	server      int          // PID
	pidfd       int          // of the server; never closed, so that late signals reach no other process
	pipe        *os.File     // write end; carries signals to a server of the same group, and ends with this process
	preexisting map[int]bool // children from before the server
	// foreground is whether the server gets the foreground of the terminal.
	foreground bool
	// sharesGroup is whether the server is in the process group of this process.
	sharesGroup bool
	// allFromServer is whether all children of this process descend from the server.
	allFromServer bool
}

// startServer starts the server.
func (g *guardian) startServer() error {
	children, err := ownChildren()
	if err != nil {
		return err
	}
	for _, child := range children {
		g.preexisting[child.PID] = true
	}
	g.allFromServer = g.sharesGroup && len(children) == 0
	readEnd, writeEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = readEnd.Close() }()
	// The running program, even if another version has been installed in its place.
	g.server, err = syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{
		Env:   append(os.Environ(), PipeVariable+"="+strconv.Itoa(pipeFD)),
		Files: []uintptr{0, 1, 2, readEnd.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: !g.sharesGroup, Foreground: g.foreground, Ctty: standardInput, PidFD: &g.pidfd},
	})
	if err != nil {
		_ = writeEnd.Close()
		if errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("cannot start it: %w: the limit of processes and threads is reached (pids.max, RLIMIT_NPROC)", err)
		}
		return fmt.Errorf("cannot start it: %w", err)
	}
	g.pipe = writeEnd
	return nil
}

// standardInput is a file descriptor.
const standardInput = 0

// inForeground reports whether the standard input is a terminal with this process in the
// foreground.
func inForeground() bool {
	foreground, err := unix.IoctlGetInt(standardInput, unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}

// takeForeground puts this process into the foreground.
func takeForeground() { _ = unix.IoctlSetPointerInt(standardInput, unix.TIOCSPGRP, unix.Getpgrp()) }

// forward forwards signals to the server.
func (g *guardian) forward(signals <-chan os.Signal) {
	for sig := range signals {
		if g.sharesGroup {
			_, _ = g.pipe.Write([]byte{byte(sig.(syscall.Signal))}) // fails when the server is gone
			continue
		}
		_ = unix.PidfdSendSignal(g.pidfd, sig.(syscall.Signal), nil, 0)
	}
}

// waitServer waits for the end of the server, and reaps other children.
func (g *guardian) waitServer() (status unix.WaitStatus, err error) {
	for {
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("cannot wait for it: %w", err)
		case pid == g.server:
			return status, nil
		default:
			delete(g.preexisting, pid)
		}
	}
}
