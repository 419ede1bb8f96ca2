package execserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

// link is one connection to the server. One goroutine receives and one sends; both
// are over when end returns.
type link struct {
	conn      *Conn
	transport jsonrpc.Transport
	out       outbox
	tasks     sync.WaitGroup

	// Written in the handshake, before anybody else uses the link.
	peer    peer
	session string

	// over ends with the link, with the reason as its cause.
	over context.Context
	end  context.CancelCauseFunc

	mu      sync.Mutex
	next    int64               // guarded by mu; the id of the next request
	pending map[int64]*awaiting // guarded by mu; by id
	refused error               // guarded by mu; what the server could not understand last
}

// awaiting is a request whose response has not come.
type awaiting struct {
	// finish is called once: by the receiving goroutine with a result that is valid
	// until it returns, or by whoever notices that none will come. It does not block.
	finish func(result []byte, err error)
}

// newLink begins to use a transport, which it closes.
func newLink(c *Conn, transport jsonrpc.Transport) *link {
	l := &link{conn: c, transport: transport, next: 1, pending: make(map[int64]*awaiting)}
	l.over, l.end = context.WithCancelCause(context.Background())
	l.out.begin(l.over)
	l.tasks.Go(l.receive)
	l.tasks.Go(l.send)
	return l
}

// lost is closed when the link is of no use any more.
func (l *link) lost() <-chan struct{} { return l.over.Done() }

// finish ends the link, tells the server why, and waits until nothing of it is
// left.
func (l *link) finish(code int, reason string, cause error) {
	l.end(cause)
	_ = l.transport.Close(code, reason) // the cause is the better error
	l.tasks.Wait()
	l.failAll()
}

// failAll fails what is still pending.
func (l *link) failAll() {
	l.mu.Lock()
	pending := l.pending
	l.pending = nil
	l.mu.Unlock()
	for _, a := range pending {
		a.finish(nil, l.status())
	}
}

// status is what requests over a link fail with that is lost.
func (l *link) status() error {
	if l.conn.ctx.Err() != nil {
		return l.conn.goneStatus()
	}
	return lostStatus(context.Cause(l.over))
}

// receive takes messages until no more come.
func (l *link) receive() {
	for {
		data, err := l.transport.Receive()
		if err == nil {
			err = l.take(data)
		} else {
			err = l.ended(err)
		}
		if err != nil {
			l.end(err)
			l.conn.noteLost(l, err)
			l.failAll()
			return
		}
	}
}

// ended says why no more messages come.
func (l *link) ended(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var large jsonrpc.TooLarge
	switch {
	case l.refused != nil:
		return l.refused
	case errors.Is(err, io.EOF):
		return errServerEnded
	case errors.As(err, &large):
		return protocolErrorf("%v", err)
	}
	return err
}

var errServerEnded = errors.New("the server ended the connection")

// take takes one message.
func (l *link) take(data []byte) error {
	m, err := jsonrpc.Parse(data)
	if err != nil {
		return protocolErrorf("a message cannot be understood: %v", err)
	}
	switch m.Kind {
	case jsonrpc.Response:
		return l.respond(m)
	case jsonrpc.Notification:
		return l.conn.notify(l, m.Method, m.Params)
	}
	if m.Method == "initialize" {
		return protocolErrorf("it repeats what it is told")
	}
	unknown := jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "this client serves no requests")
	if !l.out.post(jsonrpc.AppendError(nil, m.ID, unknown)) {
		return protocolErrorf("it asks and does not read the answers")
	}
	return nil
}

// respond hands a response to who waits for it.
func (l *link) respond(m jsonrpc.Message) error {
	number, isOurs := m.ID.Number()
	l.mu.Lock()
	a, waited := l.pending[number]
	issued := isOurs && number > 0 && number < l.next
	if waited && issued {
		delete(l.pending, number)
	}
	if m.ID == jsonrpc.NoID && m.Error != nil {
		l.refused = fmt.Errorf("the server refused a message: %w", m.Error)
		l.mu.Unlock()
		return nil
	}
	l.mu.Unlock()
	switch {
	case !issued:
		return protocolErrorf("a response has the id %s, which no request had", m.ID)
	case !waited:
		return protocolErrorf("the request %s was answered twice", m.ID)
	case m.Error != nil:
		a.finish(nil, m.Error)
	default:
		a.finish(m.Result, nil)
	}
	return nil
}

// isIdle reports whether no response is awaited.
func (l *link) isIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending) == 0
}

// send sends what is queued until the link is over.
func (l *link) send() {
	for {
		message, ok := l.out.next()
		if !ok {
			return
		}
		if err := l.transport.Send(message); err != nil {
			l.end(err)
			return
		}
	}
}

// request queues a request when there is room for it. finish is called if and only
// if the error is nil.
func (l *link) request(ctx context.Context, encode func(dst []byte, id jsonrpc.ID) []byte, finish func([]byte, error)) error {
	if err := l.out.wait(ctx); err != nil {
		return l.waitStatus(ctx)
	}
	return l.post(encode, finish)
}

// post is request without waiting for room, for who may not block.
func (l *link) post(encode func(dst []byte, id jsonrpc.ID) []byte, finish func([]byte, error)) error {
	l.mu.Lock()
	if l.pending == nil || l.over.Err() != nil {
		l.mu.Unlock()
		return l.status()
	}
	id := l.next
	l.next++
	l.pending[id] = &awaiting{finish: finish}
	l.mu.Unlock()
	notify(l.conn.busy)
	l.out.add(encode(nil, jsonrpc.NumberID(id)))
	return nil
}

func (l *link) waitStatus(ctx context.Context) error {
	if ctx.Err() != nil {
		return contextStatus(ctx)
	}
	return l.status()
}

// call makes a request and waits for its result, which is the caller's own.
// release is called when the request is over, however late.
func (l *link) call(ctx context.Context, method string, params any, release func()) ([]byte, error) {
	type outcome struct {
		result []byte
		err    error
	}
	done := make(chan outcome, 1)
	err := l.request(ctx, func(dst []byte, id jsonrpc.ID) []byte {
		return appendTrace(ctx, jsonrpc.AppendRequest(dst, id, method, params))
	}, func(result []byte, err error) {
		done <- outcome{bytes.Clone(result), err}
		release()
	})
	if err != nil {
		release()
		return nil, err
	}
	select {
	case o := <-done:
		return o.result, o.err
	case <-ctx.Done():
		return nil, contextStatus(ctx)
	}
}
