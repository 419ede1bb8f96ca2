package execserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/tracecontext"
)

// link is one connection to the server. One goroutine receives and one sends; both
// have ended when finish returns.
type link struct {
	conn      *Conn
	transport jsonrpc.Transport
	out       chan outMessage // messages to send
	tasks     sync.WaitGroup

	// Set by the handshake, before other goroutines use the link.
	peer    peer
	session string

	// over ends with the link, with the reason as its cause.
	over context.Context
	end  context.CancelCauseFunc

	mu       sync.Mutex
	last     int64                 // guarded by mu; the id of the last request
	pending  map[int64]chan answer // guarded by mu; the requests without a response, by id
	rejected error                 // guarded by mu; the server's last error without an id
}

// outMessage is a message to send.
type outMessage struct {
	data  []byte
	trace jsonrpc.Trace // zero if there is none
}

// answer is the response to a request.
type answer struct {
	result []byte
	err    *jsonrpc.Error
}

// maxQueued is how many messages may wait to be sent before requests block.
const maxQueued = 16

// newLink uses a transport, and closes it in the end.
func newLink(c *Conn, transport jsonrpc.Transport) *link {
	l := &link{conn: c, transport: transport, out: make(chan outMessage, maxQueued), pending: make(map[int64]chan answer)}
	l.over, l.end = context.WithCancelCause(context.Background())
	l.tasks.Go(l.receive)
	l.tasks.Go(l.send)
	return l
}

// lost is closed when the link has ended.
func (l *link) lost() <-chan struct{} { return l.over.Done() }

// status is the status of calls over a link that has ended.
func (l *link) status() error { return lostStatus(context.Cause(l.over)) }

// finish ends the link, with a close code for the server, and waits for its goroutines.
func (l *link) finish(code int, cause error) {
	l.end(cause)
	_ = l.transport.Close(code, "") // the cause is the better error
	l.tasks.Wait()
}

func (l *link) receive() {
	for {
		data, err := l.transport.Receive()
		if err == nil {
			err = l.dispatch(data)
		} else {
			err = l.receiveError(err)
		}
		if err != nil {
			l.conn.lose(l, err)
			return
		}
	}
}

func (l *link) send() {
	for {
		select {
		case message := <-l.out:
			if transport, ok := l.transport.(jsonrpc.TraceSender); ok && message.trace.Parent != "" {
				transport.SendTrace(message.trace)
			}
			if err := l.transport.Send(message.data); err != nil {
				l.conn.lose(l, err)
				return
			}
		case <-l.lost():
			return
		}
	}
}

var errServerEnded = errors.New("the server ended the connection")

// receiveError returns why no more messages come.
func (l *link) receiveError(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var large jsonrpc.TooLarge
	switch {
	case l.rejected != nil:
		return l.rejected
	case errors.Is(err, io.EOF):
		return errServerEnded
	case errors.As(err, &large):
		return protocolErrorf("%v", err)
	}
	return err
}

func (l *link) dispatch(data []byte) error {
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
		return protocolErrorf("it repeats the messages it receives")
	}
	unknown := jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "this client serves no requests")
	select {
	case l.out <- outMessage{data: jsonrpc.AppendError(nil, m.ID, unknown)}:
		return nil
	default:
		return protocolErrorf("it sends requests and does not read the responses")
	}
}

// respond passes a response to its request.
func (l *link) respond(m jsonrpc.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	number, isNumber := m.ID.Number()
	waiting, isPending := l.pending[number]
	switch {
	case m.ID == jsonrpc.NoID && m.Error != nil:
		l.rejected = fmt.Errorf("the server rejected a message: %w", m.Error)
		return nil
	case !isNumber || !isPending:
		return protocolErrorf("a response has the id %s, which no pending request has", m.ID)
	}
	delete(l.pending, number)
	waiting <- answer{bytes.Clone(m.Result), m.Error}
	return nil
}

// isIdle reports whether no response is pending.
func (l *link) isIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending) == 0
}

// traceOf returns the trace context of a call of the contract, or of a dial.
func traceOf(ctx context.Context) jsonrpc.Trace {
	trace := cmp.Or(tracecontext.FromIncoming(ctx), tracecontext.FromOutgoing(ctx))
	return jsonrpc.Trace{Parent: trace.Parent(), State: trace.State()}
}

// ask makes a request and decodes its result. Its error is a [*jsonrpc.Error] if the
// server answered with one, a [*ProtocolError], or the cause of the end of ctx or of the
// link.
func (l *link) ask(ctx context.Context, method string, params, result any) error {
	waiting := make(chan answer, 1)
	trace := traceOf(ctx)
	l.mu.Lock()
	l.last++
	id := l.last
	l.pending[id] = waiting
	l.mu.Unlock()
	select {
	case l.out <- outMessage{jsonrpc.AppendRequest(nil, jsonrpc.NumberID(id), method, params, trace), trace}:
	case <-ctx.Done():
		l.mu.Lock()
		delete(l.pending, id)
		l.mu.Unlock()
		return context.Cause(ctx)
	case <-l.lost():
		return context.Cause(l.over)
	}
	select {
	case a := <-waiting:
		return a.decode(method, result)
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.lost():
	}
	select {
	case a := <-waiting: // it was the last message
		return a.decode(method, result)
	default:
		return context.Cause(l.over)
	}
}

func (a answer) decode(method string, result any) error {
	switch {
	case a.err != nil:
		return a.err
	case result == nil:
		return nil
	}
	if err := jsonrpc.DecodeParams(a.result, result); err != nil {
		return protocolErrorf("the result of %s cannot be understood: %v", method, err)
	}
	return nil
}
