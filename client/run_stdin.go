package client

import (
	"fmt"
	"sync"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/notify"
)

const (
	// stdinBlockBytes makes a full block and its framing fit a 32 KiB buffer.
	stdinBlockBytes = 32_700
	// maxStdinWindow limits how much input is kept until it is accepted, whatever window
	// the server has.
	maxStdinWindow = 16 << 20
	// stdinReadBytes is the minimum free space of a block for a Read.
	stdinReadBytes = 4096
)

// stdinPump takes input, from a reader or by write, at most one window beyond what the
// server has accepted, and keeps it until then, to send it again after a lost
// connection. Its methods may be called concurrently; resume, next and readable are
// called by the sender, of which there is one at a time.
type stdinPump struct {
	terminal bool // set before other goroutines use the pump
	// input has no Reader for write. fail is called with the error if it cannot be read, or has
	// less than the process has consumed.
	input   stdinReader
	fail    func(error)
	reading chan struct{} // closed when the reading goroutine has returned
	started sync.Once

	ready notify.Signal // next may have input

	mu sync.Mutex
	// spaceFreed announces space, and the end of the input; guarded by mu.
	spaceFreed notify.Broadcast
	// blocks are read and not accepted, oldest first; guarded by mu. Data of a block is
	// never changed, because messages refer to it.
	blocks []stdinBlock
	// accepted ≤ sent, and sent ≤ read unless repeated; guarded by mu.
	accepted, sent, read uint64
	// repeated is whether an earlier run sent the beginning of this input: it is read
	// again up to accepted and dropped; guarded by mu.
	repeated bool
	window   uint64 // guarded by mu
	// ended is whether read is the end of the input, endSent whether it was sent on
	// this stream, endAccepted whether the process has it; guarded by mu.
	ended, endSent, endAccepted bool
	discarded                   bool // there is no input, or the process accepts no more; guarded by mu
	stopped                     bool // the run has ended; guarded by mu
	last                        byte // the last byte read, initially a line end; guarded by mu
}

// stdinBlock is input at an offset.
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
		ready:    notify.NewSignal(),
		reading:  make(chan struct{}),
	}
}

// begin is called before the first resume. The input of an existing process continues
// after what it received from others; that of a repeated start begins again, and an
// earlier run may have sent a part of it.
func (p *stdinPump) begin(started *execwirev1.RunStarted, existing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !existing {
		p.repeated = started.GetResumed()
		return
	}
	p.terminal = started.GetProcess().GetHasTerminal()
	p.read = started.GetStdinOffset()
	p.accepted, p.sent = p.read, p.read
}

// drained reports whether all input read so far was accepted, including its end, as far
// as the process accepts input.
func (p *stdinPump) drained() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.discarded:
		return true
	case !p.ended:
		return p.accepted >= p.read
	}
	return p.accepted >= p.read && (p.endAccepted || p.terminal)
}

// resume begins a stream: offset is what the server has accepted. Reading starts with
// the first stream.
func (p *stdinPump) resume(offset, window uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.discarded {
		return nil
	}
	if offset < p.accepted || offset > p.read && !p.repeated {
		return protocolErrorf("it has accepted %d bytes of stdin, of which %d to %d are possible",
			offset, p.accepted, p.read)
	}
	if err := p.checkLongEnough(offset); err != nil {
		return err
	}
	p.sent, p.window, p.endSent = offset, min(window, maxStdinWindow), false
	p.release(offset)
	if p.input.Reader != nil {
		p.started.Do(func() { go p.pump() })
	}
	p.ready.Set()
	p.spaceFreed.Notify()
	return nil
}

// accept records that the server has accepted input up to offset, and with end the end
// of the input. The offset can be beyond what this stream sent: input of the previous
// stream may have been in transit to the process.
func (p *stdinPump) accept(offset uint64, end bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.discarded {
		return nil
	}
	if offset > p.read && !p.repeated {
		return protocolErrorf("it accepted %d bytes of stdin when %d were read", offset, p.read)
	}
	if err := p.checkLongEnough(offset); err != nil {
		return err
	}
	p.sent = max(p.sent, offset)
	if end && !p.endAccepted {
		p.endAccepted = true
		p.ready.Set()
	}
	if offset > p.accepted {
		p.release(offset)
		p.ready.Set()
		p.spaceFreed.Notify()
	}
	return nil
}

// checkLongEnough returns an error if the input ended before the accepted offset. The
// caller holds mu.
func (p *stdinPump) checkLongEnough(offset uint64) error {
	if !p.ended || offset <= p.read {
		return nil
	}
	return &InputError{Err: fmt.Errorf("%w: after %d bytes of %d", ErrInputDiffers, p.read, offset)}
}

// release drops input up to offset. The caller holds mu.
func (p *stdinPump) release(offset uint64) {
	p.accepted = offset
	n := 0
	// The last block stays while it has free space.
	for n < len(p.blocks)-1 && p.blocks[n].end() <= offset {
		n++
	}
	clear(p.blocks[:n])
	p.blocks = p.blocks[n:]
}

// readable is signalled when next may have something to send.
func (p *stdinPump) readable() <-chan struct{} {
	return p.ready.C()
}

// next returns the next message of input, or nil if there is none or no window. After a
// message, readable is signalled again.
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
	p.ready.Set()
	return &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Stdin{Stdin: stdin}}
}

// unsent returns what can be sent at once: the rest of a block, within the window. The
// caller holds mu.
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

// discard ends the input: the process accepts no more.
func (p *stdinPump) discard() {
	p.mu.Lock()
	first := !p.discarded
	p.discarded, p.blocks = true, nil
	p.spaceFreed.Notify()
	p.mu.Unlock()
	if first && p.input.interrupt != nil {
		p.input.interrupt()
	}
}

// stop ends the input and waits for the reading goroutine, unless the reader cannot be
// interrupted. The pump cannot be used afterwards.
func (p *stdinPump) stop() {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.discard()
	p.started.Do(func() { close(p.reading) })
	if p.input.release != nil {
		<-p.reading
		p.input.release()
	}
}

// tail returns the free end of the last block, within the window. The caller holds mu.
func (p *stdinPump) tail() []byte {
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

// add records that n bytes are in the tail. The caller holds mu.
func (p *stdinPump) add(n int) {
	if n == 0 || len(p.blocks) == 0 {
		return
	}
	last := &p.blocks[len(p.blocks)-1]
	last.data = last.data[:len(last.data)+n]
	p.read += uint64(n)
	p.last = last.data[len(last.data)-1]
	p.release(p.accepted)
	p.ready.Set()
}

// end records that the input is complete.
func (p *stdinPump) end() {
	p.mu.Lock()
	if p.terminal && !p.ended {
		p.endTerminal()
	}
	p.ended = true
	p.ready.Set()
	p.spaceFreed.Notify()
	err := p.checkLongEnough(p.accepted)
	p.mu.Unlock()
	if err != nil {
		p.fail(err)
	}
}

// endOfTransmission is the end-of-file character of a terminal.
const endOfTransmission = 0x04

// endTerminal appends what a user would type to end the input. In the middle of a line
// the character only submits the line; a second one ends the input. The caller holds
// mu.
func (p *stdinPump) endTerminal() {
	characters := []byte{endOfTransmission}
	if p.last != '\n' {
		characters = append(characters, endOfTransmission)
	}
	p.blocks = append(p.blocks, stdinBlock{offset: p.read, data: characters})
	p.read += uint64(len(characters))
}
