package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// probePatience is how long a probe may take on a machine that has other things to do.
const probePatience = 20 * time.Second

// trialVerb is the argument that makes this program try what it must not.
const trialVerb = "execwire-sandbox-trial"

// try starts this program confined by a backend, and reports what it could do that it must not, or could not do that it
// must.
func (s *Sandboxes) try(ctx context.Context, status *Status) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probePatience, errors.New("a confined program took too long"))
	defer cancel()
	dir, err := trialDirectory()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	listener, err := listenIn(dir)
	if err != nil {
		return err
	}
	defer listener.Close()
	inside := filepath.Join(dir, "inside")
	if err := errors.Join(os.Mkdir(inside, 0o700), os.WriteFile(filepath.Join(dir, "outside"), nil, 0o600)); err != nil {
		return err
	}
	policy := Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}, {Path: inside, Access: AccessWrite}}}
	plan, err := policy.Resolve(ctx, Surroundings{})
	if err != nil {
		return err
	}
	enforce, err := s.express(status, plan)
	if err != nil {
		return err
	}
	return (&Confinement{enforce: enforce, reserved: &s.reserved}).runTrial(ctx, dir)
}

// trialDirectory makes a directory that programs can see in every backend, by its real path: where temporary files
// belong, or where they do on every machine if that is missing, or fresh in each sandbox.
func trialDirectory() (string, error) {
	var failures []error
	for _, parent := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		parent, err := filepath.EvalSymlinks(parent)
		switch {
		case err != nil:
		case !filepath.IsAbs(parent) || slices.ContainsFunc(own, func(dir string) bool { return within(parent, dir) }):
			err = fmt.Errorf("%s is not a place for a trial", parent)
		default:
			var dir string
			if dir, err = os.MkdirTemp(parent, "execwire-sandbox-"); err == nil {
				return dir, nil
			}
		}
		failures = append(failures, err)
	}
	return "", errors.Join(failures...)
}

// listenIn listens on a socket in a directory, whose path may be longer than that of a socket.
func listenIn(dir string) (net.Listener, error) {
	fd, err := openPlace(dir)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	listener, err := net.Listen("unix", "/proc/self/fd/"+strconv.Itoa(fd)+"/"+trialSocket)
	if err != nil {
		return nil, err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false) // by then that path means something else
	return listener, nil
}

// runTrial runs the trial in a directory and judges it.
func (c *Confinement) runTrial(ctx context.Context, dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	said, saidEnd, err := pipe("trial")
	if err != nil {
		return err
	}
	defer said.Close()
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(saidEnd)
		return err
	}
	program := Program{
		Path: self, Argv: []string{self, trialVerb, dir, strconv.Itoa(os.Getpid())}, Dir: "/",
		Files: []int{null, saidEnd, null}, Terminal: -1,
	}
	pid := 0
	release, err := c.Start(ctx, program, func(p Program) (err error) {
		pid, err = forkExec(p)
		return err
	})
	_, _ = unix.Close(saidEnd), unix.Close(null)
	if err != nil {
		end(pid)
		return err
	}
	defer release()
	stop := context.AfterFunc(ctx, func() { _ = said.Close() })
	text, _ := io.ReadAll(said)
	if !stop() {
		end(pid)
		return context.Cause(ctx)
	}
	end(pid)
	return judge(text)
}

// forkExec starts a program in a process group of its own, but in the session of this one: a server that adopts the
// orphans of its processes takes a child with another session for one of them, and ends it.
func forkExec(p Program) (int, error) {
	files := make([]uintptr, len(p.Files))
	for i, fd := range p.Files {
		files[i] = uintptr(fd)
	}
	return syscall.ForkExec(p.Path, p.Argv, &syscall.ProcAttr{
		Dir: p.Dir, Env: p.Env, Files: files, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
}

// end kills a process group, and reaps all of it that are children of this program: also those whose parent has ended,
// if it adopts orphans. It does nothing for the group 0.
func end(group int) {
	if group == 0 {
		return
	}
	_ = unix.Kill(-group, unix.SIGKILL)
	for {
		if _, err := unix.Wait4(-group, nil, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// judge says what is wrong with what a trial could do.
func judge(text []byte) error {
	var could map[string]bool
	if err := json.Unmarshal(text, &could); err != nil {
		return fmt.Errorf("a confined program did not say what it could do: %q", clean(string(text)))
	}
	var wrong []string
	for _, attempt := range trials {
		switch can, tried := could[attempt.name]; {
		case !tried:
			wrong = append(wrong, "did not try to "+attempt.name)
		case can && !attempt.allowed:
			wrong = append(wrong, "could "+attempt.name)
		case !can && attempt.allowed:
			wrong = append(wrong, "could not "+attempt.name)
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return errors.New("a confined program " + strings.Join(wrong, ", "))
	}
	return nil
}
