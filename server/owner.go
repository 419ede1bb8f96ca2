package server

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/session"
)

// ownRequest is the first message of an owner, of RunProcess or OwnProcess.
type ownRequest interface {
	GetStart() *execwirev1.RunStart
	GetResume() *execwirev1.RunResume
}

// own starts or finds the process of a validated request and takes the ownership. The
// caller must call serveOwner, or Lost.
func (s *processService) own(ctx context.Context, m ownRequest) (owner *session.Ownership, resumed bool, err error) {
	if m.GetStart() != nil {
		const prefix = "start.process."
		request := m.GetStart().GetProcess()
		start, err := s.prepare(ctx, prefix, request)
		if err != nil {
			return nil, false, err
		}
		began := time.Now()
		owner, created, err := start.session.StartOwned(ctx, start.id, start.digest, start.spec, start.options, optionalDuration(m.GetStart().GetGrace()))
		if err == nil && created {
			s.noteStart(ctx, began, owner.Process())
		}
		return owner, !created, qualifyField(prefix, request.GetCommand(), err)
	}
	resume := m.GetResume()
	if id := resume.GetInstanceId(); id != "" && id != s.server.instance {
		return nil, false, &session.Error{Kind: session.ProcessNotFound, Subject: resume.GetProcessId()}
	}
	p, err := s.server.find(ctx, resume.GetSessionId(), resume.GetProcessId())
	if err != nil {
		return nil, false, err
	}
	owner, err = p.Own(ctx, resume.GetAfterSeq(), optionalDuration(resume.GetGrace()))
	return owner, true, err
}

func optionalDuration(d *durationpb.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	value := d.AsDuration()
	return &value
}

// started is the first message to an owner.
func (s *Server) started(owner *session.Ownership, resumed bool) *execwirev1.RunStarted {
	p := owner.Process()
	output := p.Log().Limits() // a start may lower them
	return &execwirev1.RunStarted{
		Process:            toProcess(p),
		Resumed:            resumed,
		StdinOffset:        p.StdinOffset(),
		StdinWindowBytes:   s.limits().GetStdinQueueBytes(),
		OutputWindowBytes:  uint64(output.WindowBytes),
		OutputWindowEvents: uint64(output.RetainedEvents),
		InstanceId:         s.instance,
		OwnerId:            owner.ID(),
	}
}

// acknowledgementTimeout is how long a stream waits for the acknowledgement of the
// last event.
const acknowledgementTimeout = time.Second

// serveOwner sends the events of an owned process and waits until the last one is
// acknowledged: before that it may not have arrived, and the record must be kept. Then
// it ends the ownership according to how the stream ended. ctx ends with the stream and
// the ownership.
func serveOwner(ctx context.Context, owner *session.Ownership, send func([]*execwirev1.ProcessEvent) error) error {
	err := forward(ctx, owner.Process(), owner, send)
	if err == nil && owner.AwaitAcknowledged(ctx, acknowledgementTimeout) {
		_ = owner.Detach() // unless it was replaced
	}
	if ctx.Err() != nil {
		// The client is gone, or broke the protocol; it may resume. The error of the log
		// may only be the consequence.
		err = context.Cause(ctx)
	}
	owner.Lost() // unless it has detached or was replaced
	if owner.Detached() {
		return nil
	}
	return err
}

// OwnProcess implements the RPC.
func (s *processService) OwnProcess(req *execwirev1.OwnProcessRequest, stream grpc.ServerStreamingServer[execwirev1.OwnProcessResponse]) error {
	owner, resumed, err := s.own(stream.Context(), req)
	if err != nil {
		return err
	}
	if err := stream.Send(&execwirev1.OwnProcessResponse{Message: &execwirev1.OwnProcessResponse_Started{
		Started: s.server.started(owner, resumed)}}); err != nil {
		owner.Lost()
		return err
	}
	return serveOwner(owner.Context(), owner, func(events []*execwirev1.ProcessEvent) error {
		return stream.Send(&execwirev1.OwnProcessResponse{Message: &execwirev1.OwnProcessResponse_Events{
			Events: &execwirev1.RunEvents{Events: events}}})
	})
}

// ownerReference is implemented by every request of an owner about its process.
type ownerReference interface {
	processReference
	GetOwnerId() string
}

// findOwner returns the ownership that a request names, which may have ended.
func (s *Server) findOwner(ctx context.Context, req ownerReference) (*session.Ownership, error) {
	p, err := s.find(ctx, req.GetSessionId(), req.GetProcessId())
	if err != nil {
		return nil, err
	}
	return p.Ownership(req.GetOwnerId())
}

// AcknowledgeOutput implements the RPC.
func (s *processService) AcknowledgeOutput(ctx context.Context, req *execwirev1.AcknowledgeOutputRequest) (*execwirev1.AcknowledgeOutputResponse, error) {
	owner, err := s.server.findOwner(ctx, req)
	if err != nil {
		return nil, err
	}
	return &execwirev1.AcknowledgeOutputResponse{}, owner.Acknowledge(req.GetSeq())
}

// DetachProcess implements the RPC.
func (s *processService) DetachProcess(ctx context.Context, req *execwirev1.DetachProcessRequest) (*execwirev1.DetachProcessResponse, error) {
	owner, err := s.server.findOwner(ctx, req)
	if err != nil {
		return nil, err
	}
	return &execwirev1.DetachProcessResponse{}, owner.Detach()
}

// writeOwned writes the input of an owner.
func (s *Server) writeOwned(ctx context.Context, req *execwirev1.WriteStdinRequest) (*execwirev1.WriteStdinResponse, error) {
	owner, err := s.findOwner(ctx, req)
	if err != nil {
		return nil, err
	}
	accepted, err := owner.WriteStdin(ctx, req.GetOffset(), req.GetData(), req.GetEndOfFile())
	return &execwirev1.WriteStdinResponse{AcceptedOffset: accepted}, err
}
