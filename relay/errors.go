package relay

import (
	"errors"
	"fmt"
)

// Reasons of resets, which go over the wire.
const (
	// ReasonClosed is a harness, or a connection, that is done.
	ReasonClosed = "closed"
	// ReasonPeerSilent is a peer that sent nothing for Config.SilenceTimeout.
	ReasonPeerSilent = "peer_silent"
	// ReasonCarrierLost is a carrier that ended while the peer did not
	// acknowledge, so that nobody knows what was lost with it.
	ReasonCarrierLost = "carrier_lost"
	// ReasonMessageTooLarge is a message beyond Config.MessageBytes.
	ReasonMessageTooLarge = "message_too_large"
	// ReasonMessageCut is a sender that gave up what it was sending.
	ReasonMessageCut = "message_cut"
	// ReasonReceiveOverflow is a peer that sent more than there is room for.
	ReasonReceiveOverflow = "receive_overflow"
	// ReasonStreamLimit is a stream beyond Config.Streams.
	ReasonStreamLimit = "stream_limit"
	// ReasonProtocolError is a peer that broke the protocol.
	ReasonProtocolError = "protocol_error"
	// ReasonGoingAway is an end that stops.
	ReasonGoingAway = "going_away"
	// ReasonExecutorGone is, of a rendezvous, an executor that has left.
	ReasonExecutorGone = "executor_gone"
	// ReasonHarnessGone is, of a rendezvous, a harness that has left.
	ReasonHarnessGone = "harness_gone"
	// ReasonSlowConsumer is, of a rendezvous, a queue that overflowed.
	ReasonSlowConsumer = "slow_consumer"
	// ReasonUnknownStream is a stream in the middle that this end does not have.
	ReasonUnknownStream = "unknown_stream"
)

// maxReason is how long a reason may be, in bytes.
const maxReason = 256

var (
	// ErrPlainPeer is a peer that does not acknowledge, or has not shown within
	// Config.ProbeTimeout that it does.
	ErrPlainPeer = errors.New("the peer of the relay does not acknowledge what it receives")
	// ErrClosed is an endpoint that was closed.
	ErrClosed = errors.New("the endpoint of the relay is closed")
	// ErrRunning is an endpoint that serves a carrier already.
	ErrRunning = errors.New("the endpoint of the relay serves another carrier already: one at a time")
	// ErrRole is a call that is for the other role: only a harness opens streams,
	// only an executor accepts them.
	ErrRole = errors.New("only a harness opens streams and only an executor accepts them")
	// ErrEmptyMessage is a message without bytes, which no frame can carry.
	ErrEmptyMessage = errors.New("a message of the relay has at least one byte")
	// ErrStreamExists is a stream id that is, or was a short time ago, in use.
	ErrStreamExists = errors.New("the endpoint of the relay has or had a stream of that id: use another")
)

// ResetError is why a stream ended.
type ResetError struct {
	Reason string // a Reason constant, or what the peer sent
	Remote bool   // the peer ended it
}

func (e *ResetError) Error() string {
	if e.Remote {
		return fmt.Sprintf("the peer ended the relay stream: %q", e.Reason)
	}
	return fmt.Sprintf("the relay stream was ended: %q", e.Reason)
}

// LimitError is something beyond a limit of this end.
type LimitError struct {
	Name  string // the field of [Config]
	Value int    // what was asked for
	Limit int    // in bytes, or streams
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%d is beyond the relay limit %s of %d", e.Value, e.Name, e.Limit)
}

// StreamIDError is a stream id that no frame may have.
type StreamIDError struct {
	ID string // as it was given
}

func (e *StreamIDError) Error() string {
	return fmt.Sprintf("stream id %.200q must have 1 to %d bytes of UTF-8 without white space around them", e.ID, maxStreamID)
}
