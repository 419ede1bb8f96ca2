package gateway

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// sessionError is rpcerror.Of for attaching a session.
func sessionError(id string, err error) *jsonrpc.Error {
	switch rpcerror.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND:
		return rpcerror.WithText(err, "unknown session id "+id)
	case execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD:
		if rpcerror.Info(err).GetMetadata()["field"] == "session_id" { // a session that cannot be attached
			return rpcerror.WithCode(err, jsonrpc.CodeInvalidRequest, "unknown session id "+id)
		}
	case execwirev1.ErrorReason_ERROR_REASON_SESSION_ATTACHED:
		return rpcerror.WithText(err, "session "+id+" is already attached to another connection")
	}
	return rpcerror.Of(err)
}

// unknownSession is the error for an id that no session can have.
func unknownSession(id string) *jsonrpc.Error {
	return &jsonrpc.Error{
		Code: jsonrpc.CodeInvalidRequest, Message: "unknown session id " + param.Shorten(id),
		Data: map[string]string{"reason": "SESSION_NOT_FOUND"},
	}
}

// endingFor returns the ending of a connection whose attachment failed. If the server
// cannot be reached, the close code asks the client to reconnect and resume.
func endingFor(err error) ending {
	switch rpcerror.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_SESSION_TAKEN_OVER:
		return ending{closePolicy, "another connection took the session over", err}
	case execwirev1.ErrorReason_ERROR_REASON_SESSION_CLOSED, execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND:
		return ending{closePolicy, "the session was ended", err}
	case execwirev1.ErrorReason_ERROR_REASON_DRAINING:
		return ending{closeGoingAway, "the server stops", nil}
	}
	if code := status.Code(err); code == codes.Unavailable && !errors.Is(err, errAttachTimeout) {
		return ending{closeTryAgain, "the server cannot be reached", err}
	}
	return ending{closeInternal, "the session failed", err}
}

// tooManyProcesses converts the error for the limit of processes that the gateway set
// for the session; nil for other errors.
func tooManyProcesses(err error) *jsonrpc.Error {
	if rpcerror.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_PROCESSES || !rpcerror.ExceedsQuota(err, "max_processes") {
		return nil
	}
	const setting = "max_processes_per_connection"
	limit := rpcerror.Info(err).GetMetadata()["limit"]
	failure := rpcerror.WithText(err, "too many processes of this connection run: at most "+limit+" may ("+setting+")")
	failure.Data = map[string]any{"reason": rpcerror.Info(err).GetReason(), "setting": setting, "limit": limit,
		rpcerror.RetryMember: rpcerror.RetryWhenFull.Milliseconds()}
	return failure
}
