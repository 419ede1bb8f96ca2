package relay

import (
	"errors"
	"fmt"
)

// Reset reasons, as sent in frames.
const (
	// ReasonClosed: the harness, or the connection, was closed.
	ReasonClosed = "closed"
	// ReasonPeerSilent: the peer sent nothing for Config.SilenceTimeout.
	ReasonPeerSilent = "peer_silent"
	// ReasonCarrierLost: the carrier ended and the peer does not acknowledge, so
	// that losses cannot be detected.
	ReasonCarrierLost = "carrier_lost"
	// ReasonMessageTooLarge: a message exceeds Config.MessageBytes.
	ReasonMessageTooLarge = "message_too_large"
	// ReasonMessageCut: the sender abandoned a message, or unacknowledged data.
	ReasonMessageCut = "message_cut"
	// ReasonReceiveOverflow: the peer sent more than the receiver can buffer.
	ReasonReceiveOverflow = "receive_overflow"
	// ReasonStreamLimit: Config.Streams is reached.
	ReasonStreamLimit = "stream_limit"
	// ReasonProtocolError: the peer violated the protocol.
	ReasonProtocolError = "protocol_error"
	// ReasonGoingAway: the endpoint shuts down.
	ReasonGoingAway = "going_away"
	// ReasonExecutorGone: sent by a rendezvous; the executor has disconnected.
	ReasonExecutorGone = "executor_gone"
	// ReasonHarnessGone: sent by a rendezvous; the harness has disconnected.
	ReasonHarnessGone = "harness_gone"
	// ReasonSlowConsumer: sent by a rendezvous; a queue overflowed.
	ReasonSlowConsumer = "slow_consumer"
	// ReasonUnknownStream: a frame from the middle of a stream that this endpoint
	// does not have.
	ReasonUnknownStream = "unknown_stream"
)

// maxReason is the maximum length of a reason in bytes.
const maxReason = 256

var (
	// ErrPlainPeer means that the peer does not acknowledge, or has not done so
	// within Config.ProbeTimeout.
	ErrPlainPeer = errors.New("the relay peer does not acknowledge")
	// ErrClosed means that the endpoint is closed.
	ErrClosed = errors.New("the relay endpoint is closed")
	// ErrRunning means that the endpoint already serves a carrier.
	ErrRunning = errors.New("the relay endpoint already serves a carrier")
	// ErrRole means that the operation belongs to the other role: only a harness
	// opens streams, only an executor accepts them.
	ErrRole = errors.New("only a harness opens streams and only an executor accepts them")
	// ErrEmptyMessage means that the message has no bytes; no frame can carry it.
	ErrEmptyMessage = errors.New("a relay message must not be empty")
	// ErrStreamExists means that the stream id is, or recently was, in use.
	ErrStreamExists = errors.New("the relay stream id is or recently was in use: use another")
)

// ResetError says why a stream ended.
type ResetError struct {
	Reason string // a Reason constant, or what the peer sent
	Remote bool   // the peer ended the stream
}

func (e *ResetError) Error() string {
	if e.Remote {
		return fmt.Sprintf("relay stream reset by the peer: %q", e.Reason)
	}
	return fmt.Sprintf("relay stream reset: %q", e.Reason)
}

// LimitError means that a limit of this endpoint is exceeded.
type LimitError struct {
	Name  string // the field of [Config]
	Value int    // the requested value
	Limit int    // in bytes, or streams
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%d exceeds the relay limit %s of %d", e.Value, e.Name, e.Limit)
}

// streamIDError is the error for a stream id that is not allowed.
func streamIDError(id string) error {
	return fmt.Errorf("stream id %.200q must have 1 to %d bytes of UTF-8 without surrounding white space", id, maxStreamID)
}
