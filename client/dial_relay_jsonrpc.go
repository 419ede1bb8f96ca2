package client

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/tracecontext"
	"github.com/execwire/execwire/relay"
	"github.com/execwire/execwire/relay/harness"
)

// isJSONRPCExecutor reports whether err, of an attempt to reach an executor, means that
// it speaks no gRPC: it does not acknowledge, which gRPC needs, or does not answer with
// HTTP/2.
func isJSONRPCExecutor(err error) bool {
	return errors.Is(err, harness.ErrPlainExecutor) || errors.Is(err, errExecutorNotGRPC)
}

// relayedExecServer returns an executor that speaks only the exec-server protocol, as
// those of the reference do.
func (c *dialConfig) relayedExecServer(rawURL string) (execServer, error) {
	endpoint, err := parseURL(rawURL)
	if err != nil {
		return execServer{}, err
	}
	dialer := &recordingDialer{endpoint: endpoint}
	if err := c.relayOptions(dialer); err != nil {
		return execServer{}, err
	}
	return execServer{shown: endpoint.displayURL(rawURL), open: func(ctx context.Context) (jsonrpc.Transport, error) {
		options := dialer.relay
		options.Trace = tracecontext.FromOutgoing(ctx)
		return openRelayTransport(ctx, options)
	}}, nil
}

// relayFlushTimeout is how long the executor may take to acknowledge what was sent
// before the stream is reset.
const relayFlushTimeout = time.Second

var errRelayFlushTimeout = errors.New("the executor did not acknowledge the last messages in time")

// relayTransport is a JSON-RPC connection over a stream of a relay, on a websocket of its
// own.
type relayTransport struct {
	harness *harness.Harness
	stream  *relay.Stream
	over    context.Context
	end     context.CancelCauseFunc
	closing sync.Once

	trace tracecontext.Context // of the next message; used by the goroutine that sends
}

var (
	_ jsonrpc.Transport   = (*relayTransport)(nil)
	_ jsonrpc.TraceSender = (*relayTransport)(nil)
)

func openRelayTransport(ctx context.Context, options harness.Options) (jsonrpc.Transport, error) {
	h, err := harness.Dial(ctx, options)
	if err != nil {
		return nil, err
	}
	stream, err := h.Open(ctx)
	if err != nil {
		_ = h.Close() // nothing was sent
		return nil, err
	}
	t := &relayTransport{harness: h, stream: stream}
	t.over, t.end = context.WithCancelCause(context.Background())
	return t, nil
}

// Receive implements [jsonrpc.Transport].
func (t *relayTransport) Receive() ([]byte, error) {
	message, err := t.stream.Receive(t.over)
	if err != nil && t.over.Err() != nil {
		return nil, jsonrpc.ErrClosed
	}
	return message, err
}

// Send implements [jsonrpc.Transport].
func (t *relayTransport) Send(message []byte) error {
	trace := t.trace
	t.trace = tracecontext.Context{}
	return t.stream.SendTraced(t.over, message, trace)
}

// SendTrace implements [jsonrpc.TraceSender].
func (t *relayTransport) SendTrace(trace jsonrpc.Trace) {
	t.trace = tracecontext.Parse(trace.Parent, trace.State)
}

// Begin implements [jsonrpc.Transport]. A client sends no message in parts.
func (t *relayTransport) Begin() (io.WriteCloser, error) { return nil, errors.ErrUnsupported }

// Prove implements [jsonrpc.Transport]. Only servers use it.
func (t *relayTransport) Prove(context.Context) error { return jsonrpc.ErrCannotProve }

// Close implements [jsonrpc.Transport]. As with websockets, a normal end ends the
// session, and any other one begins its grace period.
func (t *relayTransport) Close(code int, _ string) error {
	t.closing.Do(func() {
		t.end(jsonrpc.ErrClosed)
		reason := relay.ReasonGoingAway
		if code == websocketNormal {
			ctx, cancel := context.WithTimeoutCause(context.Background(), relayFlushTimeout, errRelayFlushTimeout)
			_ = t.stream.WaitAcknowledged(ctx) // best effort
			cancel()
			reason = relay.ReasonClosed
		}
		t.stream.Reset(reason)
		_ = t.harness.Close() // the stream is over
	})
	return nil
}

// websocketNormal is the code of a normal end.
const websocketNormal = 1000

// Peer implements [jsonrpc.Transport].
func (t *relayTransport) Peer() string { return "exec-server relay stream " + t.stream.ID() }
