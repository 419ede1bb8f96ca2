package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Input is the input of a process.
type Input struct {
	stdin    *stdin // nil: /dev/null
	maxWrite int    // bytes of one write
}

// WriteStdin queues all of data for the input of the process, or none of it. It does not wait until
// the process reads it, but blocks until the queue has space, after earlier writers. The queue
// takes ownership of data. Kinds: StdinNotPiped, StdinClosed, WriteTooLarge.
func (in *Input) WriteStdin(ctx context.Context, data []byte) error {
	return in.QueueStdin(ctx, data, nil)
}

// QueueStdin is WriteStdin that calls accept when there is space for data, and before the process can
// read any of it. If accept fails, nothing is queued, and QueueStdin returns its error. Nil calls
// nothing. accept runs under a lock and must not block.
func (in *Input) QueueStdin(ctx context.Context, data []byte, accept func() error) error {
	if in.stdin == nil {
		return newError(StdinNotPiped, "write stdin", "the process was started without an input; start it with a pipe or a terminal")
	}
	if len(data) > in.maxWrite {
		return newError(WriteTooLarge, "write stdin", fmt.Sprintf("%d bytes are more than the %d of one write; split them", len(data), in.maxWrite))
	}
	return in.stdin.write(ctx, data, accept)
}

// MaxWrite returns how many bytes one write may have.
func (in *Input) MaxWrite() int { return in.maxWrite }

// StdinBytes returns how many bytes were ever queued for the input. It does not block.
func (in *Input) StdinBytes() int64 {
	if in.stdin == nil {
		return 0
	}
	in.stdin.mu.Lock()
	defer in.stdin.mu.Unlock()
	return in.stdin.accepted
}

// CloseStdin closes the input of the process after all earlier writes, including writers that still
// wait for space. It does not block, and later writers fail. It does nothing if the input is closed
// already. The context is ignored. Kinds: StdinNotPiped, StdinIsTerminal.
func (in *Input) CloseStdin(context.Context) error {
	switch {
	case in.stdin == nil:
		return newError(StdinNotPiped, "close stdin", "the process was started without an input")
	case in.stdin.terminal:
		return newError(StdinIsTerminal, "close stdin", "a terminal's input has no end; write the byte 0x04 at the start of a line instead")
	}
	in.stdin.requestEnd()
	return nil
}

// stdin is a bounded queue of writes in the order of the requests. Its goroutine exists only while
// there is something to write. A child that never reads blocks only the writers of its own queue.
type stdin struct {
	file     *os.File
	conn     syscall.RawConn // of file
	terminal bool            // file is shared with the output
	limit    int             // of queued bytes
	start    func(func(context.Context))

	mu           sync.Mutex
	queue        [][]byte
	queued       int   // bytes, including those being written
	accepted     int64 // bytes ever queued
	lastGrows    bool  // the last chunk of queue is a copy that small writes are appended to
	waiting      []*stdinRequest
	draining     bool // the goroutine exists, or was interrupted
	endRequested bool // no requests are accepted; it closes when none waits and the queue is empty
	closed       bool
}

// stdinRequest waits for its turn and for space in the queue.
type stdinRequest struct {
	data   []byte
	accept func() error  // called before it is admitted; may be nil
	done   chan struct{} // closed when it was admitted or failed
	err    error         // set before done is closed
}

// requestEnd closes the input after the earlier requests.
func (in *stdin) requestEnd() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.endRequested = true
	in.closeIfDone()
}

// write queues all of data or nothing. It waits for space, after the earlier requests.
func (in *stdin) write(ctx context.Context, data []byte, accept func() error) error {
	req := &stdinRequest{data: data, accept: accept}
	in.mu.Lock()
	if in.endRequested || in.closed {
		in.mu.Unlock()
		return errStdinClosed()
	}
	if len(in.waiting) == 0 && in.admit(req) {
		in.mu.Unlock()
		return req.err
	}
	req.done = make(chan struct{})
	in.waiting = append(in.waiting, req)
	in.mu.Unlock()
	select {
	case <-req.done:
		return req.err
	case <-ctx.Done():
		return in.withdraw(req, context.Cause(ctx))
	}
}

// withdraw cancels a request whose context has ended, unless it was admitted meanwhile.
func (in *stdin) withdraw(req *stdinRequest, cause error) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	i := slices.Index(in.waiting, req)
	if i < 0 {
		return req.err
	}
	in.waiting = slices.Delete(in.waiting, i, i+1)
	in.admitWaiting() // it may have blocked smaller ones
	return fmt.Errorf("failed to write stdin: gave up waiting for space in the queue: %w", cause)
}

