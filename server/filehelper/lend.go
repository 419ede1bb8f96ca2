package filehelper

import (
	"context"
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// loan is the descriptor that a helper has been lent, if any.
type loan struct {
	turn     chan struct{} // holds the token of who uses what follows; has room for one
	fd       int
	giveBack func() // nil: there is none
	arrived  bool   // the helper has it
}

func newLoan() loan { return loan{turn: make(chan struct{}, 1)} }

// Lend lends the helper a descriptor until nothing is left of it, unless it has one: that of take, whose giveBack is
// called in the end, without a lock held. It blocks until the helper has it, and has passed it to the lent of [Serve],
// or ctx is done. It fails with the error of take or that of a call.
func (l *Lease) Lend(ctx context.Context, take func() (fd int, giveBack func(), err error)) error {
	h := l.helper
	select {
	case h.loan.turn <- struct{}{}:
		defer func() { <-h.loan.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-h.ctx.Done():
		return errHelperEnded
	}
	if h.loan.arrived {
		return nil
	}
	if h.loan.giveBack == nil {
		fd, giveBack, err := take()
		if err != nil {
			return err
		}
		h.loan.fd, h.loan.giveBack = fd, giveBack
	}
	err := h.conn.lend(ctx, h.loan.fd)
	h.loan.arrived = err == nil
	return err
}

// end gives the descriptor back. The link is closed, so that nobody who lends waits for it. Nothing is lent any more.
func (l *loan) end() {
	l.turn <- struct{}{}
	if l.giveBack != nil {
		l.giveBack()
	}
}

// descriptorReader reads a connection, and the descriptors that come with what it reads.
type descriptorReader struct {
	conn    *net.UnixConn
	rights  []byte // room for one
	arrived []int
}

func newDescriptorReader(conn net.Conn) (*descriptorReader, error) {
	of, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.New("the connection is no Unix socket")
	}
	return &descriptorReader{conn: of, rights: make([]byte, unix.CmsgSpace(4))}, nil
}

// Read implements io.Reader.
func (r *descriptorReader) Read(p []byte) (int, error) {
	n, length, _, _, err := r.conn.ReadMsgUnix(p, r.rights)
	n = max(n, 0) // it is negative when the other end closed its end with something unread
	if length <= 0 {
		return n, err
	}
	messages, malformed := unix.ParseSocketControlMessage(r.rights[:length])
	for _, m := range messages {
		if fds, err := unix.ParseUnixRights(&m); err == nil {
			r.arrived = append(r.arrived, fds...)
		}
	}
	return n, errors.Join(err, malformed)
}

// take returns the descriptor that came first of those that are left. A descriptor comes with the first byte of its frame.
func (r *descriptorReader) take() (fd int, ok bool) {
	if len(r.arrived) == 0 {
		return 0, false
	}
	fd, r.arrived = r.arrived[0], r.arrived[1:]
	return fd, true
}

// close closes the descriptors that were not taken.
func (r *descriptorReader) close() {
	for _, fd := range r.arrived {
		_ = unix.Close(fd)
	}
}
