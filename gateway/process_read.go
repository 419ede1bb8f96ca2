package gateway

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// readParams is the parameters of process/read.
type readParams struct {
	onProcess
	AfterSeq *uint64 `param:"afterSeq"`
	MaxBytes *uint64 `param:"maxBytes"`
	WaitMs   *uint64 `param:"waitMs"`
}

// run returns retained output, or waits for output. By reading after a seq, a client
// acknowledges the events up to it.
func (p *readParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	after := valueOr(p.AfterSeq, 0)
	reading := &reading{
		request: r, id: p.ProcessID.server(), after: after, position: after,
		budget: valueOr(p.MaxBytes, math.MaxUint64), deadline: deadlineIn(valueOr(p.WaitMs, 0)),
	}
	defer reading.unpin(reading.pin())
	if err := reading.read(ctx); err != nil {
		reading.end()
		return nil, processError(p.ProcessID, err)
	}
	return reading, nil
}

func valueOr(value *uint64, otherwise uint64) uint64 {
	if value == nil {
		return otherwise
	}
	return *value
}

// deadlineIn returns the end of a wait; zero for none.
func deadlineIn(waitMs uint64) time.Time {
	if waitMs == 0 {
		return time.Time{}
	}
	return time.Now().Add(param.Milliseconds(waitMs))
}

// pin confirms the events before those it reads. Until unpin, the server retains what
// follows: the client may confirm that too before the server answers, because it was
// sent meanwhile.
func (r *reading) pin() *pin {
	r.table.mu.Lock()
	p := r.table.record(r.id)
	pinned := p.pin(r.after)
	if r.after > 0 {
		p.confirmClaim(r.after)
	}
	acks := p.appendAcknowledgement(nil)
	if p.isUnproven() {
		r.marks.note(p, 0, 0)
	}
	r.table.mu.Unlock()
	r.session.acknowledge(acks)
	return pinned
}

// unpin ends pin after the server's answer.
func (r *reading) unpin(pinned *pin) {
	r.table.mu.Lock()
	p := r.table.record(r.id)
	delete(p.pins, pinned)
	acks := p.appendAcknowledgement(nil)
	r.table.mu.Unlock()
	r.session.acknowledge(acks)
}

var (
	_ call.Appendable   = (*reading)(nil)
	_ call.SendObserver = (*reading)(nil)
)

func (r *reading) AppendTo(dst []byte) []byte {
	dst = append(dst, `{"chunks":[`...)
	for i, event := range r.chunks {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = fmt.Appendf(dst, `{"seq":%d,"stream":"%s","chunk":`, event.GetSeq(), streamName(event.GetOutput().GetStream()))
		dst = append(jsonrpc.AppendBase64(dst, event.GetOutput().GetData()), '}')
	}
	code := "null"
	if r.exit != nil {
		code = strconv.FormatInt(exitCode(r.exit), 10)
	}
	dst = fmt.Appendf(dst, `],"nextSeq":%d,"exited":%t,"exitCode":%s,"closed":%t,"failure":null,"sandboxDenied":%t`,
		r.position+1, r.exit != nil, code, r.closed, r.exit.GetSandboxDenied())
	return append(appendGap(dst, r.gap), '}')
}

// Sent records that the client was sent everything up to position.
func (r *reading) Sent() {
	r.end()
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	p := r.table.record(r.id)
	p.answer(r.position)
	if p.isUnproven() {
		r.marks.note(p, 0, 0)
		if r.closed {
			r.marks.due.Set()
		}
	}
	r.table.forget(p)
}

// end releases the resources of the answer.
func (r *reading) end() {
	if r.release != nil {
		r.release()
	}
}