// admit completes a request if that is possible now. Called with mu held.
func (in *stdin) admit(req *stdinRequest) bool {
	switch {
	case in.closed:
		req.err = errStdinClosed()
	case in.queued > 0 && in.queued+len(req.data) > in.limit:
		return false
	case len(req.data) > 0:
		if req.accept != nil {
			if req.err = req.accept(); req.err != nil {
				break
			}
		}
		in.accepted += int64(len(req.data))
		rest := req.data
		if !in.draining {
			rest = rest[in.writeNow(rest):]
		}
		if len(rest) == 0 {
			break
		}
		in.push(rest)
		in.queued += len(rest)
		if !in.draining {
			in.draining = true
			in.start(in.drain)
		}
	}
	return true
}

// writeNow writes what the pipe accepts without blocking, and returns the number of bytes. It saves
// a goroutine for a key press. Errors are left to the goroutine. Called with mu held, and only
// while there is no goroutine.
func (in *stdin) writeNow(data []byte) (n int) {
	if in.conn == nil {
		return 0
	}
	_ = in.conn.Write(func(fd uintptr) bool {
		n, _ = unix.Write(int(fd), data)
		return true
	})
	return max(n, 0)
}

// smallWrite is the size up to which neighbouring writes are copied into one chunk. Queued by
// itself a byte would cost forty, and keep the message that it is part of.
const smallWrite = 4 << 10

// push adds data to the queue. Called with mu held.
func (in *stdin) push(data []byte) {
	last := len(in.queue) - 1
	switch small := len(data) < smallWrite; {
	case small && in.lastGrows && len(in.queue[last])+len(data) <= smallWrite:
		in.queue[last] = append(in.queue[last], data...)
	case small:
		in.queue = append(in.queue, slices.Clone(data))
		in.lastGrows = true
	default:
		in.queue = append(in.queue, data)
		in.lastGrows = false
	}
}

// admitWaiting completes requests in order, as many as possible. Called with mu held.
func (in *stdin) admitWaiting() {
	for len(in.waiting) > 0 && in.admit(in.waiting[0]) {
		close(in.waiting[0].done)
		in.waiting = slices.Delete(in.waiting, 0, 1)
	}
}

// drain writes until the queue is empty, or Freeze interrupts it.
func (in *stdin) drain(context.Context) {
	for {
		data := in.nextChunk()
		if data == nil {
			return
		}
		n, err := in.file.Write(data)
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && in.putBack(data[n:]):
			in.noteWritten(n)
			return
		default:
			in.abort() // EPIPE: no reader is left; or the file was closed
			continue
		}
		in.noteWritten(n)
	}
}

// putBack makes data, which may be empty, the beginning of the queue again, unless the input is
// closed.
func (in *stdin) putBack(data []byte) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.closed && len(data) > 0 {
		in.queue = slices.Insert(in.queue, 0, data)
	}
	return !in.closed
}

// nextChunk returns the next chunk to write, or nil to end the goroutine.
func (in *stdin) nextChunk() []byte {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.queue) == 0 {
		in.draining = false
		in.queue = nil
		in.closeIfDone()
		return nil
	}
	data := in.queue[0]
	in.queue[0] = nil
	in.queue = in.queue[1:]
	in.lastGrows = in.lastGrows && len(in.queue) > 0 // a chunk that is being written must not change
	return data
}

func (in *stdin) noteWritten(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.closed {
		in.queued -= n
		in.admitWaiting()
	}
}

// closeIfDone closes the input if its end was requested and all requests are written. There is a
// goroutine while requests wait. Called with mu held.
func (in *stdin) closeIfDone() {
	if in.endRequested && !in.closed && !in.draining {
		in.closed = true
		_ = in.file.Close()
	}
}

// abort drops the queue and fails all requests from now on.
func (in *stdin) abort() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return
	}
	in.closed = true
	in.queue, in.queued, in.lastGrows = nil, 0, false
	in.admitWaiting()
	if in.terminal {
		_ = in.file.SetWriteDeadline(pastDeadline) // unblocks the goroutine; the file is still read for output
		return
	}
	_ = in.file.Close()
}

func errStdinClosed() error {
	return newError(StdinClosed, "write stdin", "the input is closed, or no process is left to read it")
}
