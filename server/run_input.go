package server

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/server/auditcall"
)

// receive handles the client's messages until the stream ends. It only blocks on the
// stream.
func (r *run) receive() {
	err := receiveRest(r.stream, r.handle)
	if errors.Is(err, io.EOF) {
		r.halfClosed()
		return
	}
	r.release(err)
}

// halfClosed ends stdin; all sent events count as acknowledged from then on.
func (r *run) halfClosed() {
	if r.process.Spec().PipeStdin {
		r.input.end()
	}
	r.implyAcknowledge()
}

// implyAcknowledge makes what was sent and what will be count as acknowledged.
func (r *run) implyAcknowledge() {
	r.impliesAcknowledge.Store(true)
	_ = r.owner.Acknowledge(r.lastSent.Load())
}

// receiveInput queues input. A client that ignores the window waits: nothing more is received
// from it until the process has read, so that flow control slows it down. Its
// acknowledgements wait behind its input, so they are implied meanwhile; a process that
// writes what it reads would wait for them forever.
func (r *run) receiveInput(m *execwirev1.RunStdin) error {
	for {
		all, err := r.input.push(m)
		if all || err != nil {
			r.impliesAcknowledge.Store(false)
			return err
		}
		r.implyAcknowledge()
		select {
		case <-r.input.moved.C():
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		}
	}
}

// handle handles one message. An error ends the stream.
func (r *run) handle(m *execwirev1.RunProcessRequest) error {
	if err := validateRunInput(m); err != nil {
		r.reject(err)
		return nil
	}
	switch m := m.GetMessage().(type) {
	case *execwirev1.RunProcessRequest_Acknowledge:
		return r.owner.Acknowledge(m.Acknowledge.GetSeq())
	case *execwirev1.RunProcessRequest_Stdin:
		return r.receiveInput(m.Stdin)
	case *execwirev1.RunProcessRequest_Resize:
		r.reject(r.process.Resize(toWindowSize(m.Resize)))
	case *execwirev1.RunProcessRequest_Signal:
		r.reject(r.audited(execwirev1.ProcessService_SignalProcess_FullMethodName,
			auditcall.Signal(r.process.SessionID(), r.process.ID(), m.Signal.GetSignal()),
			func() error {
				return r.process.Signal(toSignal(m.Signal.GetSignal()), signalTargets[m.Signal.GetTarget()])
			}))
	case *execwirev1.RunProcessRequest_Terminate:
		r.terminate(m.Terminate)
	case *execwirev1.RunProcessRequest_Detach:
		_ = r.owner.Detach() // unless it was replaced
		return errDetached
	default:
		return unexpectedMessage("start and resume come once, first")
	}
	return nil
}

// maxTerminations bounds the running terminations of a stream: a graceful one, a
// forced one, and a few repetitions.
const maxTerminations = 4

// terminate terminates the process in a goroutine, because a graceful end takes time.
// It continues after the stream has ended.
func (r *run) terminate(m *execwirev1.Termination) {
	if !r.terminations.TryAcquire(1) {
		r.reject(unexpectedMessage("the process is being terminated already"))
		return
	}
	r.server.receivers.Go(func() {
		err := r.audited(execwirev1.ProcessService_TerminateProcess_FullMethodName,
			auditcall.Terminate(r.process.SessionID(), r.process.ID(), m),
			func() error {
				_, err := r.process.Terminate(context.WithoutCancel(r.ctx), toTermination(m))
				return err
			})
		r.terminations.Release(1)
		r.reject(err)
	})
}

// audited does for the owner what a method does, and records it in the audit log.
func (r *run) audited(method string, record *audit.Record, do func() error) error {
	return r.server.cfg.Audit.Do(r.stream.Context(), method, record, do, func(err error) error { return r.server.toStatus(r.ctx, err) })
}

// reject sends the error of a request; nil sends nothing.
func (r *run) reject(err error) {
	if err == nil {
		return
	}
	st := status.Convert(r.server.toStatus(r.ctx, err))
	r.outbox.post(&execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Rejected{Rejected: &execwirev1.RunRejected{
		Reason:  errorinfo.Reason(st.Err()),
		Message: st.Message(),
	}}})
}

// writeInput writes the client's input to the process, and sends how much was
// accepted. A process that does not read blocks only this goroutine.
func (r *run) writeInput() {
	for {
		in, err := r.input.pop(r.ctx)
		if err != nil {
			return
		}
		accepted, err := r.owner.WriteStdin(r.ctx, in.offset, in.data, in.end)
		if r.ctx.Err() != nil {
			return
		}
		if err != nil {
			r.input.discard()
			r.reject(err)
			return
		}
		r.input.accepted(accepted)
		r.outbox.postLatest(&execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_StdinAccepted{
			StdinAccepted: &execwirev1.RunStdinAccepted{Offset: accepted, EndOfFile: in.end}}})
	}
}
