package wsconn

import (
	"crypto/rand"
	"io"
	"net"
	"sync"
	"time"
)

// bufferBytes is the size of one outgoing buffer. A connection has two at most,
// one being filled while the other is being written, and none while it is idle.
const bufferBytes = 64 << 10

// controlRoom is what of a buffer data frames leave to control frames.
const controlRoom = 1 << 10

// quiet is for how long nothing may have been written for the next frame to be
// written by its sender at once, rather than by a goroutine that is woken for it.
const quiet = 10 * time.Microsecond

// buffers are the outgoing buffers that nobody uses.
var buffers = sync.Pool{New: func() any { return new([bufferBytes]byte) }}

// outbox gathers outgoing frames for one goroutine, which runs while there is
// anything to write. Data waits for room. Control frames never wait: they go out
// between two data frames, and there are only so many of them at a time.
type outbox struct {
	to     io.Writer
	client bool // its frames are masked

	mu       sync.Mutex
	changed  sync.Cond // of mu: there is room, a frame has ended, or it is over
	pending  []byte    // guarded by mu; nil or a buffer
	cut      bool      // guarded by mu; what was gathered so far ends within a frame
	pong     []byte    // guarded by mu; a whole frame, the answer to the latest ping
	asking   []byte    // guarded by mu; a whole frame, the latest ping
	promised []byte    // guarded by mu; the close frame that answers the peer's
	parting  []byte    // guarded by mu; the close frame
	writing  bool      // guarded by mu; the goroutine runs, or a sender writes
	wrote    time.Time // guarded by mu; when the latest write ended
	closing  bool      // guarded by mu; a close frame has been asked for: no more data
	err      error     // guarded by mu; why nothing more is written
}

func newOutbox(to io.Writer, client bool) *outbox {
	o := &outbox{to: to, client: client}
	o.changed.L = &o.mu
	return o
}

// data sends one data frame. It blocks while there is no room.
func (o *outbox) data(first byte, payload []byte) error {
	var header [maxHeader]byte
	key := o.key()
	head := appendHeader(header[:0], first, len(payload), key)
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.cut && o.usable() == nil {
		o.changed.Wait()
	}
	if err := o.usable(); err != nil {
		return err
	}
	o.cut = true
	if err := o.put(head, nil); err != nil {
		return err
	}
	if err := o.put(payload, key); err != nil {
		return err
	}
	o.cut = false
	o.changed.Broadcast()
	if !o.writing && time.Since(o.wrote) > quiet {
		o.writing = true
		o.interject()
		o.flush()
		o.writing = false
		o.changed.Broadcast()
	}
	o.start()
	return o.err
}

// put gathers b, masked if there is a key, and waits for room as often as it has
// to. mu is held. A frame that was begun may end although the outbox is closing.
func (o *outbox) put(b, key []byte) error {
	for done := 0; ; {
		room := bufferBytes - controlRoom - len(o.pending)
		n := min(max(room, 0), len(b)-done)
		if n > 0 {
			start := len(o.pending)
			o.gather(b[done : done+n])
			if key != nil {
				mask(o.pending[start:], key, done)
			}
			done += n
		}
		if done == len(b) {
			return nil
		}
		o.start()
		for o.err == nil && len(o.pending) >= bufferBytes-controlRoom {
			o.changed.Wait()
		}
		if o.err != nil {
			return o.err
		}
	}
}

// gather appends b, which fits, to the buffer. mu is held.
func (o *outbox) gather(b []byte) {
	if o.pending == nil {
		o.pending = buffers.Get().(*[bufferBytes]byte)[:0]
	}
	o.pending = append(o.pending, b...)
}

// usable returns why no further frame may begin. mu is held.
func (o *outbox) usable() error {
	if o.err == nil && o.closing {
		return net.ErrClosed
	}
	return o.err
}

// answer sends a pong. One that waits to be sent is replaced: the answer to the
// latest ping answers those before it.
func (o *outbox) answer(payload []byte) {
	frame := o.control(opPong, payload)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pong = frame
	o.start()
}

// ping sends a ping after all that was sent so far. One that waits to be sent is
// replaced: the answer to the latest ping answers those before it.
func (o *outbox) ping(payload []byte) error {
	frame := o.control(opPing, payload)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.usable(); err != nil {
		return err
	}
	o.asking = frame
	o.start()
	return nil
}

// promise keeps a close frame that part is to send. The first one counts.
func (o *outbox) promise(frame []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.promised == nil {
		o.promised = frame
	}
}

// part sends a close frame as the last of all, the one that was promised if there
// is one; nil for none. Only the first one is sent.
func (o *outbox) part(frame []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closing {
		return
	}
	o.closing = true
	if o.parting = frame; o.promised != nil {
		o.parting = o.promised
	}
	o.changed.Broadcast()
	o.start()
}

// control returns a whole control frame.
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

// key returns a fresh masking key, nil if frames are not masked.
func (o *outbox) key() []byte {
	if !o.client {
		return nil
	}
	key := make([]byte, 4)
	_, _ = rand.Read(key) // never fails: it ends the program instead
	return key
}

// interject gathers the control frames that wait, if no data frame is cut and as
// far as they fit. mu is held.
func (o *outbox) interject() {
	for _, waiting := range []*[]byte{&o.pong, &o.asking, &o.parting} {
		if len(*waiting) > 0 && !o.cut && len(o.pending)+len(*waiting) <= bufferBytes {
			o.gather(*waiting)
			*waiting = nil
		}
	}
}

// start sees to it that what was gathered is being written. mu is held.
func (o *outbox) start() {
	o.interject()
	if len(o.pending) > 0 && !o.writing && o.err == nil {
		o.writing = true
		go o.write()
	}
}

// write writes until there is nothing left.
func (o *outbox) write() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.interject(); len(o.pending) > 0 && o.err == nil; o.interject() {
		o.flush()
	}
	o.writing = false
	o.changed.Broadcast()
}

// flush writes what was gathered. mu is held, but not during the write.
func (o *outbox) flush() {
	full := o.pending
	o.pending = nil
	o.changed.Broadcast()
	o.mu.Unlock()
	_, err := o.to.Write(full)
	buffers.Put((*[bufferBytes]byte)(full[:bufferBytes]))
	o.mu.Lock()
	o.wrote = time.Now()
	if err != nil {
		o.stop(err)
	}
}

// stop gives up what has not been written, if anything can be written at all.
// mu is held.
func (o *outbox) stop(err error) {
	if o.err == nil {
		o.err = err
	}
	o.pending, o.pong, o.asking, o.parting = nil, nil, nil, nil
	o.changed.Broadcast()
}

// fail makes the outbox fail with err. A write under way is not interrupted.
func (o *outbox) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stop(err)
}

// wait blocks until all that was sent is written, or cannot be, and no goroutine
// is left.
func (o *outbox) wait() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.writing || o.cut && o.err == nil {
		o.changed.Wait()
	}
	return o.err
}
