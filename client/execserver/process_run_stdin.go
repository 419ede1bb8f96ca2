package execserver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	// stdinWindow is how much input an owner may send beyond what was accepted.
	stdinWindow = 256 << 10
	// endPatience is how long a process may say nothing when its input is over, and its
	// server cannot tell it.
	endPatience = 5 * time.Second
	// stdinPiece is how much of it leaves in one request.
	stdinPiece = 64 << 10
)

// stdinState is how far the input of a process is. It outlives streams, one of which
// has it at a time.
type stdinState struct {
	turn  chan struct{} // has a token while no stream has it
	nonce string        // part of the ids of writes

	// Of the stream that has it.
	accepted uint64 // bytes that the server has
	ended    bool   // the server knows that nothing follows
	refused  bool   // the server takes no more: what follows is dropped
	doubt    *piece // was sent, and not answered: it has to be sent again as it is
}

// piece is input that leaves in one request.
type piece struct {
	offset uint64
	data   []byte
	end    bool // nothing follows
}

func (s *stdinState) begin() {
	s.turn, s.nonce = make(chan struct{}, 1), uuid.NewString()
	s.turn <- struct{}{}
}

// stdinPump passes the input of one stream on.
type stdinPump struct {
	run     *run
	state   *stdinState
	done    chan struct{}
	changed chan struct{} // has a token when there is something to pass on

	mu       sync.Mutex
	accepted uint64  // guarded by mu; that of state
	queued   uint64  // guarded by mu; the offset behind what is queued
	queue    []piece // guarded by mu
	ended    bool    // guarded by mu; the end is queued
}

// begin waits until no other stream has the input, and tells the owner where it is.
func (s *stdinPump) begin(r *run) error {
	s.run, s.state = r, &r.process.stdin
	select {
	case <-s.state.turn:
	case <-r.ctx.Done():
		return contextStatus(r.ctx)
	case <-r.link.lost():
		return r.link.status()
	}
	s.done, s.changed = make(chan struct{}), make(chan struct{}, 1)
	s.accepted, s.queued = s.state.accepted, s.state.accepted
	if doubt := s.state.doubt; doubt != nil {
		s.queue, s.queued, s.ended = []piece{*doubt}, doubt.offset+uint64(len(doubt.data)), doubt.end
	}
	if err := r.opened(s.accepted); err != nil {
		s.state.turn <- struct{}{}
		return err
	}
	go s.pass() // wait waits for it
	notify(s.changed)
	return nil
}

// wait waits until nothing is passed on any more. The run's context is done.
func (s *stdinPump) wait() { <-s.done }

// take queues input. An error ends the stream.
func (s *stdinPump) take(m *execwirev1.RunStdin) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, end := m.GetData(), m.GetOffset()+uint64(len(m.GetData()))
	switch {
	case m.GetOffset() > s.queued:
		return offsetInvalid("input goes on at offset %d, and %d bytes came before", m.GetOffset(), s.queued)
	case end > s.accepted+stdinWindow && end > s.queued:
		return offsetInvalid("input up to %d is beyond the window: %d bytes were accepted, and %d more may be sent", end, s.accepted, stdinWindow)
	case s.ended && end > s.queued:
		return failure(execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE, "input follows its end")
	}
	if end > s.queued {
		data = data[s.queued-m.GetOffset():]
		for len(data) > 0 {
			n := min(len(data), stdinPiece)
			s.queue = append(s.queue, piece{offset: s.queued, data: data[:n]})
			s.queued += uint64(n)
			data = data[n:]
		}
	}
	if m.GetEndOfFile() && !s.ended {
		s.ended = true
		s.queue = append(s.queue, piece{offset: s.queued, end: true})
	}
	notify(s.changed)
	return nil
}

func offsetInvalid(format string, args ...any) error {
	return failure(execwirev1.ErrorReason_ERROR_REASON_STDIN_OFFSET_INVALID, format, args...)
}

// finish ends the input, unless the process has none.
func (s *stdinPump) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended && s.run.process.hasPipe() {
		s.ended = true
		s.queue = append(s.queue, piece{offset: s.queued, end: true})
		notify(s.changed)
	}
}

