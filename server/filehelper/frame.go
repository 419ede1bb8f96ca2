package filehelper

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A frame is its length after these four bytes, the number of its call, its kind, and its content.
const (
	lengthBytes = 4
	headBytes   = lengthBytes + 8 + 1
)

// kind is what a frame is for.
type kind uint8

// The kinds of frames.
const (
	kindCall    kind = iota + 1 // to a helper: method, metadata and message
	kindCancel                  // to a helper: nobody waits for the answer; no content
	kindAnswer                  // from a helper: a message
	kindFailure                 // from a helper: a google.rpc.Status
	kindLend                    // to a helper: a descriptor comes with it; no content
)

// frameRoom is what a frame may have beside a message.
const frameRoom = 64 << 10

// frame is one that was received.
type frame struct {
	call    uint64
	kind    kind
	content []byte
}

// begun is a frame that has no content yet, with room for some.
func begun(call uint64, k kind, room int) []byte {
	f := make([]byte, headBytes, headBytes+room)
	binary.BigEndian.PutUint64(f[lengthBytes:], call)
	f[headBytes-1] = byte(k)
	return f
}

// finish writes into a frame how long it is.
func finish(f []byte) []byte {
	binary.BigEndian.PutUint32(f, uint32(len(f)-lengthBytes)) //nolint:gosec // messages are at most 2 GiB
	return f
}

// receive reads a frame of at most limit bytes of content. It fails with io.EOF when there are no more.
func receive(r *bufio.Reader, limit int) (frame, error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	length := int(binary.BigEndian.Uint32(head[:])) - (headBytes - lengthBytes)
	if length < 0 || length > limit {
		return frame{}, fmt.Errorf("a frame has %d bytes of content; at most %d are allowed", length, limit)
	}
	f := frame{call: binary.BigEndian.Uint64(head[lengthBytes:]), kind: kind(head[headBytes-1]), content: make([]byte, length)}
	_, err := io.ReadFull(r, f.content)
	return f, err
}

// frameWriter writes frames, each as a whole, for many goroutines. Whoever has a small frame writes it himself, without
// waiting; the rest of one for which the connection has no room is written by a goroutine.
type frameWriter struct {
	conn net.Conn
	raw  syscall.RawConn
	rest sync.WaitGroup // the goroutine

	mu     sync.Mutex
	closed bool          // guarded by mu
	busy   chan struct{} // guarded by mu; not nil while the goroutine writes
	next   []byte        // guarded by mu; what it goes on with: frames that nobody waits to get rid of
}

func newFrameWriter(conn net.Conn) (*frameWriter, error) {
	of, ok := conn.(syscall.Conn)
	if !ok {
		return nil, errors.New("the connection has no descriptor")
	}
	raw, err := of.SyscallConn()
	return &frameWriter{conn: conn, raw: raw}, err
}

// close closes the connection, and waits until nothing is written to it.
func (w *frameWriter) close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	err := w.conn.Close()
	w.rest.Wait()
	return err
}

// send writes a frame, which is the writer's then, with a descriptor if rights are not nil; see [unix.UnixRights]. It
// blocks while there is no room, until ctx is done; a part of the frame is never left out. An error is that of the
// connection or the cause of ctx.
func (w *frameWriter) send(ctx context.Context, f, rights []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.busy != nil {
		busy := w.busy
		w.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
		}
		w.mu.Lock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return w.writeLocked(f, rights)
}

// post writes a small frame, sooner or later. It does not block.
func (w *frameWriter) post(f []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy != nil {
		w.next = append(w.next, f...)
		return
	}
	_ = w.writeLocked(f, nil) // whoever reads learns that the connection is broken
}

// writeLocked writes as much of a frame as there is room for, and leaves the rest to a goroutine.
func (w *frameWriter) writeLocked(f, rights []byte) error {
	if w.closed {
		return net.ErrClosed
	}
	n, failed := 0, error(nil)
	if err := w.raw.Write(func(fd uintptr) bool {
		n, failed = write(int(fd), f, rights)
		return true
	}); err != nil {
		return err
	}
	if failed != nil && !errors.Is(failed, unix.EAGAIN) && !errors.Is(failed, unix.EINTR) {
		return failed
	}
	if n = max(n, 0); n > 0 {
		rights = nil // which come with the first byte
	}
	if n < len(f) {
		busy := make(chan struct{})
		w.busy = busy
		w.rest.Go(func() { w.writeRest(f[n:], rights, busy) })
	}
	return nil
}

// write writes what there is room for.
func write(fd int, f, rights []byte) (int, error) {
	if rights == nil {
		return unix.Write(fd, f)
	}
	return unix.SendmsgN(fd, f, rights, nil, unix.MSG_NOSIGNAL)
}

func (w *frameWriter) writeRest(rest, rights []byte, busy chan struct{}) {
	defer close(busy)
	for {
		n, err := w.writeRights(rest, rights)
		if rights = nil; err == nil {
			_, err = w.conn.Write(rest[n:])
		}
		w.mu.Lock()
		rest, w.next = w.next, nil
		if err != nil || len(rest) == 0 {
			w.busy = nil
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
	}
}

// writeRights writes the first of what comes with a descriptor, and nothing if none does.
func (w *frameWriter) writeRights(rest, rights []byte) (n int, err error) {
	if rights == nil {
		return 0, nil
	}
	failed := w.raw.Write(func(fd uintptr) bool {
		n, err = write(int(fd), rest, rights)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	return max(n, 0), errors.Join(failed, err)
}
