package gateway

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

const (
	// keptBuffer is the largest buffer that is used again.
	keptBuffer = 256 << 10
	// maxWholeMessage is the largest message that is sent in one frame; existing
	// clients take frames of 16 MiB.
	maxWholeMessage = 4 << 20
)

// messageBuffers are those that nobody uses: a connection that says nothing keeps
// none.
var messageBuffers = sync.Pool{New: func() any { return new([]byte) }}

// outgoing puts everything that one client is told into one order. Whoever has
// something to say says it by itself, one after the other, and waits while the
// client does not read: a feed, a request. Only the receiving goroutine must not
// wait; what it has to say is queued, and said by whoever comes next.
type outgoing struct {
	conn  jsonrpc.Transport
	limit int

	answered atomic.Int64 // answers, and parts of large ones, that the transport took

	sending sync.Mutex // of whoever speaks
	half    error      // guarded by sending; why a message was left half said

	mu     sync.Mutex
	posted [][]byte // guarded by mu; whole messages
	bytes  int      // guarded by mu; of them
}

func newOutgoing(c *connection) *outgoing {
	return &outgoing{conn: c.conn, limit: c.gateway.config.Outgoing}
}

// messageOverhead is what a queued message takes besides its bytes.
const messageOverhead = 64

// post queues a message without blocking; somebody has to flush. It reports
// whether there was room.
func (o *outgoing) post(message []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bytes+len(message)+messageOverhead > o.limit && len(o.posted) > 0 {
		return false
	}
	o.posted = append(o.posted, message)
	o.bytes += len(message) + messageOverhead
	return true
}

// take returns what was queued.
func (o *outgoing) take() [][]byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	posted := o.posted
	o.posted, o.bytes = nil, 0
	return posted
}

func (o *outgoing) hasPosted() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.posted) > 0
}

// flush says what was queued, unless somebody is speaking, who then does.
func (o *outgoing) flush() {
	for o.hasPosted() && o.sending.TryLock() {
		o.sendLocked()
	}
}

// sendLocked says what was queued, and unlocks sending.
func (o *outgoing) sendLocked() {
	defer o.sending.Unlock()
	_ = o.sendPosted() // the receiving goroutine learns that the connection is lost
}

// sayPosted returns when all that was queued has been said, by whomever. It
// blocks while the client does not read.
func (o *outgoing) sayPosted() {
	o.sending.Lock()
	o.sendLocked()
}

// sendPosted says what was queued. sending is held.
func (o *outgoing) sendPosted() error {
	posted := o.take()
	if o.half != nil {
		return o.half // which nothing must get into
	}
	for _, message := range posted {
		if err := o.conn.Send(message); err != nil {
			return err
		}
	}
	return nil
}

// say sends messages, after what was queued before. each is called with a buffer
// to append one message to, until it reports that there is none. It blocks while
// the client does not read.
func (o *outgoing) say(each func(dst []byte) (message []byte, more bool)) error {
	err := o.speak(each)
	o.flush()
	return err
}

func (o *outgoing) speak(each func(dst []byte) ([]byte, bool)) error {
	o.sending.Lock()
	defer o.sending.Unlock()
	if err := o.sendPosted(); err != nil {
		return err
	}
	buffer := messageBuffers.Get().(*[]byte)
	defer messageBuffers.Put(buffer)
	for {
		message, more := each((*buffer)[:0])
		if !more {
			return nil
		}
		if *buffer = message; cap(message) > keptBuffer {
			*buffer = nil
		}
		if err := o.send(message); err != nil {
			return err
		}
	}
}

// send sends one message, in parts if it is big. sending is held.
func (o *outgoing) send(message []byte) error {
	if len(message) <= maxWholeMessage {
		return o.conn.Send(message)
	}
	writer, err := o.conn.Begin()
	if err != nil {
		return err
	}
	if _, err := writer.Write(message); err != nil {
		o.half = err
		return err
	}
	return writer.Close()
}

// stream sends one message that is written in parts. An error of write leaves
// half a message on the wire: the connection cannot be used any more.
func (o *outgoing) stream(write func(w io.Writer) error) error {
	err := o.streamOne(write)
	o.flush()
	return err
}

func (o *outgoing) streamOne(write func(w io.Writer) error) error {
	o.sending.Lock()
	defer o.sending.Unlock()
	if err := o.sendPosted(); err != nil {
		return err
	}
	writer, err := o.conn.Begin()
	if err != nil {
		return err
	}
	if err := write(&counted{writer, &o.answered}); err != nil {
		o.half = err
		return err
	}
	return writer.Close()
}

// counted counts what is written.
type counted struct {
	io.Writer
	parts *atomic.Int64
}

func (c *counted) Write(part []byte) (int, error) {
	defer c.parts.Add(1)
	return c.Writer.Write(part)
}
