package gateway

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// readParams are the parameters of process/read.
type readParams struct {
	ProcessID string  `param:"processId"`
	AfterSeq  *uint64 `param:"afterSeq"`
	MaxBytes  *uint64 `param:"maxBytes"`
	WaitMs    *uint64 `param:"waitMs"`
}

func (p *readParams) order() (string, place) { return p.ProcessID, placeAny }

// run reads what is retained, or waits until there is something. A client that
// reads from a seq on says that it has what comes before.
func (p *readParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	if checkProcessID(p.ProcessID) != nil {
		return nil, unknownProcess(p.ProcessID)
	}
	after := valueOr(p.AfterSeq, 0)
	reading := &reading{
		request: r, id: coreProcessID(p.ProcessID), after: after, position: after,
		budget: valueOr(p.MaxBytes, math.MaxUint64), deadline: deadlineIn(valueOr(p.WaitMs, 0)),
	}
	reading.pin()
	defer reading.unpin()
	if err := reading.read(ctx); err != nil {
		reading.end()
		return nil, processFailure(p.ProcessID, err)
	}
	if r.acknowledges {
		reading.promise()
	}
	return reading, nil
}

func valueOr(value *uint64, otherwise uint64) uint64 {
	if value == nil {
		return otherwise
	}
	return *value
}

// deadlineIn is when a wait is over; zero for one that is none.
func deadlineIn(waitMs uint64) time.Time {
	if waitMs == 0 {
		return time.Time{}
	}
	return time.Now().Add(milliseconds(waitMs))
}

// milliseconds is a time of so many, or the longest that is told from others.
func milliseconds(n uint64) time.Duration {
	const most = math.MaxInt64 / uint64(time.Millisecond) / 2
	return time.Duration(min(n, most)) * time.Millisecond
}

// pin notes that the client says that it has everything up to where it reads from.
// Until unpin the core keeps what follows: the client may show that it has that too
// before the core has answered, because it was pushed meanwhile.
func (r *reading) pin() {
	r.mu.Lock()
	p := r.record(r.id)
	p.pin(r)
	if r.after > 0 && !r.acknowledges {
		p.claim(r.after)
	}
	news := p.appendNews(nil)
	if p.isUnproven() && !r.acknowledges {
		r.marks.note(p, 0, 0)
	}
	r.mu.Unlock()
	r.session.acknowledge(news)
}

// promise notes how far the client will have read when it is answered, which is when
// it may acknowledge that.
func (r *reading) promise() {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.record(r.id)
	p.read = max(p.read, r.position)
}

// unpin lets the core drop what the client has: it has answered.
func (r *reading) unpin() {
	r.mu.Lock()
	p := r.record(r.id)
	p.unpin(r)
	news := p.appendNews(nil)
	r.mu.Unlock()
	r.session.acknowledge(news)
}

// reading is one process/read, and its result. What it says is consistent up to
// the seq before nextSeq, unless maxBytes cut it: a client that put it together
// with what it had before has everything up to there.
type reading struct {
	*request
	id       string
	after    uint64    // what the client has
	position uint64    // up to where the answer goes
	budget   uint64    // bytes that may still be added
	deadline time.Time // zero: there is no wait
	most     uint64    // bytes that the core is asked for at once
	leave    func()    // gives the slot back; nil: it has none

	chunks []*execwirev1.ProcessEvent // outputs
	gap    *execwirev1.OutputGap      // before the first of them
	exit   *execwirev1.ExitRecord     // nil: not exited
	closed bool
	totals *execwirev1.ProcessClosed // nil if the close is not in it
}

var (
	_ appendable = (*reading)(nil)
	_ noted      = (*reading)(nil)
)

func (r *reading) appendTo(dst []byte) []byte {
	dst = append(dst, `{"chunks":[`...)
	for i, event := range r.chunks {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"seq":`...)
		dst = strconv.AppendUint(dst, event.GetSeq(), 10)
		dst = append(dst, `,"stream":"`...)
		dst = append(dst, streamName(event.GetOutput().GetStream())...)
		dst = append(dst, `","chunk":`...)
		dst = jsonrpc.AppendBase64(dst, event.GetOutput().GetData())
		if r.acknowledges {
			dst = appendOffset(dst, event.GetOutput())
		}
		dst = append(dst, '}')
	}
	dst = append(dst, `],"nextSeq":`...)
	dst = strconv.AppendUint(dst, r.position+1, 10)
	dst = append(dst, `,"exited":`...)
	dst = strconv.AppendBool(dst, r.exit != nil)
	dst = append(dst, `,"exitCode":`...)
	if r.exit == nil {
		dst = append(dst, `null`...)
	} else {
		dst = strconv.AppendInt(dst, exitCode(r.exit), 10)
	}
	dst = append(dst, `,"closed":`...)
	dst = strconv.AppendBool(dst, r.closed)
	dst = append(dst, `,"failure":null,"sandboxDenied":`...)
	dst = strconv.AppendBool(dst, r.exit.GetSandboxDenied())
	dst = appendGap(dst, r.gap)
	if r.acknowledges {
		dst = appendExact(dst, r.exit, r.totals)
	}
	return append(dst, '}')
}

// wasSaid notes that the client was told everything up to the position.
func (r *reading) wasSaid() {
	r.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.record(r.id)
	if r.acknowledges {
		r.forget(p)
		return
	}
	p.answer(r.position)
	if p.isUnproven() {
		r.marks.note(p, 0, 0)
		if r.closed {
			r.marks.hurry()
		}
	}
	r.forget(p)
}

// end gives back what the answer had while it was put together and said.
func (r *reading) end() {
	if r.leave != nil {
		r.leave()
	}
}
