package execserver

import (
	"fmt"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/backoff"
	"github.com/execwire/execwire/internal/errorinfo"
)

const (
	// stdinWindow is how much input an owner may send beyond what was accepted.
	stdinWindow = 256 << 10
	// stdinPiece is the most input in one request.
	stdinPiece = 64 << 10
	// silentEnd is how long a process may be silent after the end of its input, if the
	// server cannot close the input.
	silentEnd = 5 * time.Second
)

// stdin is the input of a process. It outlives streams: what an owner has sent is written
// also if the stream or the link is lost.
type stdin struct {
	process *process // whose mutex guards what follows the nonce
	nonce   string   // makes the ids of writes unique

	data        []byte // sent by owners and not accepted
	accepted    uint64 // how many bytes the server has accepted
	ended       bool   // nothing follows data
	endAccepted bool   // the server knows that
	rejected    bool   // the server accepts no more: what follows is dropped
	writing     bool   // a goroutine writes
	failed      error  // why runs end
}

// queued returns the offset after all input of owners.
func (s *stdin) queued() uint64 { return s.accepted + uint64(len(s.data)) }

// takeStdin adds the input of an owner. An error ends the stream.
func (r *run) takeStdin(m *execwirev1.RunStdin) error {
	p := r.process
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.stdin
	end, queued := m.GetOffset()+uint64(len(m.GetData())), s.queued()
	const reason = execwirev1.ErrorReason_ERROR_REASON_STDIN_OFFSET_INVALID
	switch {
	case p.owner != r || s.rejected:
		return nil
	case m.GetOffset() > queued:
		return failure(reason, "input continues at offset %d after %d bytes", m.GetOffset(), queued)
	case end > max(r.stdinOffset, s.accepted)+stdinWindow:
		return failure(reason, "input up to %d is beyond the window: %d bytes were accepted, and %d more may be sent", end, s.accepted, stdinWindow)
	case s.ended && end > queued:
		return unexpectedMessage("input follows its end")
	case end > queued:
		s.data = append(s.data, m.GetData()[queued-m.GetOffset():]...)
	}
	s.ended = s.ended || m.GetEndOfFile()
	s.startWriting()
	return nil
}

// end ends the input of a process with a pipe: its owner sends no more.
func (s *stdin) end() {
	s.process.mu.Lock()
	defer s.process.mu.Unlock()
	s.ended = s.ended || s.process.hasStdin
	s.startWriting()
}

// startWriting starts the goroutine that writes the input, if there is any. The caller
// holds the mutex of the process.
func (s *stdin) startWriting() {
	if !s.writing && s.hasWork() {
		s.writing = true
		s.process.conn.tasks.Go(s.writeAll)
	}
}

func (s *stdin) hasWork() bool {
	return !s.rejected && (len(s.data) > 0 || s.ended && !s.endAccepted)
}

// writeAll writes input until there is none.
func (s *stdin) writeAll() {
	p := s.process
	for {
		p.mu.Lock()
		piece, offset := s.data[:min(len(s.data), stdinPiece)], s.accepted
		if s.writing = s.hasWork() && p.conn.ctx.Err() == nil; !s.writing {
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		if err := s.write(piece, offset); err != nil {
			s.stop(err)
			continue
		}
		p.mu.Lock()
		s.data, s.accepted = s.data[len(piece):], offset+uint64(len(piece))
		s.endAccepted = len(piece) == 0
		p.changed.Notify()
		p.mu.Unlock()
	}
}

// stop records that the server accepts no more input because of err.
func (s *stdin) stop(err error) {
	p := s.process
	if errorinfo.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED {
		err = p.awaitSilentEnd()
	} else if !isUnanswered(err) {
		p.reject(err)
		err = nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.rejected, s.failed, s.data = true, err, nil
	p.changed.Notify()
}

// awaitSilentEnd waits for a process whose input the server cannot close. One that does
// not read to the end exits; one that is silent probably waits for the end forever.
func (p *process) awaitSilentEnd() error {
	timer := time.NewTimer(silentEnd)
	defer timer.Stop()
	for {
		p.mu.Lock()
		hasExited, changed := p.incoming.exit != nil, p.changed.Wait()
		p.mu.Unlock()
		if hasExited {
			return nil
		}
		select {
		case <-changed:
			timer.Reset(silentEnd)
		case <-timer.C:
			return failure(execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED,
				"this server cannot close the input of a process, and process %s has neither exited nor written anything for %v since its end: "+
					"run something that needs no such end, or reach an execwire server by "+grpcURLs, p.id, silentEnd)
		case <-p.conn.ctx.Done():
			return nil
		}
	}
}

// errWriteLost ends runs whose input may or may not have been written.
var errWriteLost = failure(execwirev1.ErrorReason_ERROR_REASON_STDIN_OFFSET_INVALID,
	"the connection was lost during a write, and this server does not recognize a repeated one")

// write writes a piece of input, or its end if that is empty, and repeats it over other
// links until it is answered.
func (s *stdin) write(piece []byte, offset uint64) error {
	p := s.process
	var wait backoff.Backoff
	for isRepeated := false; ; {
		l, err := p.conn.current(p.conn.ctx)
		switch {
		case err != nil:
		case len(piece) == 0:
			err = s.close(l)
		case isRepeated && l.peer.environment == nil:
			return errWriteLost
		default:
			isRepeated = true
			id := fmt.Sprintf("%s-%d", s.nonce, offset)
			err = s.ask(l, "process/write", writeParams{p.id, piece, id})
		}
		if !isUnanswered(err) || !wait.Wait(p.conn.ctx, 0) {
			return err
		}
	}
}

type writeParams struct {
	ProcessID string `json:"processId"`
	Chunk     []byte `json:"chunk"`
	WriteID   string `json:"writeId"`
}

// close closes the input.
func (s *stdin) close(l *link) error {
	p := s.process
	switch {
	case p.hasTerminal:
		return failure(execwirev1.ErrorReason_ERROR_REASON_STDIN_IS_TERMINAL,
			"process %s has a terminal, whose input has no end of this kind: write 0x04 at the beginning of a line", p.id)
	case !l.peer.extended:
		return unsupportedRequest("the end of a process's input")
	}
	return s.ask(l, "process/closeStdin", processParams{p.id})
}

// ask makes a request about the input, whose result is a status.
func (s *stdin) ask(l *link, method string, params any) error {
	p := s.process
	var result struct {
		Status string `param:"status"`
	}
	err := p.conn.call(p.conn.ctx, l, method, params, &result)
	switch {
	case err != nil || result.Status == "accepted":
		return err
	case result.Status == "unknownProcess":
		return processNotFound(p.id)
	case p.hasStdin || p.hasTerminal:
		return failure(execwirev1.ErrorReason_ERROR_REASON_STDIN_CLOSED, "the stdin of process %s is closed", p.id)
	}
	return failure(execwirev1.ErrorReason_ERROR_REASON_STDIN_NOT_PIPED, "process %s was started without a stdin", p.id)
}
