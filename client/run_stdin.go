package client

import (
	"fmt"
	"sync"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	// stdinBlockBytes makes a full block and its framing fit a 32 KiB buffer.
	stdinBlockBytes = 32_700
	// stdinReadBytes is the least room in a block that is worth a Read.
	stdinReadBytes = 4096
)

// stdinPump reads input ahead, at most one window beyond what the server has
// accepted, and keeps it until it was accepted, so that it can be sent again.
// A nil pump has no input. Its methods may be called concurrently; resume,
// next and readable are the sender's, who is one at a time.
type stdinPump struct {
	terminal bool // set before there is more than one goroutine
	// fail is told why there is no more input, if it is not its end.
	fail  func(error)
	input stdinReader

	// ready says that next may have something, room that there may be space.
	ready, room chan struct{}
	// stopped is closed when nobody wants input any more.
	stopped  chan struct{}
	stopOnce sync.Once
	reading  chan struct{} // closed when the reading goroutine is over
	started  sync.Once

	mu sync.Mutex
	// blocks are what was read and not accepted, oldest first; guarded by mu.
	// What is in a block is never changed again: whoever got a message may keep
	// it.
	blocks []stdinBlock
	// accepted ≤ sent, and sent ≤ read unless repeated; guarded by mu.
	accepted, sent, read uint64
	// repeated is whether the process got input before this run: what is read up
	// to accepted is that input once more, and dropped; guarded by mu.
	repeated bool
	window   uint64 // guarded by mu
	// ended is whether read is the end, endSent whether the server was told on
	// this stream, endAccepted whether the process was; guarded by mu.
	ended, endSent, endAccepted bool
	discarded                   bool // guarded by mu
	last                        byte // the last byte read, at first a line's end; guarded by mu
}

// stdinBlock is input from an offset on.
type stdinBlock struct {
	offset uint64
	data   []byte
}

func (b stdinBlock) end() uint64 { return b.offset + uint64(len(b.data)) }

func newStdinPump(input stdinReader, terminal bool, fail func(error)) *stdinPump {
	return &stdinPump{
		terminal: terminal,
		last:     '\n',
		fail:     fail,
		input:    input,
		ready:    make(chan struct{}, 1),
		room:     make(chan struct{}, 1),
		stopped:  make(chan struct{}),
		reading:  make(chan struct{}),
	}
}

// repeat says that the input is what another run may have sent already, at
// least a part of it. It is called before the first resume.
func (p *stdinPump) repeat() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.repeated = true
}

// join says that the process, which may have a terminal, got offset bytes of
// input before, which are not this input's. It is called before the first
// resume.
func (p *stdinPump) join(offset uint64, terminal bool) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accepted, p.sent, p.read = offset, offset, offset
	p.terminal = terminal
}

// drained reports whether everything that was read was accepted, and its end with it,
// as far as the process takes input at all.
func (p *stdinPump) drained() bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.discarded:
		return true
	case !p.ended:
		return p.accepted >= p.read && !p.input.ending()
	}
	return p.accepted >= p.read && (p.endAccepted || p.terminal)
}

// resume begins a stream: offset is what the server accepted so far. Reading
// starts with the first one.
func (p *stdinPump) resume(offset, window uint64) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if offset < p.accepted || offset > p.read && !p.repeated {
		return protocolErrorf("it has accepted %d bytes of stdin, of which %d to %d are possible",
			offset, p.accepted, p.read)
	}
	if err := p.short(offset); err != nil {
		return err
	}
	p.sent, p.window, p.endSent = offset, window, false
	p.release(offset)
	p.started.Do(func() { go p.pump() })
	notify(p.ready)
	notify(p.room)
	return nil
}

// accept says that the server has accepted all input up to offset, and with end
// that there is no more. The former can be more than this stream has sent: input of the stream before it may have been on
// its way into the process when this one began.
func (p *stdinPump) accept(offset uint64, end bool) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if offset > p.read && !p.repeated {
		return protocolErrorf("it accepted %d bytes of stdin when %d were read", offset, p.read)
	}
	if err := p.short(offset); err != nil {
		return err
	}
	p.sent = max(p.sent, offset)
	if end && !p.endAccepted {
		p.endAccepted = true
		notify(p.ready)
	}
	if offset > p.accepted {
		p.release(offset)
		notify(p.ready)
		notify(p.room)
	}
	return nil
}

