package server

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/httpclient"
	"github.com/execwire/execwire/internal/ports"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
)

// retryWhileDraining is the retry delay for clients of a server that drains: time for
// another one to take its place.
const retryWhileDraining = time.Second

// translation is the code and reason of a domain error.
type translation struct {
	code   codes.Code
	reason execwirev1.ErrorReason
}

// translate looks a kind up. An unknown one is a fault of the server.
func translate[K comparable](table map[K]translation, kind K) translation {
	if t, ok := table[kind]; ok {
		return t
	}
	return translation{codes.Internal, execwirev1.ErrorReason_ERROR_REASON_INTERNAL}
}

// processErrors translates the kinds of package process; a test proves it
// complete.
var processErrors = map[process.Kind]translation{
	process.InvalidArgument:     {codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD},
	process.ProgramNotFound:     {codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND},
	process.NotExecutable:       {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_EXECUTABLE},
	process.BadWorkingDirectory: {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_BAD_WORKING_DIRECTORY},
	process.PermissionDenied:    {codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED},
	process.ArgumentListTooLong: {codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_ARGUMENT_LIST_TOO_LONG},
	process.ResourceLimit:       {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_SYSTEM_LIMIT},
	process.SandboxNotStarted:   {codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_SANDBOX_NOT_STARTED},
	process.StdinNotPiped:       {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_STDIN_NOT_PIPED},
	process.StdinClosed:         {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_STDIN_CLOSED},
	process.StdinIsTerminal:     {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_STDIN_IS_TERMINAL},
	process.WriteTooLarge:       {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_WRITE_TOO_LARGE},
	process.NotATerminal:        {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_NOT_A_TERMINAL},
	process.ScreenUnavailable:   {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_SCREEN_UNAVAILABLE},
	process.AlreadyExited:       {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_PROCESS_EXITED},
	process.UserUnavailable:     {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_USER_UNAVAILABLE},
	process.ShuttingDown:        {codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_DRAINING},
	process.Internal:            {codes.Internal, execwirev1.ErrorReason_ERROR_REASON_INTERNAL},
}

// sessionErrors translates the kinds of package session; a test proves it
// complete.
var sessionErrors = map[session.Kind]translation{
	session.SessionNotFound:          {codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND},
	session.ProcessNotFound:          {codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND},
	session.ProcessAlreadyExists:     {codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS},
	session.StdinOffsetInvalid:       {codes.OutOfRange, execwirev1.ErrorReason_ERROR_REASON_STDIN_OFFSET_INVALID},
	session.GraceTooLong:             {codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD},
	session.StdinQueueFull:           {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_STDIN_QUEUE_FULL},
	session.Draining:                 {codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_DRAINING},
	session.SessionAttached:          {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_SESSION_ATTACHED},
	session.SessionTakenOver:         {codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_SESSION_TAKEN_OVER},
	session.SessionClosed:            {codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_SESSION_CLOSED},
	session.SessionAccessDenied:      {codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_SESSION_ACCESS_DENIED},
	session.DefaultSession:           {codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD},
	session.TooManySessionsInAll:     {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_SESSIONS},
	session.TooManySessions:          {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_SESSIONS},
	session.TooManyGrants:            {codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD},
	session.TooManyProcessesAttached: {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_PROCESSES},
	session.TooManyProcesses:         {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_PROCESSES},
	session.RetainedOutputFull:       {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_RETAINED_OUTPUT_FULL},
	session.KeepTooLong:              {codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD},
	session.KeepInLease:              {codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD},
	session.OwnerLost:                {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_PROCESS_OWNER_LOST},
}

// Sizes of errors. A status is sent in the trailer of its call, for which clients
// have a few KiB and connections have limits.
const (
	maxMessageBytes = 1 << 10
	maxDetailBytes  = 256
)

// truncate truncates text to at most this many bytes, at a character boundary, and
// marks it as truncated.
func truncate(text string, most int) string {
	const ellipsis = "…"
	if len(text) <= most {
		return text
	}
	cut := most - len(ellipsis)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + ellipsis
}

