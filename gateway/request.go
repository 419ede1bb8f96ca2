package gateway

import (
	"context"
	"io"
	"time"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/files"
	"github.com/execwire/execwire/gateway/httpcalls"
	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/tracecontext"
)

// ownCall is a call that this package executes.
type ownCall interface {
	// run executes the call. encoding/json encodes the result unless it is a
	// [call.Appendable] or a [call.Streamable].
	run(ctx context.Context, r *request) (result any, failed *jsonrpc.Error)
}

// request is a request in flight.
type request struct {
	*connection
	id      jsonrpc.ID
	trace   tracecontext.Context
	call    any    // see method
	release func() // of the permit
	turn    call.Turn
	gates   []*eventGate
	follows []byte // a notification to send right after the answer
}

func newRequest(c *connection, m jsonrpc.Message, call any, release func()) *request {
	return &request{connection: c, id: m.ID, trace: traceOf(m), call: call, release: release}
}

// serve executes and answers the request, then opens its event gates.
func (r *request) serve() {
	defer r.recoverPanic(r.trace)
	r.respond()
	for _, g := range r.gates {
		r.delivery.release(g)
	}
}

// respond executes and answers the request.
func (r *request) respond() {
	defer r.answering.Done()
	defer r.release() // if no answer could be sent
	result, failed := r.carryOut()
	r.table.unlimit(r.gates)                // only sending the answer is left
	r.call = nil                            // free the parameters while a slow client reads the answer
	_, streamed := result.(call.Streamable) // its result is produced while it is sent
	if !streamed {
		r.turn.End()
	}
	if failed != nil {
		r.noteLimit(failed)
	}
	if r.calls.Err() == nil {
		r.answer(result, failed)
	}
	if streamed {
		r.turn.End()
	}
}

// carryOut waits for the request's turn and runs the call.
func (r *request) carryOut() (any, *jsonrpc.Error) {
	if err := r.turn.Wait(r.calls); err != nil {
		return nil, call.Closing()
	}
	ctx := tracecontext.NewOutgoing(r.calls, r.trace)
	switch c := r.call.(type) {
	case files.Call:
		return r.files.Run(ctx, c)
	case *httpcalls.Request:
		return r.http.Run(ctx, c)
	}
	return r.call.(ownCall).run(ctx, r)
}

// gateForSignal gates output and exit for a request that can cause both. It is called
// before anything that can cause events.
func (r *request) gateForSignal(id string) {
	r.gateOutput(id, r.gateLimits.output)
	r.gates = append(r.gates, r.table.addGate(id, true, r.gateLimits.end))
}

// gateOutput gates all events of a process until the request is answered; limit 0 is
// none.
func (r *request) gateOutput(id string, limit time.Duration) {
	r.gates = append(r.gates, r.table.addGate(id, false, limit))
}

// answer sends the answer and releases the permit just before. If sending fails, the
// connection ends.
func (r *request) answer(result any, failed *jsonrpc.Error) {
	if streamed, ok := result.(call.Streamable); ok && failed == nil {
		if err := r.out.stream(r.trace, func(w io.Writer) error { return r.streamAnswer(w, streamed) }); err != nil {
			r.end(ending{closeInternal, "an answer could not be completed", err})
		}
		return
	}
	answered := false
	err := r.out.send(func(dst []byte) ([]byte, bool) {
		if answered {
			dst, r.follows = append(dst, r.follows...), nil
			return dst, len(dst) > 0
		}
		answered = true
		r.release()
		r.out.setTrace(r.trace)
		return r.appendAnswer(dst, result, failed), true
	})
	if err != nil {
		r.end(ending{closeInternal, "an answer could not be sent", err})
		return
	}
	r.out.answered.Add(1)
	if n, ok := result.(call.SendObserver); ok && failed == nil {
		n.Sent()
	}
}

func (r *request) appendAnswer(dst []byte, result any, failed *jsonrpc.Error) []byte {
	switch own, ok := result.(call.Appendable); {
	case failed != nil:
		return jsonrpc.AppendError(dst, r.id, failed)
	case ok:
		dst = own.AppendTo(r.appendHead(dst))
		return append(dst, '}')
	}
	return jsonrpc.AppendResult(dst, r.id, result)
}

func (r *request) appendHead(dst []byte) []byte {
	dst = append(dst, `{"id":`...)
	dst = r.id.Append(dst)
	return append(dst, `,"result":`...)
}

func (r *request) streamAnswer(w io.Writer, result call.Streamable) error {
	r.release()
	if _, err := w.Write(r.appendHead(nil)); err != nil {
		return err
	}
	if err := result.StreamTo(w); err != nil {
		return err
	}
	_, err := w.Write([]byte{'}'})
	return err
}
