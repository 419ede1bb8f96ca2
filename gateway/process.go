package gateway

import (
	"slices"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/tracecontext"
)

// process is a connection's record of one process: requests in flight, pending events
// and the client's position. processTable.mu guards it, except id and name, which never
// change.
type process struct {
	id   string // on the server
	name []byte // of the client, as JSON

	users    int             // requests that name it
	starting <-chan struct{} // closed when the last start is done
	writing  <-chan struct{} // closed when the last write is done
	resizing <-chan struct{} // closed when the last resize is done

	gates        []*eventGate
	gatesCreated uint64  // number of gates ever created
	pending      []batch // received and not yet sent
	delivering   bool    // a goroutine delivers

	gap      *execwirev1.OutputGap // to be sent with the next event
	mode     processMode           // of the process whose events are sent
	nextMode *processMode          // of the next process with this id, whose events are not received yet

	trace, nextTrace tracecontext.Context // of the requests that started these processes

	closed bool                   // its closed event was sent
	exit   uint64                 // seq of the exited event; 0 while unknown
	ended  *execwirev1.ExitRecord // of the exited event

	closeWait     *delayed // runs while an exit waits for the close
	exitDue       bool     // the close is late: send the exit
	exitSent      bool     // in the older dialect; of the delivering goroutine
	exitDelivered bool     // in the older dialect: the transport has accepted it

	progress
}

// restart resets the record for another process with the same id.
func (p *process) restart() {
	p.progress = progress{generation: p.generation + 1}
	p.mode = processMode{}
	if p.nextMode != nil {
		p.mode = *p.nextMode
	}
	p.trace, p.nextTrace = p.nextTrace, tracecontext.Context{}
	p.nextMode, p.closed, p.exit, p.ended, p.gap = nil, false, 0, nil, nil
	p.closeWait, p.exitDue, p.exitSent, p.exitDelivered = nil, false, false, false
}

// isSettled reports whether the client's position need not be remembered.
func (p *process) isSettled() bool {
	hasAll := p.closed && p.acknowledged == p.received
	return p.missed <= p.received && p.backlog == 0 && !p.hasOtherNextMode() &&
		(p.received == 0 && p.mode == processMode{} || hasAll)
}

// hasOtherNextMode reports whether the next process with this id has a mode or a trace that a
// new record would lack.
func (p *process) hasOtherNextMode() bool {
	return p.nextMode != nil && (*p.nextMode != processMode{} || !p.nextTrace.IsZero())
}

// Limits of how long events wait for an answer.
const (
	// gateOutputLimit bounds how long a blocked write or a slow signal delays output.
	gateOutputLimit = 100 * time.Millisecond
	// gateEndLimit bounds how long a slow termination delays the exit.
	gateEndLimit = 2 * time.Second
)

// gateLimits are gateOutputLimit and gateEndLimit; tests shorten them.
type gateLimits struct{ output, end time.Duration }

// eventGate holds back events of a process until the request that causes them is
// answered: a response precedes the notifications that it causes.
type eventGate struct {
	process *process
	number  uint64        // position in the order of creation, from 1
	endOnly bool          // hold back only exited and closed events
	limit   time.Duration // 0 is none; guarded by processTable.mu
	timer   *delayed      // guarded by processTable.mu
}

// batch is what the server sent at once of a process.
type batch struct {
	events []*execwirev1.ProcessEvent
	// lastGate is the number of the last gate when the batch arrived. Later gates do
	// not hold it back, so a client that writes without pause still gets output.
	lastGate uint64
}

// blocks reports whether the gate holds back an event of a batch with this lastGate.
func (g *eventGate) blocks(event *execwirev1.ProcessEvent, upTo uint64) bool {
	isEnd := event.GetExited() != nil || event.GetClosed() != nil
	return g.number <= upTo && (!g.endOnly || isEnd)
}

func (p *process) isGated(event *execwirev1.ProcessEvent, upTo uint64) bool {
	return slices.ContainsFunc(p.gates, func(g *eventGate) bool { return g.blocks(event, upTo) })
}

