package process

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/sandbox"
)

// Sandbox says what confines the process, if anything does.
func (p *Process) Sandbox() (report sandbox.Report, confined bool) {
	if p.sandbox == nil {
		return report, false
	}
	return *p.sandbox, true
}

// confine notes what confines p, and gives up what it was started with.
func (p *Process) confine(by *sandbox.Confinement) {
	if by == nil {
		return
	}
	report := by.Report()
	p.sandbox, p.spec.Sandbox = &report, nil
	if p.isStoodFor() {
		p.init, _ = findInit(p.pid)
	}
}

// explainConfined types the error of the start of a confined program. What is outside of the sandbox was there a moment
// ago.
func (s *Spec) explainConfined(program string, err error) error {
	var inside *sandbox.Error
	switch errors.As(err, &inside); {
	case inside == nil && isExhausted(err):
		return startError(ResourceLimit, "", err)
	case inside == nil && errors.Is(err, unix.E2BIG):
		return s.explain(program, unix.E2BIG)
	case inside == nil && isErrno(err): // of what would have made the sandbox
		return s.notStarted("", err)
	case inside == nil:
		return err
	case inside.Kind == sandbox.NoDirectory:
		return startError(BadWorkingDirectory, s.Cwd, fmt.Errorf("working directory is not there inside the sandbox; grant it in the policy, or name another: %w", inside))
	case inside.Kind != sandbox.NotExecuted:
		return s.notStarted(inside.Path, inside)
	case inside.Errno == unix.ENOENT && s.checkProgram(program) == nil:
		return startError(NotExecutable, inside.Path, fmt.Errorf("it or its interpreter is not there inside the sandbox: %w", inside.Errno))
	}
	return s.explain(program, inside.Errno)
}

// notStarted types an error of what makes the sandbox, for which the limits of the process hold as well.
func (s *Spec) notStarted(subject string, err error) error {
	var limits []string
	for _, limit := range s.ResourceLimits {
		limits = append(limits, fmt.Sprintf("%v=%d", limit.Resource, limit.Soft))
	}
	if len(limits) > 0 {
		err = fmt.Errorf("%w; the limits of the process hold for what makes its sandbox too, raise %s if that is too low", err, strings.Join(limits, " or "))
	}
	return startError(SandboxNotStarted, subject, err)
}

func isErrno(err error) bool {
	var errno unix.Errno
	return errors.As(err, &errno)
}
