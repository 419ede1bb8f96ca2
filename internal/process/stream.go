package process

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/eventlog"
)

// terminalBacklog is more than the kernel ever holds between the two ends of a terminal (64 KiB on the way and one
// line discipline's buffer). A terminal cannot be asked how much is waiting.
const terminalBacklog = 128 << 10

const (
	// floodRead is what no read returns of a pipe but a full one, whose writer waits for us.
	floodRead = 60 << 10
	// floodPipe is the capacity of the pipe from then on. The kernel's default, 64 KiB, is a little more than one read
	// takes: the rest costs a read, an event and a message of its own, and the writer and we sleep in turn.
	floodPipe = 256 << 10
)

// stream carries one stream of output into the event log. Its goroutine parks in the runtime's poller and holds no
// buffer while it does.
type stream struct {
	process  *Process
	file     *os.File
	conn     syscall.RawConn
	writer   *eventlog.Writer
	terminal bool

	// mu is held over each read(2) with its Commit, so that what has left the pipe is in the log.
	mu         sync.Mutex
	spoke      bool // ever
	noRoom     bool // the last step found the owner's window used up
	flooded    bool // has the large pipe, or was refused it
	ended      bool // at end of file, or given up
	leaderGone bool // settle was called
	settled    bool // what was readable at the exit is in the log
	owed       int  // at most this much of it is not, unless settled
	forsaken   bool // whoever still holds the other end is no descendant: it ends when it is dry, or owes no more
}

// outcome is what one read came to.
type outcome uint8

const (
	more  outcome = iota // there may be more
	dry                  // nothing now
	full                 // the owner's window is used up
	ended                // nothing ever again
)

// run moves output until the stream ends.
func (s *stream) run(ctx context.Context) {
	var last outcome
	readAll := func(fd uintptr) bool {
		for last = more; last == more; {
			last = s.step(fd)
		}
		return last != dry
	}
	for {
		if err := s.conn.Read(readAll); err != nil {
			s.end() // told by settle, closed by end, or the poller gave up on it
			return
		}
		if last == ended {
			s.end()
			return
		}
		if err := s.writer.WaitRoom(ctx); err != nil {
			s.end()
			return
		}
	}
}

// step reads once, straight into the log.
func (s *stream) step(fd uintptr) outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return ended
	}
	if s.forsaken && s.owed <= 0 { // which must not wait for the owner's room: nothing more may ever come
		s.endLocked()
		return ended
	}
	n, room, err := s.read(fd)
	s.noRoom = !room
	switch {
	case !room:
		return full
	case n > 0:
		s.spoke = true
		s.process.spoken()
		s.owed -= n
		if s.forsaken && s.owed <= 0 {
			break // what is left is a stranger's
		}
		if s.leaderGone && s.owed <= 0 {
			s.settledLocked()
		}
		return more
	case s.forsaken: // dry or at its end
	case errors.Is(err, unix.EAGAIN), s.terminal && errors.Is(err, unix.EIO) && !s.leaderGone:
		// EIO says that no process has the terminal open. While the leader lives it may open it again, and closing
		// our end would hang it up.
		if s.leaderGone {
			s.settledLocked()
		}
		return dry
	}
	s.endLocked()
	return ended
}

// read moves one read(2) into the log, unless the owner's window is used up. A stream that never speaks, as most do
// not, is only looked at: it costs no buffer. So is a terminal whose leader is gone: whether it has ended must not
// depend on the owner's room, because nobody is told of it twice.
func (s *stream) read(fd uintptr) (n int, room bool, err error) {
	if !s.terminal && !s.spoke || s.terminal && s.leaderGone {
		switch seen := look(fd); {
		case seen == 0:
			return 0, true, unix.EAGAIN
		case seen&unix.POLLIN == 0:
			return 0, true, nil // hung up, and nothing left to read
		}
	}
	buf := s.writer.Buffer()
	if buf == nil {
		return 0, false, nil
	}
	n, err = readOnce(fd, buf)
	s.writer.Commit(max(n, 0))
	if n >= floodRead && !s.flooded {
		s.flooded = true
		// Users without privileges have a quota of such memory; the small pipe does too.
		_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, floodPipe)
	}
	return n, true, err
}

// settle takes what is readable now that the leader is gone, as far as the owner's window reaches; the stream's
// goroutine owes the rest. A descendant that keeps writing cannot extend it.
func (s *stream) settle() {
	var last outcome
	_ = s.conn.Control(func(fd uintptr) {
		s.leave(fd)
		for last = s.step(fd); last == more && !s.isSettled(); {
			last = s.step(fd)
		}
	})
	if last == ended && s.terminal {
		// The goroutine may have met EIO before, and would not be told again. It closes the file; to do that here
		// would wait for it.
		_ = s.file.SetReadDeadline(longAgo)
	}
}

// forsake gives the stream up when everything that is readable now has been read: all that could rightly write to it
// are dead. The stream's goroutine does it later if the owner has no room now.
func (s *stream) forsake() {
	var last outcome
	_ = s.conn.Control(func(fd uintptr) {
		s.mu.Lock()
		s.forsaken = true
		s.owed = s.readable(fd)
		s.mu.Unlock()
		for last = more; last == more; {
			last = s.step(fd)
		}
	})
	if last == ended {
		_ = s.file.SetReadDeadline(longAgo) // the goroutine closes the file
	}
}

func (s *stream) leave(fd uintptr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaderGone = true
	s.owed = s.readable(fd)
	if s.owed == 0 {
		s.settledLocked()
	}
}

// readable returns how much can be read now, at most.
func (s *stream) readable(fd uintptr) int {
	if s.terminal {
		return terminalBacklog
	}
	n, _ := unix.IoctlGetInt(int(fd), unix.TIOCINQ) // FIONREAD; 0 at the end of file
	return n
}

func (s *stream) isSettled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settled
}

// end gives the stream up, if it has not ended by itself, and closes our end of it.
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
	s.settledLocked()
	s.process.streamEnded()
}

func (s *stream) settledLocked() {
	if s.settled {
		return
	}
	s.settled = true
	s.process.streamSettled()
}

// look asks what a read would meet. A hangup counts only when it was there before we looked for something to read: the
// last writer may have written in between.
func look(fd uintptr) int16 {
	asked := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for range 2 {
		if _, err := unix.Poll(asked, 0); err != nil {
			return unix.POLLIN // EINTR: let the read find out
		}
		if seen := asked[0].Revents; seen == 0 || seen&unix.POLLIN != 0 {
			return seen
		}
	}
	return asked[0].Revents
}

func readOnce(fd uintptr, buf []byte) (int, error) {
	for {
		n, err := unix.Read(int(fd), buf)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
