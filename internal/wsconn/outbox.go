package wsconn

import (
	"crypto/rand"
	"io"
	"net"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/buffers"
)

// bufferBytes is the size of an outgoing buffer. A connection has at most two,
// one being filled while the other is being written, and none while idle.
const bufferBytes = 64 << 10

// controlReserve is the part of a buffer that data frames leave to control
// frames.
const controlReserve = 1 << 10

// idleThreshold is how long nothing may have been written for a sender to write
// its frame itself, instead of waking a goroutine.
const idleThreshold = 10 * time.Microsecond

// outbox buffers outgoing frames and writes them in one goroutine, which runs
// only while there is something to write. Senders of data wait for buffer space.
// Control frames never wait: they are sent between data frames, and at most one
// of each kind is pending.
type outbox struct {
	to     io.Writer
	client bool // frames are masked
	// tryWrite writes what it can without waiting; nil if nothing can. It is set before
	// the first frame.
	tryWrite func([]byte) (int, error)
	// beforeWrite is called before each write, with mu held. It is set before the first frame.
	beforeWrite func()

	mu         sync.Mutex
	changed    sync.Cond // of mu; buffer space, end of a frame, or failure
	pending    []byte    // guarded by mu; nil or a buffer
	midFrame   bool      // guarded by mu; a data frame is incomplete
	pongFrame  []byte    // guarded by mu; the latest pong
	pingFrame  []byte    // guarded by mu; the latest ping
	closeFrame []byte    // guarded by mu; the close frame to send
	writing    bool      // guarded by mu; the goroutine is running, or a sender writes
	lastWrite  time.Time // guarded by mu; when the last write ended
	closing    bool      // guarded by mu; no more data may be sent
	err        error     // guarded by mu; why nothing more is written
}

func newOutbox(to io.Writer, client bool) *outbox {
	o := &outbox{to: to, client: client}
	o.beforeWrite = func() {}
	o.changed.L = &o.mu
	return o
}

// sendData sends one data frame. It blocks while the buffer is full.
func (o *outbox) sendData(first byte, payload []byte) error {
	var header [maxHeader]byte
	key := o.key()
	head := appendHeader(header[:0], first, len(payload), key)
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.midFrame && o.checkOpen() == nil {
		o.changed.Wait()
	}
	if err := o.checkOpen(); err != nil {
		return err
	}
	o.midFrame = true
	if err := o.fill(head, nil); err != nil {
		return err
	}
	if err := o.fill(payload, key); err != nil {
		return err
	}
	o.midFrame = false
	o.changed.Broadcast()
	if len(o.pending) > 0 && !o.writing && time.Since(o.lastWrite) > idleThreshold {
		o.writing = true
		o.addControl()
		o.flush()
		o.writing = false
		o.changed.Broadcast()
	}
	o.startWriter()
	return o.err
}

// trySend is sendData if that does not have to wait, neither for space nor for the peer.
// Otherwise it does nothing and returns false.
func (o *outbox) trySend(first byte, payload []byte) bool {
	var header [maxHeader]byte
	key := o.key()
	head := appendHeader(header[:0], first, len(payload), key)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.midFrame || o.checkOpen() != nil || len(o.pending)+len(head)+len(payload) > bufferBytes-controlReserve {
		return false
	}
	o.buffer(head)
	start := len(o.pending)
	o.buffer(payload)
	if key != nil {
		mask(o.pending[start:], key, 0)
	}
	if o.tryWrite != nil && !o.writing && time.Since(o.lastWrite) > idleThreshold {
		o.addControl()
		o.tryFlush()
	}
	o.startWriter()
	return true
}

// tryFlush writes as much of the buffer as is possible without waiting. mu is held.
func (o *outbox) tryFlush() {
	o.beforeWrite()
	n, err := o.tryWrite(o.pending)
	o.lastWrite = time.Now()
	if err != nil {
		o.failLocked(err)
		return
	}
	if o.pending = o.pending[:copy(o.pending, o.pending[n:])]; len(o.pending) == 0 {
		buffers.Put(o.pending)
		o.pending = nil
	}
}

// fill buffers b, masked if key is not nil, and waits for space as needed, or writes it if it
// is large. mu is held. A frame in progress may be completed while the outbox is closing.
func (o *outbox) fill(b, key []byte) error {
	for done := 0; ; {
		if key == nil && len(b)-done >= bufferBytes && !o.writing && o.err == nil {
			return o.writeThrough(b[done:])
		}
		space := bufferBytes - controlReserve - len(o.pending)
		n := min(max(space, 0), len(b)-done)
		if n > 0 {
			start := len(o.pending)
			o.buffer(b[done : done+n])
			if key != nil {
				mask(o.pending[start:], key, done)
			}
			done += n
		}
		if done == len(b) {
			return nil
		}
		o.startWriter()
		for o.err == nil && len(o.pending) >= bufferBytes-controlReserve {
			o.changed.Wait()
		}
		if o.err != nil {
			return o.err
		}
	}
}

