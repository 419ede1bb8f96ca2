package process

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/eventlog"
)

// terminalBacklog is more than the kernel ever buffers between the two ends of a terminal (64 KiB
// in flight and the buffer of one line discipline). The kernel does not report how much is
// buffered.
const terminalBacklog = 128 << 10

const (
	// fullPipeRead is a size that only a read from a full pipe returns, whose writer is blocked.
	fullPipeRead = 60 << 10
	// largePipeBytes is the capacity of the pipe after such a read. The default, 64 KiB, is
	// slightly more than one read takes: the rest costs a read, an event and a message of its own,
	// and the writer and this program block in turn.
	largePipeBytes = 256 << 10
)

// stream copies one output stream to the event log. Its goroutine waits in the poller of the
// runtime without holding a buffer.
type stream struct {
	process  *Process
	id       eventlog.Stream
	file     *os.File
	conn     syscall.RawConn
	writer   *eventlog.Writer
	terminal bool

	// mu is held over each read(2) with its Commit, so that what was read from the pipe is in the
	// log.
	mu           sync.Mutex
	hadOutput    bool
	windowFull   bool // in the last step: the log had no space
	pipeEnlarged bool // or that failed
	ended        bool // at end of file, or closed
	leaderExited bool // settle was called
	settled      bool // the log has all output from before the exit of the leader
	pending      int  // upper bound of the bytes that it lacks, unless settled
	draining     bool // other holders of the stream are not descendants: it ends when it is empty, or pending is 0
}

// readResult is the result of one read.
type readResult uint8

const (
	readMore    readResult = iota // there may be more
	readEmpty                     // nothing to read now
	readBlocked                   // the log has no space now, see read
	readEnded                     // the stream has ended
)

// run copies output until the stream ends.
func (s *stream) run(ctx context.Context) {
	var result readResult
	readAll := func(fd uintptr) bool {
		for result = readMore; result == readMore; {
			result = s.readStep(fd)
		}
		return result != readEmpty
	}
	for {
		err := s.conn.Read(readAll)
		if err == nil && result != readEnded {
			err = s.writer.WaitSpace(ctx)
		}
		switch {
		case errors.Is(err, errInterrupted), errors.Is(err, os.ErrDeadlineExceeded) && !s.hasEnded():
			return
		case err != nil || result == readEnded:
			s.end() // deadline set by settle, closed by end, a failure of the poller, or Close
			return
		}
	}
}

func (s *stream) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// readStep reads once into the log.
func (s *stream) readStep(fd uintptr) readResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return readEnded
	}
	// This must not wait for space in the window: there may never be more output.
	if s.draining && s.pending <= 0 {
		s.endLocked()
		return readEnded
	}
	n, hasSpace, err := s.read(fd)
	s.windowFull = !hasSpace
	switch {
	case !hasSpace:
		return readBlocked
	case n > 0:
		s.hadOutput = true
		s.pending -= n
		if s.draining && s.pending <= 0 {
			break // the rest comes from other programs
		}
		if s.leaderExited && s.pending <= 0 {
			s.markSettledLocked()
		}
		return readMore
	case s.draining: // empty or at its end
	case errors.Is(err, unix.EAGAIN), s.terminal && errors.Is(err, unix.EIO) && !s.leaderExited:
		// EIO means that no process has the terminal open. While the leader lives it may open it
		// again, and closing the master would hang it up.
		if s.leaderExited {
			s.markSettledLocked()
		}
		return readEmpty
	}
	s.endLocked()
	return readEnded
}

