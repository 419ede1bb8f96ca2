package process

import (
	"errors"
	"slices"
	"strings"
	"syscall"
)

// Kind classifies errors.
type Kind uint8

// The kinds of errors. There is no zero kind.
const (
	Internal            Kind = iota + 1 // a failure that the caller cannot fix
	InvalidArgument                     // Error.Field is malformed
	ProgramNotFound                     // no such program, or not in PATH
	NotExecutable                       // found, but mode, format or interpreter do not permit execution
	BadWorkingDirectory                 // missing, not a directory, or not searchable
	PermissionDenied                    // the system does not permit it
	ArgumentListTooLong                 // arguments and environment exceed what the system accepts
	ResourceLimit                       // no processes, memory, descriptors or terminals left; may be temporary
	SandboxNotStarted                   // Spec.Sandbox could not be set up, so nothing was executed
	StdinClosed                         // the input is closed, or the process has ended or closed it
	StdinNotPiped                       // the process was started without an input
	StdinIsTerminal                     // the input of a terminal cannot be closed
	WriteTooLarge                       // one write exceeds Config.MaxWriteBytes
	NotATerminal                        // the process was started without a terminal
	AlreadyExited                       // no process is left to signal or resize
	ShuttingDown                        // the supervisor is closing
	UserUnavailable                     // this program cannot start processes of Spec.User
	ScreenUnavailable                   // the terminal is larger than a screen can be

	KindEnd // one after the last, for checks that a mapping is complete
)

// Error is the error type of this package, apart from the cause of a context.
type Error struct {
	// Kind is the class of the error.
	Kind Kind
	// Field names the invalid part of the request, such as argv[2], env["LANG"] or cwd. It is set
	// for InvalidArgument and UserUnavailable, and for limits that are not permitted or cannot be set.
	Field string
	// Subject is the path or the program that the error is about. It may be empty, and never
	// contains the value of an environment variable.
	Subject string
	// Err is what is wrong, and how to fix it.
	Err error

	operation string
}

func (e *Error) Error() string {
	parts := []string{"failed to " + e.operation}
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
	if typed, ok := errors.AsType[*Error](err); ok {
		return typed.Kind
	}
	return 0
}

func startError(kind Kind, subject string, err error) *Error {
	return &Error{Kind: kind, Subject: subject, Err: err, operation: "start process"}
}

func invalid(field, problem string) *Error {
	return &Error{Kind: InvalidArgument, Field: field, Err: errors.New(problem), operation: "start process"}
}

func newError(kind Kind, operation, why string) *Error {
	return &Error{Kind: kind, Err: errors.New(why), operation: operation}
}

// isResourceExhausted reports whether a system error means that a limit was reached.
func isResourceExhausted(err error) bool {
	return isAnyOf(err, syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC, syscall.EUSERS)
}

func isAnyOf(err error, errnos ...syscall.Errno) bool {
	return slices.ContainsFunc(errnos, func(errno syscall.Errno) bool { return errors.Is(err, errno) })
}

// resourceError returns the typed error for a failure to create descriptors, terminals or the like.
func resourceError(subject string, err error) *Error {
	switch {
	case isResourceExhausted(err):
		return startError(ResourceLimit, subject, err)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return startError(PermissionDenied, subject, err)
	}
	return startError(Internal, subject, err)
}
