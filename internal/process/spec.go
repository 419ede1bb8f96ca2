package process

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/osuser"
	"github.com/execwire/execwire/internal/sandbox"
)

// Spec describes a process to start.
type Spec struct {
	// Argv is the program and its arguments. Argv[0] is looked up in the PATH of Env, or in
	// /bin:/usr/bin if Env has none. If it contains a slash, or is found through a relative entry
	// of PATH, it is relative to Cwd.
	Argv []string
	// Arg0 is the argv[0] of the child. Nil: Argv[0].
	Arg0 *string
	// Executable, if set, is the absolute path to execute, without a lookup.
	Executable string
	// Cwd is the absolute path of the working directory.
	Cwd string
	// Env is the complete environment of the child, as NAME=value. For PATH the first entry counts.
	Env []string
	// Terminal gives the child a terminal of this size for stdin, stdout and stderr. Nil: pipes.
	Terminal *WindowSize
	// PipeStdin gives a child without a terminal a pipe for stdin. Otherwise stdin is /dev/null.
	PipeStdin bool
	// Timeout bounds the wall-clock time from the start; then the process tree is killed with
	// CauseTimeout. 0: none.
	Timeout time.Duration
	// NoOutputTimeout bounds the time without output; then the process tree is killed with
	// CauseNoOutput. Time in which output is blocked by the owner's window does not count. 0: none.
	NoOutputTimeout time.Duration
	// ResourceLimits apply before the first instruction of the program. At most one for each
	// resource.
	ResourceLimits []Limit
	// Nice is added to the nice value of this process, from -MaxNice to MaxNice. The sum is clamped
	// to -20 and 19. 0 changes nothing.
	Nice int
	// LeaveDescendants keeps the descendants running when the process closes. They end with the
	// Supervisor, or with Terminate. Otherwise they are killed.
	LeaveDescendants bool
	// Sandbox confines the process and its descendants. Nil: not confined. Argv[0] is looked up in
	// the paths that the sandbox grants, as they are outside of it.
	Sandbox *sandbox.Confinement
	// User is who the process runs as. Nil, or one for whom IsSelf is true: the user of this
	// program, with its groups. Another one needs privileges. Cwd and the program are then checked
	// with the access of that user, who also gets the terminal and the pipes.
	User *osuser.User
	// Labels are stored for the caller and not interpreted.
	Labels map[string]string
	// Output is the limits of the event log.
	Output eventlog.Limits
}

// WindowSize is the size of a terminal in characters. 0 is the default: 24 rows, 80 columns.
type WindowSize struct {
	Rows, Cols uint16 // 0: the default
}

// WithDefaults returns the size with the defaults of zero fields.
func (w WindowSize) WithDefaults() WindowSize {
	w.Rows = cmp.Or(w.Rows, 24)
	w.Cols = cmp.Or(w.Cols, 80)
	return w
}

// validate rejects malformed specs before anything is started.
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

const nulProblem = "contains a NUL byte, which cannot be passed to a program; remove it"

func hasNUL(s string) bool { return strings.IndexByte(s, 0) >= 0 }

// argv returns the arguments of the child.
func (s *Spec) argv() []string {
	if s.Arg0 == nil {
		return s.Argv
	}
	return append([]string{*s.Arg0}, s.Argv[1:]...)
}