// pass passes input on until the stream is over.
func (s *stdinPump) pass() {
	defer close(s.done)
	defer func() { s.state.turn <- struct{}{} }()
	for {
		next, ok := s.next()
		if !ok {
			return
		}
		if !s.passOn(next) {
			return
		}
	}
}

// next waits for input.
func (s *stdinPump) next() (piece, bool) {
	for {
		s.mu.Lock()
		if len(s.queue) > 0 && s.run.ctx.Err() == nil {
			next := s.queue[0]
			s.queue = s.queue[1:]
			s.mu.Unlock()
			return next, true
		}
		s.mu.Unlock()
		select {
		case <-s.changed:
		case <-s.run.ctx.Done():
			return piece{}, false
		}
	}
}

// passOn passes one piece on, and reports whether another may follow.
func (s *stdinPump) passOn(p piece) bool {
	switch {
	case s.state.refused:
		return true
	case p.end && s.state.ended:
		s.tell(p)
		return true
	}
	if s.state.doubt != nil && !s.run.link.peer.knowsWrites() && len(p.data) > 0 {
		s.run.end(failure(execwirev1.ErrorReason_ERROR_REASON_STDIN_OFFSET_INVALID,
			"the connection was lost while input was under way, and this server cannot tell whether it arrived"))
		return false
	}
	s.state.doubt = &p
	var err error
	if len(p.data) > 0 {
		id := fmt.Sprintf("%s-%d", s.state.nonce, p.offset)
		err = s.run.service.write(s.run.ctx, s.run.process, p.data, id)
	}
	if err == nil && p.end {
		err = s.run.service.closeStdin(s.run.ctx, s.run.process)
	}
	switch {
	case err == nil:
		s.accept(p)
		return true
	case isUnanswered(err), s.run.ctx.Err() != nil:
		return false // it stays in doubt, for the next stream
	}
	s.state.doubt = nil
	if reasonOf(err) == execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED {
		return s.awaitEnd()
	}
	s.state.refused = true
	s.run.reject(err)
	return true
}

// awaitEnd is for input whose end the server cannot be told. A process that needs no
// end of it goes on, and ends; of one that says nothing for endPatience it is to be
// feared that it waits for the end for ever.
func (s *stdinPump) awaitEnd() bool {
	p := s.run.process
	timer := time.NewTimer(endPatience)
	defer timer.Stop()
	for {
		_, exit, closed, changed := p.state()
		if exit != nil || closed {
			return true
		}
		select {
		case <-changed:
			timer.Reset(endPatience)
		case <-timer.C:
			s.run.end(failure(execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED,
				"the end of a process's input cannot be told over the exec-server protocol as this server speaks it, and process %s has neither "+
					"ended nor said anything for %v since: run something that needs no such end, or reach the server over gRPC", p.id, endPatience))
			return false
		case <-s.run.ctx.Done():
			return false
		}
	}
}

// accept notes that the server has a piece, and tells the owner.
func (s *stdinPump) accept(p piece) {
	s.state.doubt = nil
	s.state.ended = s.state.ended || p.end
	s.state.accepted = p.offset + uint64(len(p.data))
	s.mu.Lock()
	s.accepted = s.state.accepted
	s.mu.Unlock()
	s.tell(p)
}

// tell tells the owner that the server has a piece.
func (s *stdinPump) tell(p piece) {
	_ = s.run.send(&execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_StdinAccepted{
		StdinAccepted: &execwirev1.RunStdinAccepted{Offset: p.offset + uint64(len(p.data)), EndOfFile: p.end}}})
	// A stream that is over needs no answers.
}

// hasPipe reports whether the process has an input that ends.
func (p *process) hasPipe() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pipe
}

// wasTried reports whether a start was sent before.
func (p *process) wasTried() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tried
}

// write writes input to a process.
func (s *processService) write(ctx context.Context, p *process, data []byte, id string) error {
	var result statusResult
	if err := s.conn.call(ctx, "process/write", writeParams{p.id, data, id}, &result); err != nil {
		return err
	}
	return p.stdinFailure(result.Status)
}
