package jsonrpc

import (
	"io"
	"time"
)

// Send implements [Transport]. A message longer than the buffer waits until
// there is nothing else in it.
func (s *Stdio) Send(message []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.append(message); err != nil {
		return err
	}
	return s.append([]byte{'\n'})
}

// append blocks until there is room for data, in parts if it is long.
func (s *Stdio) append(data []byte) error {
	for {
		for len(s.pending) >= s.options.OutputBuffer && s.lost == nil && !s.closed {
			s.changed.Wait()
		}
		switch {
		case s.lost != nil:
			return s.lost
		case s.closed:
			return ErrClosed
		}
		n := min(len(data), s.options.OutputBuffer-len(s.pending))
		s.pending = append(s.pending, data[:n]...)
		s.changed.Broadcast()
		if data = data[n:]; len(data) == 0 {
			return nil
		}
	}
}

// Begin implements [Transport].
func (s *Stdio) Begin() (io.WriteCloser, error) { return &stdioMessage{to: s}, nil }

// stdioMessage writes one message in parts.
type stdioMessage struct{ to *Stdio }

func (m *stdioMessage) Write(part []byte) (int, error) {
	m.to.mu.Lock()
	defer m.to.mu.Unlock()
	if err := m.to.append(part); err != nil {
		return 0, err
	}
	return len(part), nil
}

func (m *stdioMessage) Close() error {
	_, err := m.Write([]byte{'\n'})
	return err
}

// write is the goroutine that writes what was sent, all that waits at once.
func (s *Stdio) write() {
	defer close(s.written)
	var taken []byte
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.lost == nil {
		for len(s.pending) == 0 && !s.closed {
			s.changed.Wait()
		}
		if len(s.pending) == 0 {
			return
		}
		taken, s.pending = s.pending, taken[:0]
		s.changed.Broadcast()
		s.mu.Unlock()
		_, err := s.out.Write(taken)
		s.mu.Lock()
		if err != nil {
			s.lost = err
			s.changed.Broadcast()
		}
	}
}

// Close implements [Transport]. The code and the reason have no place on
// standard streams.
func (s *Stdio) Close(int, string) error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.changed.Broadcast()
	s.mu.Unlock()
	if !first {
		<-s.written
		return nil
	}
	late := time.AfterFunc(s.options.CloseTimeout, func() { s.out.Close() })
	inErr := s.in.Close()
	<-s.written
	if !late.Stop() {
		return s.lost
	}
	if err := s.out.Close(); err != nil {
		return err
	}
	return inErr
}
