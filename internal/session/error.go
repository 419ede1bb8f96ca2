package session

import "fmt"

// Kind says what went wrong, so that doors can translate it.
type Kind int

// The kinds. [Kinds] lists them all.
const (
	// SessionNotFound: no such session, or another principal's.
	SessionNotFound Kind = iota + 1
	// ProcessNotFound: no such process in the session.
	ProcessNotFound
	// ProcessAlreadyExists: the id is taken by a different start.
	ProcessAlreadyExists
	// ProcessOwned: somebody else paces the process.
	ProcessOwned
	// StdinOffsetInvalid: input does not follow what was accepted.
	StdinOffsetInvalid
	// GraceTooLong: more grace than the maximum was asked for.
	GraceTooLong
	// Draining: nothing new is started any more.
	Draining
	// StdinQueueFull: too much input waits for the process already.
	StdinQueueFull
)

// Kinds returns every kind, so that tests can prove a translation complete.
func Kinds() []Kind {
	var all []Kind
	for k := SessionNotFound; k <= StdinQueueFull; k++ {
		all = append(all, k)
	}
	return all
}

// Error is what this package returns when a session or its rules are the
// reason. Errors of starting and controlling a process come from package
// process unchanged.
type Error struct {
	// Kind says what went wrong.
	Kind Kind
	// Subject is the id of the session or process.
	Subject string
	// Detail adds to the message; may be empty.
	Detail string
}

// Error implements error.
func (e *Error) Error() string {
	var text string
	switch e.Kind {
	case SessionNotFound:
		text = fmt.Sprintf("session %q does not exist", e.Subject)
	case ProcessNotFound:
		text = fmt.Sprintf("process %q does not exist", e.Subject)
	case ProcessAlreadyExists:
		text = fmt.Sprintf("process %q already exists and was started differently: choose another id", e.Subject)
	case ProcessOwned:
		text = fmt.Sprintf("process %q is paced by somebody else: watch it without lossless", e.Subject)
	case StdinOffsetInvalid:
		text = fmt.Sprintf("input for process %q is not where it should be", e.Subject)
	case GraceTooLong:
		text = fmt.Sprintf("grace for process %q is too long", e.Subject)
	case StdinQueueFull:
		text = fmt.Sprintf("%d bytes wait for process %q to read its stdin, and no more may: write again when it has", MaxWaitingInput, e.Subject)
	case Draining:
		text = "the server is shutting down and starts nothing new"
	default:
		text = fmt.Sprintf("session error %d about %q", e.Kind, e.Subject)
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}