// read moves one read(2) into the log, unless that has no space: the window of the owner is used up, or
// output has to be written to the file of the log first. A stream without
// any output, as most are, is polled first, which needs no buffer. So is a terminal after the exit:
// its end is signalled once, so detecting it must not depend on the window.
func (s *stream) read(fd uintptr) (n int, hasSpace bool, err error) {
	if !s.terminal && !s.hadOutput || s.terminal && s.leaderExited {
		switch events := pollReadable(fd); {
		case events == 0:
			return 0, true, unix.EAGAIN
		case events&unix.POLLIN == 0:
			return 0, true, nil // hung up and empty
		}
	}
	buf := s.writer.Buffer()
	if buf == nil {
		return 0, false, nil
	}
	n, err = readOnce(fd, buf)
	if n <= 0 {
		s.writer.Commit(0, time.Time{})
		return n, true, err
	}
	now := time.Now()
	if s.terminal {
		s.process.terminal.show(buf[:n], func() { s.writer.Commit(n, now) })
	} else {
		s.writer.Commit(n, now)
	}
	s.process.noteOutput(now)
	if n >= fullPipeRead && !s.pipeEnlarged {
		s.pipeEnlarged = true
		// This may fail: users without privileges have a quota of pipe memory.
		_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, largePipeBytes)
	}
	return n, true, err
}

// settle reads what is readable after the exit of the leader, as far as the window of the owner
// permits; the goroutine reads the rest. Output that a descendant writes later does not extend it.
func (s *stream) settle() {
	var result readResult
	_ = s.conn.Control(func(fd uintptr) {
		s.noteLeaderExit(fd)
		for result = s.readStep(fd); result == readMore && !s.isSettled(); {
			result = s.readStep(fd)
		}
	})
	if result == readEnded && s.terminal {
		// The goroutine may have received EIO before, and will not be woken again. It closes the
		// file; closing it here would wait for the goroutine.
		_ = s.file.SetReadDeadline(pastDeadline)
	}
}

// drainAndClose closes the stream after reading what is readable now, because all descendants that
// could write to it are dead. If the window of the owner is full the goroutine does it later.
func (s *stream) drainAndClose() {
	var result readResult
	_ = s.conn.Control(func(fd uintptr) {
		s.mu.Lock()
		s.draining = true
		s.pending = s.readable(fd)
		s.mu.Unlock()
		for result = readMore; result == readMore; {
			result = s.readStep(fd)
		}
	})
	if result == readEnded {
		_ = s.file.SetReadDeadline(pastDeadline) // the goroutine closes the file
	}
}

func (s *stream) noteLeaderExit(fd uintptr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaderExited = true
	s.pending = s.readable(fd)
	if s.pending == 0 {
		s.markSettledLocked()
	}
}

// readable returns an upper bound of the bytes that can be read now.
func (s *stream) readable(fd uintptr) int {
	if s.terminal {
		return terminalBacklog
	}
	n, _ := unix.IoctlGetInt(int(fd), unix.TIOCINQ) // FIONREAD; 0 at end of file
	return n
}

func (s *stream) isSettled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settled
}

// end closes the stream.
func (s *stream) end() {
	s.mu.Lock()
	s.endLocked()
	s.mu.Unlock()
	_ = s.file.Close()
}

func (s *stream) endLocked() {
	if s.ended {
		return
	}
	s.ended = true
	s.writer.Close()
	s.markSettledLocked()
	s.process.streamChanged(0, -1)
}

func (s *stream) markSettledLocked() {
	if s.settled {
		return
	}
	s.settled = true
	s.process.streamChanged(-1, 0)
}

// isBlocked reports whether the last read found the window full, and there is something to read.
func (s *stream) isBlocked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.windowFull || s.ended {
		return false
	}
	waiting := false
	_ = s.conn.Control(func(fd uintptr) { waiting = pollReadable(fd)&unix.POLLIN != 0 })
	return waiting
}

// pollReadable returns the poll events of a descriptor. A hangup is returned only if it is seen
// twice without data: the last writer may have written between the check for data and its close.
func pollReadable(fd uintptr) int16 {
	pollFDs := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for range 2 {
		if _, err := unix.Poll(pollFDs, 0); err != nil {
			return unix.POLLIN // EINTR: let the read decide
		}
		if events := pollFDs[0].Revents; events == 0 || events&unix.POLLIN != 0 {
			return events
		}
	}
	return pollFDs[0].Revents
}

func readOnce(fd uintptr, buf []byte) (int, error) {
	for {
		n, err := unix.Read(int(fd), buf)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
