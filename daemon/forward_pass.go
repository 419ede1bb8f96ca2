package daemon

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/listen"
)

const (
	// forwardBuffer is the size of the buffer of each direction.
	forwardBuffer = 64 << 10
	// forwardLinger is how long the other end may take to receive the rest and close,
	// once one end has closed.
	forwardLinger = 5 * time.Second
)

// passAdmitted is pass after the connection was counted at its listener. All clients
// are one principal, and their connections are in use: a connection beyond the limit
// is closed.
func (f *Forward) passAdmitted(ctx context.Context, near net.Conn) {
	info, err := listen.AuthInfoOf(near)
	if err == nil {
		err = info.Admit(auth.Loopback.Name)
	}
	if err != nil {
		f.opts.Logger.Info("a client was refused", "error", err.Error())
		_ = near.Close()
		return
	}
	defer info.Use(nil)()
	f.pass(ctx, near)
}

// pass connects a client to the server until one of them disconnects or ctx ends.
func (f *Forward) pass(ctx context.Context, near net.Conn) {
	defer func() { _ = near.Close() }() // the client has disconnected or is disconnected
	far, err := f.server.Connect(ctx)
	if err != nil {
		if ctx.Err() == nil {
			f.opts.Logger.Warn("failed to connect a client to the server", "error", err)
		}
		return
	}
	var watching, down sync.WaitGroup
	ctx, end := context.WithCancelCause(ctx)
	up := &countedConn{Conn: far}
	watching.Go(func() { f.watch(ctx, near, up) })
	down.Go(func() {
		_, err := copyBytes(near, far)
		f.opts.Logger.Debug("a connection to the server has ended", "error", err)
		_ = near.SetReadDeadline(time.Now().Add(f.linger)) // fails if closed
		if half, ok := near.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // likewise
		}
	})
	if lost, _ := copyBytes(up, near); lost {
		// The rest of the client's data is read and discarded: closing with unread
		// data would reset the connection, and the client would lose what it has not
		// read yet.
		_ = far.SetReadDeadline(time.Now().Add(f.linger))   // fails if closed
		_ = near.SetWriteDeadline(time.Now().Add(f.linger)) // likewise
		_, _ = copyBytes(discardConn{near}, near)
	}
	_ = far.Close() // the client has disconnected
	down.Wait()
	end(nil)
	watching.Wait()
}

// watch closes both connections when ctx ends. If the client has disconnected while the
// server does not read, which reading from the client does not show, it closes the
// connection to the server.
func (f *Forward) watch(ctx context.Context, near net.Conn, far *countedConn) {
	ticker := time.NewTicker(f.linger)
	defer ticker.Stop()
	client, canTell := near.(interface{ Left() bool })
	var before int64
	for {
		select {
		case <-ctx.Done():
			_, _ = near.Close(), far.Close()
			return
		case <-ticker.C:
			steps := far.steps.Load()
			if stalls := steps == before && steps%2 == 1; stalls && canTell && client.Left() {
				_ = far.Close()
			}
			before = steps
		}
	}
}

// countedConn is a connection that counts beginnings and ends of its writes: the number
// is odd during a write.
type countedConn struct {
	net.Conn
	steps atomic.Int64
}

// Write implements net.Conn.
func (c *countedConn) Write(b []byte) (int, error) {
	c.steps.Add(1)
	defer c.steps.Add(1)
	return c.Conn.Write(b)
}

// copyBytes copies from one connection to the other, until the end of file, for which
// the error is nil, or until one of them fails; writing tells whether that was the
// destination.
func copyBytes(to, from net.Conn) (writing bool, err error) {
	buf := make([]byte, forwardBuffer)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return true, err
			}
		}
		if err != nil {
			return false, err
		}
	}
}

// discardConn is a connection that discards what is written to it.
type discardConn struct{ net.Conn }

// Write implements net.Conn.
func (discardConn) Write(p []byte) (int, error) { return len(p), nil }
