package process

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Kind tells errors apart for those who map them.
type Kind uint8

// The kinds of errors. There is no zero kind.
const (
	Internal            Kind = iota + 1 // our own trouble: nothing the caller can mend
	InvalidArgument                     // Error.Field is malformed
	ProgramNotFound                     // no such program, or not in PATH
	NotExecutable                       // found, and cannot be executed: mode, format or interpreter
	BadWorkingDirectory                 // missing, no directory, or not searchable
	PermissionDenied                    // the system forbids it
	ArgumentListTooLong                 // arguments and environment exceed what the system accepts
	ResourceLimit                       // out of processes, memory, descriptors or terminals: may pass
	SandboxNotStarted                   // Spec.Sandbox could not be set up, so nothing was executed
	StdinClosed                         // the process has ended, closed its input, or the input was closed before
	StdinNotPiped                       // the process was started without an input
	StdinIsTerminal                     // a terminal's input has no end to close
	WriteTooLarge                       // one write exceeds Config.MaxWriteBytes
	NotATerminal                        // the process was started without a terminal
	AlreadyExited                       // nothing is left that could be signalled or resized
	ShuttingDown                        // the supervisor takes no more work
)

var kindNames = map[Kind]string{
	Internal:            "internal",
	InvalidArgument:     "invalid argument",
	ProgramNotFound:     "program not found",
	NotExecutable:       "not executable",
	BadWorkingDirectory: "bad working directory",
	PermissionDenied:    "permission denied",
	ArgumentListTooLong: "argument list too long",
	ResourceLimit:       "resource limit",
	SandboxNotStarted:   "sandbox not started",
	StdinClosed:         "stdin closed",
	StdinNotPiped:       "stdin not piped",
	StdinIsTerminal:     "stdin is a terminal",
	WriteTooLarge:       "write too large",
	NotATerminal:        "not a terminal",
	AlreadyExited:       "already exited",
	ShuttingDown:        "shutting down",
}

// Kinds returns every kind, so that a table that maps them can be checked for completeness.
func Kinds() []Kind {
	kinds := make([]Kind, 0, len(kindNames))
	for k := Internal; k <= ShuttingDown; k++ {
		kinds = append(kinds, k)
	}
	return kinds
}

func (k Kind) String() string {
	if name, ok := kindNames[k]; ok {
		return name
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Error is what the functions of this package fail with, apart from a context's own cause.
type Error struct {
	// Kind says what went wrong, for those who translate it.
	Kind Kind
	// Field names the part of the request in question, as in argv[2], env["LANG"] or cwd. For InvalidArgument, and for
	// limits that are not permitted or cannot be set.
	Field string
	// Subject is the thing in question: a path, a program. It may be empty, and never holds an environment's value.
	Subject string
	// Err says what is wrong with it, and how to mend it.
	Err error

	verb string
}

func (e *Error) Error() string {
	parts := []string{"failed to " + e.verb}
	for _, part := range []string{e.Field, e.Subject} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(append(parts, e.Err.Error()), ": ")
}

func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of an error of this package, and 0 for any other.
func KindOf(err error) Kind {
	var typed *Error
	if errors.As(err, &typed) {
		return typed.Kind
	}
	return 0
}

func startError(kind Kind, subject string, err error) *Error {
	return &Error{Kind: kind, Subject: subject, Err: err, verb: "start process"}
}

func invalid(field, problem string) *Error {
	return &Error{Kind: InvalidArgument, Field: field, Err: errors.New(problem), verb: "start process"}
}

func refuse(kind Kind, verb, why string) *Error {
	return &Error{Kind: kind, Err: errors.New(why), verb: verb}
}

// isExhausted tells errors of the system that mean a limit was hit.
func isExhausted(err error) bool {
	for _, errno := range []syscall.Errno{
		syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC, syscall.EUSERS,
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// resourceError types a failure to get descriptors, terminals or the like.
func resourceError(subject string, err error) *Error {
	switch {
	case isExhausted(err):
		return startError(ResourceLimit, subject, err)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return startError(PermissionDenied, subject, err)
	}
	return startError(Internal, subject, err)
}
