package execserver

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// listen does what the owner asks for until it says no more.
func (r *run) listen() {
	for {
		request, err := r.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			r.halfClosed()
			return
		case err != nil:
			r.end(err)
			return
		}
		if err := r.heed(request); err != nil {
			r.end(err)
			return
		}
	}
}

// halfClosed is for an owner that says no more: its input is over, and what it was
// sent counts as taken.
func (r *run) halfClosed() {
	r.mu.Lock()
	r.takesAll = true
	told := r.told
	r.mu.Unlock()
	r.taken(told)
	r.pump.finish()
}

// heed does one thing that the owner asks for. An error ends the stream.
func (r *run) heed(request *execwirev1.RunProcessRequest) error {
	switch m := request.GetMessage().(type) {
	case *execwirev1.RunProcessRequest_Stdin:
		return r.pump.take(m.Stdin)
	case *execwirev1.RunProcessRequest_Acknowledge:
		return r.acknowledge(m.Acknowledge.GetSeq())
	case *execwirev1.RunProcessRequest_Resize:
		r.ask(func(ctx context.Context) error { return r.service.resize(ctx, r.process.id, m.Resize) })
	case *execwirev1.RunProcessRequest_Signal:
		r.ask(func(ctx context.Context) error {
			return r.service.signal(ctx, r.process.id, m.Signal.GetSignal(), m.Signal.GetTarget())
		})
	case *execwirev1.RunProcessRequest_Terminate:
		r.ask(func(ctx context.Context) error {
			_, err := r.service.terminate(ctx, r.process, m.Terminate)
			return err
		})
	case *execwirev1.RunProcessRequest_Detach:
		return errDetached
	case *execwirev1.RunProcessRequest_Start, *execwirev1.RunProcessRequest_Resume:
		return unexpectedMessage("a process is owned by this stream already")
	default:
		return invalidField("message", "is not known")
	}
	return nil
}

// ask makes a request beside the stream. One that is refused is rejected.
func (r *run) ask(do func(context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	r.tasks.Go(func() {
		if err := do(r.ctx); err != nil && r.ctx.Err() == nil && !isUnanswered(err) {
			r.reject(err)
		}
	})
}

func (r *run) acknowledge(seq uint64) error {
	if last, _, _, _ := r.process.state(); seq > last {
		return seqNotReached(r.process.id, seq, last)
	}
	r.taken(seq)
	return nil
}

func messageOf(err error) string { return status.Convert(err).Message() }
