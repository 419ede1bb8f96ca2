package gateway

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/execwire/execwire/internal/jsonrpc"
)

// pipe is a transport to a client in the test. It queues messages to the client
// until the client reads them; above capacity bytes, sending blocks.
type pipe struct {
	capacity      int
	confirmsReads bool // reads can be confirmed; false: as with standard streams
	ignoresPings  bool // the client reads, and does not answer pings
	halves        bool // the client continues to read after it has closed its side
	limit         int  // bytes of a message to the client; 0: no limit
	in            chan []byte
	lost          chan struct{} // closed when the connection is lost
	lostOnce      sync.Once
	finished      chan struct{} // closed when the client closed the connection normally
	oversized     chan struct{} // closed when the client sent a message that is too large
	refusal       error         // the error in that case
	// fault reports whether a call panics; nil: never.
	fault func(call string, message []byte) bool

	mu       sync.Mutex
	changed  sync.Cond
	queue    [][]byte
	bytes    int
	sent     int // messages that were queued
	received int // messages that the client has read
	closed   bool
	code     int
	reason   string
}

func newPipe() *pipe {
	p := &pipe{capacity: 64 << 10, confirmsReads: true, in: make(chan []byte),
		refusal: &jsonrpc.TooLargeError{What: "frame", Limit: 16 << 20},
		lost:    make(chan struct{}), finished: make(chan struct{}), oversized: make(chan struct{})}
	p.changed.L = &p.mu
	return p
}

var errLost = errors.New("the connection was reset")

func (p *pipe) Receive() ([]byte, error) {
	select {
	case m := <-p.in:
		p.fail("Receive", m)
		return m, nil
	case <-p.finished:
		return nil, io.EOF
	case <-p.oversized:
		return nil, p.refusal
	case <-p.lost:
		return nil, errLost
	}
}

func (p *pipe) fail(call string, message []byte) {
	if p.fault != nil && p.fault(call, message) {
		panic("a fault in the test")
	}
}

func (p *pipe) Send(message []byte) error {
	p.fail("Send", message)
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.bytes >= p.capacity && !p.isGone() {
		p.changed.Wait()
	}
	if p.isGone() {
		return errLost
	}
	p.queue = append(p.queue, append([]byte(nil), message...))
	p.bytes += len(message)
	p.sent++
	p.changed.Broadcast()
	return nil
}

func (p *pipe) isGone() bool {
	select {
	case <-p.lost:
		return true
	default:
		return p.closed
	}
}

func (p *pipe) Begin() (io.WriteCloser, error) { return &pipeMessage{p: p}, nil }

type pipeMessage struct {
	p    *pipe
	data []byte
}

func (m *pipeMessage) Write(b []byte) (int, error) {
	m.data = append(m.data, b...)
	return len(b), nil
}

func (m *pipeMessage) Close() error { return m.p.Send(m.data) }

func (p *pipe) Prove(ctx context.Context) error {
	p.fail("Prove", nil)
	if !p.confirmsReads {
		return jsonrpc.ErrCannotProve
	}
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.changed.Broadcast()
	})
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for upTo := p.sent; p.received < upTo || p.ignoresPings; p.changed.Wait() {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case p.isGone():
			return errLost
		}
	}
	return nil
}

func (p *pipe) Close(code int, reason string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed, p.code, p.reason = true, code, reason
	}
	p.lose()
	p.changed.Broadcast()
	return nil
}

func (p *pipe) lose() { p.lostOnce.Do(func() { close(p.lost) }) }

func (p *pipe) Peer() string { return "exec-server websocket 127.0.0.1:4711" }

// halfPipe is a pipe whose client continues to read.
type halfPipe struct{ *pipe }

func (p halfPipe) Listens() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.isGone()
}

// boundedPipe is a pipe with a message limit.
type boundedPipe struct{ *pipe }

func (p boundedPipe) MessageLimit() int { return p.limit }

// transport returns the gateway's side of the pipe.
func (p *pipe) transport() jsonrpc.Transport {
	if p.halves {
		return halfPipe{p}
	}
	if p.limit > 0 {
		return boundedPipe{p}
	}
	return p
}

// next is called by the client: it waits for a message; nil is the end.
func (p *pipe) next() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) == 0 && !p.isGone() {
		p.changed.Wait()
	}
	if len(p.queue) == 0 {
		return nil
	}
	m := p.queue[0]
	p.queue = p.queue[1:]
	p.bytes -= len(m)
	p.received++
	p.changed.Broadcast()
	return m
}

// drop is called by the client: the connection breaks, and unread messages are lost.
func (p *pipe) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose()
	p.queue, p.bytes = nil, 0
	p.changed.Broadcast()
}
