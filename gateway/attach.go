package gateway

import (
	"context"
	"errors"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/inproc"
	"github.com/execwire/execwire/internal/jsonrpc"
)

const (
	// attachTimeout bounds the time to attach a session, in which the server pings the
	// client that has it.
	attachTimeout = 30 * time.Second
	// maxSessionIDBytes is the server's limit.
	maxSessionIDBytes = 256
)

var errAttachTimeout = errors.New("the server did not grant the session in time")

// attach attaches a session, a new one if id is empty, until ctx ends.
func (c *connection) attach(ctx context.Context, id string) (*session, *jsonrpc.Error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(attachTimeout, func() { cancel(errAttachTimeout) })
	s, err := c.requestAttachment(ctx, id)
	if !late.Stop() && err == nil {
		err = errAttachTimeout
	}
	if err != nil {
		cancel(err)
		return nil, sessionError(id, err)
	}
	return s, nil
}

func (c *connection) requestAttachment(ctx context.Context, id string) (*session, error) {
	// Events are acknowledged once they are done, see progress.done: the server's memory for a
	// flood of output is then used again, which takes a quarter of its CPU off.
	stream, err := c.sessions.AttachSession(ctx, inproc.HandBackAcknowledged{})
	if err != nil {
		return nil, err
	}
	attach := &execwirev1.SessionAttach{SessionId: id, MaxProcesses: uint32(min(c.config.Processes, math.MaxUint32))}
	if id == "" {
		attach.WhenDetached = execwirev1.WhenDetached_WHEN_DETACHED_BLOCK
	}
	if grace := c.config.Grace; grace != nil {
		attach.Grace = durationpb.New(*grace)
	}
	// If Send fails, Recv returns the reason.
	_ = stream.Send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Attach{Attach: attach}})
	response, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	attached := response.GetAttached()
	if attached == nil {
		return nil, errors.New("the server's first answer did not attach the session")
	}
	s := &session{
		id: attached.GetSession().GetSessionId(), resumed: id != "", stream: stream,
		windowBytes: attached.GetOutputWindowBytes(), windowEvents: attached.GetOutputWindowEvents(),
	}
	if s.resumed {
		err = c.findBacklogs(ctx, s.id)
	}
	return s, err
}

// findBacklogs records the position of each process of a resumed session. The client
// reads the output up to there.
func (c *connection) findBacklogs(ctx context.Context, sessionID string) error {
	for token := ""; ; {
		page, err := c.processes.ListProcesses(ctx, &execwirev1.ListProcessesRequest{SessionId: sessionID, PageSize: 1000, PageToken: token})
		if err != nil {
			return err
		}
		c.table.resume(page.GetProcesses())
		if token = page.GetNextPageToken(); token == "" {
			return nil
		}
	}
}

// sessionError is rpcerror.Of for attaching a session.
func sessionError(id string, err error) *jsonrpc.Error {
	switch errorinfo.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND:
		return rpcerror.WithText(err, "unknown session id "+id)
	case execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD:
		if errorinfo.Of(err).GetMetadata()["field"] == "session_id" { // a session that cannot be attached
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
