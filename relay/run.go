package relay

import (
	"context"
	"errors"
	"sync"
	"time"
)

// drainTimeout is how long Close lets the last resets leave.
const drainTimeout = time.Second

// Close codes of websockets.
const (
	codeNormal    = 1000
	codeGoingAway = 1001
)

// Run serves a carrier until it ends or ctx does, and closes it: with code 1000
// if the endpoint is closed, so that nobody waits for it, and else with 1001. The
// streams of peers that acknowledge live on, and the next Run takes them up again. It
// returns why it ended: the cause of ctx, [ErrClosed], or an error of the
// carrier. A second one at a time is [ErrRunning].
func (e *Endpoint) Run(ctx context.Context, c Carrier) error {
	if err := e.begin(); err != nil {
		_ = c.Close(codeGoingAway, "not served")
		return err
	}
	ending, end := context.WithCancelCause(ctx)
	defer end(nil)
	var both sync.WaitGroup
	both.Go(func() { end(e.read(c)) })
	drained := make(chan struct{})
	both.Go(func() {
		defer close(drained)
		if err := e.write(ending, c); err != nil {
			end(err)
		}
	})
	select {
	case <-ending.Done():
	case <-e.over.Done():
		timer := time.NewTimer(drainTimeout)
		defer timer.Stop()
		select {
		case <-drained:
		case <-ending.Done():
		case <-timer.C:
		}
		end(ErrClosed)
	}
	code := codeGoingAway // and the next Run may come
	if errors.Is(context.Cause(ending), ErrClosed) {
		code = codeNormal
	}
	_ = c.Close(code, "")
	both.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.table.detach()
	e.wake()
	e.running = false
	e.ran.ring()
	return context.Cause(ending)
}

// begin claims the endpoint for a carrier.
func (e *Endpoint) begin() error {
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

// read takes in what the carrier brings. It waits for no stream.
func (e *Endpoint) read(c Carrier) error {
	for {
		b, err := c.Receive()
		if err != nil {
			return err
		}
		e.hear(b)
	}
}

// hear takes in a frame; nil is something else.
func (e *Endpoint) hear(b []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	now := time.Now()
	err := errNotBinary
	if b != nil {
		err = e.table.hear(now, b)
	}
	if err != nil {
		e.warnings.frame(now, err)
	}
	e.wake()
}

// write sends what there is to send, until ctx ends or, when the endpoint is
// closed, there is nothing left.
func (e *Endpoint) write(ctx context.Context, c Carrier) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	scratch := make([]byte, 0, headFixed+maxStreamID+maxReason)
	for ctx.Err() == nil {
		b := e.table.next(time.Now(), scratch)
		if b == nil {
			if e.closed {
				return nil
			}
			e.wake()
			e.wait(ctx.Done(), &e.work2do)
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
