package session

import "fmt"

// Kind classifies errors.
type Kind int

// The kinds. [Kinds] lists them all.
const (
	// SessionNotFound: no such session, or one of another principal.
	SessionNotFound Kind = iota + 1
	// ProcessNotFound: no such process in the session.
	ProcessNotFound
	// ProcessAlreadyExists: a different start has used the id.
	ProcessAlreadyExists
	// StdinOffsetInvalid: the input does not follow the accepted input.
	StdinOffsetInvalid
	// GraceTooLong: the requested grace exceeds the maximum.
	GraceTooLong
	// Draining: no process or session is started any more.
	Draining
	// StdinQueueFull: too much input waits for the process.
	StdinQueueFull
	// SessionAttached: another client is attached and answers.
	SessionAttached
	// SessionTakenOver: another client took over, because this one did not answer.
	SessionTakenOver
	// SessionClosed: the session ended, by CloseSession or after its grace.
	SessionClosed
	// SessionAccessDenied: the grant does not include this access.
	SessionAccessDenied
	// DefaultSession: the default session can be neither attached nor granted.
	DefaultSession
	// TooManySessions: the principal has the maximum number of sessions.
	TooManySessions
	// TooManySessionsInAll: all principals together have the maximum number.
	TooManySessionsInAll
	// TooManyGrants: the session has [MaxGrants] grants.
	TooManyGrants
	// TooManyProcesses: the session has the maximum number of running processes.
	TooManyProcesses
	// TooManyProcessesAttached: it has the maximum number that its attachment allows.
	TooManyProcessesAttached
	// RetainedOutputFull: there is no space for the output of another process.
	RetainedOutputFull
)

// Kinds returns all kinds, for checks that a mapping is complete.
func Kinds() []Kind {
	var all []Kind
	for k := SessionNotFound; k <= RetainedOutputFull; k++ {
		all = append(all, k)
	}
	return all
}

// Error is an error of a session. Errors of starting and controlling a process come
// from package process unchanged.
type Error struct {
	// Kind is the class of the error.
	Kind Kind
	// Subject is the id of the session or process.
	Subject string
	// Detail is added to the message; may be empty.
	Detail string
	// Limit is the limit that was reached, for kinds that have one: a number, or
	// bytes.
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
		return fmt.Sprintf("%d bytes of input wait for process %q, which is the maximum: write again when it has read its stdin", MaxWaitingInput, e.Subject)
	case Draining:
		return "the server is shutting down and starts nothing new"
	case DefaultSession:
		return "the default session can be neither attached nor granted: attach to a new session"
	case TooManySessions:
		return fmt.Sprintf("principal %q has %d sessions, which is the maximum: close one", e.Subject, e.Limit)
	case TooManySessionsInAll:
		return fmt.Sprintf("the server has %d sessions, which is the maximum: close one, or wait for one to end", e.Limit)
	case TooManyGrants:
		return fmt.Sprintf("session %q has %d grants, which is the maximum: remove one", e.Subject, e.Limit)
	case TooManyProcessesAttached:
		return fmt.Sprintf("%d processes of session %q run, which is the maximum of its attachment: end one", e.Limit, e.Subject)
	case TooManyProcesses:
		return fmt.Sprintf("%d processes of session %q run, which is the maximum: end one", e.Limit, e.Subject)
	case RetainedOutputFull:
		return fmt.Sprintf("the retained output of all processes has reached its limit of %d bytes: end a process, or close a session", e.Limit)
	}
	return fmt.Sprintf("session error %d about %q", e.Kind, e.Subject)
}

// subjectTexts are the messages that need only the subject.
var subjectTexts = map[Kind]string{
	SessionNotFound:      "session %q does not exist",
	ProcessNotFound:      "process %q does not exist",
	ProcessAlreadyExists: "process %q already exists, by another start",
	StdinOffsetInvalid:   "input for process %q does not follow the accepted input",
	GraceTooLong:         "grace for %q is too long",
	SessionAttached:      "session %q is attached by another client, which answers",
	SessionTakenOver:     "session %q was taken over by another client, because this one did not answer",
	SessionClosed:        "session %q has ended: attach to a new one",
	SessionAccessDenied:  "the grant of session %q does not include this",
}
