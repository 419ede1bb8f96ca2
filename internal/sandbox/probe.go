package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// probeTimeout bounds the probe of a backend.
const probeTimeout = 20 * time.Second

// selfTestCommand is the argument that makes [Main] run the self-tests.
const selfTestCommand = "execwire-sandbox-trial"

// probeBackend runs the self-tests in a sandbox. It returns what the sandbox did not
// prevent, or prevented wrongly.
func (s *Sandboxes) probeBackend(ctx context.Context, status *Status) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTimeout, errors.New("a confined program took too long"))
	defer cancel()
	dir, err := probeDirectory()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	inside := filepath.Join(dir, "inside")
	if err := errors.Join(os.Mkdir(inside, 0o700), os.WriteFile(filepath.Join(dir, "outside"), nil, 0o600)); err != nil {
		return err
	}
	policy := Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}, {Path: inside, Access: AccessWrite}}}
	plan, err := policy.Resolve(ctx, ResolveOptions{})
	if err != nil {
		return err
	}
	enforce, err := s.newEnforcer(status, plan)
	if err != nil {
		return err
	}
	return (&Confinement{enforce: enforce, placeholders: &s.placeholders}).runSelfTests(ctx, dir)
}

// probeDirectory creates a directory that is visible in every sandbox, which
// directories in /dev and /proc are not. It returns its path without links.
func probeDirectory() (string, error) {
	var failures []error
	for _, parent := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		parent, err := filepath.EvalSymlinks(parent)
		switch {
		case err != nil:
		case !filepath.IsAbs(parent) || slices.ContainsFunc(virtualDirs, func(dir string) bool { return within(parent, dir) }):
			err = fmt.Errorf("%s is not visible in every sandbox", parent)
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

// runSelfTests runs the self-tests with a directory.
func (c *Confinement) runSelfTests(ctx context.Context, dir string) error {
	h, err := c.StartWorker(ctx, []string{"execwire", selfTestCommand, dir, strconv.Itoa(os.Getpid())}, nil)
	if err != nil {
		return err
	}
	defer h.Close()
	stop := context.AfterFunc(ctx, h.Kill)
	var could map[string]bool
	err = json.NewDecoder(h.Output()).Decode(&could)
	if !stop() {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("a confined program did not report what it could do: %w: %q", err, h.StderrTail())
	}
	return checkSelfTests(could)
}

// forkExec starts a program in a new process group but in the session of this process:
// a server that adopts orphans would take a child with another session for one of them,
// and kill it.
func forkExec(p Program) (int, error) {
	return p.ForkExec(syscall.SysProcAttr{Setpgid: true})
}

// killGroup kills a process group and reaps all members that are children of this
// process, adopted ones included. It ignores group 0.
func killGroup(group int) {
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

// checkSelfTests compares the results with what is expected.
func checkSelfTests(could map[string]bool) error {
	var wrong []string
	for _, attempt := range selfTests {
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
