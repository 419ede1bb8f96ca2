package gateway

import (
	"errors"
	"io"
	"slices"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// feed takes what the core says of the session until it says no more. It waits
// while the client does not read, and so do the processes, each at its window.
func (c *connection) feed(s *session) {
	for {
		response, err := s.stream.Recv()
		if err != nil {
			c.feedEnded(err)
			return
		}
		switch m := response.GetMessage().(type) {
		case *execwirev1.AttachSessionResponse_Events:
			if err := c.recognize(m.Events.GetProcessId(), m.Events.GetEvents()); err != nil {
				c.feedEnded(err)
				return
			}
			if !c.isReady() || c.deliver(m.Events.GetProcessId(), m.Events.GetEvents()) != nil {
				return
			}
		case *execwirev1.AttachSessionResponse_Ping:
			c.pings.answer(c, m.Ping.GetNonce())
		}
	}
}

// isReady waits until the client has sent initialized, or is gone.
func (c *connection) isReady() bool {
	select {
	case <-c.live:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// feedEnded ends the connection whose session has ended or is lost, unless it is
// what the client wanted. What was received before is said first; whoever has taken
// the session over gets it again.
func (c *connection) feedEnded(err error) {
	if reasonOf(err) == execwirev1.ErrorReason_ERROR_REASON_SESSION_TAKEN_OVER {
		c.session.taken.Store(true)
	} else {
		c.awaitAllSaid()
	}
	if c.ctx.Err() != nil || c.isLeaving() {
		return
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the core ended the attachment without a reason")
	}
	c.end(endingFor(err))
}

// deliver says events after those that are pending, or has somebody say them
// when they are not held back any more.
func (c *connection) deliver(id string, events []*execwirev1.ProcessEvent) error {
	if p, ready := c.queue(id, events); ready {
		return c.sayPending(p)
	}
	return nil
}

// queue reports whether the caller has to say what is pending.
func (c *connection) queue(id string, events []*execwirev1.ProcessEvent) (*process, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.record(id)
	p.add(events)
	return p, c.maySay(p)
}

// awaitAllSaid waits until the client was told of all that was received, or is gone:
// events are said by others, too, when they were held back.
func (c *connection) awaitAllSaid() {
	said := make(chan struct{})
	c.mu.Lock()
	c.allSaid = said
	c.noteAllSaid()
	c.mu.Unlock()
	select {
	case <-said:
	case <-c.ctx.Done():
	}
}

// noteAllSaid ends the wait for it if nothing is left to be said. mu is held.
func (c *connection) noteAllSaid() {
	if c.allSaid == nil {
		return
	}
	for _, p := range c.records {
		if p.saying || len(p.pending) > 0 {
			return
		}
	}
	close(c.allSaid)
	c.allSaid = nil
}

// receiveEvents notes that the process is so far and returns what of it is to be
// said. mu is held.
func (c *connection) receiveEvents(p *process, events []*execwirev1.ProcessEvent) []*execwirev1.ProcessEvent {
	missed := 0
	for _, event := range events {
		if p.receive(event) {
			missed++
		}
	}
	if _, isNews := p.unacknowledged(); isNews {
		c.marks.note(p, 0, 0)
	}
	c.awaitClose(p, events)
	if missed == 0 {
		return events
	}
	return slices.DeleteFunc(slices.Clone(events), p.isMissed)
}

// receive notes an event and reports whether the client gets it by reading.
func (p *process) receive(event *execwirev1.ProcessEvent) bool {
	seq := lastSeqOf(event)
	if seq == 1 && (p.renewed != nil || p.closed) {
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

// isMissed reports whether the client gets an event by reading.
func (p *process) isMissed(event *execwirev1.ProcessEvent) bool { return lastSeqOf(event) <= p.missed }

// lastSeqOf is the seq of an event, and of a gap that of the last event in it.
func lastSeqOf(event *execwirev1.ProcessEvent) uint64 {
	if gap := event.GetGap(); gap != nil {
		return max(gap.GetFirstAvailableSeq(), 1) - 1
	}
	return event.GetSeq()
}

// say tells the client of events and notes that it was told.
func (c *connection) say(p *process, events []*execwirev1.ProcessEvent) error {
	next, bytes := 0, 0
	var failed []byte // what is to be said after the event
	err := c.out.say(func(dst []byte) ([]byte, bool) {
		if len(failed) > 0 {
			dst, failed = append(dst, failed...), nil
			return dst, true
		}
		for next < len(events) {
			event := events[next]
			next++
			if gap := event.GetGap(); gap != nil {
				p.gap = gap // of the goroutine that speaks of the process
				continue
			}
			bytes += len(event.GetOutput().GetData())
			if dst = p.appendEvent(dst, event, c.acknowledges); len(dst) > 0 {
				p.gap = nil
				failed = c.appendLost(nil, p, event)
				return dst, true
			}
		}
		return nil, false
	})
	if err == nil {
		c.noteSaid(p, events, bytes)
	}
	return c.noteUnsaid(err)
}

// noteUnsaid ends the connection if its client could not be told of events. It
// returns the error.
func (c *connection) noteUnsaid(err error) error {
	if err != nil && c.ctx.Err() == nil {
		c.end(ending{closeInternal, "events could not be sent", err})
	}
	return err
}

// noteSaid notes that events were said, and has it proven in time.
func (c *connection) noteSaid(p *process, events []*execwirev1.ProcessEvent, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := events[len(events)-1]
	p.push(last.GetSeq())
	if last.GetClosed() != nil {
		p.closed, p.exitTold = true, true
	}
	if c.acknowledges {
		return
	}
	c.marks.note(p, bytes, len(events))
	if last.GetClosed() != nil {
		c.marks.hurry()
	}
}

// pinger answers the core when it asks whether the client is there.
type pinger struct{ nonces chan uint64 }

// answer has the core answered as soon as the client has answered. Only the last
// of several questions needs an answer.
func (p *pinger) answer(c *connection, nonce uint64) {
	if p.nonces == nil {
		p.nonces = make(chan uint64, 1)
		c.spawn(func() { p.run(c) })
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
