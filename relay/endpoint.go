package relay

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/execwire/execwire/internal/notify"
)

// Carrier carries frames, one per binary websocket message. A websocket of
// internal/wsconn in binary mode is one.
type Carrier interface {
	// ReceiveOwned blocks for the next frame, which belongs to the endpoint;
	// nil stands for a message that is not a frame and is dropped. Errors are
	// final. It is called by one goroutine.
	ReceiveOwned() ([]byte, error)
	// Send sends a frame, without retaining it. It blocks while the send buffer
	// is full. It is called by one goroutine.
	Send(frame []byte) error
	// Close ends the carrier with a websocket close code and a reason. Receive
	// and Send return. It may be called at any time.
	Close(code int, reason string) error
}

// Endpoint is one end of any number of streams. All methods may be called
// concurrently. It must be closed.
type Endpoint struct {
	closing      context.Context // done when the endpoint is closed
	stop         context.CancelCauseFunc
	wg           sync.WaitGroup // the timer goroutine
	timerChanged notify.Signal  // the next deadline is earlier than nextTimer

	mu        sync.Mutex
	table     *table           // guarded by mu
	drops     dropLog          // guarded by mu
	accepted  []*Stream        // guarded by mu; begun by peers and not yet accepted
	arrived   notify.Broadcast // guarded by mu; accepted has grown
	toSend    notify.Broadcast // guarded by mu; there are frames to send
	nextTimer time.Time        // guarded by mu; the deadline that the timer goroutine waits for
	running   bool             // guarded by mu
	stopped   notify.Broadcast // guarded by mu; running became false
	connEnded notify.Broadcast // guarded by mu; a closed connection's stream has ended
	closed    bool             // guarded by mu
}

// NewEndpoint returns an endpoint without a carrier.
func NewEndpoint(c Config) *Endpoint {
	c = c.withDefaults()
	e := &Endpoint{table: newTable(c), drops: dropLog{logger: c.Logger}, timerChanged: notify.NewSignal()}
	e.closing, e.stop = context.WithCancelCause(context.Background())
	e.table.opened = e.opened
	e.table.changed = func(st *streamState) {
		if st.stream != nil {
			st.stream.stateChanged()
		}
		if st.released && !st.live {
			e.connEnded.Notify()
		}
	}
	e.wg.Go(e.runTimers)
	return e
}

// opened registers a stream that a peer began. mu is held.
func (e *Endpoint) opened(st *streamState) {
	st.stream = newStream(e, st)
	e.accepted = append(e.accepted, st.stream)
	e.arrived.Notify()
}

// Status returns the number of streams, and whether a carrier is connected. It does not
// block.
func (e *Endpoint) Status() (streams int, connected bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.table.count, e.running
}

// Open opens a stream. An empty id is replaced by a new UUID; one that is, or
// recently was, in use fails with [ErrStreamExists]. Open waits neither for the
// peer nor for a carrier. The error may also be [ErrRole], [ErrClosed] or a
// [*LimitError].
func (e *Endpoint) Open(id string) (*Stream, error) {
	if id == "" {
		id = uuid.NewString()
	}
	if !validStreamID(id) {
		return nil, streamIDError(id)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.table.config.Role != Harness:
		return nil, ErrRole
	case e.closed:
		return nil, ErrClosed
	case e.table.streams[id] != nil || e.table.ended.has(id):
		return nil, ErrStreamExists
	case e.table.count >= e.table.config.Streams:
		return nil, &LimitError{Name: "Streams", Value: e.table.count + 1, Limit: e.table.config.Streams}
	}
	st := e.table.begin(id, time.Now())
	st.stream = newStream(e, st)
	e.update(st)
	return st.stream, nil
}

// Accept blocks for the next stream that a peer began. A stream that has already
// ended is returned only if a message was received. The error is [ErrRole],
// [ErrClosed] or the cause of ctx.
func (e *Endpoint) Accept(ctx context.Context) (s *Stream, err error) {
	if e.table.config.Role != Executor {
		return nil, ErrRole
	}
	err = e.await(ctx, &e.arrived, func() (done bool, err error) {
		if e.closed {
			return false, ErrClosed
		}
		for len(e.accepted) > 0 {
			s = popFront(&e.accepted)
			if s.state.flow.ended == nil || len(s.state.receive.queue) > 0 {
				return true, nil
			}
			e.table.reportEnd(s.state)
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// await calls attempt, with mu held, after each notification until it is done or
// fails, or ctx ends.
func (e *Endpoint) await(ctx context.Context, b *notify.Broadcast, attempt func() (done bool, err error)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		over := ctx.Err() != nil // before the last attempt, which can see it too
		done, err := attempt()
		switch {
		case done || err != nil:
			return err
		case over:
			return context.Cause(ctx)
		}
		e.wait(ctx.Done(), b)
	}
}

// wait waits for a notification, or until done. mu is held, and released while
// waiting.
func (e *Endpoint) wait(done <-chan struct{}, b *notify.Broadcast) {
	changed := b.Wait()
	e.mu.Unlock()
	defer e.mu.Lock()
	select {
	case <-changed:
	case <-done:
	}
}

// Flush blocks until the streams of all connections that were closed at this end
// (see [NewConn]) have ended. The error is [ErrClosed] or the cause of ctx.
func (e *Endpoint) Flush(ctx context.Context) error {
	return e.await(ctx, &e.connEnded, func() (done bool, err error) {
		done = !e.table.closing()
		if !done && e.closed {
			err = ErrClosed
		}
		return done, err
	})
}

// Close ends all streams with the reason, which peers receive if the carrier
// takes it within a second, and ends Run. It returns when no goroutine of the
// endpoint is left, which includes the carrier's Close.
func (e *Endpoint) Close(reason string) error {
	e.mu.Lock()
	e.closed = true
	for _, st := range e.table.streams {
		st.end(cleanReason(reason), false)
		e.table.update(st)
	}
	e.accepted = nil
	e.arrived.Notify()
	e.toSend.Notify()
	e.stop(ErrClosed)
	for e.running {
		e.wait(nil, &e.stopped)
	}
	e.mu.Unlock()
	e.wg.Wait()
	return nil
}

// update updates the table after a stream changed and wakes the goroutines
// concerned. mu is held.
func (e *Endpoint) update(st *streamState) {
	e.table.update(st)
	e.wake()
}

// wake wakes the writer and the timer goroutine if they have something to do. mu
// is held.
func (e *Endpoint) wake() {
	if e.table.pending() {
		e.toSend.Notify()
	}
	due := e.table.deadline()
	if due.IsZero() || !e.nextTimer.IsZero() && !due.Before(e.nextTimer) {
		return
	}
	e.nextTimer = due
	e.timerChanged.Set()
}

// runTimers processes deadlines when they are due.
func (e *Endpoint) runTimers() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-e.closing.Done():
			return
		case <-timer.C:
		case <-e.timerChanged.C():
		}
		e.mu.Lock()
		now := time.Now()
		e.table.fireTimers(now)
		due := e.table.deadline()
		e.nextTimer = due
		e.wake()
		e.mu.Unlock()
		if due.IsZero() {
			due = now.Add(time.Hour)
		}
		timer.Reset(due.Sub(now))
	}
}
