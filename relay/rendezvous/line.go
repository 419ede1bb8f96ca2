package rendezvous

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
)

// carrier carries frames, each whole or not at all. *wsconn.Conn in binary mode
// is one.
type carrier interface {
	Receive() ([]byte, error) // valid until the next Receive; nil is a message of another kind
	Send(frame []byte) error
	Close(code int, reason string) error
}

// CodeSuperseded is the close code of the websocket of an executor that was
// taken over by a later registration.
const CodeSuperseded = 4001

const reasonSuperseded = "superseded"

// maxEnded is of how many streams that the hub ended a line remembers that it
// did.
const maxEnded = 1024

// line is one websocket, of an executor or a harness, and what waits to be sent
// on it.
type line struct {
	carrier   carrier // set before serve
	exchange  *exchange
	principal string
	resumable bool   // its end retransmits, so that streams survive the line
	capacity  int    // of an executor: how many streams it takes; 0 is not known
	number    uint64 // later lines have higher ones

	wake     chan struct{} // holds a token when there may be something to send
	finished chan struct{} // closed when it is to be closed

	// Guarded by exchange.mu.
	control []notice             // resets, which go first
	ready   []*outlet            // those that have something, by turns
	queued  int64                // bytes in the queues of ready
	streams map[*stream]struct{} // of a harness
	ended   map[string]struct{}  // ids of streams that the hub ended
	endings []string             // the same, oldest first
	over    bool                 // it is to be closed, by code and reason
	lost    bool                 // nothing more can be received
	parted  bool                 // that is what ended it
	away    *departure           // of its end, once it has departed; nil if nothing of it is waited for
	code    int
	reason  string
}

// notice is the end of a stream that an end is told.
type notice struct{ stream, reason string }

// outlet is the end of a stream that a line leads to.
type outlet struct {
	queue
	stream *stream
}

// beside is what waits at l, which o leads to, and counts against the bytes that its
// principal may have more. What waits for an executor is of several principals.
func (o *outlet) beside(l *line) int64 {
	if o == o.stream.up {
		return 0
	}
	return l.queued
}

func newLine(principal string, resumable bool) *line {
	return &line{
		principal: principal, resumable: resumable,
		wake: make(chan struct{}, 1), finished: make(chan struct{}),
		streams: make(map[*stream]struct{}), ended: make(map[string]struct{}),
	}
}

// serve routes what comes on the line, and sends what waits for it, until its
// websocket ends or the line is finished. It returns when no goroutine is left,
// with why nothing more came, or nil if it was the hub that ended it.
func (l *line) serve(receive func(frame []byte), depart func()) error {
	var received error
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			frame, err := l.carrier.Receive()
			if err != nil {
				received = err
				l.lose(closeFor(err))
				return
			}
			receive(frame)
		}
	})
	written := make(chan struct{})
	go func() {
		defer close(written)
		l.write()
	}()
	<-l.finished
	depart()
	l.drain(written)
	code, reason := l.ending()
	_ = l.carrier.Close(code, reason)
	<-written
	reading.Wait()
	if !l.hasParted() {
		return nil
	}
	return received
}

// closeFor returns how a websocket is closed on which receiving ended with err.
func closeFor(err error) (code int, reason string) {
	if tooLarge, ok := errors.AsType[*wsconn.TooLargeError](err); ok {
		return wsconn.CodeTooLarge, tooLarge.Error()
	}
	if noRoom, ok := errors.AsType[*wsconn.BudgetError](err); ok {
		return codeTryAgainLater, noRoom.Reason()
	}
	return wsconn.CodeNormal, ""
}

// codeTryAgainLater is of RFC 6455's registry.
const codeTryAgainLater = 1013

// drainTimeout bounds how long a line that is closed waits until its peer was
// told what there is to tell.
const drainTimeout = 2 * time.Second

