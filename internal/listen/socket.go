package listen

import (
	"errors"
	"net"
	"sync"
)

// Socket is the listening socket of a listener, in the program that opened it or in one
// that goes on with it.
type Socket struct {
	// Asked is what the listener was asked for, perhaps with port 0.
	Asked URL
	// Listener accepts the connections.
	Listener net.Listener
	// Device and Inode identify the file of a unix socket, which the listener removes when
	// it is closed. Zero: it removes none.
	Device, Inode uint64
}

// Taken are sockets that this program has taken over from the one before. Each is used by
// the first listener that asks for what its listener asked for. A nil Taken is empty. It
// may be used concurrently.
type Taken struct {
	mu      sync.Mutex
	sockets []Socket // guarded by mu; not used yet
}

// NewTaken returns sockets to be used, in order. They are the Taken's until they are used.
func NewTaken(sockets []Socket) *Taken { return &Taken{sockets: sockets} }

// take returns a socket for u, or nil.
func (t *Taken) take(u URL) *Socket {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, socket := range t.sockets {
		if socket.Asked == u {
			t.sockets = append(t.sockets[:i:i], t.sockets[i+1:]...)
			return &socket
		}
	}
	return nil
}

// Close closes the sockets that no listener uses, and removes their files.
func (t *Taken) Close() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for _, socket := range t.sockets {
		errs = append(errs, unlink(socket.Asked, inode{dev: socket.Device, ino: socket.Inode}), socket.Listener.Close())
	}
	t.sockets = nil
	return errors.Join(errs...)
}
