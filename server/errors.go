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
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/httpclient"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
)

// ErrorDomain is the domain of every ErrorInfo.
const ErrorDomain = "execwire.v1"

// retryWhileDraining is the hint to clients that met a server on its way out:
// time for another one to take its place.
const retryWhileDraining = time.Second

// translation is what an error of the domain becomes on the wire.
type translation struct {
	code   codes.Code
	reason execwirev1.ErrorReason
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
	process.AlreadyExited:       {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_PROCESS_EXITED},
	process.ShuttingDown:        {codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_DRAINING},
	process.Internal:            {codes.Internal, execwirev1.ErrorReason_ERROR_REASON_INTERNAL},
}

// sessionErrors translates the kinds of package session; a test proves it
// complete.
var sessionErrors = map[session.Kind]translation{
	session.SessionNotFound:          {codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND},
	session.ProcessNotFound:          {codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND},
	session.ProcessAlreadyExists:     {codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS},
	session.ProcessOwned:             {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_PROCESS_OWNED},
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
	session.SpoolUnavailable:         {codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_SPOOL_UNAVAILABLE},
}

// Sizes of what an error says. An error travels in the trailer of its call, for
// which clients have a few KiB and a connection has limits that end it.
const (
	maxMessageBytes = 1 << 10
	maxDetailBytes  = 256
)

// shorten cuts text at most bytes long, between characters, and says so.
func shorten(text string, most int) string {
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

// shortenDetails shortens what a detail takes over from a request. The rest of
// the details is ours and short.
func shortenDetails(details []protoadapt.MessageV1) {
	for _, detail := range details {
		switch d := detail.(type) {
		case *errdetails.BadRequest:
			for _, v := range d.FieldViolations {
				v.Field, v.Description = shorten(v.Field, maxDetailBytes), shorten(v.Description, maxDetailBytes)
			}
		case *errdetails.ResourceInfo:
			d.ResourceName, d.Description = shorten(d.ResourceName, maxDetailBytes), shorten(d.Description, maxDetailBytes)
		}
	}
}

// failure builds the status of an error whose reason is known. Details are small
// messages of known types, so adding them cannot fail. Equal failures are equal bytes.
func failure(code codes.Code, reason execwirev1.ErrorReason, metadata map[string]string, message string, details ...protoadapt.MessageV1) error {
	message = withSetting(code, metadata, shorten(message, maxMessageBytes))
	for key, value := range metadata {
		metadata[key] = shorten(value, maxDetailBytes)
	}
	shortenDetails(details)
	info := &errdetails.ErrorInfo{Domain: ErrorDomain, Reason: reasonName(reason), Metadata: metadata}
	st := status.New(code, message).Proto()
	for _, detail := range append([]protoadapt.MessageV1{info}, details...) {
		packed := new(anypb.Any)
		if err := anypb.MarshalFrom(packed, protoadapt.MessageV2Of(detail), proto.MarshalOptions{Deterministic: true}); err != nil {
			return status.Error(codes.Internal, "failed to describe an error: "+message)
		}
		st.Details = append(st.Details, packed)
	}
	return status.ErrorProto(st)
}

// reasonName is the name of a reason as ErrorInfo carries it.
func reasonName(reason execwirev1.ErrorReason) string {
	return strings.TrimPrefix(reason.String(), "ERROR_REASON_")
}

// invalidField says which field of a request is wrong and how to fix it.
func invalidField(field, problem string) error {
	return failure(codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD, map[string]string{"field": field},
		field+" "+problem,
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: problem}}})
}

// notImplemented says that the contract has a feature that this build has not.
func notImplemented(feature string) error {
	return failure(codes.Unimplemented, execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED, map[string]string{"feature": feature},
		feature+" is part of the contract, but this server does not implement it yet")
}

