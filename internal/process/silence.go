package process

import (
	"time"

	"golang.org/x/sys/unix"
)

// LastOutput is when output was last read of the process, on any of its streams; without any it is when the process
// started. It never blocks.
func (p *Process) LastOutput() time.Time { return p.startedAt.Add(time.Duration(p.lastOutput.Load())) }

// HeldBack tells whether output is waiting that cannot be read because the owner's window is used up. Such a process
// may be unable to write, so that its silence says nothing. It never blocks.
func (p *Process) HeldBack() bool {
	for _, s := range p.streams {
		if s.isHeldBack() {
			return true
		}
	}
	return false
}

// startTimers starts what ends the process for what it does or does not.
func (p *Process) startTimers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spec.Timeout > 0 {
		p.timeout = time.AfterFunc(p.spec.Timeout, func() { p.expire(CauseTimeout) })
	}
	if p.spec.NoOutputTimeout > 0 {
		p.silence = time.AfterFunc(p.spec.NoOutputTimeout, p.checkSilence)
	}
}

// checkSilence ends the process if it was silent for too long, and otherwise looks again when that may have become so.
func (p *Process) checkSilence() {
	rest := p.spec.NoOutputTimeout
	// In this order: output that was held back a moment ago has been read by the time that it is not any more.
	if !p.HeldBack() {
		rest -= time.Since(p.LastOutput())
	}
	if rest <= 0 {
		p.expire(CauseNoOutput)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state < StateClosed {
		p.silence.Reset(rest)
	}
}

// spoken notes that there was output.
func (p *Process) spoken() { p.lastOutput.Store(int64(time.Since(p.startedAt))) }

// isHeldBack tells whether the last step found no room, and there is something to read.
func (s *stream) isHeldBack() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.noRoom || s.ended {
		return false
	}
	waiting := false
	_ = s.conn.Control(func(fd uintptr) { waiting = look(fd)&unix.POLLIN != 0 })
	return waiting
}
