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
	// SessionAttached: somebody who answers is attached to the session.
	SessionAttached
	// SessionTakenOver: another attachment took over from one that did not
	// answer.
	SessionTakenOver
	// SessionClosed: the session ended, by CloseSession or at the end of its
	// grace.
	SessionClosed
	// SessionAccessDenied: the session was granted for less.
	SessionAccessDenied
	// DefaultSession: the default session can be neither attached nor granted.
	DefaultSession
	// TooManySessions: the principal has as many sessions as it may.
	TooManySessions
	// TooManySessionsInAll: all principals together have as many as they may.
	TooManySessionsInAll
	// TooManyGrants: the session is granted to [MaxGrants] principals already.
	TooManyGrants
	// TooManyProcesses: as many processes of the session run as may.
	TooManyProcesses
	// TooManyProcessesAttached: as many processes of the session run as its
	// attachment lets.
	TooManyProcessesAttached
	// RetainedOutputFull: what may be kept of all processes leaves no room for
	// another.
	RetainedOutputFull
	// SpoolUnavailable: no file to spool to can be made.
	SpoolUnavailable
)

// Kinds returns every kind, so that tests can prove a translation complete.
func Kinds() []Kind {
	var all []Kind
	for k := SessionNotFound; k <= SpoolUnavailable; k++ {
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
	// Limit is the bound that was met, of the kinds that are about one: a
	// number, or bytes.
	Limit int64
}

// Error implements error.
func (e *Error) Error() string {
	text := e.text()
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

func (e *Error) text() string {
	if format, ok := subjectTexts[e.Kind]; ok {
		return fmt.Sprintf(format, e.Subject)
	}
	switch e.Kind {
	case StdinQueueFull:
		return fmt.Sprintf("%d bytes wait for process %q to read its stdin, and no more may: write again when it has", MaxWaitingInput, e.Subject)
	case Draining:
		return "the server is shutting down and starts nothing new"
	case DefaultSession:
		return "the default session has no lease, so that it can be neither attached nor granted: attach to a new session"
	case TooManySessions:
		return fmt.Sprintf("principal %q has %d sessions, and no more may: close one", e.Subject, e.Limit)
	case TooManySessionsInAll:
		return fmt.Sprintf("the server has %d sessions, and no more may be: close one, or wait for one to end", e.Limit)
	case TooManyGrants:
		return fmt.Sprintf("session %q is granted to %d principals, and no more may: take a grant back", e.Subject, e.Limit)
	case TooManyProcessesAttached:
		return fmt.Sprintf("%d processes of session %q run, and who attached it lets no more: end one", e.Limit, e.Subject)
	case TooManyProcesses:
		return fmt.Sprintf("%d processes of session %q run, and no more may: end one", e.Limit, e.Subject)
	case RetainedOutputFull:
		return fmt.Sprintf("the output that may have to be kept of all processes has reached %d bytes: end a process, or close a session", e.Limit)
	}
	return fmt.Sprintf("session error %d about %q", e.Kind, e.Subject)
}

// subjectTexts are the messages that need nothing but the subject.
var subjectTexts = map[Kind]string{
	SessionNotFound:      "session %q does not exist",
	ProcessNotFound:      "process %q does not exist",
	ProcessAlreadyExists: "process %q already exists, by another start",
	ProcessOwned:         "process %q is paced by somebody else: watch it without lossless",
	StdinOffsetInvalid:   "input for process %q is not where it should be",
	GraceTooLong:         "grace for %q is too long",
	SessionAttached:      "session %q is attached elsewhere, and that client answers",
	SessionTakenOver:     "session %q was taken over by another attachment, because this one did not answer",
	SessionClosed:        "session %q has ended: attach to a new one",
	SessionAccessDenied:  "session %q was granted for less than this",
	SpoolUnavailable:     "output of session %q cannot be spooled: choose another policy for when it is detached",
}
