package sandbox

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Kind is the kind of an [Error].
type Kind uint8

// The kinds of errors.
const (
	Failed        Kind = iota + 1 // an unexpected error of the system
	InvalidPolicy                 // Error.Member of the policy is invalid
	UnsafeLink                    // a path contains a symbolic link that the program could replace
	TooManyPaths                  // the policy resolves to more than Error.Limit paths
	Unavailable                   // no backend can enforce the policy; see Error.Reasons
	NotStarted                    // the sandbox could not be set up
	NoDirectory                   // the working directory does not exist inside the sandbox
	NotExecuted                   // the program could not be executed inside the sandbox; see Error.Errno

	KindEnd // one after the last, for checks that a mapping is complete
)

// Error is the error type of this package.
type Error struct {
	// Kind is the kind of the error.
	Kind Kind
	// Member is the invalid member of the policy, such as "entries[2].path", or "".
	Member string
	// Path is the path that caused the error, or "".
	Path string
	// Errno is the errno of the failed system call, or 0.
	Errno syscall.Errno
	// Limit is the exceeded limit. Only of TooManyPaths.
	Limit int
	// Reasons are why each backend cannot be used. Only of Unavailable.
	Reasons []Reason
	// Err is the cause and, where there is one, the remedy.
	Err error
}

// Reason is why a backend cannot enforce a plan.
type Reason struct {
	// Backend is the backend.
	Backend Backend
	// Err is the reason.
	Err error
}

func (e *Error) Error() string {
	text := "sandbox: "
	if e.Member != "" {
		text += e.Member + ": "
	}
	if e.Path != "" {
		text += e.Path + ": "
	}
	text += e.Err.Error()
	for i, reason := range e.Reasons {
		separator := "; "
		if i == 0 {
			separator = ": "
		}
		text += separator + reason.Backend.String() + ": " + reason.Err.Error()
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of an error of this package, and 0 for other errors.
func KindOf(err error) Kind {
	if typed, ok := errors.AsType[*Error](err); ok {
		return typed.Kind
	}
	return 0
}

func invalid(member, format string, args ...any) *Error {
	return &Error{Kind: InvalidPolicy, Member: member, Err: fmt.Errorf(format, args...)}
}

// failed returns an error for a failed system call about a path.
func failed(kind Kind, path, doing string, err error) *Error {
	typed := &Error{Kind: kind, Path: path, Err: fmt.Errorf("%s: %w", doing, err)}
	errors.As(err, &typed.Errno)
	return typed
}

// lookupError returns an error for a failed lookup. If permission is missing, it adds a
// remedy.
func lookupError(path, doing string, err error) *Error {
	e := failed(Failed, path, doing, err)
	if e.Errno == syscall.EACCES {
		e.Err = fmt.Errorf("%w; let the server's user search the directories above it, or leave them out of the policy", e.Err)
	}
	return e
}

// withAdvice adds a remedy to a message of bwrap.
func withAdvice(text string) string {
	if strings.HasPrefix(text, "bwrap: Can't mkdir parents for ") && strings.HasSuffix(text, "Permission denied") {
		text += "; bubblewrap 0.12 reads every directory above a mount point: let the server's user do that, or use Landlock"
	}
	return text
}

func sanitize(text string) string { return strings.TrimSpace(strings.ToValidUTF8(text, "?")) }
