package client

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// errorDomain is the domain of every ErrorInfo an execwire server attaches.
const errorDomain = "execwire.v1"

// reasonPrefix is what the names of the enum have and those on the wire lack.
const reasonPrefix = "ERROR_REASON_"

// Error is an error that a server answered with. Branch on its Reason.
type Error struct {
	// Code is the gRPC code.
	Code codes.Code
	// Reason is why. It is unspecified when the error does not come from an
	// execwire server but from what lies between, or has a reason newer than
	// this client.
	Reason execwirev1.ErrorReason
	// Message is the text for people.
	Message string
	// Fields are the fields of the request that are wrong, if any.
	Fields []FieldViolation
	// ResourceName is the process or session in question, if one is.
	ResourceName string
	// Metadata is what the reason is documented to carry, e.g. "limit_bytes".
	Metadata map[string]string
	// RetryAfter is how long the server asks to wait; 0 when it does not ask.
	RetryAfter time.Duration

	status *status.Status
	// fromServer is whether an execwire server made the error.
	fromServer bool
	// lostAt is when the connection was lost, if that was before the error; or zero.
	lostAt time.Time
}

// FieldViolation says what is wrong with a field of a request.
type FieldViolation struct {
	// Field is the path of the field, e.g. "command.direct.argv".
	Field string
	// Description is what is wrong and what would be right.
	Description string
}

// Error returns the message, and what it does not say itself about the fields.
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

// Is reports whether target is the error of package io/fs for the reason.
func (e *Error) Is(target error) bool {
	switch e.Reason {
	case execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND:
		return target == fs.ErrNotExist
	case execwirev1.ErrorReason_ERROR_REASON_PATH_ALREADY_EXISTS:
		return target == fs.ErrExist
	case execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED, execwirev1.ErrorReason_ERROR_REASON_CALL_NOT_ALLOWED:
		return target == fs.ErrPermission
	}
	return false
}

// IsAboutServer reports whether the error is about the server, or the way to it, and
// not about what it was asked: it cannot be reached, does not know who the caller is,
// does not let the caller make the call, or does not know the call.
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

// FromRPC restores the typed error from what a call of the generated stub
// returned. nil stays nil, an *Error or a *ConnectionLostError in the chain is
// kept, and an error that is no gRPC status is returned as it is.
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

// Reason returns why err happened, of an *Error or a gRPC status anywhere in
// its chain; unspecified when it has neither.
func Reason(err error) execwirev1.ErrorReason {
	var typed *Error
	if errors.As(FromRPC(err), &typed) {
		return typed.Reason
	}
	return execwirev1.ErrorReason_ERROR_REASON_UNSPECIFIED
}

func fromStatus(st *status.Status) *Error {
	e := &Error{Code: st.Code(), Message: st.Message(), status: st}
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == errorDomain {
				e.fromServer = true
				e.Reason = execwirev1.ErrorReason(execwirev1.ErrorReason_value[reasonPrefix+d.GetReason()])
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

// ErrLost is what errors.Is finds in every [*LostError].
var ErrLost = errors.New("the process was lost")

// ErrRestarted is what errors.Is finds in a [*LostError] and a [*SessionLostError] when
// the server was restarted, which ended the process or session.
var ErrRestarted = errors.New("the server was restarted")

// LostError says that the connection was lost and what became of the process
// cannot be learned any more. Everything up to LastSeq was written.
type LostError struct {
	// ProcessID is the process.
	ProcessID string
	// Started is whether the server ever said that the process runs. When it is
	// not, whether the command ran is not known.
	Started bool
	// Exit is how it ended if that was still told, though perhaps not all of
	// its output; else nil.
	Exit *execwirev1.ExitRecord
	// LastSeq is the seq of the last event that was received.
	LastSeq uint64
	// Lost is how long ago the connection was lost.
	Lost time.Duration
	// Restarted is whether another run of the server answered than the one that had the
	// process: its processes have ended with it.
	Restarted bool
	// Err is what the last attempt failed with.
	Err error
}

func (e *LostError) Error() string {
	if e.Restarted {
		return fmt.Sprintf("the server was restarted; the process %s ended with it", e.ProcessID)
	}
	state := "it was running"
	switch {
	case e.Exit != nil:
		state = "it had exited"
	case !e.Started:
		state = "of which it is not known whether it ran"
	}
	return fmt.Sprintf("failed to resume process %s, %s, for %s: %v",
		e.ProcessID, state, e.Lost.Round(100*time.Millisecond), e.Err)
}

// Is reports whether target is ErrLost, or ErrRestarted if that is why.
func (e *LostError) Is(target error) bool {
	return target == ErrLost || e.Restarted && target == ErrRestarted
}

func (e *LostError) Unwrap() error { return e.Err }

// ProtocolError says that a server broke the contract, so that what was
// received cannot be trusted to be whole.
type ProtocolError struct {
	// Problem is what the server did.
	Problem string
}

func (e *ProtocolError) Error() string {
	return "failed to follow the process: the server broke the contract: " + e.Problem
}

func protocolErrorf(format string, args ...any) *ProtocolError {
	return &ProtocolError{Problem: fmt.Sprintf(format, args...)}
}

// OutputError says that output of the process could not be passed on. The
// process was terminated for it.
type OutputError struct {
	// Stream is where the output came from.
	Stream execwirev1.OutputStream
	// Err is what the writer returned.
	Err error
}

func (e *OutputError) Error() string {
	return fmt.Sprintf("failed to write the %s of the process: %v", streamName(e.Stream), e.Err)
}

func (e *OutputError) Unwrap() error { return e.Err }

// ErrDetached is what Run and Resume return when the process was given up by
// RunOptions.Detach or DetachKeys. It goes on without an owner.
var ErrDetached = errors.New("detached from the process")

// ErrInputDiffers is what errors.Is finds when a run was repeated with less
// input than the process has already taken. The process is not terminated for
// it: the server keeps it for its grace, for a run that has the input.
var ErrInputDiffers = errors.New("it ended before the input that the process has taken from an earlier run")

// InputError says that the input for the process could not be read. The
// process was terminated for it, except for [ErrInputDiffers].
type InputError struct {
	// Err is what the reader returned, or wraps ErrInputDiffers.
	Err error
}

func (e *InputError) Error() string { return fmt.Sprintf("failed to read stdin: %v", e.Err) }

func (e *InputError) Unwrap() error { return e.Err }

func streamName(s execwirev1.OutputStream) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "OUTPUT_STREAM_"))
}