// writeThrough writes the buffer, and then b from where it is. For a file in large frames that
// saves a copy and two hand-overs for each 64 KiB: a fifth of the server's CPU. mu is held, and
// released during the writes; no other write is in progress.
func (o *outbox) writeThrough(b []byte) error {
	o.writing = true
	if len(o.pending) > 0 {
		o.flush()
	}
	if o.err == nil {
		o.write(b)
	}
	o.writing = false
	o.changed.Broadcast()
	return o.err
}

// buffer appends b, which must fit. mu is held.
func (o *outbox) buffer(b []byte) {
	if o.pending == nil {
		o.pending = buffers.Get(bufferBytes)
	}
	o.pending = append(o.pending, b...)
}

// checkOpen returns why no further frame may begin. mu is held.
func (o *outbox) checkOpen() error {
	if o.err == nil && o.closing {
		return net.ErrClosed
	}
	return o.err
}

// sendPong sends a pong. It replaces one that is still pending: a pong answers
// all earlier pings.
func (o *outbox) sendPong(payload []byte) {
	frame := o.control(opPong, payload)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pongFrame = frame
	o.startWriter()
}

// sendPing sends a ping after everything sent so far. It replaces one that is
// still pending: its pong answers all earlier pings.
func (o *outbox) sendPing(payload []byte) error {
	frame := o.control(opPing, payload)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.checkOpen(); err != nil {
		return err
	}
	o.pingFrame = frame
	o.startWriter()
	return nil
}

// sendClose sends a close frame, or nil for none, after everything else. It is called
// once.
func (o *outbox) sendClose(frame []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closing = true
	o.closeFrame = frame
	o.changed.Broadcast()
	o.startWriter()
}

// control returns a control frame.
func (o *outbox) control(opcode byte, payload []byte) []byte {
	key := o.key()
	frame := appendHeader(make([]byte, 0, maxHeader+len(payload)), bitFinal|opcode, len(payload), key)
	start := len(frame)
	frame = append(frame, payload...)
	if key != nil {
		mask(frame[start:], key, 0)
	}
	return frame
}

// key returns a new masking key, or nil if frames are not masked.
func (o *outbox) key() []byte {
	if !o.client {
		return nil
	}
	key := make([]byte, 4)
	_, _ = rand.Read(key) // never fails
	return key
}

// addControl buffers pending control frames in their order, unless a data frame is
// incomplete, and as far as they fit: nothing may follow the close frame. mu is held.
func (o *outbox) addControl() {
	for _, waiting := range []*[]byte{&o.pongFrame, &o.pingFrame, &o.closeFrame} {
		if o.midFrame || len(o.pending)+len(*waiting) > bufferBytes {
			return
		}
		if len(*waiting) > 0 {
			o.buffer(*waiting)
			*waiting = nil
		}
	}
}

// startWriter makes sure that buffered data is being written. mu is held.
func (o *outbox) startWriter() {
	o.addControl()
	if len(o.pending) > 0 && !o.writing && o.err == nil {
		o.writing = true
		go o.writeLoop()
	}
}

// writeLoop writes until nothing is left.
func (o *outbox) writeLoop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.addControl(); len(o.pending) > 0 && o.err == nil; o.addControl() {
		o.flush()
	}
	o.writing = false
	o.changed.Broadcast()
}

// flush writes the buffer. mu is held, and released during the write.
func (o *outbox) flush() {
	full := o.pending
	o.pending = nil
	o.changed.Broadcast()
	o.write(full)
	buffers.Put(full)
}

// write writes b. mu is held, and released during the write.
func (o *outbox) write(b []byte) {
	o.beforeWrite()
	o.mu.Unlock()
	_, err := o.to.Write(b)
	o.mu.Lock()
	o.lastWrite = time.Now()
	if err != nil {
		o.failLocked(err)
	}
}

// isIdle reports whether nothing is being written, or is to be.
func (o *outbox) isIdle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.writing && len(o.pending) == 0
}

// failLocked discards what has not been written. The first error counts. mu is
// held.
func (o *outbox) failLocked(err error) {
	if o.err == nil {
		o.err = err
	}
	o.pending, o.pongFrame, o.pingFrame, o.closeFrame = nil, nil, nil, nil
	o.changed.Broadcast()
}

// fail makes the outbox fail with err. A write in progress is not interrupted.
func (o *outbox) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failLocked(err)
}

// wait blocks until everything is written, or cannot be, and the writer has
// ended.
func (o *outbox) wait() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.writing || o.midFrame && o.err == nil {
		o.changed.Wait()
	}
	return o.err
}
