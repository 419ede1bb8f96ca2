package process

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/sandbox"
)

// defaultPath is searched when the child's environment has no PATH.
const defaultPath = "/bin:/usr/bin"

// errNotGranted is why a start is refused for what the sandbox does not grant. It is the same whether anything is there
// or not, as nobody looks.
var errNotGranted = errors.New("the sandbox does not grant it; grant it in the policy, or name another")

// checkDirectory returns what is wrong with the working directory, which is looked at only as far as the sandbox grants.
// exec(2) cannot tell it from a missing program.
func (s *Supervisor) checkDirectory(spec *Spec) error {
	if spec.Sandbox == nil {
		return s.findDirectory(spec.Cwd)
	}
	fd, reach, err := spec.Sandbox.Look(spec.Cwd)
	switch {
	case err != nil:
		return badDirectory(spec.Cwd, err)
	case reach == sandbox.Outside:
		return startError(BadWorkingDirectory, spec.Cwd, fmt.Errorf("working directory: %w", errNotGranted))
	case reach == sandbox.Own:
		return nil
	}
	defer unix.Close(fd)
	if err := s.findDirectory("/proc/self/fd/" + strconv.Itoa(fd)); err != nil {
		return startError(BadWorkingDirectory, spec.Cwd, errors.Unwrap(err))
	}
	return nil
}

// checkDirectory tells what is wrong with a directory.
func checkDirectory(dir string) error {
	// The "." makes it fail for what is not a directory, and with X_OK for what may not be searched.
	return badDirectory(dir, unix.Faccessat(unix.AT_FDCWD, dir+"/.", unix.X_OK, unix.AT_EACCESS))
}

// badDirectory types why a working directory cannot be entered; nil if it can.
func badDirectory(dir string, err error) error {
	if err == nil {
		return nil
	}
	why := fmt.Errorf("working directory: %w", err)
	switch {
	case errors.Is(err, unix.ENOENT):
		why = fmt.Errorf("working directory does not exist: %w", err)
	case errors.Is(err, unix.ENOTDIR):
		why = fmt.Errorf("working directory is not a directory: %w", err)
	case errors.Is(err, unix.EACCES):
		why = fmt.Errorf("working directory may not be searched: %w", err)
	}
	return startError(BadWorkingDirectory, dir, why)
}

// resolve returns what to execute after changing to the working directory: absolute, or relative to it.
func (s *Spec) resolve() (string, error) {
	name := s.Argv[0]
	switch {
	case s.Executable != "":
		return s.Executable, s.checkProgram(s.Executable)
	case strings.Contains(name, "/"):
		return name, s.checkProgram(name)
	}
	return s.search(name)
}

// search looks for name in the child's PATH, as execvp does: what cannot be executed is passed over, and reported only
// if nothing better comes. An empty PATH has no entries.
func (s *Spec) search(name string) (string, error) {
	path, ok := getenv(s.Env, "PATH")
	if !ok {
		path = defaultPath
	}
	var passedOver error
	for dir := range strings.SplitSeq(path, ":") {
		if path == "" {
			break
		}
		if dir == "" {
			dir = "."
		}
		candidate := dir + "/" + name
		err := s.checkProgram(candidate)
		if err == nil {
			return candidate, nil
		}
		if KindOf(err) != ProgramNotFound && passedOver == nil {
			passedOver = err
		}
	}
	if passedOver != nil {
		return "", passedOver
	}
	return "", startError(ProgramNotFound, name, fmt.Errorf("not found in PATH %q; give a path or set PATH in env", path))
}

func getenv(env []string, name string) (string, bool) {
	for _, entry := range env {
		if n, value, ok := strings.Cut(entry, "="); ok && n == name {
			return value, true
		}
	}
	return "", false
}

// fromCwd makes a path of the child usable for us.
func (s *Spec) fromCwd(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	return s.Cwd + "/" + path
}

// checkProgram tells what is wrong with a program, as far as can be seen without executing it. What a sandbox does not
// grant is not looked at.
func (s *Spec) checkProgram(path string) error {
	path = s.fromCwd(path)
	if s.Sandbox == nil {
		var stat unix.Stat_t
		err := unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
		return badProgram(path, err, unix.Stat(path, &stat), stat.Mode)
	}
	fd, reach, err := s.Sandbox.Look(path)
	switch {
	case err != nil:
		return badProgram(path, err, err, 0)
	case reach == sandbox.Outside:
		return startError(ProgramNotFound, path, errNotGranted)
	case reach == sandbox.Own:
		return nil
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	err = unix.Faccessat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.X_OK, unix.AT_EACCESS)
	return badProgram(path, err, unix.Fstat(fd, &stat), stat.Mode)
}

// badProgram types why a program cannot be executed: what access(2) and stat(2) say, and its mode. Nil if it can.
func badProgram(path string, err, statErr error, mode uint32) error {
	switch {
	case statErr == nil && mode&unix.S_IFMT == unix.S_IFDIR:
		return startError(NotExecutable, path, errors.New("is a directory"))
	case err == nil:
		return nil
	case statErr == nil && errors.Is(err, unix.EACCES):
		return startError(NotExecutable, path, fmt.Errorf("%w; it lacks the execute permission", err))
	}
	kind := missingKind(err)
	if kind == PermissionDenied {
		err = fmt.Errorf("%w; a directory on the way may not be searched: name another program, or set another PATH in env", err)
	}
	return startError(kind, path, err)
}

func missingKind(err error) Kind {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return PermissionDenied
	case isExhausted(err):
		return ResourceLimit
	}
	return ProgramNotFound // ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG: nothing is there
}

// explain types the error of fork and exec. The program and the directory were there a moment ago.
func (s *Spec) explain(program string, err error) error {
	if KindOf(err) != 0 {
		return err
	}
	if s.Sandbox == nil {
		if bad := checkDirectory(s.Cwd); bad != nil {
			return bad
		}
	}
	path := s.fromCwd(program)
	switch {
	case isExhausted(err):
		return startError(ResourceLimit, path, err)
	case errors.Is(err, unix.EBADF): // the child had to move a descriptor, and the next number was beyond the limit
		return startError(ResourceLimit, path, unix.EMFILE)
	case errors.Is(err, unix.E2BIG):
		return startError(ArgumentListTooLong, path, fmt.Errorf("%w; pass less in argv and env", err))
	case errors.Is(err, unix.ENOENT):
		if missing := s.checkProgram(program); missing != nil {
			return missing
		}
		return startError(NotExecutable, path, fmt.Errorf("its interpreter is missing: %w", err))
	case errors.Is(err, unix.EPERM):
		return startError(PermissionDenied, path, err)
	}
	for _, errno := range []error{unix.EACCES, unix.ENOEXEC, unix.ELIBBAD, unix.ETXTBSY, unix.EINVAL, unix.ELOOP, unix.ENOTDIR, unix.EISDIR} {
		if errors.Is(err, errno) {
			return startError(NotExecutable, path, err)
		}
	}
	return startError(Internal, path, err)
}