// failure is an error of a call with its code, its reason and details. Equal failures
// have equal bytes.
type failure struct {
	translation
	text     string
	metadata map[string]string
	details  []protoadapt.MessageV1
}

// failure returns a failure without details.
func (t translation) failure(text string) *failure {
	return &failure{translation: t, text: toValidUTF8(text), metadata: map[string]string{}}
}

// set adds to the metadata, unless the value is empty.
func (f *failure) set(key, value string) *failure {
	if value != "" {
		f.metadata[key] = truncate(toValidUTF8(value), maxDetailBytes)
	}
	return f
}

// setErrno adds the name of the system error in err, if there is one.
func (f *failure) setErrno(err error) {
	if errno, ok := errors.AsType[syscall.Errno](err); ok && errno != 0 {
		f.set("errno", unix.ErrnoName(errno))
	}
}

// field says which field of the request is invalid.
func (f *failure) field(name, problem string) *failure {
	f.set("field", name)
	return f.with(&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
		{Field: truncate(name, maxDetailBytes), Description: truncate(toValidUTF8(problem), maxDetailBytes)}}})
}

// resource says what the error is about.
func (f *failure) resource(kind, name, problem string) *failure {
	return f.with(&errdetails.ResourceInfo{ResourceType: kind,
		ResourceName: truncate(toValidUTF8(name), maxDetailBytes), Description: truncate(toValidUTF8(problem), maxDetailBytes)})
}