// add queues events. processTable.mu is held.
func (p *process) add(events []*execwirev1.ProcessEvent) {
	if len(events) > 0 {
		p.pending = append(p.pending, batch{events: events, lastGate: p.gatesCreated})
	}
}

// next removes the next events that are not gated. processTable.mu is held.
func (p *process) next() []*execwirev1.ProcessEvent {
	if len(p.pending) == 0 {
		return nil
	}
	first := &p.pending[0]
	ready := 0
	for ready < len(first.events) && !p.isGated(first.events[ready], first.lastGate) {
		ready++
	}
	events := first.events[:ready:ready]
	if first.events = first.events[ready:]; len(first.events) > 0 {
		return events
	}
	*first = batch{}
	if p.pending = p.pending[1:]; len(p.pending) == 0 {
		p.pending = nil
	}
	return events
}

// receive records an event and reports whether the client gets it by process/read
// instead.
func (p *process) receive(event *execwirev1.ProcessEvent) bool {
	seq := lastSeqOf(event)
	if seq == 1 && (p.nextMode != nil || p.closed) {
		p.restart()
	}
	// A stream that had the process in the meantime returned it after what that has acknowledged: events come again.
	before := max(seq, 1) - 1
	p.done, p.acknowledged = min(p.done, before), min(p.acknowledged, before)
	p.received = max(p.received, seq)
	if exited := event.GetExited(); exited != nil {
		p.exit, p.ended = seq, exited.GetExit()
	}
	if !p.isMissed(event) {
		return false
	}
	p.done = max(p.done, seq)
	if event.GetClosed() != nil {
		p.closed = true
	}
	return true
}

// isMissed reports whether the client gets the event by process/read.
func (p *process) isMissed(event *execwirev1.ProcessEvent) bool { return lastSeqOf(event) <= p.missed }

// lastSeqOf returns the seq of an event; of a gap, the seq of the last event in it.
func lastSeqOf(event *execwirev1.ProcessEvent) uint64 {
	if gap := event.GetGap(); gap != nil {
		return max(gap.GetFirstAvailableSeq(), 1) - 1
	}
	return event.GetSeq()
}

// takeLateExit reports whether the exit must be sent now. The delivering goroutine
// calls it with table.mu held.
func (p *process) takeLateExit() bool {
	due := p.exitDue && !p.exitSent
	p.exitDue = false
	return due
}

// proof is what a watermark would prove of a process now.
type proof struct {
	process    *process
	generation int
	sent, read uint64
}

func (p *process) pendingProof() proof {
	return proof{process: p, generation: p.generation, sent: p.provablySent(), read: p.read}
}

// provablySent is the last seq up to which everything is sent. In the older dialect the
// exit may be sent after later events; until then a resuming connection must get it
// again.
func (p *process) provablySent() uint64 {
	if p.mode.legacy && p.exit > 0 && !p.exitDelivered {
		return min(p.sent, p.exit-1)
	}
	return p.sent
}

// prove confirms what a watermark proved. For a client that uses process/read, only
// answers count.
func (p *process) prove(m proof, now time.Time) {
	p.confirm(m.read)
	if p.backlog == 0 && !p.isReader(now) {
		p.confirm(m.sent)
	}
}

// unacknowledged is that of progress. What is pending may be there for the second time.
func (p *process) unacknowledged() (seq uint64, pending bool) {
	seq, _ = p.progress.unacknowledged()
	if len(p.pending) > 0 {
		seq = min(seq, max(lastSeqOf(p.pending[0].events[0]), 1)-1)
	}
	return seq, seq > p.acknowledged
}

// appendAcknowledgement appends what the server does not know yet, if anything.
func (p *process) appendAcknowledgement(acks []acknowledgement) []acknowledgement {
	seq, pending := p.unacknowledged()
	if !pending {
		return acks
	}
	p.acknowledged = seq
	return append(acks, acknowledgement{id: p.id, seq: seq})
}

// isUnproven reports whether a watermark would prove something.
func (p *process) isUnproven() bool {
	return p.read > p.confirmed || p.backlog == 0 && p.provablySent() > p.confirmed
}
