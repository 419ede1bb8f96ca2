package process

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/sandbox"
)

// Spec says what to start.
type Spec struct {
	// Argv is the program and its arguments. Argv[0] is looked up in the PATH of Env, or in /bin:/usr/bin if Env has
	// none; with a slash in it, or found through a relative entry of PATH, it is relative to Cwd.
	Argv []string
	// Arg0 is what the child sees as its argv[0]. Nil: Argv[0].
	Arg0 *string
	// Executable, if set, is the absolute path of what is executed, and nothing is looked up.
	Executable string
	// Cwd is the working directory, absolute.
	Cwd string
	// Env is exactly the child's environment, as NAME=value. Of a name given twice the first counts for PATH.
	Env []string
	// Terminal gives the child a terminal of this size for its stdin, stdout and stderr. Nil: pipes.
	Terminal *WindowSize
	// PipeStdin gives a child without a terminal a pipe for stdin. False: stdin is /dev/null.
	PipeStdin bool
	// Timeout is the most wall-clock time from the start; then it is killed with all its descendants, with
	// CauseTimeout. 0: none.
	Timeout time.Duration
	// NoOutputTimeout is the most time without output, then the same happens with CauseNoOutput. Time in which output
	// waits for room in the owner's window does not count. 0: none.
	NoOutputTimeout time.Duration
	// ResourceLimits are in force before the program's first instruction, each resource at most once. A start with
	// limits or Nice takes a ptrace(2) attachment that is over when Start returns; unless this process is privileged,
	// programs with the set-user-id bit then run without gaining anything by it.
	ResourceLimits []Limit
	// Nice is added to this process's own nice value, -MaxNice to MaxNice; the sum ends at the ends of the range, -20
	// and 19. 0 changes nothing.
	Nice int
	// LeaveDescendants leaves alone what is left of the process when it closes. It then ends with the Supervisor, or
	// with Terminate. Otherwise it is killed.
	LeaveDescendants bool
	// Sandbox confines the process with all that descends from it. Nil: nothing does. Argv[0] is looked up among what
	// the sandbox grants, as its files are outside of it.
	Sandbox *sandbox.Confinement
	// Labels are what the caller wants to find with the process again. Nothing here heeds them.
	Labels map[string]string
	// Output bounds the event log.
	Output eventlog.Limits
}

// WindowSize is the size of a terminal in characters. A zero means the usual: 24 rows, 80 columns.
type WindowSize struct {
	Rows, Cols uint16 // 0: the usual
}

func (w WindowSize) withDefaults() WindowSize {
	if w.Rows == 0 {
		w.Rows = 24
	}
	if w.Cols == 0 {
		w.Cols = 80
	}
	return w
}

// validate refuses what could not be meant, before anything is touched.
func (s *Spec) validate() error {
	switch {
	case len(s.Argv) == 0:
		return invalid("argv", "is empty; give the program and its arguments")
	case s.Argv[0] == "":
		return invalid("argv[0]", "is empty; give the program's name or path")
	case s.Cwd == "":
		return invalid("cwd", "is empty; give an absolute path")
	case !filepath.IsAbs(s.Cwd):
		return invalid("cwd", fmt.Sprintf("%q is not absolute; give an absolute path", s.Cwd))
	case s.Executable != "" && !filepath.IsAbs(s.Executable):
		return invalid("executable", fmt.Sprintf("%q is not absolute; give an absolute path", s.Executable))
	}
	if err := s.validateLimits(); err != nil {
		return err
	}
	return s.validateStrings()
}

func (s *Spec) validateStrings() error {
	for i, arg := range s.Argv {
		if hasNUL(arg) {
			return invalid(fmt.Sprintf("argv[%d]", i), nulProblem)
		}
	}
	switch {
	case s.Arg0 != nil && hasNUL(*s.Arg0):
		return invalid("arg0", nulProblem)
	case hasNUL(s.Executable):
		return invalid("executable", nulProblem)
	case hasNUL(s.Cwd):
		return invalid("cwd", nulProblem)
	}
	return validateEnvironment(s.Env)
}

func validateEnvironment(env []string) error {
	for i, entry := range env {
		name, _, ok := strings.Cut(entry, "=")
		switch {
		case !ok:
			return invalid(fmt.Sprintf("env[%d]", i), "has no \"=\"; give NAME=value")
		case hasNUL(entry):
			return invalid(fmt.Sprintf("env[%q]", name), nulProblem)
		}
	}
	return nil
}

const nulProblem = "contains a NUL byte, which no program can receive; remove it"

func hasNUL(s string) bool { return strings.IndexByte(s, 0) >= 0 }

// argv is what the child sees.
func (s *Spec) argv() []string {
	if s.Arg0 == nil {
		return s.Argv
	}
	return append([]string{*s.Arg0}, s.Argv[1:]...)
}
