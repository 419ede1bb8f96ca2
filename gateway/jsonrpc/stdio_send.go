package jsonrpc

import (
	"fmt"
	"io"
	"time"
)

// Send implements [Transport]. The message must be without line breaks, as
// those are that this package writes.
func (s *Stdio) Send(message []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.put(message); err != nil {
		return err
	}
	return s.endLine()
}

// put adds to what waits to be written, in parts if there is no room for all of
// it. It does not wake the goroutine that writes before it must, so that a
// message and its line break leave together.
func (s *Stdio) put(data []byte) error {
	for {
		for len(s.pending) >= s.options.OutputBuffer && s.lost == nil && !s.closed {
			s.work.Signal()
			s.room.Wait()
		}
		switch {
		case s.closed:
			return ErrClosed
		case s.lost != nil:
			return s.lost
		}
		n := min(len(data), s.options.OutputBuffer-len(s.pending))
		s.pending = append(s.pending, data[:n]...)
		if data = data[n:]; len(data) == 0 {
			return nil
		}
	}
}

func (s *Stdio) endLine() error {
	err := s.put([]byte{'\n'})
	s.work.Signal()
	return err
}

// Begin implements [Transport]. What is written must be without line breaks.
func (s *Stdio) Begin() (io.WriteCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.put(nil); err != nil {
		return nil, err
	}
	return &stdioMessage{to: s}, nil
}

// stdioMessage is a message that is sent in parts.
type stdioMessage struct {
	to    *Stdio
	ended bool
}

func (m *stdioMessage) Write(part []byte) (int, error) {
	m.to.mu.Lock()
	defer m.to.mu.Unlock()
	if m.ended {
		return 0, ErrClosed
	}
	if err := m.to.put(part); err != nil {
		return 0, err
	}
	m.to.work.Signal()
	return len(part), nil
}

func (m *stdioMessage) Close() error {
	m.to.mu.Lock()
	defer m.to.mu.Unlock()
	if m.ended {
		return nil
	}
	m.ended = true
	return m.to.endLine()
}

// write is the goroutine that writes what was sent, all that waits at once. It
// returns when writing failed, or nothing waits and nothing can come any more.
func (s *Stdio) write() {
	defer close(s.written)
	var taken []byte
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.lost == nil {
		for len(s.pending) == 0 {
			if s.closed {
				return
			}
			s.work.Wait()
		}
		taken, s.pending = s.pending, taken[:0]
		s.room.Broadcast()
		s.mu.Unlock()
		_, err := s.out.Write(taken)
		s.mu.Lock()
		if err != nil {
			s.lost = fmt.Errorf("standard output was lost: %w", err)
			s.room.Broadcast()
		}
	}
}

// Close implements [Transport]. The code and the reason have no place on
// standard streams. The error says that not all that was sent has left.
func (s *Stdio) Close(int, string) (err error) {
	s.closing.Do(func() { err = s.close() })
	return err
}

func (s *Stdio) close() error {
	s.mu.Lock()
	s.closed = true
	s.work.Signal()
	s.room.Broadcast()
	s.mu.Unlock()
	s.in.Close() // nothing is lost with an input that nobody reads

	patience := time.NewTimer(s.options.CloseTimeout)
	defer patience.Stop()
	select {
	case <-s.written:
		if err := s.out.Close(); s.lost == nil {
			return err
		}
		return s.lost
	case <-patience.C:
	}
	s.out.Close()
	<-s.written
	if s.lost == nil {
		return nil
	}
	return fmt.Errorf("what was sent did not leave within %v, and the rest is given up: %w", s.options.CloseTimeout, s.lost)
}
