package relay

import (
	"context"
	"errors"
	"sync"
	"time"
)

// drainTimeout bounds how long Close waits for the last resets to be sent.
const drainTimeout = time.Second

// Websocket close codes.
const (
	codeNormal    = 1000
	codeGoingAway = 1001
)

// Run serves a carrier until it ends or ctx does, and closes it: with code 1000
// if the endpoint is closed, which tells the peer not to wait for it, otherwise
// with 1001. Streams of peers that acknowledge continue with the next Run. It
// returns why it ended: the cause of ctx, [ErrClosed], or an error of the
// carrier. A concurrent second Run fails with [ErrRunning].
func (e *Endpoint) Run(ctx context.Context, c Carrier) error {
	if err := e.startRun(); err != nil {
		_ = c.Close(codeGoingAway, "not served")
		return err
	}
	runCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	wg.Go(func() { cancel(e.readLoop(c)) })
	drained := make(chan struct{})
	wg.Go(func() {
		defer close(drained)
		if err := e.writeLoop(runCtx, c); err != nil {
			cancel(err)
		}
	})
	select {
	case <-runCtx.Done():
	case <-e.closing.Done():
		timer := time.NewTimer(drainTimeout)
		defer timer.Stop()
		select {
		case <-drained:
		case <-runCtx.Done():
		case <-timer.C:
		}
		cancel(ErrClosed)
	}
	code := codeGoingAway // another Run may follow
	if errors.Is(context.Cause(runCtx), ErrClosed) {
		code = codeNormal
	}
	_ = c.Close(code, "")
	wg.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.table.detach()
	e.wake()
	e.running = false
	e.stopped.Notify()
	return context.Cause(runCtx)
}

// startRun attaches a carrier.
func (e *Endpoint) startRun() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return ErrClosed
	case e.running:
		return ErrRunning
	}
	e.running = true
	e.table.attach(time.Now())
	e.wake()
	return nil
}

// readLoop processes frames of the carrier. It never waits for a stream.
func (e *Endpoint) readLoop(c Carrier) error {
	for {
		b, err := c.ReceiveOwned()
		if err != nil {
			return err
		}
		e.handleFrame(b)
	}
}

// handleFrame processes a frame; nil stands for a message that is not one.
func (e *Endpoint) handleFrame(b []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	now := time.Now()
	err := errNotBinary
	if b != nil {
		err = e.table.handleFrame(now, b)
	}
	if err != nil {
		e.drops.add(now, err)
	}
	e.wake()
}

// writeLoop sends frames until ctx ends or, if the endpoint is closed, until
// there is nothing left to send.
func (e *Endpoint) writeLoop(ctx context.Context, c Carrier) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	scratch := make([]byte, 0, headerFixed+maxStreamID+maxReason)
	for ctx.Err() == nil {
		b := e.table.next(time.Now(), scratch)
		if b == nil {
			if e.closed {
				return nil
			}
			e.wake()
			e.wait(ctx.Done(), &e.toSend)
			continue
		}
		e.mu.Unlock()
		err := c.Send(b)
		e.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}
