package sandbox

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
	Failed        Kind = iota + 1 // the system refused something that ought to work
	InvalidPolicy                 // Error.Member of the policy is malformed
	UnsafeLink                    // a place is reached through a symbolic link that the program could replace
	TooManyPlaces                 // the policy comes to more than Error.Limit
	Unavailable                   // nothing here can enforce the policy: Error.Reasons say why
	NotStarted                    // the sandbox itself could not be set up
	NoDirectory                   // the working directory is not there inside the sandbox
	NotExecuted                   // inside the sandbox the program could not be executed: Error.Errno says why
)

var kindNames = map[Kind]string{
	Failed:        "failed",
	InvalidPolicy: "invalid policy",
	UnsafeLink:    "unsafe link",
	TooManyPlaces: "too many places",
	Unavailable:   "unavailable",
	NotStarted:    "not started",
	NoDirectory:   "no directory",
	NotExecuted:   "not executed",
}

// Kinds returns every kind, so that a table that maps them can be checked for
// completeness.
func Kinds() []Kind {
	kinds := make([]Kind, 0, len(kindNames))
	for k := Failed; k <= NotExecuted; k++ {
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

// Error is what this package fails with.
type Error struct {
	// Kind says what went wrong, for those who translate it.
	Kind Kind
	// Member is the member of the policy in question, as in "entries[2].path", or "".
	Member string
	// Path is the path in question, or "".
	Path string
	// Errno is what the kernel said, or 0.
	Errno syscall.Errno
	// Limit is what was exceeded by TooManyPlaces.
	Limit int
	// Reasons say of each backend why it does not do. Only of Unavailable.
	Reasons []Reason
	// Err says what is wrong, and how to mend it.
	Err error
}

// Reason is why a backend cannot enforce a plan.
type Reason struct {
	// Backend is the backend in question.
	Backend Backend
	// Err says what is in the way.
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

// KindOf returns the kind of an error of this package, and 0 for any other.
func KindOf(err error) Kind {
	var typed *Error
	if errors.As(err, &typed) {
		return typed.Kind
	}
	return 0
}

func invalid(member, format string, args ...any) *Error {
	return &Error{Kind: InvalidPolicy, Member: member, Err: fmt.Errorf(format, args...)}
}

// failed types what the kernel said about a path.
func failed(kind Kind, path, doing string, err error) *Error {
	typed := &Error{Kind: kind, Path: path, Err: fmt.Errorf("%s: %w", doing, err)}
	errors.As(err, &typed.Errno)
	return typed
}

// unseen types that a place cannot be looked at, and says what to do if that is for want of permission.
func unseen(path, doing string, err error) *Error {
	e := failed(Failed, path, doing, err)
	if e.Errno == syscall.EACCES {
		e.Err = fmt.Errorf("%w; let the server's user search the directories above it, or leave them out of the policy", e.Err)
	}
	return e
}

// advised adds what to do to what bubblewrap says, where it does not say why.
func advised(said string) string {
	if strings.HasPrefix(said, "bwrap: Can't mkdir parents for ") && strings.HasSuffix(said, "Permission denied") {
		said += "; bubblewrap 0.12 reads every directory above a place: let the server's user do that, or have Landlock confine"
	}
	return said
}

func clean(text string) string { return strings.TrimSpace(strings.ToValidUTF8(text, "?")) }
