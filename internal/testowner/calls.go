// Package testowner lets a test own a process in either form of the contract: by a
// RunProcess stream, or by OwnProcess and calls.
package testowner

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
)

// Stream is the owner's side of a RunProcess stream. Send and Recv are for one goroutine
// each. It ends with the context of its Opener.
type Stream interface {
	Send(*execwirev1.RunProcessRequest) error
	Recv() (*execwirev1.RunProcessResponse, error)
	CloseSend() error
}

// Open opens a Stream in one of the forms.
type Open func(context.Context, execwirev1.ProcessServiceClient) (Stream, error)

// Forms are the forms of ownership by name.
var Forms = map[string]Open{"RunProcess": Run, "OwnProcess": Calls}

// Run opens a RunProcess stream.
func Run(ctx context.Context, processes execwirev1.ProcessServiceClient) (Stream, error) {
	return processes.RunProcess(ctx)
}

// Calls presents OwnProcess and the calls of an owner as a RunProcess stream. Requests that
// fail are received as rejections; like the stream, it ends when the owner breaks the
// protocol. CloseSend is not supported.
func Calls(ctx context.Context, processes execwirev1.ProcessServiceClient) (Stream, error) {
	c := &calls{processes: processes, answers: make(chan *execwirev1.RunProcessResponse, 1024), input: make(chan *execwirev1.RunStdin, 1024)}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	return c, nil
}

type calls struct {
	ctx       context.Context
	cancel    context.CancelCauseFunc // with the error that Recv returns
	processes execwirev1.ProcessServiceClient
	stream    grpc.ServerStreamingClient[execwirev1.OwnProcessResponse]
	answers   chan *execwirev1.RunProcessResponse
	input     chan *execwirev1.RunStdin
	received  chan received // of a Recv that has not returned; nil: none

	sessionID, processID string
	mu                   sync.Mutex
	ownerID              string // guarded by mu
}

type received struct {
	response *execwirev1.OwnProcessResponse
	err      error
}

var errCloseSend = errors.New("testowner: OwnProcess has no CloseSend")

func (c *calls) CloseSend() error { return errCloseSend }

func (c *calls) owner() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ownerID
}

func (c *calls) Send(m *execwirev1.RunProcessRequest) error {
	if c.stream == nil {
		return c.open(m)
	}
	switch m := m.GetMessage().(type) {
	case *execwirev1.RunProcessRequest_Acknowledge:
		_, err := c.processes.AcknowledgeOutput(c.ctx, &execwirev1.AcknowledgeOutputRequest{
			SessionId: c.sessionID, ProcessId: c.processID, OwnerId: c.owner(), Seq: m.Acknowledge.GetSeq()})
		c.endOn(err)
	case *execwirev1.RunProcessRequest_Detach:
		_, err := c.processes.DetachProcess(c.ctx, &execwirev1.DetachProcessRequest{
			SessionId: c.sessionID, ProcessId: c.processID, OwnerId: c.owner()})
		c.endOn(err)
	case *execwirev1.RunProcessRequest_Stdin:
		c.input <- m.Stdin
	case *execwirev1.RunProcessRequest_Resize:
		_, err := c.processes.ResizeTerminal(c.ctx, &execwirev1.ResizeTerminalRequest{
			SessionId: c.sessionID, ProcessId: c.processID, Size: m.Resize})
		c.reject(err)
	case *execwirev1.RunProcessRequest_Signal:
		_, err := c.processes.SignalProcess(c.ctx, &execwirev1.SignalProcessRequest{
			SessionId: c.sessionID, ProcessId: c.processID, Signal: m.Signal.GetSignal(), Target: m.Signal.GetTarget()})
		c.reject(err)
	case *execwirev1.RunProcessRequest_Terminate:
		go func() {
			_, err := c.processes.TerminateProcess(c.ctx, &execwirev1.TerminateProcessRequest{
				SessionId: c.sessionID, ProcessId: c.processID, Termination: m.Terminate})
			c.reject(err)
		}()
	}
	return nil
}

func (c *calls) open(m *execwirev1.RunProcessRequest) (err error) {
	request := &execwirev1.OwnProcessRequest{}
	switch m := m.GetMessage().(type) {
	case *execwirev1.RunProcessRequest_Start:
		c.sessionID, c.processID = m.Start.GetProcess().GetSessionId(), m.Start.GetProcess().GetProcessId()
		request.Message = &execwirev1.OwnProcessRequest_Start{Start: m.Start}
	case *execwirev1.RunProcessRequest_Resume:
		c.sessionID, c.processID = m.Resume.GetSessionId(), m.Resume.GetProcessId()
		request.Message = &execwirev1.OwnProcessRequest_Resume{Resume: m.Resume}
	}
	c.stream, err = c.processes.OwnProcess(c.ctx, request)
	return err
}

// endOn ends the stream if the call failed because the owner broke the protocol. Whether it
// owns the process is told by the stream.
func (c *calls) endOn(err error) {
	if reason := errorinfo.Reason(err); reason == execwirev1.ErrorReason_ERROR_REASON_SEQ_NOT_REACHED ||
		reason == execwirev1.ErrorReason_ERROR_REASON_STDIN_OFFSET_INVALID {
		c.cancel(err)
	}
}

func (c *calls) reject(err error) {
	if err != nil && c.ctx.Err() == nil {
		c.answers <- &execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Rejected{
			Rejected: &execwirev1.RunRejected{Reason: errorinfo.Reason(err), Message: err.Error()}}}
	}
}

// write writes input in order, until it is rejected.
func (c *calls) write() {
	for {
		var in *execwirev1.RunStdin
		select {
		case in = <-c.input:
		case <-c.ctx.Done():
			return
		}
		answer, err := c.processes.WriteStdin(c.ctx, &execwirev1.WriteStdinRequest{SessionId: c.sessionID, ProcessId: c.processID,
			OwnerId: c.owner(), Offset: in.GetOffset(), Data: in.GetData(), EndOfFile: in.GetEndOfFile()})
		switch errorinfo.Reason(err) {
		case execwirev1.ErrorReason_ERROR_REASON_PROCESS_OWNER_LOST, execwirev1.ErrorReason_ERROR_REASON_PROCESS_TAKEN_OVER:
			return // the stream says so
		}
		if err != nil {
			c.endOn(err)
			c.reject(err)
			return
		}
		c.answers <- &execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_StdinAccepted{
			StdinAccepted: &execwirev1.RunStdinAccepted{Offset: answer.GetAcceptedOffset(), EndOfFile: in.GetEndOfFile()}}}
	}
}

func (c *calls) Recv() (*execwirev1.RunProcessResponse, error) {
	if c.received == nil {
		next := make(chan received, 1)
		c.received = next
		go func() {
			response, err := c.stream.Recv()
			next <- received{response, err}
		}()
	}
	select {
	case answer := <-c.answers:
		return answer, nil
	case next := <-c.received:
		c.received = nil
		return c.take(next)
	}
}

func (c *calls) take(next received) (*execwirev1.RunProcessResponse, error) {
	if next.err != nil {
		if cause := context.Cause(c.ctx); errorinfo.Reason(cause) != 0 {
			return nil, cause
		}
		c.cancel(next.err)
		return nil, next.err
	}
	if started := next.response.GetStarted(); started != nil {
		c.mu.Lock()
		c.ownerID = started.GetOwnerId()
		c.mu.Unlock()
		go c.write()
		return &execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Started{Started: started}}, nil
	}
	return &execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Events{Events: next.response.GetEvents()}}, nil
}
