package client

import (
	"errors"
	"io"
)

// endOfTransmission is the character by which a terminal ends its input.
const endOfTransmission = 0x04

// finish notes how the input ended.
func (p *stdinPump) finish(err error) {
	if errors.Is(err, errPressed) {
		return // the input goes on, for whoever takes the process up
	}
	if !errors.Is(err, io.EOF) {
		p.fail(&InputError{Err: err})
		return
	}
	if err := p.end(); err != nil {
		p.fail(err)
	}
}

// end notes that the input is whole.
func (p *stdinPump) end() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal {
		p.endTerminal()
	}
	p.ended = true
	notify(p.ready)
	return p.short(p.accepted)
}

// endTerminal appends what a person would type to end the input. In the middle
// of a line the character only sends the line; a second one ends the input.
// The caller holds mu.
func (p *stdinPump) endTerminal() {
	characters := []byte{endOfTransmission}
	if p.last != '\n' {
		characters = append(characters, endOfTransmission)
	}
	p.blocks = append(p.blocks, stdinBlock{offset: p.read, data: characters})
	p.read += uint64(len(characters))
}