// retry says when the client may try again.
func (f *failure) retry(after time.Duration) *failure {
	return f.with(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
}

func (f *failure) with(detail protoadapt.MessageV1) *failure {
	f.details = append(f.details, detail)
	return f
}

// status returns the error. Details are small messages of known types, so adding them
// cannot fail.
func (f *failure) status() error {
	text := truncate(f.text, maxMessageBytes)
	if setting := f.metadata["setting"]; f.code == codes.ResourceExhausted && !strings.Contains(text, setting) {
		text += " (" + setting + ")"
	}
	info := &errdetails.ErrorInfo{Domain: errorinfo.Domain, Reason: errorinfo.Name(f.reason), Metadata: f.metadata}
	st := status.New(f.code, text).Proto()
	for _, detail := range append([]protoadapt.MessageV1{info}, f.details...) {
		packed := new(anypb.Any)
		if err := anypb.MarshalFrom(packed, protoadapt.MessageV2Of(detail), proto.MarshalOptions{Deterministic: true}); err != nil {
			return status.Error(codes.Internal, "failed to describe an error: "+text)
		}
		st.Details = append(st.Details, packed)
	}
	return status.ErrorProto(st)
}

// newStatus returns the status of an error without details.
func newStatus(code codes.Code, reason execwirev1.ErrorReason, text string) error {
	return translation{code, reason}.failure(text).status()
}

// NewStatus returns the status of an error for packages that implement a service of their
// own, with metadata as documented for the reason; empty values are left out.
func NewStatus(code codes.Code, reason execwirev1.ErrorReason, text string, metadata map[string]string) error {
	f := translation{code, reason}.failure(text)
	for key, value := range metadata {
		f.set(key, value)
	}
	return f.status()
}

// invalidField returns the error for an invalid field of a request.
func invalidField(field, problem string) error {
	return translation{codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD}.failure(field+" "+problem).field(field, problem).status()
}

// notImplemented returns the error for a feature that this build does not have.
func notImplemented(feature string) error {
	return translation{codes.Unimplemented, execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED}.failure(
		feature+" is part of the contract, but this server does not implement it yet").set("feature", feature).status()
}

// toValidUTF8 replaces invalid UTF-8, which a message cannot carry.
func toValidUTF8(text string) string { return strings.ToValidUTF8(text, string(utf8.RuneError)) }

// toStatus translates any error of a handler into a status with an ErrorInfo. A
// status that has one is returned unchanged.
func (i *interceptors) toStatus(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var (
		processErr *process.Error
		sessionErr *session.Error
		fileErr    *fsops.Error
		httpErr    *httpclient.Error
		portErr    *ports.Error
		authErr    *auth.Error
	)
	switch {
	case errors.As(err, &processErr):
		return i.fromProcess(processErr)
	case errors.As(err, &sessionErr):
		return i.fromSession(sessionErr)
	case errors.As(err, &fileErr):
		return fromFiles(fileErr)
	case errors.As(err, &httpErr):
		return fromHTTP(httpErr)
	case errors.As(err, &portErr):
		return fromPort(portErr)
	case errors.As(err, &authErr): // of an evicted connection
		return fromAuth(authErr)
	case errors.Is(err, eventlog.ErrReplaced):
		return newStatus(codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_PROCESS_TAKEN_OVER,
			"another stream took over the process; this one must not be resumed")
	case errors.Is(err, eventlog.ErrFutureSeq):
		return newStatus(codes.OutOfRange, execwirev1.ErrorReason_ERROR_REASON_SEQ_NOT_REACHED,
			"the process has not reached that seq: use one that an event had")
	case errors.Is(err, eventlog.ErrTooManyReaders):
		readers := i.current.Load().GetReadersPerProcess()
		return translation{codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_READERS}.failure(
			"too many readers watch the process: at most "+strconv.FormatUint(readers, 10)+" may").limit(readersQuota, int64(readers)).status()
	}
	return i.fromOther(ctx, err)
}

func (i *interceptors) fromProcess(err *process.Error) error {
	f := translate(processErrors, err.Kind).failure(err.Error()).set("subject", err.Subject)
	f.setErrno(err.Err)
	if err.Field != "" {
		f.field(err.Field, err.Err.Error())
	}
	switch err.Kind {
	case process.WriteTooLarge:
		f.limit(processQuotas[err.Kind], int64(i.current.Load().GetStdinWriteBytes()))
	case process.ResourceLimit:
		errno, _ := errors.AsType[syscall.Errno](err.Err)
		f.limit(systemQuota(processLimits, errno), 0)
	case process.ShuttingDown:
		f.retry(retryWhileDraining)
	}
	return f.status()
}

func (i *interceptors) fromSession(err *session.Error) error {
	f := translate(sessionErrors, err.Kind).failure(err.Error()).set("subject", err.Subject)
	if q, ok := sessionQuotas[err.Kind]; ok {
		f.limit(q, err.Limit)
	}
	if field, ok := sessionFields[err.Kind]; ok {
		f.field(field, err.Error())
	}
	switch err.Kind {
	case session.SessionNotFound:
		f.set("instance_id", i.instance).resource("session", err.Subject, err.Error())
	case session.SessionAttached, session.SessionTakenOver, session.SessionClosed, session.SessionAccessDenied:
		f.resource("session", err.Subject, err.Error())
	case session.ProcessNotFound:
		f.set("instance_id", i.instance).resource("process", err.Subject, err.Error())
	case session.ProcessAlreadyExists, session.OwnerLost:
		f.resource("process", err.Subject, err.Error())
	case session.Draining:
		f.retry(retryWhileDraining)
	}
	return f.status()
}

// sessionFields are the request fields that kinds of package session are about.
var sessionFields = map[session.Kind]string{
	session.GraceTooLong:   "grace",
	session.KeepTooLong:    "keep",
	session.KeepInLease:    "keep",
	session.DefaultSession: "session_id",
	session.TooManyGrants:  "principal",
}

// fromOther translates all other errors: statuses of gRPC, the end of a context, and
// unexpected errors, whose text is only logged because it may contain internals.
func (i *interceptors) fromOther(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return newStatus(codes.Canceled, execwirev1.ErrorReason_ERROR_REASON_CALL_CANCELLED, "the caller went away")
	case errors.Is(err, context.DeadlineExceeded):
		return newStatus(codes.DeadlineExceeded, execwirev1.ErrorReason_ERROR_REASON_DEADLINE_EXCEEDED, "the caller's deadline passed")
	}
	st, ok := status.FromError(err)
	if !ok {
		i.cfg.Logger.With(traceFields(ctx)...).Error("a call failed in an unforeseen way", "error", err)
		return newStatus(codes.Internal, execwirev1.ErrorReason_ERROR_REASON_INTERNAL, "the server failed; its log says more")
	}
	if errorinfo.Of(err) != nil {
		return err
	}
	return newStatus(st.Code(), execwirev1.ErrorReason_ERROR_REASON_BROKEN_CALL, st.Message())
}