func (l *line) drain(written <-chan struct{}) {
	patience := time.NewTimer(drainTimeout)
	defer patience.Stop()
	select {
	case <-written:
	case <-patience.C:
	}
}

// write sends what waits until the line is over.
func (l *line) write() {
	for {
		frame, more := l.next()
		switch {
		case !more:
			return
		case frame == nil:
			<-l.wake
		case l.carrier.Send(frame) != nil:
			l.lose(wsconn.CodeNormal, "")
			return
		}
	}
}

// next takes the frame that is sent next: resets first, then one of each stream
// in turn. It is nil if there is none; more is false if there will not be.
func (l *line) next() (frame []byte, more bool) {
	x := l.exchange
	x.mu.Lock()
	defer x.mu.Unlock()
	if l.lost {
		return nil, false
	}
	if len(l.control) > 0 {
		n := l.control[0]
		l.control = l.control[1:]
		return resetFrame(n.stream, n.reason), true
	}
	if l.over {
		return nil, false
	}
	if len(l.ready) == 0 {
		l.ready = nil
		return nil, true
	}
	o := l.ready[0]
	l.ready[0] = nil
	l.ready = l.ready[1:]
	held := beyondOwn(o.bytes)
	frame = o.pop()
	if o == o.stream.up {
		o.stream.reached = true
	}
	l.queued -= weight(frame)
	x.total.give(o.stream.principal, held-beyondOwn(o.bytes))
	if o.waiting = len(o.frames) > 0; o.waiting {
		l.ready = append(l.ready, o)
	} else if o.last {
		x.end(o.stream, "", false, false)
	}
	return frame, true
}

// rouse has write look again. Its mu is held.
func (l *line) rouse() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// tell has a reset sent, or kept by whoever takes the line off if that does not
// come about. mu is held.
func (l *line) tell(id, reason string) {
	if _, known := l.ended[id]; !known {
		l.ended[id] = struct{}{}
		if l.endings = append(l.endings, id); len(l.endings) > maxEnded {
			delete(l.ended, l.endings[0])
			l.endings = l.endings[1:]
		}
	}
	l.control = append(l.control, notice{stream: id, reason: reason})
	if len(l.control) > l.exchange.limits.StreamsPerExecutor+l.exchange.limits.StreamsPerConnection {
		l.finish(wsconn.CodePolicy, relay.ReasonSlowConsumer)
	}
	l.rouse()
}

// finish has the line closed with code and reason once what is in control was
// sent. The first to call it decides. mu is held.
func (l *line) finish(code int, reason string) {
	if l.over {
		return
	}
	l.over, l.code, l.reason = true, code, reason
	close(l.finished)
	l.rouse()
}

// lose says that nothing more can be received, and need not be sent.
func (l *line) lose(code int, reason string) {
	l.exchange.mu.Lock()
	defer l.exchange.mu.Unlock()
	l.lost = true
	l.parted = l.parted || !l.over
	l.finish(code, reason)
	l.rouse()
}

// hasParted reports whether it was not the hub that ended the line.
func (l *line) hasParted() bool {
	l.exchange.mu.Lock()
	defer l.exchange.mu.Unlock()
	return l.parted
}

func (l *line) ending() (code int, reason string) {
	l.exchange.mu.Lock()
	defer l.exchange.mu.Unlock()
	return l.code, l.reason
}

// supersede closes the line of an executor that is connected elsewhere by now.
func (l *line) supersede() {
	l.exchange.mu.Lock()
	defer l.exchange.mu.Unlock()
	l.finish(CodeSuperseded, reasonSuperseded)
}

// evict closes the line of a connection that gives way to another one.
func (l *line) evict(why error) {
	reason := "try again later"
	if full, ok := errors.AsType[*auth.Error](why); ok {
		reason = fmt.Sprintf("%s is reached: try again in %v", full.Setting, full.RetryAfter)
	}
	l.exchange.mu.Lock()
	defer l.exchange.mu.Unlock()
	l.finish(codeTryAgainLater, reason)
}
