package process

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// guardianVariable tells a server that it has a guardian, and the descriptor of the pipe that the guardian holds the
	// other end of.
	guardianVariable = "EXECWIRE_GUARDIAN_PIPE"
	// guardianPipe is that descriptor.
	guardianPipe = 3
	// guardianPatience is how long the guardian tries to end what its server has left.
	guardianPatience = 10 * time.Second
)

// passedOn are the signals that a guardian passes on to its server.
var passedOn = []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2}

// Guarding is how [Guard] runs a server.
type Guarding struct {
	// Cgroups is where the server's control groups are, as for [OpenCgroups].
	Cgroups string
	// ReadsInput is whether the server reads its standard input.
	ReadsInput bool
	// SharesGroup leaves the server in the process group of this process, so that a
	// shell's job control, keys of a terminal and signals to the group reach both. The
	// server gets what this process gets of SIGTERM, SIGINT, SIGHUP and SIGQUIT not as
	// a signal but by [GuardianWatch.Wait], and counts what has reached it as both
	// once. ReadsInput does not matter then.
	SharesGroup bool
}

// Guard runs this program once more, with the same arguments, environment and standard streams, as a server, and
// makes this process its guardian: whatever descends from the server becomes the guardian's child when the server is
// gone, however it went, and is killed; so is what is in the server's control groups, which are removed. It blocks until then, passing signals on, and returns the code for this process
// to exit with: the server's own, or 128+n if signal n ended it. Beside the code, an error says that a signal did, or
// what could not be ended; without one, that there was no server.
//
// It is for a program that is about to become a server and has done nothing else: it changes how this process treats
// signals and reaps all its children. Children that it has from before, as after an exec from a shell with background
// jobs, are left alone as long as they stay in this process's session.
//
// The server finds out by [Guarded] that it has a guardian. Unless it shares this process's group, it gets one of its
// own, so that the keys of a terminal reach it once, through the guardian. If it then reads its standard input, and that is a terminal whose foreground
// this process is in, it is given the foreground, because the kernel stops whoever else reads: then the keys reach it
// themselves, and this process takes the foreground back in the end. Neither can be suspended then.
func Guard(how Guarding) (code int, err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, guardError(fmt.Errorf("cannot become the parent of orphans: %w", err))
	}
	signals := make(chan os.Signal, 16)
	passed := passedOn
	if how.SharesGroup {
		passed = passedOn[:4] // the rest end this process, and the server with it
	}
	for _, sig := range passed {
		if !signal.Ignored(sig) { // what nohup made us ignore, the server ignores, too
			signal.Notify(signals, sig)
		}
	}
	g := &guardian{
		strangers:   map[int]bool{},
		sharesGroup: how.SharesGroup,
		foreground:  !how.SharesGroup && how.ReadsInput && inForeground(),
	}
	if g.foreground {
		// Who changes the foreground from the background is stopped, and nobody would let a suspended server go on.
		signal.Ignore(unix.SIGTTOU, unix.SIGTSTP)
		defer takeForeground()
	}
	if err := g.begin(); err != nil {
		return 0, guardError(err)
	}
	defer func() { _ = g.pipe.Close() }()
	go g.pass(signals) // until this process ends: signals that come late must not end it
	debug.FreeOSMemory()
	status, err := g.serve()
	if err != nil {
		return 0, guardError(err)
	}
	if err := g.end(how.Cgroups); err != nil {
		return exitCode(status), guardError(err)
	}
	if status.Signaled() {
		return exitCode(status), fmt.Errorf("the server was ended by a signal (%v); all that it had started has been ended, too", status.Signal())
	}
	return exitCode(status), nil
}

// end ends what is left of the server.
func (g *guardian) end(cgroups string) error {
	_ = SweepCgroups(cgroups) // first, because it ends those in them at one instant; it is done again
	return errors.Join(g.sweep(time.Now().Add(guardianPatience)), SweepCgroups(cgroups))
}

// exitCode is how a shell tells the end of a process.
func exitCode(status unix.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

func guardError(err error) error {
	return &Error{Kind: Internal, Err: err, verb: "guard the server"}
}

// guardian is the parent of a server.
type guardian struct {
	server    int          // its pid
	pidfd     int          // of the server; never closed, so that late signals meet nobody else
	pipe      *os.File     // has the signals for a server of the same group; it ends with this process
	strangers map[int]bool // children that were there before the server
	// foreground is whether the server gets the terminal.
	foreground bool
	// sharesGroup is whether the server is in the process group of this process.
	sharesGroup bool
	// onlyServers is whether all children of this process come from the server.
	onlyServers bool
}

// begin starts the server.
func (g *guardian) begin() error {
	children, err := ownChildren()
	if err != nil {
		return err
	}
	for _, child := range children {
		g.strangers[child.pid] = true
	}
	g.onlyServers = g.sharesGroup && len(children) == 0
	theirs, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = theirs.Close() }()
	// The very program that runs, even if another has been installed in its place.
	g.server, err = syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{
		Env:   append(os.Environ(), guardianVariable+"="+strconv.Itoa(guardianPipe)),
		Files: []uintptr{0, 1, 2, theirs.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: !g.sharesGroup, Foreground: g.foreground, Ctty: standardInput, PidFD: &g.pidfd},
	})
	if err != nil {
		_ = ours.Close()
		if errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("cannot start it: %w: there are as many processes and threads as may be (pids.max, RLIMIT_NPROC)", err)
		}
		return fmt.Errorf("cannot start it: %w", err)
	}
	g.pipe = ours
	return nil
}

// standardInput is the descriptor of the standard input.
const standardInput = 0

// inForeground reports whether the standard input is a terminal that this process would be stopped for reading were it
// not in its foreground, in which it is.
func inForeground() bool {
	foreground, err := unix.IoctlGetInt(standardInput, unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}

// takeForeground puts this process into the foreground again.
func takeForeground() { _ = unix.IoctlSetPointerInt(standardInput, unix.TIOCSPGRP, unix.Getpgrp()) }

// pass passes signals on.
func (g *guardian) pass(signals <-chan os.Signal) {
	for sig := range signals {
		if g.sharesGroup {
			_, _ = g.pipe.Write([]byte{byte(sig.(syscall.Signal))}) // fails when the server is gone
			continue
		}
		_ = unix.PidfdSendSignal(g.pidfd, sig.(syscall.Signal), nil, 0)
	}
}

// serve waits until the server is gone, and reaps whoever else ends.
func (g *guardian) serve() (status unix.WaitStatus, err error) {
	for {
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("cannot wait for it: %w", err)
		case pid == g.server:
			return status, nil
		default:
			delete(g.strangers, pid)
		}
	}
}
