package gateway

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/tracecontext"
)

const (
	// maxWholeMessage is the largest message sent in one frame. Existing clients
	// accept frames of 16 MiB.
	maxWholeMessage = 4 << 20
)

// messageBuffers has free buffers, so that an idle connection has none.
var messageBuffers = sync.Pool{New: func() any { return new([]byte) }}

// outgoing orders everything that one client is sent. A goroutine with a message (a
// feed, a request) sends it itself and blocks while the client does not read. The
// receiving goroutine must not block: it posts messages, and the next sender sends
// them.
type outgoing struct {
	conn  jsonrpc.Transport
	limit int

	answered atomic.Int64 // answers, and parts of large ones, that the transport accepted

	sending sync.Mutex // held while sending
	partial error      // guarded by sending; the error that left a message incomplete

	mu     sync.Mutex
	posted [][]byte // guarded by mu; whole messages
	bytes  int      // guarded by mu; size of posted
}

// messageOverhead is the memory of a posted message beside its bytes.
const messageOverhead = 64

// post queues a message without blocking; the caller must arrange a flush. It returns
// false if the queue is full.
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

// flush sends what is posted, unless another goroutine is sending, which then does.
func (o *outgoing) flush() {
	for o.hasPosted() && o.sending.TryLock() {
		o.sendPostedAndUnlock()
	}
}

// sendPostedAndUnlock sends what is posted and unlocks sending.
func (o *outgoing) sendPostedAndUnlock() {
	defer o.sending.Unlock()
	_ = o.sendPosted() // the receiving goroutine learns of a lost connection
}

// flushBlocking returns when everything posted was sent, by any goroutine. It blocks
// while the client does not read.
func (o *outgoing) flushBlocking() {
	o.sending.Lock()
	o.sendPostedAndUnlock()
}

// sendPosted sends what is posted. sending is held.
func (o *outgoing) sendPosted() error {
	posted := o.take()
	if o.partial != nil {
		return o.partial // nothing can follow an incomplete message
	}
	for _, message := range posted {
		if err := o.conn.Send(message); err != nil {
			return err
		}
	}
	return nil
}

// send sends what is posted, then messages: it calls each with a buffer to append one
// message to, until more is false. It blocks while the client does not read.
func (o *outgoing) send(each func(dst []byte) (message []byte, more bool)) error {
	return o.afterPosted(func() error {
		buffer := messageBuffers.Get().(*[]byte)
		defer messageBuffers.Put(buffer)
		for {
			message, more := each((*buffer)[:0])
			if !more {
				return nil
			}
			if *buffer = message; cap(message) > call.MaxPooledBuffer {
				*buffer = nil
			}
			if err := o.sendMessage(message); err != nil {
				return err
			}
		}
	})
}

// afterPosted sends what is posted, then what send sends, then what was posted
// meanwhile.
func (o *outgoing) afterPosted(send func() error) error {
	defer o.flush()
	o.sending.Lock()
	defer o.sending.Unlock()
	if err := o.sendPosted(); err != nil {
		return err
	}
	return send()
}

// sendOne is send for one message, which appendTo appends.
func (o *outgoing) sendOne(appendTo func(dst []byte) []byte) error {
	sent := false
	return o.send(func(dst []byte) ([]byte, bool) {
		if sent {
			return nil, false
		}
		sent = true
		return appendTo(dst), true
	})
}

// sendMessage sends one message, a large one in parts. sending is held.
func (o *outgoing) sendMessage(message []byte) error {
	if len(message) <= maxWholeMessage {
		return o.conn.Send(message)
	}
	writer, err := o.conn.Begin()
	if err != nil {
		return err
	}
	if _, err := writer.Write(message); err != nil {
		o.partial = err
		return err
	}
	return writer.Close()
}

// stream sends one message of a trace, which write produces in parts. An error of write leaves it
// incomplete, and the connection unusable.
func (o *outgoing) stream(trace tracecontext.Context, write func(w io.Writer) error) error {
	return o.afterPosted(func() error {
		o.setTrace(trace)
		writer, err := o.conn.Begin()
		if err != nil {
			return err
		}
		if err := write(&countingWriter{writer, &o.answered}); err != nil {
			o.partial = err
			return err
		}
		return writer.Close()
	})
}

// countingWriter counts writes.
type countingWriter struct {
	io.Writer
	count *atomic.Int64
}

func (c *countingWriter) Write(part []byte) (int, error) {
	defer c.count.Add(1)
	return c.Writer.Write(part)
}
