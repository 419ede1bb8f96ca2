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

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// attachTime bounds how long the core may take to grant a session, which
// includes that it asks the client that has it.
const attachTime = 30 * time.Second

// session is the session of a connection, which it has attached.
type session struct {
	id      string
	resumed bool // another connection had it
	stream  grpc.BidiStreamingClient[execwirev1.AttachSessionRequest, execwirev1.AttachSessionResponse]
	// windowBytes and windowEvents are how much may be unacknowledged of a process.
	windowBytes, windowEvents uint64

	sending sync.Mutex // of whoever sends on the stream

	// taken is set when another connection has it: it is not ours to end then.
	taken atomic.Bool
}

var errAttachTime = errors.New("the core did not grant the session in time")

// attach attaches a session, a new one if id is empty. The attachment lasts
// until ctx ends.
func (c *connection) attach(ctx context.Context, id string) (*session, *jsonrpc.Error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(attachTime, func() { cancel(errAttachTime) })
	s, err := c.askFor(ctx, id)
	if !late.Stop() && err == nil {
		err = errAttachTime
	}
	if err != nil {
		cancel(err)
		return nil, sessionFailure(id, err)
	}
	return s, nil
}

func (c *connection) askFor(ctx context.Context, id string) (*session, error) {
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
	// When sending fails, what is received says why.
	_ = stream.Send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Attach{Attach: attach}})
	response, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	attached := response.GetAttached()
	if attached == nil {
		return nil, errors.New("the core's first answer was not that the session is attached")
	}
	s := &session{
		id: attached.GetSession().GetSessionId(), resumed: id != "", stream: stream,
		windowBytes: attached.GetOutputWindowBytes(), windowEvents: attached.GetOutputWindowEvents(),
	}
	if id != "" {
		if err := c.findHoles(ctx, s.id); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// findHoles notes where the processes of a resumed session are: what they have
// said until now the client gets by reading.
func (c *connection) findHoles(ctx context.Context, sessionID string) error {
	for token := ""; ; {
		page, err := c.processes.ListProcesses(ctx, &execwirev1.ListProcessesRequest{SessionId: sessionID, PageSize: 1000, PageToken: token})
		if err != nil {
			return err
		}
		c.mu.Lock()
		for _, described := range page.GetProcesses() {
			last, m := described.GetLastSeq(), mannerOf(described)
			if isDone(described) || last == 0 && m == (manner{}) {
				continue
			}
			p := c.record(described.GetProcessId())
			p.missed, p.hole, p.manner = last, last, m
		}
		c.mu.Unlock()
		if token = page.GetNextPageToken(); token == "" {
			return nil
		}
	}
}

// isDone reports whether the core has nothing more to say of a process: it has
// closed, and the client had all of it.
func isDone(described *execwirev1.Process) bool {
	return described.GetState() == execwirev1.ProcessState_PROCESS_STATE_CLOSED && !described.GetOwned()
}

// send says something on the stream. If that fails, the feed learns why.
func (s *session) send(m *execwirev1.AttachSessionRequest) {
	s.sending.Lock()
	defer s.sending.Unlock()
	_ = s.stream.Send(m)
}

// acknowledge tells the core what the client has.
func (s *session) acknowledge(news []acknowledgement) {
	for _, n := range news {
		s.send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Acknowledge{
			Acknowledge: &execwirev1.SessionAcknowledge{ProcessId: n.id, Seq: n.seq}}})
	}
}

// pong tells the core that the client is there.
func (s *session) pong(nonce uint64) {
	s.send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Pong{
		Pong: &execwirev1.SessionPong{Nonce: nonce}}})
}

// close ends the session and its processes. If that fails, the session is left
// to its grace.
func (s *session) close(c *connection) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(c.ctx), closeSessionFor,
		errors.New("the core did not end the session in time"))
	defer cancel()
	_, err := c.sessions.CloseSession(ctx, &execwirev1.CloseSessionRequest{SessionId: s.id})
	if err != nil && reasonOf(err) != execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND {
		c.log.Warn("failed to end the session of a client that has ended its connection",
			slog.String("session_id", s.id), slog.String("error", err.Error()))
	}
}

// expectHolesRead has holes count as taken when the client does not read them.
func (c *connection) expectHolesRead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	has := false
	for _, p := range c.records {
		if p.hole > 0 {
			p.patience = time.Now().Add(holePatience)
			has = true
		}
	}
	if has {
		c.spawn(c.giveUpHoles)
	}
}

// giveUpHoles waits until no hole is left.
func (c *connection) giveUpHoles() {
	timer := time.NewTimer(patienceSlice)
	defer timer.Stop()
	for due := time.Now().Add(patienceSlice); ; {
		select {
		case <-timer.C:
		case <-c.ctx.Done():
			return
		}
		now := time.Now()
		if late := now.Sub(due); late >= patienceSlice {
			c.prolongHoles(late)
		}
		next, left := c.takeHoles(now)
		if !left {
			return
		}
		if due = now.Add(patienceSlice); next.Before(due) {
			due = next
		}
		timer.Reset(time.Until(due))
	}
}

// prolongHoles gives the client more time for all its holes.
func (c *connection) prolongHoles(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.records {
		if p.hole > 0 {
			p.patience = p.patience.Add(by)
		}
	}
}

// takeHoles counts the holes as taken whose time is over, and returns when the
// next one's is.
func (c *connection) takeHoles(now time.Time) (next time.Time, left bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.records {
		switch {
		case p.hole == 0:
		case !now.Before(p.patience):
			p.take(p.hole)
			c.marks.note(p, 0, 0)
		case !left || p.patience.Before(next):
			next, left = p.patience, true
		}
	}
	return next, left
}
