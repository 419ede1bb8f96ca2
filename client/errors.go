package client

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
)

// Error is an error returned by a server. Branch on its Reason.
type Error struct {
	// Code is the gRPC code.
	Code codes.Code
	// Reason is the cause. It is unspecified when the error comes from an intermediary
	// instead of an execwire server, or is newer than this client.
	Reason execwirev1.ErrorReason
	// Message is the text for people.
	Message string
	// Fields are the invalid fields of the request, if any.
	Fields []FieldViolation
	// ResourceName is the process or session concerned, if any.
	ResourceName string
	// Metadata has the values documented for the reason, e.g. "limit_bytes".
	Metadata map[string]string
	// RetryAfter is how long the server asks to wait, or 0.
	RetryAfter time.Duration

	status *status.Status
	// fromServer is whether an execwire server returned the error.
	fromServer bool
	// lostAt is when the connection was lost before the error, or zero.
	lostAt time.Time
}

// FieldViolation describes an invalid field of a request.
type FieldViolation struct {
	// Field is the path of the field, e.g. "command.direct.argv".
	Field string
	// Description is what is wrong and how to fix it.
	Description string
}

// Error returns the message, followed by field violations that it does not contain.
func (e *Error) Error() string {
	var fields []string
	for _, f := range e.Fields {
		described, named := strings.Contains(e.Message, f.Description), strings.Contains(e.Message, f.Field)
		switch {
		case !described:
			fields = append(fields, f.Field+": "+f.Description)
		case !named:
			fields = append(fields, f.Field)
		}
	}
	if len(fields) == 0 {
		return e.Message
	}
	return e.Message + " (" + strings.Join(fields, "; ") + ")"
}

// Is reports whether target is the error of package fs or syscall for the reason.
func (e *Error) Is(target error) bool {
	switch e.Reason {
	case execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND:
		return target == fs.ErrNotExist
	case execwirev1.ErrorReason_ERROR_REASON_PATH_ALREADY_EXISTS:
		return target == fs.ErrExist
	case execwirev1.ErrorReason_ERROR_REASON_PORT_CONNECTION_REFUSED:
		return target == syscall.ECONNREFUSED
	case execwirev1.ErrorReason_ERROR_REASON_PORT_CONNECTION_RESET, execwirev1.ErrorReason_ERROR_REASON_PORT_CONNECTION_NOT_FOUND:
		return target == syscall.ECONNRESET
	case execwirev1.ErrorReason_ERROR_REASON_PORT_IN_USE:
		return target == syscall.EADDRINUSE
	case execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED, execwirev1.ErrorReason_ERROR_REASON_CALL_NOT_ALLOWED:
		return target == fs.ErrPermission
	}
	return false
}

// IsAboutServer reports whether the error concerns the server or the connection, and
// not the request: the server cannot be reached, does not authenticate the caller, does
// not permit the call, or does not implement it.
func (e *Error) IsAboutServer() bool {
	switch {
	case e.Code == codes.Unavailable, e.Code == codes.Unauthenticated:
		return true
	case e.Reason == execwirev1.ErrorReason_ERROR_REASON_UNSPECIFIED:
		return e.Code != codes.Unknown
	}
	return e.Reason == execwirev1.ErrorReason_ERROR_REASON_CALL_NOT_ALLOWED
}

// GRPCStatus returns the status the error was made from.
func (e *Error) GRPCStatus() *status.Status { return e.status }

// FromRPC restores the typed error of a call of the generated stub. It returns nil for
// nil, an *Error or *ConnectionLostError in the chain unchanged, and any error that is
// not a gRPC status unchanged.
func FromRPC(err error) error {
	var typed *Error
	var lost *ConnectionLostError
	if err == nil || errors.As(err, &typed) || errors.As(err, &lost) {
		return err
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	return fromStatus(st)
}

// Reason returns the reason of an *Error or gRPC status in the chain of err;
// unspecified if there is none.
func Reason(err error) execwirev1.ErrorReason {
	if typed, ok := errors.AsType[*Error](FromRPC(err)); ok {
		return typed.Reason
	}
	return execwirev1.ErrorReason_ERROR_REASON_UNSPECIFIED
}

func fromStatus(st *status.Status) *Error {
	e := &Error{Code: st.Code(), Message: st.Message(), status: st}
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == errorinfo.Domain {
				e.fromServer = true
				e.Reason = errorinfo.Parse(d.GetReason())
				e.Metadata = d.GetMetadata()
			}
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				e.Fields = append(e.Fields, FieldViolation{Field: v.GetField(), Description: v.GetDescription()})
			}
		case *errdetails.ResourceInfo:
			e.ResourceName = d.GetResourceName()
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
		}
	}
	return e
}

// NotDoneError reports that a call which is sent only once was not carried out: there was
// no connection to send it on, or the server is shutting down.
type NotDoneError struct {
	// Err is the [*Error] of the call.
	Err error
}

