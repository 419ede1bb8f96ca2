package gateway

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// attachTimeout bounds the time to attach a session, in which the server pings the
// client that has it.
const attachTimeout = 30 * time.Second

// session is the attached session of a connection.
type session struct {
	id      string
	resumed bool // another connection had it before
	stream  grpc.BidiStreamingClient[execwirev1.AttachSessionRequest, execwirev1.AttachSessionResponse]
	// windowBytes and windowEvents are the window of a process.
	windowBytes, windowEvents uint64

	sending sync.Mutex // held while sending on stream

	// takenOver is set when another connection has attached the session; then this one
	// does not end it.
	takenOver atomic.Bool
}

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
	stream, err := c.sessions.AttachSession(ctx)
	if err != nil {
		return nil, err
	}
	attach := &execwirev1.SessionAttach{SessionId: id, MaxProcesses: uint32(min(c.gateway.config.Processes, math.MaxUint32))}
	if id == "" {
		attach.WhenDetached = execwirev1.WhenDetached_WHEN_DETACHED_BLOCK
	}
	if grace := c.gateway.config.Grace; grace != nil {
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
	if id != "" {
		if err := c.findBacklogs(ctx, s.id); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// findBacklogs records the position of each process of a resumed session. The client
// reads the output up to there.
func (c *connection) findBacklogs(ctx context.Context, sessionID string) error {
	for token := ""; ; {
		page, err := c.processes.ListProcesses(ctx, &execwirev1.ListProcessesRequest{SessionId: sessionID, PageSize: 1000, PageToken: token})
		if err != nil {
			return err
		}
		c.table.mu.Lock()
		for _, described := range page.GetProcesses() {
			last, m := described.GetLastSeq(), processModeOf(described)
			if isDone(described) || last == 0 && m == (processMode{}) {
				continue
			}
			p := c.table.record(described.GetProcessId())
			p.missed, p.backlog, p.mode = last, last, m
		}
		c.table.mu.Unlock()
		if token = page.GetNextPageToken(); token == "" {
			return nil
		}
	}
}

// isDone reports whether the process has closed and the client has everything.
func isDone(described *execwirev1.Process) bool {
	return described.GetState() == execwirev1.ProcessState_PROCESS_STATE_CLOSED && !described.GetOwned()
}

// send sends on the stream. If it fails, the feed gets the reason.
func (s *session) send(m *execwirev1.AttachSessionRequest) {
	s.sending.Lock()
	defer s.sending.Unlock()
	_ = s.stream.Send(m)
}

// acknowledge sends acknowledgements to the server.
func (s *session) acknowledge(acks []acknowledgement) {
	for _, n := range acks {
		s.send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Acknowledge{
			Acknowledge: &execwirev1.SessionAcknowledge{ProcessId: n.id, Seq: n.seq}}})
	}
}

// pong answers a ping of the server.
func (s *session) pong(nonce uint64) {
	s.send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Pong{
		Pong: &execwirev1.SessionPong{Nonce: nonce}}})
}

// close ends the session and its processes. If that fails, the session enters its grace
// period.
func (s *session) close(c *connection) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(c.ctx), closeSessionTimeout,
		errors.New("the server did not end the session in time"))
	defer cancel()
	_, err := c.sessions.CloseSession(ctx, &execwirev1.CloseSessionRequest{SessionId: s.id})
	if err != nil && rpcerror.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND {
		c.log.Warn("failed to end the session of a client that has ended its connection",
			slog.String("session_id", s.id), slog.String("error", err.Error()))
	}
}
