package gateway

import (
	"errors"
	"io"
	"slices"

	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// feed receives the events of the session until the stream ends. It blocks while the
// client does not read; then each process blocks at its window.
func (c *connection) feed(s *session) {
	for {
		response, err := s.stream.Recv()
		if err != nil {
			c.feedEnded(err)
			return
		}
		switch m := response.GetMessage().(type) {
		case *execwirev1.AttachSessionResponse_Events:
			if err := c.learnMode(m.Events.GetProcessId(), m.Events.GetEvents()); err != nil {
				c.feedEnded(err)
				return
			}
			if !c.isReady() || c.table.deliver(m.Events.GetProcessId(), m.Events.GetEvents()) != nil {
				return
			}
		case *execwirev1.AttachSessionResponse_Ping:
			c.pings.answer(c, m.Ping.GetNonce())
		}
	}
}

// isReady waits until the client has sent initialized. It returns false if the
// connection ends first.
func (c *connection) isReady() bool {
	select {
	case <-c.live:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// feedEnded ends the connection after its session ended or was lost, unless the client
// closed it. Events received before are delivered first. After a takeover they are not:
// the new attachment gets them.
func (c *connection) feedEnded(err error) {
	if rpcerror.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_SESSION_TAKEN_OVER {
		c.session.takenOver.Store(true)
	} else {
		c.table.awaitDelivered()
	}
	if c.ctx.Err() != nil || c.isClosedByClient() {
		return
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the server ended the attachment without a reason")
	}
	c.end(endingFor(err))
}

// deliver queues events and delivers what is pending, unless it is gated or another
// goroutine delivers.
func (t *processTable) deliver(id string, events []*execwirev1.ProcessEvent) error {
	if p, ready := t.queue(id, events); ready {
		return t.deliverPending(p)
	}
	return nil
}

// queue reports whether the caller must call deliverPending.
func (t *processTable) queue(id string, events []*execwirev1.ProcessEvent) (*process, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.record(id)
	p.add(events)
	return p, t.startDelivery(p)
}

// awaitDelivered waits until everything received is delivered, or the connection ends.
// Other goroutines deliver events that were gated.
func (t *processTable) awaitDelivered() {
	delivered := make(chan struct{})
	t.mu.Lock()
	t.allDelivered = delivered
	t.signalDelivered()
	t.mu.Unlock()
	select {
	case <-delivered:
	case <-t.conn.ctx.Done():
	}
}

// signalDelivered wakes awaitDelivered if nothing is pending. mu is held.
func (t *processTable) signalDelivered() {
	if t.allDelivered == nil {
		return
	}
	for _, p := range t.records {
		if p.delivering || len(p.pending) > 0 {
			return
		}
	}
	close(t.allDelivered)
	t.allDelivered = nil
}

// receiveEvents records events as received and returns those to send. mu is held.
func (t *processTable) receiveEvents(p *process, events []*execwirev1.ProcessEvent) []*execwirev1.ProcessEvent {
	missed := 0
	for _, event := range events {
		if p.receive(event) {
			missed++
		}
	}
	if _, pending := p.unacknowledged(); pending {
		t.marks.note(p, 0, 0)
	}
	t.awaitClose(p, events)
	if missed == 0 {
		return events
	}
	return slices.DeleteFunc(slices.Clone(events), p.isMissed)
}

// receive records an event and reports whether the client gets it by process/read
// instead.
func (p *process) receive(event *execwirev1.ProcessEvent) bool {
	seq := lastSeqOf(event)
	if seq == 1 && (p.nextMode != nil || p.closed) {
		p.restart()
	}
	p.received = max(p.received, seq)
	if exited := event.GetExited(); exited != nil {
		p.exit, p.ended = seq, exited.GetExit()
	}
	missed := p.isMissed(event)
	if missed && event.GetClosed() != nil {
		p.closed = true
	}
	return missed
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

// sendEvents sends events and records that they were sent.
func (t *processTable) sendEvents(p *process, events []*execwirev1.ProcessEvent) error {
	next, bytes := 0, 0
	var failed []byte // a notification to send after the event
	err := t.conn.out.send(func(dst []byte) ([]byte, bool) {
		if len(failed) > 0 {
			dst, failed = append(dst, failed...), nil
			return dst, true
		}
		for next < len(events) {
			event := events[next]
			next++
			if gap := event.GetGap(); gap != nil {
				p.gap = gap // owned by the delivering goroutine
				continue
			}
			bytes += len(event.GetOutput().GetData())
			if dst = p.appendEvent(dst, event); len(dst) > 0 {
				p.gap = nil
				failed = t.appendLost(nil, p, event)
				return dst, true
			}
		}
		return nil, false
	})
	if err == nil {
		t.noteSent(p, events, bytes)
	}
	return t.noteSendError(err)
}

// noteSendError ends the connection after an error in sending events, and returns the
// error.
func (t *processTable) noteSendError(err error) error {
	if err != nil && t.conn.ctx.Err() == nil {
		t.conn.end(ending{closeInternal, "events could not be sent", err})
	}
	return err
}

// noteSent records events as sent and starts the watermark for them.
func (t *processTable) noteSent(p *process, events []*execwirev1.ProcessEvent, bytes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := events[len(events)-1]
	p.push(last.GetSeq())
	if last.GetClosed() != nil {
		p.closed, p.exitDelivered = true, true
	}
	t.marks.note(p, bytes, len(events))
	if last.GetClosed() != nil {
		t.marks.due.Set()
	}
}

// pinger answers the server's pings once the client has answered one.
type pinger struct{ nonces chan uint64 }

// answer answers a ping when the client has proved to be alive. Only the last of
// several nonces is answered.
func (p *pinger) answer(c *connection, nonce uint64) {
	if p.nonces == nil {
		p.nonces = make(chan uint64, 1)
		c.Spawn(func() { p.run(c) })
	}
	select {
	case <-p.nonces:
	default:
	}
	p.nonces <- nonce
}

func (p *pinger) run(c *connection) {
	for {
		select {
		case nonce := <-p.nonces:
			if err := c.conn.Prove(c.ctx); err == nil || isUnprovable(err) {
				c.session.pong(nonce)
			}
		case <-c.ctx.Done():
			return
		}
	}
}