// reasonOf returns the reason that a translated error carries.
func reasonOf(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// toStatus translates any error of a handler into a status that carries an
// ErrorInfo. Statuses that carry one already pass unchanged.
func (s *Server) toStatus(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var (
		processErr *process.Error
		sessionErr *session.Error
		fileErr    *fsops.Error
		handleErr  *fsops.HandleError
		httpErr    *httpclient.Error
		authErr    *auth.Error
	)
	switch {
	case errors.As(err, &processErr):
		return s.fromProcess(processErr)
	case errors.As(err, &sessionErr):
		return s.fromSession(sessionErr)
	case errors.As(err, &fileErr):
		return fromFiles(fileErr)
	case errors.As(err, &handleErr):
		return fromHandles(handleErr)
	case errors.As(err, &httpErr):
		return fromHTTP(httpErr)
	case errors.As(err, &authErr): // of a connection that lost its place
		return fromAuth(authErr)
	case errors.Is(err, eventlog.ErrReplaced):
		return failure(codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_PROCESS_TAKEN_OVER, nil,
			"another stream took over the process; this one must not be resumed")
	case errors.Is(err, eventlog.ErrFutureSeq):
		return failure(codes.OutOfRange, execwirev1.ErrorReason_ERROR_REASON_SEQ_NOT_REACHED, nil,
			"the process has not reached that seq: use one that an event had")
	case errors.Is(err, eventlog.ErrTooManyReaders):
		metadata := map[string]string{}
		details := readersQuota.describe(int64(s.cfg.Limits.Readers), metadata)
		return failure(codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_READERS, metadata,
			"too many readers watch the process: at most "+strconv.Itoa(s.cfg.Limits.Readers)+" may", details...)
	}
	return s.fromOther(ctx, err)
}

func (s *Server) fromProcess(err *process.Error) error {
	t, ok := processErrors[err.Kind]
	if !ok {
		t = translation{codes.Internal, execwirev1.ErrorReason_ERROR_REASON_INTERNAL}
	}
	var details []protoadapt.MessageV1
	metadata := map[string]string{}
	if err.Subject != "" {
		metadata["subject"] = valid(err.Subject)
	}
	if errno, ok := errors.AsType[syscall.Errno](err.Err); ok {
		metadata["errno"] = unix.ErrnoName(errno)
	}
	if err.Field != "" {
		metadata["field"] = err.Field
		details = append(details, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: err.Field, Description: err.Err.Error()}}})
	}
	switch err.Kind {
	case process.WriteTooLarge:
		details = append(details, processQuotas[err.Kind].describe(int64(s.cfg.Limits.StdinWrite), metadata)...)
	case process.ResourceLimit:
		errno, _ := errors.AsType[syscall.Errno](err.Err)
		details = append(details, systemQuota(processLimits, errno).describe(0, metadata)...)
	case process.ShuttingDown:
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retryWhileDraining)})
	}
	return failure(t.code, t.reason, metadata, valid(err.Error()), details...)
}

func (s *Server) fromSession(err *session.Error) error {
	t, ok := sessionErrors[err.Kind]
	if !ok {
		t = translation{codes.Internal, execwirev1.ErrorReason_ERROR_REASON_INTERNAL}
	}
	metadata := map[string]string{"subject": err.Subject}
	switch err.Kind {
	case session.ProcessNotFound, session.SessionNotFound:
		metadata["instance_id"] = s.instance
	}
	if q, ok := sessionQuotas[err.Kind]; ok {
		details := q.describe(err.Limit, metadata)
		return failure(t.code, t.reason, metadata, err.Error(), details...)
	}
	var details []protoadapt.MessageV1
	if detail := sessionDetail(err, metadata); detail != nil {
		details = append(details, detail)
	}
	return failure(t.code, t.reason, metadata, err.Error(), details...)
}

// sessionDetail returns what a client can use of an error that is about no limit, if
// there is anything, and adds it to the metadata.
func sessionDetail(err *session.Error, metadata map[string]string) protoadapt.MessageV1 {
	switch err.Kind {
	case session.SessionNotFound, session.SessionAttached, session.SessionTakenOver, session.SessionClosed,
		session.SessionAccessDenied, session.SpoolUnavailable:
		return &errdetails.ResourceInfo{ResourceType: "session", ResourceName: err.Subject, Description: err.Error()}
	case session.ProcessNotFound, session.ProcessAlreadyExists, session.ProcessOwned:
		return &errdetails.ResourceInfo{ResourceType: "process", ResourceName: err.Subject, Description: err.Error()}
	case session.Draining:
		return &errdetails.RetryInfo{RetryDelay: durationpb.New(retryWhileDraining)}
	}
	if field, ok := sessionFields[err.Kind]; ok {
		metadata["field"] = field
		return &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: field, Description: err.Error()}}}
	}
	return nil
}

// sessionFields are the fields of requests that kinds of package session are
// about.
var sessionFields = map[session.Kind]string{
	session.GraceTooLong:   "grace",
	session.DefaultSession: "session_id",
	session.TooManyGrants:  "principal",
}

// fromOther translates what is neither of the domain nor foreseen: statuses of
// gRPC itself, the end of a context, and the unexpected, whose text stays in
// the log because it may name things of the machine.
func (s *Server) fromOther(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return failure(codes.Canceled, execwirev1.ErrorReason_ERROR_REASON_CALL_CANCELLED, nil, "the caller went away")
	case errors.Is(err, context.DeadlineExceeded):
		return failure(codes.DeadlineExceeded, execwirev1.ErrorReason_ERROR_REASON_DEADLINE_EXCEEDED, nil, "the caller's deadline passed")
	}
	st, ok := status.FromError(err)
	if !ok {
		s.cfg.Logger.With(callRecordOf(ctx).traceFields()...).Error("a call failed in an unforeseen way", "error", err)
		return failure(codes.Internal, execwirev1.ErrorReason_ERROR_REASON_INTERNAL, nil, "the server failed; its log says more")
	}
	if reasonOf(err) != "" {
		return err
	}
	return failure(st.Code(), execwirev1.ErrorReason_ERROR_REASON_BROKEN_CALL, nil, st.Message())
}
