package fileworker

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// sharedDescriptor is the descriptor that was sent to a worker, if any.
type sharedDescriptor struct {
	mu       sync.Mutex
	release  func()        // guarded by mu; nil: none was taken
	answered chan struct{} // guarded by mu; closed when the worker has answered, or has ended
	err      error         // set before answered is closed
}

var (
	errWorkerEnded = errors.New("the worker has ended")
	errNotReceived = errors.New("the worker did not receive the descriptor")
)

// ShareDescriptor sends the worker a descriptor, once in the worker's life: take returns it, and its release is called after
// the worker has ended, without a lock held. ShareDescriptor blocks until the worker has passed the descriptor to the adopt of
// [Serve], or ctx is done.
func (l *Lease) ShareDescriptor(ctx context.Context, take func() (fd int, release func(), err error)) error {
	w := l.worker
	answered, err := w.shareOnce(take)
	if err != nil {
		return err
	}
	select {
	case <-answered:
		return w.shared.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// shareOnce sends the descriptor unless that was done before. answered is closed when the worker has answered.
func (w *worker) shareOnce(take func() (fd int, release func(), err error)) (answered <-chan struct{}, err error) {
	w.shared.mu.Lock()
	defer w.shared.mu.Unlock()
	if w.ctx.Err() != nil {
		return nil, errWorkerEnded
	}
	if w.shared.release != nil {
		return w.shared.answered, nil
	}
	fd, release, err := take()
	if err != nil {
		return nil, err
	}
	w.shared.release, w.shared.answered = release, make(chan struct{})
	w.set.pool.working.Go(func() {
		w.shared.err = sendDescriptor(w.process.Input(), fd)
		close(w.shared.answered)
	})
	return w.shared.answered, nil
}

// end releases the descriptor. The worker has ended, so nothing is sent any more.
func (l *sharedDescriptor) end() {
	l.mu.Lock()
	release := l.release
	l.mu.Unlock()
	if release != nil {
		<-l.answered
		release()
	}
}

// Answers to a descriptor.
const (
	adopted     = 1
	notReceived = 0
)

// What a descriptor is for: the byte that is sent with it.
const (
	forAdopt = 0
	forCalls = 1
)

// offerDescriptor sends the other end of a connection for unary calls. It does not block, and there is no answer: if the worker
// does not receive it, the connection ends.
func offerDescriptor(conn net.Conn, fd int) error {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(socket uintptr) bool {
		sent = unix.Sendmsg(int(socket), []byte{forCalls}, unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL)
		return true
	})
	return errors.Join(err, sent)
}

// sendDescriptor sends a descriptor and waits for the answer.
func sendDescriptor(conn net.Conn, fd int) error {
	message := []byte{forAdopt}
	if _, _, err := conn.(*net.UnixConn).WriteMsgUnix(message, unix.UnixRights(fd), nil); err != nil {
		return errWorkerEnded
	}
	if _, err := conn.Read(message); err != nil {
		return errWorkerEnded
	}
	if message[0] != adopted {
		return errNotReceived
	}
	return nil
}

// receiveDescriptors passes each descriptor that arrives to adopt, and answers, or as a connection for unary calls to serve,
// until the connection ends.
func receiveDescriptors(conn *net.UnixConn, adopt func(fd int), serve func(net.Conn)) {
	message, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	for {
		n, length, _, _, err := conn.ReadMsgUnix(message, rights)
		if err != nil || n <= 0 { // -1 if the connection was reset
			return
		}
		fd, ok := descriptorOf(rights[:length]) // there is none, for example, because this process has too many
		if message[0] == forCalls {
			if ok {
				serveDescriptor(fd, serve)
			}
			continue
		}
		message[0] = notReceived
		if ok {
			adopt(fd)
			message[0] = adopted
		}
		if _, err := conn.Write(message); err != nil {
			return
		}
	}
}

// serveDescriptor passes the connection with a descriptor to serve, and closes the descriptor.
func serveDescriptor(fd int, serve func(net.Conn)) {
	file := os.NewFile(uintptr(fd), "calls")
	defer file.Close()
	if conn, err := net.FileConn(file); err == nil {
		serve(conn)
	}
}

// descriptorOf returns the descriptor in control messages.
func descriptorOf(rights []byte) (fd int, ok bool) {
	messages, _ := unix.ParseSocketControlMessage(rights)
	for _, m := range messages {
		if fds, err := unix.ParseUnixRights(&m); err == nil && len(fds) == 1 {
			return fds[0], true
		}
	}
	return 0, false
}
