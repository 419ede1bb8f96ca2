package process

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/osuser"
	"github.com/execwire/execwire/internal/sandbox"
)

// defaultPath is used if the environment of the child has no PATH.
const defaultPath = "/bin:/usr/bin"

// errNotGranted is the same whether the path exists or not, because it is not looked at.
var errNotGranted = errors.New("the sandbox does not grant it; grant it in the policy, or name another")

// checkWorkingDirectory checks the working directory, as far as the sandbox grants access to it.
// The error of exec(2) cannot be told from a missing program.
func checkWorkingDirectory(spec *Spec, check func(dir string) error) error {
	if spec.Sandbox == nil {
		return check(spec.Cwd)
	}
	fd, visibility, err := spec.Sandbox.Lookup(spec.Cwd)
	switch {
	case err != nil:
		return directoryError(spec.Cwd, err)
	case visibility == sandbox.Hidden:
		return startError(BadWorkingDirectory, spec.Cwd, fmt.Errorf("working directory: %w", errNotGranted))
	case visibility == sandbox.Virtual:
		return nil
	}
	defer unix.Close(fd)
	if err := check("/proc/self/fd/" + strconv.Itoa(fd)); err != nil {
		return startError(BadWorkingDirectory, spec.Cwd, errors.Unwrap(err))
	}
	return nil
}

// DefaultDirectory returns the working directory of processes without one: the home directory of a
// user, or / if the user cannot enter it. Nil is this program's user, whose home directory is
// $HOME. It blocks while a file system hangs.
func DefaultDirectory(u *osuser.User) string {
	home, err := "", error(nil)
	if u != nil {
		home = u.Home
	} else {
		home, err = os.UserHomeDir()
	}
	if err != nil || !filepath.IsAbs(home) || asUser(u, func() error { return checkDirectory(home) }) != nil {
		return "/"
	}
	return home
}

// checkDirectory checks that a directory can be entered.
func checkDirectory(dir string) error {
	// The "." makes it fail for anything but a directory, and X_OK if it may not be searched.
	return directoryError(dir, unix.Faccessat(unix.AT_FDCWD, dir+"/.", unix.X_OK, unix.AT_EACCESS))
}

// directoryError returns the typed error for a working directory that cannot be entered, or nil.
func directoryError(dir string, err error) error {
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

// resolve returns the path to execute, absolute or relative to the working directory.
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

// search looks for name in the PATH of the child, as execvp does: a file that cannot be executed is
// skipped, and reported if there is no other. An empty PATH has no entries.
func (s *Spec) search(name string) (string, error) {
	path, ok := lookupEnv(s.Env, "PATH")
	if !ok {
		path = defaultPath
	}
	var rejected error
	for dir := range strings.SplitSeq(path, ":") {
		if path == "" {
			break
		}
		candidate := cmp.Or(dir, ".") + "/" + name
		err := s.checkProgram(candidate)
		if err == nil {
			return candidate, nil
		}
		if KindOf(err) != ProgramNotFound && rejected == nil {
			rejected = err
		}
	}
	if rejected != nil {
		return "", rejected
	}
	return "", startError(ProgramNotFound, name, errors.New("not found in the directories of PATH; give a path or set PATH in env"))
}

func lookupEnv(env []string, name string) (string, bool) {
	for _, entry := range env {
		if n, value, ok := strings.Cut(entry, "="); ok && n == name {
			return value, true
		}
	}
	return "", false
}

// absolutePath makes a path of the child usable for this program.
func (s *Spec) absolutePath(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	return s.Cwd + "/" + path
}

// checkProgram checks whether a program can be executed, as far as that can be seen without
// executing it. Paths that a sandbox does not grant are not looked at.
func (s *Spec) checkProgram(path string) error {
	path = s.absolutePath(path)
	if s.Sandbox == nil {
		var stat unix.Stat_t
		err := unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
		return programError(path, err, unix.Stat(path, &stat), stat.Mode)
	}
	fd, visibility, err := s.Sandbox.Lookup(path)
	switch {
	case err != nil:
		return programError(path, err, err, 0)
	case visibility == sandbox.Hidden:
		return startError(ProgramNotFound, path, errNotGranted)
	case visibility == sandbox.Virtual:
		return nil
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	err = unix.Faccessat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.X_OK, unix.AT_EACCESS)
	return programError(path, err, unix.Fstat(fd, &stat), stat.Mode)
}

// programError returns the typed error for a program that cannot be executed, given the errors of
// access(2) and stat(2) and its mode, or nil.
func programError(path string, err, statErr error, mode uint32) error {
	switch {
	case statErr == nil && mode&unix.S_IFMT == unix.S_IFDIR:
		return startError(NotExecutable, path, errors.New("is a directory"))
	case err == nil:
		return nil
	case statErr == nil && errors.Is(err, unix.EACCES):
		return startError(NotExecutable, path, fmt.Errorf("%w; it lacks the execute permission", err))
	}
	kind := lookupErrorKind(err)
	if kind == PermissionDenied {
		err = fmt.Errorf("%w; a directory on the way may not be searched: name another program, or set another PATH in env", err)
	}
	return startError(kind, path, err)
}

func lookupErrorKind(err error) Kind {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return PermissionDenied
	case isResourceExhausted(err):
		return ResourceLimit
	}
	return ProgramNotFound // ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG
}

// classifyExecError returns the typed error for a failed fork or exec. The program and the
// directory existed a moment ago.
func (s *Spec) classifyExecError(program string, err error) error {
	if KindOf(err) != 0 {
		return err
	}
	if s.Sandbox == nil {
		if dirErr := checkDirectory(s.Cwd); dirErr != nil {
			return dirErr
		}
	}
	path := s.absolutePath(program)
	switch {
	case isResourceExhausted(err):
		return startError(ResourceLimit, path, err)
	// The child had to move a descriptor, and the next number was beyond the limit.
	case errors.Is(err, unix.EBADF):
		return startError(ResourceLimit, path, unix.EMFILE)
	case errors.Is(err, unix.E2BIG):
		return startError(ArgumentListTooLong, path, fmt.Errorf("%w; pass less in argv and env", err))
	case errors.Is(err, unix.ENOENT):
		if lookupErr := s.checkProgram(program); lookupErr != nil {
			return lookupErr
		}
		return startError(NotExecutable, path, fmt.Errorf("its interpreter is missing: %w", err))
	case errors.Is(err, unix.EPERM):
		return startError(PermissionDenied, path, err)
	case isAnyOf(err, unix.EACCES, unix.ENOEXEC, unix.ELIBBAD, unix.ETXTBSY, unix.EINVAL, unix.ELOOP, unix.ENOTDIR, unix.EISDIR):
		return startError(NotExecutable, path, err)
	}
	return startError(Internal, path, err)
}
