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
