package daemon

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/listen"
)

const (
	// forwardBuffer is how many bytes are passed at a time, each way.
	forwardBuffer = 64 << 10
	// forwardLinger is how long either end has to take what is left for it, and to
	// close, when the other one is gone.
	forwardLinger = 5 * time.Second
)

// passPlaced is pass of a client that gets a place at its listener. All clients are one
// principal, and their connections are in use: one too many is closed.
func (f *Forward) passPlaced(ctx context.Context, near net.Conn) {
	if info, err := listen.AuthInfoOf(near); err == nil {
		if a, ok := info.(admission); ok {
			if err := a.Admit(auth.Loopback.Name); err != nil {
				f.opts.Logger.Info("a client was refused", "error", err.Error())
				_ = near.Close()
				return
			}
			defer a.Use(nil)()
		}
	}
	f.pass(ctx, near)
}

// pass connects a client with the server until one of them leaves or ctx ends.
func (f *Forward) pass(ctx context.Context, near net.Conn) {
	defer func() { _ = near.Close() }() // whoever is at the other end has left or is cut off
	far, err := f.server.Connect(ctx)
	if err != nil {
		if ctx.Err() == nil {
			f.opts.Logger.Warn("a client could not be connected", "error", err)
		}
		return
	}
	defer func() { _ = far.Close() }() // likewise
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_, _ = near.Close(), far.Close()
	})
	defer func() {
		if !stop() {
			<-closed
		}
	}()
	var down sync.WaitGroup
	down.Go(func() {
		_, err := copyBytes(near, far)
		f.opts.Logger.Debug("a connection to the server has ended", "error", err)
		_ = near.SetReadDeadline(time.Now().Add(f.linger)) // fails on one that is closed
		if half, ok := near.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // likewise
		}
	})
	if lost, _ := copyBytes(&patient{Conn: far, client: near, linger: f.linger}, near); lost {
		// What the client says now nobody hears. It is read all the same: closing
		// before it was would take back what the client has not read yet.
		_ = far.SetReadDeadline(time.Now().Add(f.linger))   // fails on one that is closed
		_ = near.SetWriteDeadline(time.Now().Add(f.linger)) // likewise
		_, _ = copyBytes(nowhere{near}, near)
	}
	_ = far.Close() // the client has left
	down.Wait()
}

// copyBytes passes what comes from one connection to the other, until the end of
// file, for which the error is nil, or until one of them fails. It tells whether that is
// the one that was written to.
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

// patient is a connection to a server that may take its time for as long as the client
// is there. While it does nobody reads what the client says, so that its end has to be
// looked for.
type patient struct {
	net.Conn
	client net.Conn
	linger time.Duration // how long the server has when the client has left

	mu      sync.Mutex
	writing bool        // guarded by mu
	timer   *time.Timer // guarded by mu; nil before the first Write
}

// Write implements net.Conn.
func (p *patient) Write(b []byte) (int, error) {
	p.mu.Lock()
	p.writing = true
	if p.timer == nil {
		p.timer = time.AfterFunc(p.linger, p.look)
	} else {
		p.timer.Reset(p.linger)
	}
	p.mu.Unlock()
	n, err := p.Conn.Write(b)
	p.mu.Lock()
	p.writing = false
	p.timer.Stop()
	p.mu.Unlock()
	return n, err
}

// look ends a Write for a client that has left.
func (p *patient) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.writing {
		return
	}
	if client, ok := p.client.(interface{ Left() bool }); ok && client.Left() {
		_ = p.Close() // whoever is at the other end takes nothing
		return
	}
	p.timer.Reset(p.linger)
}

// nowhere is a connection that takes what is written to it for nobody.
type nowhere struct{ net.Conn }

// Write implements net.Conn.
func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
