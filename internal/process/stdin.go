package process

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// stdin is a bounded queue of writes in the order in which they were asked for. A goroutine empties it; it exists
// only while there is something to write. A child that never reads keeps only the writers of this queue waiting.
type stdin struct {
	file     *os.File
	conn     syscall.RawConn // to file
	terminal bool            // file is shared with the output
	limit    int             // bytes queued
	start    func(func())

	mu       sync.Mutex
	queue    [][]byte
	queued   int  // bytes, with those being written
	growing  bool // the last of queue is a copy of ours, made for small writes
	tickets  []*ticket
	draining bool // the goroutine exists
	ending   bool // the end of input was asked for: nothing comes after it
	closing  bool // the end of input has its turn once the queue is empty
	closed   bool
}

// ticket is a request that waits for its turn and for room.
type ticket struct {
	data []byte
	end  bool          // of input; nobody waits for it
	done chan struct{} // closed when it was admitted or refused
	err  error         // set before done is closed
}

// end queues the end of input, behind those who came before.
func (in *stdin) end() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.ending {
		in.ending = true
		in.enqueue(&ticket{end: true})
	}
}

// enqueue admits t or makes it wait, and tells which. Called with mu held.
func (in *stdin) enqueue(t *ticket) (admitted bool) {
	if len(in.tickets) == 0 && in.admit(t) {
		return true
	}
	t.done = make(chan struct{})
	in.tickets = append(in.tickets, t)
	return false
}

// put queues all of data or nothing. It waits for room, behind those who came before.
func (in *stdin) put(ctx context.Context, data []byte) error {
	t := &ticket{data: data}
	in.mu.Lock()
	if in.ending || in.closed {
		in.mu.Unlock()
		return errStdinClosed()
	}
	admitted := in.enqueue(t)
	in.mu.Unlock()
	if admitted {
		return t.err
	}
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return in.withdraw(t, context.Cause(ctx))
	}
}

// withdraw takes back a ticket whose owner waits no longer, unless it was admitted in the meantime.
func (in *stdin) withdraw(t *ticket, cause error) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	i := slices.Index(in.tickets, t)
	if i < 0 {
		return t.err
	}
	in.tickets = slices.Delete(in.tickets, i, i+1)
	in.admitWaiting() // it may have kept smaller ones waiting
	return fmt.Errorf("failed to write stdin: gave up waiting for room: %w", cause)
}

// admit settles t if that is possible now. Called with mu held.
func (in *stdin) admit(t *ticket) bool {
	switch {
	case in.closing || in.closed:
		if !t.end {
			t.err = errStdinClosed()
		}
	case t.end:
		in.closing = true
		in.finish()
	case in.queued > 0 && in.queued+len(t.data) > in.limit:
		return false
	case len(t.data) > 0:
		rest := t.data
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

// writeNow writes what the child's side takes without waiting, and returns how much that was: a key that is pressed
// need not wait for a goroutine to begin. What goes wrong the goroutine finds out again. Called with mu held, and only
// while nobody else writes.
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

// smallWrite is what is copied into a piece of at most this size with its neighbours: queued by itself, a byte would
// cost forty, and keep the message that it came with.
const smallWrite = 4 << 10

// push adds data to the queue. Called with mu held.
func (in *stdin) push(data []byte) {
	last := len(in.queue) - 1
	switch small := len(data) < smallWrite; {
	case small && in.growing && len(in.queue[last])+len(data) <= smallWrite:
		in.queue[last] = append(in.queue[last], data...)
	case small:
		in.queue = append(in.queue, slices.Clone(data))
		in.growing = true
	default:
		in.queue = append(in.queue, data)
		in.growing = false
	}
}

// admitWaiting settles tickets in their order, as many as possible. Called with mu held.
func (in *stdin) admitWaiting() {
	for len(in.tickets) > 0 && in.admit(in.tickets[0]) {
		close(in.tickets[0].done)
		in.tickets = slices.Delete(in.tickets, 0, 1)
	}
}

// drain writes until the queue is empty.
func (in *stdin) drain() {
	for {
		data := in.head()
		if data == nil {
			return
		}
		if _, err := in.file.Write(data); err != nil {
			in.shut() // EPIPE: nobody can read it any more; or we closed it
			continue
		}
		in.written(len(data))
	}
}

// head returns what to write next; nil ends the goroutine.
func (in *stdin) head() []byte {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.queue) == 0 {
		in.draining = false
		in.queue = nil
		in.finish()
		return nil
	}
	data := in.queue[0]
	in.queue[0] = nil
	in.queue = in.queue[1:]
	in.growing = in.growing && len(in.queue) > 0 // what is being written stays as it is
	return data
}

func (in *stdin) written(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.closed {
		in.queued -= n
		in.admitWaiting()
	}
}

// finish closes the input if its end was asked for and nothing is left to write. Called with mu held.
func (in *stdin) finish() {
	if in.closing && !in.closed && !in.draining {
		in.closed = true
		_ = in.file.Close()
	}
}

// shut drops what is queued and refuses everything from now on, because nobody will read it.
func (in *stdin) shut() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return
	}
	in.closed = true
	in.queue, in.queued, in.growing = nil, 0, false
	in.admitWaiting()
	if in.terminal {
		_ = in.file.SetWriteDeadline(longAgo) // frees the goroutine; the output may still be read
		return
	}
	_ = in.file.Close()
}

func errStdinClosed() error {
	return refuse(StdinClosed, "write stdin", "the input is closed, or nobody is left to read it")
}
