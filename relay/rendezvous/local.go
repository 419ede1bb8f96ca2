package rendezvous

import (
	"context"
	"io"
	"net"
	"sync"

	"github.com/execwire/execwire/internal/buffers"
	"github.com/execwire/execwire/relay"
)

// Reachable returns nil if an executor is connected to a node of this hub, or a [*Refusal].
func (h *Hub) Reachable(ctx context.Context, id string) error {
	_, err := h.locate(ctx, id, false)
	return err
}

// Elsewhere returns the URL at which a harness of the principal reaches an executor that is
// connected to another node, and an empty one if it is connected to this node; the caller
// has checked the permission of the principal, as the other node does again. The URL is
// valid for URLLifetime. The error is a [*Refusal] or one of the presence.
func (h *Hub) Elsewhere(ctx context.Context, principal, id string) (string, error) {
	record, err := h.locate(ctx, id, false)
	if err != nil || record.Node == h.config.Node {
		return "", err
	}
	return h.harnessURL(record.URL, id, principal), nil
}

// Open opens a stream of bytes to an executor that is connected to this node, as a
// harness of the principal would; the caller has checked its permission. The stream
// counts against the limits of the principal, whose connections it shares. Open blocks
// until the executor has acknowledged, at most for [relay.DefaultProbeTimeout]. The
// stream does not survive the hub, and is reset when it is closed, which may block for a
// second. The error is a [*Refusal], an error of package relay, or the cause of ctx.
func (h *Hub) Open(ctx context.Context, principal, id string) (net.Conn, error) {
	if err := h.checkReachable(ctx, id, false); err != nil {
		return nil, err
	}
	release, route, err := h.admit(principal, id)
	if err != nil {
		return nil, err
	}
	hubEnd, harnessEnd := newPipe()
	c := newPeerConn(principal, true)
	c.conn = hubEnd
	route.connectHarness(c)
	endpoint := relay.NewEndpoint(relay.Config{Role: relay.Harness, Streams: 1, Logger: h.logger})
	go func() { // Close waits for release
		defer release()
		var running sync.WaitGroup
		running.Go(func() { _ = endpoint.Run(context.Background(), harnessEnd) })
		_ = c.serve(route.handleHarnessFrame, route.disconnectHarness)
		running.Wait()
		_ = endpoint.Close(relay.ReasonGoingAway) // ends the stream, if the hub has ended the connection
	}()
	stream, err := endpoint.Open("")
	if err == nil {
		err = stream.WaitReliable(ctx)
	}
	if err != nil {
		_ = endpoint.Close(relay.ReasonClosed)
		return nil, err
	}
	return &localConn{Conn: relay.NewConn(stream), endpoint: endpoint}, nil
}

// localConn is a stream of this program with an endpoint of its own.
type localConn struct {
	net.Conn
	endpoint *relay.Endpoint
}

// Close implements net.Conn.
func (c *localConn) Close() error {
	_ = c.Conn.Close()
	return c.endpoint.Close(relay.ReasonClosed)
}

// pipeEnd is one end of a connection of frames inside this program, in place of a
// websocket. It queues nothing: Send blocks until the other end receives.
type pipeEnd struct {
	in     <-chan []byte
	out    chan<- []byte
	closed chan struct{} // of both ends
	close  func()
}

func newPipe() (a, b *pipeEnd) {
	one, two, closed := make(chan []byte), make(chan []byte), make(chan struct{})
	end := sync.OnceFunc(func() { close(closed) })
	return &pipeEnd{in: one, out: two, closed: closed, close: end}, &pipeEnd{in: two, out: one, closed: closed, close: end}
}

// ReceiveOwned implements [relay.Carrier]. Once an end has closed, the error is io.EOF, as
// that of a websocket that its peer has closed for good.
func (p *pipeEnd) ReceiveOwned() ([]byte, error) {
	select {
	case frame := <-p.in:
		return frame, nil
	case <-p.closed:
		return nil, io.EOF
	}
}

// Send implements [relay.Carrier].
func (p *pipeEnd) Send(frame []byte) error {
	select {
	case p.out <- append(buffers.Get(len(frame)), frame...):
		return nil
	case <-p.closed:
		return net.ErrClosed
	}
}

// TrySend sends nothing: the other end may have to be awaited.
func (p *pipeEnd) TrySend([]byte) bool { return false }

// Close implements [relay.Carrier].
func (p *pipeEnd) Close(int, string) error {
	p.close()
	return nil
}
