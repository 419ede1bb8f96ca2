package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/tracecontext"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
)

// relayFlushTimeout is how long the peer may take to acknowledge what was sent before
// its stream is reset.
const relayFlushTimeout = 5 * time.Second

// relayTransport is a JSON-RPC connection over a stream of the relay.
type relayTransport struct {
	stream *relay.Stream
	share  *wsconn.Share // the memory of the message that is being written, of the budget of all transports
	over   context.Context
	end    context.CancelCauseFunc

	first    []byte               // received before; used by the goroutine that receives
	incoming tracecontext.Context // of the last message; used by the same
	outgoing tracecontext.Context // of the next message; used by the goroutine that sends

	closing sync.Once
}

var (
	_ jsonrpc.Transport     = (*relayTransport)(nil)
	_ jsonrpc.Bounded       = (*relayTransport)(nil)
	_ jsonrpc.TraceSender   = (*relayTransport)(nil)
	_ jsonrpc.TraceReceiver = (*relayTransport)(nil)
)

func newRelayTransport(stream *relay.Stream, first []byte, trace tracecontext.Context, large *wsconn.Budget) *relayTransport {
	t := &relayTransport{stream: stream, first: first, incoming: trace}
	t.over, t.end = context.WithCancelCause(context.Background())
	t.share = large.Share(auth.Relay.Name, func(why *wsconn.BudgetError) { t.end(why) })
	return t
}

// Receive implements [jsonrpc.Transport]. A reset with reason closed is the end of
// the client; any other reset loses the connection.
func (t *relayTransport) Receive() ([]byte, error) {
	if message := t.first; message != nil {
		t.first = nil
		return message, nil
	}
	message, trace, err := t.stream.ReceiveTraced(t.over)
	t.incoming = trace
	var reset *relay.ResetError
	switch {
	case err == nil:
		return message, nil
	case t.over.Err() != nil:
		return nil, jsonrpc.ErrClosed
	case errors.As(err, &reset) && reset.Remote && reset.Reason == relay.ReasonClosed:
		return nil, io.EOF
	}
	return nil, err
}

// Send implements [jsonrpc.Transport].
func (t *relayTransport) Send(message []byte) error {
	trace := t.outgoing
	t.outgoing = tracecontext.Context{}
	return t.stream.SendTraced(t.over, message, trace)
}

// SendTrace implements [jsonrpc.TraceSender].
func (t *relayTransport) SendTrace(trace jsonrpc.Trace) {
	t.outgoing = tracecontext.Parse(trace.Parent, trace.State)
}

// ReceivedTrace implements [jsonrpc.TraceReceiver].
func (t *relayTransport) ReceivedTrace() *jsonrpc.Trace {
	if t.incoming.IsZero() {
		return nil
	}
	return &jsonrpc.Trace{Parent: t.incoming.Parent(), State: t.incoming.State()}
}

// Begin implements [jsonrpc.Transport].
func (t *relayTransport) Begin() (io.WriteCloser, error) {
	return &relayMessage{transport: t}, nil
}

// MessageLimit implements [jsonrpc.Bounded].
func (t *relayTransport) MessageLimit() int { return t.stream.MessageLimit() }

// Prove implements [jsonrpc.Transport]. Peers of the reference acknowledge nothing.
func (t *relayTransport) Prove(ctx context.Context) error {
	err := t.stream.WaitAcknowledged(ctx)
	if errors.Is(err, relay.ErrPlainPeer) {
		return jsonrpc.ErrCannotProve
	}
	return err
}

// Close implements [jsonrpc.Transport].
func (t *relayTransport) Close(code int, _ string) error {
	t.closing.Do(func() {
		t.end(jsonrpc.ErrClosed)
		ctx, cancel := context.WithTimeoutCause(context.Background(), relayFlushTimeout, errFlush)
		defer cancel()
		_ = t.stream.WaitAcknowledged(ctx) // best effort
		t.stream.Reset(resetReason(code))
		t.share.End()
	})
	return nil
}

// resetReason translates a websocket close code.
func resetReason(code int) string {
	switch code {
	case wsconn.CodeNormal:
		return relay.ReasonClosed
	case wsconn.CodeGoingAway, wsconn.CodeServiceRestart:
		return relay.ReasonGoingAway
	case wsconn.CodeTooLarge:
		return relay.ReasonMessageTooLarge
	}
	return relay.ReasonProtocolError
}

// Peer implements [jsonrpc.Transport].
func (t *relayTransport) Peer() string { return "exec-server relay stream " + t.stream.ID() }

// relayMessage is a message that is written in parts and sent when it is complete. It
// is for one goroutine.
type relayMessage struct {
	transport *relayTransport
	data      []byte
	ended     bool
}

// errAnswersFull is the error of a message that exceeds the budget.
var errAnswersFull = errors.New("too many large answers wait for clients of the relay (answer_bytes_total): try again")

// Write implements io.Writer.
func (m *relayMessage) Write(p []byte) (int, error) {
	size := len(m.data) + len(p)
	if size > cap(m.data) {
		limit := m.transport.MessageLimit()
		if size > limit {
			return 0, fmt.Errorf("a message is larger than the relay's limit of %d bytes", limit)
		}
		capacity := min(max(2*cap(m.data), size), limit)
		if !m.transport.share.Resize(int64(capacity)) {
			return 0, errAnswersFull
		}
		m.data = append(make([]byte, 0, capacity), m.data...)
	}
	m.data = append(m.data, p...)
	return len(p), nil
}

// Close implements io.Closer. It may be called again.
func (m *relayMessage) Close() error {
	if m.ended {
		return nil
	}
	m.ended = true
	defer m.transport.share.Resize(0)
	return m.transport.Send(m.data)
}
