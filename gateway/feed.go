package gateway

import (
	"errors"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/inproc"
	"github.com/execwire/execwire/internal/tracecontext"
)

// feed handles the events of the session until the stream ends. It blocks while the
// client does not read; then each process blocks at its window.
func (c *connection) feed(s *session) {
	var pings chan uint64 // to answerPings; nil before the first
	err := inproc.ReceiveEach(s.stream, func(response *execwirev1.AttachSessionResponse) error {
		defer c.recoverPanic(tracecontext.Context{})
		switch m := response.GetMessage().(type) {
		case *execwirev1.AttachSessionResponse_Events:
			return c.deliver(s, m.Events)
		case *execwirev1.AttachSessionResponse_Ping:
			if pings == nil {
				pings = make(chan uint64, 1)
				c.Spawn(func() { c.answerPings(s, pings) })
			}
			select { // only the last of several nonces is answered
			case <-pings:
			default:
			}
			pings <- m.Ping.GetNonce()
		}
		return nil
	})
	if !errors.Is(err, errNotDelivered) {
		c.feedEnded(s, err)
	}
}

// errNotDelivered ends the feed of a connection that ends.
var errNotDelivered = errors.New("the connection ends")

// deliver delivers events of the session, once the client has sent initialized.
func (c *connection) deliver(s *session, m *execwirev1.SessionEvents) error {
	if err := c.learnMode(s, m.GetProcessId(), m.GetEvents()); err != nil {
		return err
	}
	if !c.isReady() || c.delivery.deliver(m.GetProcessId(), m.GetEvents()) != nil {
		return errNotDelivered
	}
	return nil
}

// answerPings answers the server's pings, each when the client has proved to be alive.
func (c *connection) answerPings(s *session, nonces <-chan uint64) {
	for {
		select {
		case nonce := <-nonces:
			if err := c.conn.Prove(c.ctx); err == nil || isUnprovable(err) {
				s.pong(nonce)
			}
		case <-c.ctx.Done():
			return
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

// learnMode gets the mode of a process with its first event. In a resumed session a
// connection that was lost may have requested the start. Without the mode no events can
// be sent.
func (c *connection) learnMode(s *session, id string, events []*execwirev1.ProcessEvent) error {
	if !s.resumed || len(events) == 0 || events[0].GetSeq() != 1 {
		return nil
	}
	response, err := c.processes.GetProcess(c.ctx, &execwirev1.GetProcessRequest{SessionId: s.id, ProcessId: id})
	if errorinfo.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND && !c.closedByClient.Load() {
		return nil // removed; its events have the zero mode
	}
	if err != nil {
		return err
	}
	c.table.setMode(id, processModeOf(response.GetProcess()))
	return nil
}

// feedEnded ends the connection after its session ended or was lost, unless the client
// closed it. Events received before are delivered first. After a takeover they are not:
// the new attachment gets them.
func (c *connection) feedEnded(s *session, err error) {
	if errorinfo.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_SESSION_TAKEN_OVER {
		s.takenOver.Store(true)
	} else {
		c.delivery.awaitDelivered()
	}
	if c.ctx.Err() != nil || c.closedByClient.Load() {
		return
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the server ended the attachment without a reason")
	}
	c.end(endingFor(err))
}

// endingFor returns the ending of a connection whose attachment failed. If the server
// cannot be reached, the close code asks the client to reconnect and resume.
func endingFor(err error) ending {
	switch errorinfo.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_SESSION_TAKEN_OVER:
		return ending{closePolicy, "another connection took the session over", err}
	case execwirev1.ErrorReason_ERROR_REASON_SESSION_CLOSED, execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND:
		return ending{closePolicy, "the session was ended", err}
	case execwirev1.ErrorReason_ERROR_REASON_DRAINING:
		return ending{closeGoingAway, "the server stops", nil}
	}
	if code := status.Code(err); code == codes.Unavailable && !errors.Is(err, errAttachTimeout) {
		return ending{closeTryAgain, "the server cannot be reached", err}
	}
	return ending{closeInternal, "the session failed", err}
}
