package relay

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Carrier carries frames, each whole or not at all: one binary websocket message
// each. A websocket of this program's in binary mode is one.
type Carrier interface {
	// Receive returns the next frame, which is valid until the next Receive, and
	// blocks until there is one; nil is something else than a frame, which is
	// dropped. Errors are final. One goroutine calls it.
	Receive() ([]byte, error)
	// Send sends a frame, which it does not keep. It blocks while a bounded
	// buffer is full. One goroutine calls it.
	Send(frame []byte) error
	// Close ends the carrier, with a close code of websockets and a reason. A
	// Receive or Send under way returns. It may be called at any time.
	Close(code int, reason string) error
}

// Endpoint is one end of any number of streams. All methods may be called
// concurrently. It has to be closed.
type Endpoint struct {
	over context.Context // done when it is closed
	stop context.CancelCauseFunc
	work sync.WaitGroup // the goroutine that keeps the time
	kick chan struct{}  // the soonest deadline has changed

	mu       sync.Mutex
	table    *table     // guarded by mu
	warnings complaints // guarded by mu
	accepted []*Stream  // guarded by mu; that peers began and nobody has accepted
	arrived  bell       // guarded by mu; of accepted
	work2do  bell       // guarded by mu; of the writer
	wakeup   time.Time  // guarded by mu; the deadline that is being waited for
	running  bool       // guarded by mu
	ran      bell       // guarded by mu; of running
	left     bell       // guarded by mu; of streams whose connections were closed
	closed   bool       // guarded by mu
}

// NewEndpoint returns an endpoint that has no carrier yet. The error is a
// [*ConfigError].
func NewEndpoint(c Config) (*Endpoint, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Endpoint{table: newTable(c), warnings: complaints{logger: c.Logger}, kick: make(chan struct{}, 1)}
	e.over, e.stop = context.WithCancelCause(context.Background())
	e.table.opened = e.opened
	e.table.changed = func(one *line) {
		if one.stream != nil {
			one.stream.noticed()
		}
		if one.quit && !one.live {
			e.left.ring()
		}
	}
	e.work.Go(e.keepTime)
	return e, nil
}

// opened makes a stream of one that a peer began. mu is held.
func (e *Endpoint) opened(one *line) {
	one.stream = newStream(e, one)
	e.accepted = append(e.accepted, one.stream)
	e.arrived.ring()
}

// Open opens a stream. An empty id is a new UUID; one that is in use, or was a
// short time ago, is [ErrStreamExists]. It does not wait for the peer, nor for a
// carrier. The error may also be [ErrRole], [ErrClosed], a [*LimitError] or a
// [*StreamIDError].
func (e *Endpoint) Open(id string) (*Stream, error) {
	if id == "" {
		id = uuid.NewString()
	}
	if !validStreamID([]byte(id)) {
		return nil, &StreamIDError{ID: id}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.table.config.Role != Harness:
		return nil, ErrRole
	case e.closed:
		return nil, ErrClosed
	case e.table.lines[id] != nil || e.table.ended.has(id):
		return nil, ErrStreamExists
	case e.table.count >= e.table.config.Streams:
		return nil, &LimitError{Name: "Streams", Value: e.table.count + 1, Limit: e.table.config.Streams}
	}
	one := e.table.begin(id, time.Now())
	one.stream = newStream(e, one)
	e.settle(one)
	return one.stream, nil
}

// Accept returns the next stream that a peer began, and blocks until there is
// one. One that has ended meanwhile is returned too if its peer sent a whole
// message. The error is [ErrRole], [ErrClosed] or the cause of ctx.
func (e *Endpoint) Accept(ctx context.Context) (*Stream, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.table.config.Role != Executor {
		return nil, ErrRole
	}
	for {
		switch {
		case e.closed:
			return nil, ErrClosed
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		if len(e.accepted) > 0 {
			s := e.accepted[0]
			e.accepted[0] = nil
			e.accepted = e.accepted[1:]
			if s.line.flow.ended != nil && len(s.line.receive.queue) == 0 {
				e.table.tell(s.line)
				continue
			}
			return s, nil
		}
		e.wait(ctx.Done(), &e.arrived)
	}
}

// wait waits for a ring, or until done. mu is held, but not meanwhile.
func (e *Endpoint) wait(done <-chan struct{}, b *bell) {
	rung := b.wait()
	e.mu.Unlock()
	defer e.mu.Lock()
	select {
	case <-rung:
	case <-done:
	}
}

// Flush blocks until what was written to connections has arrived that this end has
// closed, see [NewConn], or their streams have ended otherwise. The error is
// [ErrClosed] or the cause of ctx.
func (e *Endpoint) Flush(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.table.leaving() {
		switch {
		case e.closed:
			return ErrClosed
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		e.wait(ctx.Done(), &e.left)
	}
	return nil
}

// Close ends all streams with a reason, of which their peers are told as far as a
// carrier takes it within a second, and ends Run. It returns when no goroutine of
// the endpoint is left; the carrier's Close is part of that.
func (e *Endpoint) Close(reason string) error {
	e.mu.Lock()
	e.closed = true
	for _, one := range e.table.lines {
		one.end(cleanReason(reason), false)
		e.table.arrange(one)
	}
	e.accepted = nil
	e.arrived.ring()
	e.work2do.ring()
	e.stop(ErrClosed)
	for e.running {
		e.wait(nil, &e.ran)
	}
	e.mu.Unlock()
	e.work.Wait()
	return nil
}

// settle puts a stream where it belongs and wakes who has to do with it. mu is
// held.
func (e *Endpoint) settle(one *line) {
	e.table.arrange(one)
	e.wake()
}

// wake wakes the writer and the keeper of the time if they have something to do.
// mu is held.
func (e *Endpoint) wake() {
	if e.table.waiting() {
		e.work2do.ring()
	}
	due := e.table.deadline()
	if due.IsZero() || !e.wakeup.IsZero() && !due.Before(e.wakeup) {
		return
	}
	e.wakeup = due
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// keepTime does what is due when it is.
func (e *Endpoint) keepTime() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-e.over.Done():
			return
		case <-timer.C:
		case <-e.kick:
		}
		e.mu.Lock()
		now := time.Now()
		e.table.strike(now)
		due := e.table.deadline()
		e.wakeup = due
		e.wake()
		e.mu.Unlock()
		if due.IsZero() {
			due = now.Add(time.Hour)
		}
		timer.Reset(due.Sub(now))
	}
}
