package session

import (
	"fmt"
	"strings"
)

// Kind classifies errors.
type Kind int

// The kinds.
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
	// OwnerLost: the ownership has ended because its stream was lost.
	OwnerLost
	// KeepTooLong: the requested Keep exceeds the maximum.
	KeepTooLong
	// KeepInLease: a leased session keeps records as long as it needs them.
	KeepInLease

	KindEnd // one after the last, for checks that a mapping is complete
)

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
	switch format := texts[e.Kind]; {
	case format == "":
		return fmt.Sprintf("session error %d about %q", e.Kind, e.Subject)
	case strings.Contains(format, "%"):
		return fmt.Sprintf(format, e.Subject, e.Limit)
	default:
		return format
	}
}

// texts are the messages, with the subject as argument 1 and the limit as argument 2.
var texts = map[Kind]string{
	SessionNotFound:          "session %[1]q does not exist",
	ProcessNotFound:          "process %[1]q does not exist",
	ProcessAlreadyExists:     "process %[1]q already exists, by another start",
	StdinOffsetInvalid:       "input for process %[1]q does not follow the accepted input",
	GraceTooLong:             "grace for %[1]q is too long",
	KeepTooLong:              "keep for %[1]q is too long",
	KeepInLease:              "keep for %[1]q is for the default session: a session with a client keeps a process until the client has its end",
	StdinQueueFull:           "%[2]d bytes of input wait for process %[1]q, which is the maximum: write again when it has read its stdin",
	Draining:                 "the server is shutting down and starts nothing new",
	SessionAttached:          "session %[1]q is attached by another client, which answers",
	SessionTakenOver:         "session %[1]q was taken over by another client, because this one did not answer",
	SessionClosed:            "session %[1]q has ended: attach to a new one",
	SessionAccessDenied:      "the grant of session %[1]q does not include this",
	DefaultSession:           "the default session can be neither attached nor granted: attach to a new session",
	TooManySessions:          "principal %[1]q has %[2]d sessions, which is the maximum: close one",
	TooManySessionsInAll:     "the server has %[2]d sessions, which is the maximum: close one, or wait for one to end",
	TooManyGrants:            "session %[1]q has %[2]d grants, which is the maximum: remove one",
	TooManyProcessesAttached: "%[2]d processes of session %[1]q run, which is the maximum of its attachment: end one",
	TooManyProcesses:         "%[2]d processes of session %[1]q run, which is the maximum: end one",
	OwnerLost:                "the stream that owned process %[1]q was lost: resume the process and use its new owner_id",
	RetainedOutputFull:       "the retained output of all processes has reached its limit of %[2]d bytes: end a process, or close a session",
}