// short returns an error if the input has ended before offset, which was
// accepted. The caller holds mu.
func (p *stdinPump) short(offset uint64) error {
	if !p.ended || offset <= p.read {
		return nil
	}
	return &InputError{Err: fmt.Errorf("%w: after %d bytes of %d", ErrInputDiffers, p.read, offset)}
}

// release lets go of input up to offset. The caller holds mu.
func (p *stdinPump) release(offset uint64) {
	p.accepted = offset
	n := 0
	// The last block stays while it can be read into.
	for n < len(p.blocks)-1 && p.blocks[n].end() <= offset {
		n++
	}
	clear(p.blocks[:n])
	p.blocks = p.blocks[n:]
}

// readable is signalled when next may have something to send.
func (p *stdinPump) readable() <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.ready
}

// next returns the next piece of input, or nil when there is none or no window
// for it. After it returned one, readable is signalled again.
func (p *stdinPump) next() *execwirev1.RunProcessRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	data := p.unsent()
	end := p.ended && !p.terminal && p.sent+uint64(len(data)) == p.read
	if p.discarded || len(data) == 0 && (!end || p.endSent) {
		return nil
	}
	stdin := &execwirev1.RunStdin{Offset: p.sent, Data: data, EndOfFile: end}
	p.sent += uint64(len(data))
	p.endSent = end
	notify(p.ready)
	return &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Stdin{Stdin: stdin}}
}

// unsent is what can be sent at once: the rest of a block, within the window.
// The caller holds mu.
func (p *stdinPump) unsent() []byte {
	for _, block := range p.blocks {
		if p.sent >= block.end() {
			continue
		}
		data := block.data[p.sent-block.offset:]
		return data[:min(uint64(len(data)), p.accepted+p.window-min(p.sent, p.accepted+p.window))]
	}
	return nil
}

// discard ends the input: the process does not take any more.
func (p *stdinPump) discard() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.discarded, p.blocks = true, nil
	p.mu.Unlock()
	p.stopOnce.Do(func() { close(p.stopped); p.input.interrupt() })
}

// stop ends the input and waits for the reading goroutine, unless the reader
// cannot be interrupted. The pump cannot be used afterwards.
func (p *stdinPump) stop() {
	if p == nil {
		return
	}
	p.discard()
	p.started.Do(func() { close(p.reading) })
	if p.input.interruptible() {
		<-p.reading
		p.input.release()
	}
}

// pump reads until the input ends, fails or is not wanted any more.
func (p *stdinPump) pump() {
	defer close(p.reading)
	for {
		space, ok := p.space()
		if !ok {
			return
		}
		n, err := p.input.Read(space)
		select {
		case <-p.stopped:
			return
		default:
		}
		p.add(n)
		if n > 0 {
			p.input.added(n)
		}
		if err != nil {
			p.finish(err)
			return
		}
	}
}

// space blocks until the window has room, and returns where to read to; false
// when no input is wanted any more.
func (p *stdinPump) space() ([]byte, bool) {
	for {
		if space := p.tail(); len(space) > 0 {
			return space, true
		}
		select {
		case <-p.room:
		case <-p.stopped:
			return nil, false
		}
	}
}

// tail returns the free end of the last block, as far as the window allows.
func (p *stdinPump) tail() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	ahead := p.read - min(p.read, p.accepted)
	if ahead >= p.window || p.discarded {
		return nil
	}
	if n := len(p.blocks); n == 0 || cap(p.blocks[n-1].data)-len(p.blocks[n-1].data) < stdinReadBytes {
		p.blocks = append(p.blocks, stdinBlock{offset: p.read, data: make([]byte, 0, stdinBlockBytes)})
	}
	data := p.blocks[len(p.blocks)-1].data
	space := data[len(data):cap(data)]
	return space[:min(uint64(len(space)), p.window-ahead)]
}

// add says that n bytes were read into the space at the tail.
func (p *stdinPump) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n == 0 || len(p.blocks) == 0 {
		return
	}
	last := &p.blocks[len(p.blocks)-1]
	last.data = last.data[:len(last.data)+n]
	p.read += uint64(n)
	p.last = last.data[len(last.data)-1]
	p.release(p.accepted)
	notify(p.ready)
}