func (e *NotDoneError) Error() string { return e.Err.Error() + ": nothing was done" }

func (e *NotDoneError) Unwrap() error { return e.Err }

// UnknownError reports that the connection was lost during a call which is sent only once:
// it may or may not have been carried out.
type UnknownError struct {
	// Err is the [*Error] of the call.
	Err error
}

func (e *UnknownError) Error() string { return e.Err.Error() + ": it may or may not have been done" }

func (e *UnknownError) Unwrap() error { return e.Err }

// ErrLost is matched by errors.Is for every [*LostError].
var ErrLost = errors.New("the process was lost")

// ErrRestarted is matched by errors.Is for a [*LostError] or [*SessionLostError] caused
// by a restart of the server, which ended the process or session.
var ErrRestarted = errors.New("the server was restarted")

// LostError reports that the connection was lost and the state of the process is
// unknown. Everything up to LastSeq was written.
type LostError struct {
	// ProcessID is the process.
	ProcessID string
	// Started is whether the server confirmed that the process runs. If not, the
	// command may or may not have run.
	Started bool
	// Exit is how it ended, if known, though output may be missing; else nil.
	Exit *execwirev1.ExitRecord
	// LastSeq is the seq of the last received event.
	LastSeq uint64
	// Lost is how long ago the connection was lost.
	Lost time.Duration
	// Restarted is whether the server was restarted, which ended its processes. A start
	// that it had not confirmed is not repeated then.
	Restarted bool
	// Err is the error of the last attempt.
	Err error
}

func (e *LostError) Error() string {
	switch {
	case e.Restarted && e.Started:
		return fmt.Sprintf("the server was restarted; the process %s ended with it", e.ProcessID)
	case e.Restarted:
		return fmt.Sprintf("the server was restarted before it answered; it is unknown whether the process %s was started", e.ProcessID)
	}
	state := "it was running"
	switch {
	case e.Exit != nil:
		state = "it had exited"
	case !e.Started:
		state = "which may or may not have run"
	}
	return fmt.Sprintf("failed to resume process %s, %s, for %s: %v",
		e.ProcessID, state, e.Lost.Round(100*time.Millisecond), e.Err)
}

// Is reports whether target is ErrLost, or ErrRestarted if the server was restarted.
func (e *LostError) Is(target error) bool {
	return target == ErrLost || e.Restarted && target == ErrRestarted
}

func (e *LostError) Unwrap() error { return e.Err }

// ProtocolError reports a violation of the contract by the server; received data may be
// incomplete.
type ProtocolError struct {
	// Problem describes the violation.
	Problem string
}

func (e *ProtocolError) Error() string {
	return "failed to follow the process: the server broke the contract: " + e.Problem
}

func protocolErrorf(format string, args ...any) *ProtocolError {
	return &ProtocolError{Problem: fmt.Sprintf(format, args...)}
}

// WindowError reports that a server ignores its window: it has sent more of a process
// than is kept in memory for readers that have not consumed it. A process from Start was
// terminated.
type WindowError struct {
	// ProcessID is the process.
	ProcessID string
	// LimitBytes is the limit: [MaxUnreadBytes], more for a larger window, or 1 GiB for all
	// processes of a session together.
	LimitBytes int
}

func (e *WindowError) Error() string {
	return fmt.Sprintf("the server ignores its window: more than %d bytes are unread, the last of them of process %s", e.LimitBytes, e.ProcessID)
}

// OutputError reports that output of the process could not be written. The process was
// terminated.
type OutputError struct {
	// Stream is the stream of the output.
	Stream execwirev1.OutputStream
	// Err is what the writer returned.
	Err error
}

func (e *OutputError) Error() string {
	return fmt.Sprintf("failed to write the %s of the process: %v", streamName(e.Stream), e.Err)
}

func (e *OutputError) Unwrap() error { return e.Err }

// ErrDetached is returned by Run and Resume when the process was detached by
// RunOptions.Detach or DetachKeys. It continues without an owner.
var ErrDetached = errors.New("detached from the process")

// ErrInputDiffers is matched by errors.Is when a repeated run has less input than the
// process has already consumed. The process is not terminated: the server keeps it for
// its grace period, for a run with the complete input.
var ErrInputDiffers = errors.New("it ended before the input that the process has consumed from an earlier run")

// InputError reports that the input could not be read. The process was terminated,
// except for [ErrInputDiffers].
type InputError struct {
	// Err is what the reader returned, or wraps ErrInputDiffers.
	Err error
}

func (e *InputError) Error() string { return fmt.Sprintf("failed to read stdin: %v", e.Err) }

func (e *InputError) Unwrap() error { return e.Err }

func streamName(s execwirev1.OutputStream) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "OUTPUT_STREAM_"))
}
