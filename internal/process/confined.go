package process

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/sandbox"
)

// Sandbox reports what confines the process, if anything does.
func (p *Process) Sandbox() (report sandbox.Report, confined bool) {
	if p.sandbox == nil {
		return report, false
	}
	return *p.sandbox, true
}

// classifySandboxError returns the typed error for a failed start of a confined program. The
// program and the directory existed outside of the sandbox a moment ago.
func (s *Spec) classifySandboxError(program string, err error) error {
	var sandboxErr *sandbox.Error
	switch errors.As(err, &sandboxErr); {
	case KindOf(err) != 0:
		return err
	case sandboxErr == nil && isResourceExhausted(err):
		return startError(ResourceLimit, "", err)
	case sandboxErr == nil && errors.Is(err, unix.E2BIG):
		return s.classifyExecError(program, unix.E2BIG)
	case sandboxErr == nil && isErrno(err): // of setting up the sandbox
		return startError(SandboxNotStarted, "", err)
	case sandboxErr == nil:
		return err
	case sandboxErr.Kind == sandbox.NoDirectory:
		return startError(BadWorkingDirectory, s.Cwd, fmt.Errorf("working directory does not exist inside the sandbox; grant it in the policy, or use another: %w", sandboxErr))
	case sandboxErr.Kind != sandbox.NotExecuted:
		return startError(SandboxNotStarted, sandboxErr.Path, sandboxErr)
	case sandboxErr.Errno == unix.ENOENT && s.checkProgram(program) == nil:
		return startError(NotExecutable, sandboxErr.Path, fmt.Errorf("it or its interpreter does not exist inside the sandbox: %w", sandboxErr.Errno))
	}
	return s.classifyExecError(program, sandboxErr.Errno)
}

func isErrno(err error) bool {
	var errno unix.Errno
	return errors.As(err, &errno)
}
