package jsonrpc

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of a Stdio.
const (
	// DefaultMessageLimit is the longest message, in bytes.
	DefaultMessageLimit = 64 << 20
	// DefaultCloseTimeout bounds how long Close waits for a Send.
	DefaultCloseTimeout = 5 * time.Second
)

const (
	// bufferedBytes is the size of the buffers for input and output.
	bufferedBytes = 64 << 10
	// maxKeptLine is the largest buffer for a line that is kept for the next one.
	maxKeptLine = 1 << 20
)

// StdioOptions are the limits of a [Stdio]; zero means the default.
type StdioOptions struct {
	MessageLimit int           // longest line received, in bytes without its break; DefaultMessageLimit
	CloseTimeout time.Duration // bound of a Send that Close waits for; DefaultCloseTimeout
}

// Stdio is a [Transport] of one message a line. Blank lines are ignored, a line
// may end in a carriage return and a line feed, and the last one needs neither.
type Stdio struct {
	in      io.ReadCloser
	out     io.WriteCloser
	options StdioOptions
	closing sync.Once
	closed  atomic.Bool
	lost    atomic.Bool // writing failed

	// Of the goroutine that calls Receive.
	reader   *bufio.Reader
	line     []byte // a line that does not fit into the reader's buffer
	received error  // why receiving ended

	sending chan struct{} // has an element while a goroutine writes
	writer  *bufio.Writer // guarded by sending; empty between calls, unless it failed
}

var (
	_ Transport  = (*Stdio)(nil)
	_ HalfCloser = (*Stdio)(nil)
)

// NewStdio returns a transport over in and out, which it closes. Their Close
// must unblock a Read and a Write, as with [OpenStdio]. Negative limits panic.
func NewStdio(in io.ReadCloser, out io.WriteCloser, options StdioOptions) *Stdio {
	if options.MessageLimit < 0 || options.CloseTimeout < 0 {
		panic(fmt.Sprintf("jsonrpc: negative limits in %+v", options))
	}
	options.MessageLimit = cmp.Or(options.MessageLimit, DefaultMessageLimit)
	options.CloseTimeout = cmp.Or(options.CloseTimeout, DefaultCloseTimeout)
	return &Stdio{in: in, out: out, options: options, sending: make(chan struct{}, 1),
		reader: bufio.NewReaderSize(in, bufferedBytes), writer: bufio.NewWriterSize(out, bufferedBytes)}
}

// Receive implements [Transport].
func (s *Stdio) Receive() ([]byte, error) {
	for s.received == nil {
		line, err := s.readLine()
		if err != nil {
			s.received = s.receiveError(err)
		}
		if len(bytes.TrimSpace(line)) > 0 {
			return line, nil
		}
	}
	return nil, s.received
}

// readLine returns the next line without its break. With io.EOF it is the last one;
// with another error there is none.
func (s *Stdio) readLine() ([]byte, error) {
	if s.line = s.line[:0]; cap(s.line) > maxKeptLine {
		s.line = nil
	}
	for {
		part, err := s.reader.ReadSlice('\n')
		line := part
		if len(s.line) > 0 || err == bufio.ErrBufferFull {
			s.line = append(s.line, part...)
			line = s.line
		}
		line = trimBreak(line)
		switch {
		case len(line) > s.options.MessageLimit:
			return nil, &TooLargeError{What: "line", Limit: int64(s.options.MessageLimit)}
		case err == nil, err == io.EOF:
			return line, err
		case err != bufio.ErrBufferFull:
			return nil, err
		}
	}
}

func trimBreak(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}

// receiveError returns the error of Receive for an error of readLine.
func (s *Stdio) receiveError(err error) error {
	var large *TooLargeError
	switch {
	case err == io.EOF, errors.As(err, &large):
		return err
	case s.closed.Load():
		return ErrClosed
	}
	return fmt.Errorf("standard input was lost: %w", err)
}

// Prove implements [Transport]: standard streams have no proofs.
func (s *Stdio) Prove(context.Context) error { return ErrCannotProve }

// Listens implements [HalfCloser].
func (s *Stdio) Listens() bool {
	return !s.lost.Load() && !s.closed.Load() && !isAbandoned(s.out)
}

// Peer implements [Transport].
func (s *Stdio) Peer() string { return "exec-server stdio" }

// Send implements [Transport]. The message must have no line breaks; those that
// this package encodes have none.
func (s *Stdio) Send(message []byte) error {
	s.sending <- struct{}{}
	defer func() { <-s.sending }()
	_, _ = s.writer.Write(message) // the writer keeps its first error
	_ = s.writer.WriteByte('\n')
	return s.flush()
}

// flush writes what is buffered, and returns why that or an earlier write failed.
func (s *Stdio) flush() error {
	if s.closed.Load() {
		return ErrClosed
	}
	err := s.writer.Flush()
	switch {
	case err == nil:
		return nil
	case s.closed.Load(): // meanwhile
		return ErrClosed
	}
	s.lost.Store(true)
	return outputLost(err)
}

func outputLost(err error) error { return fmt.Errorf("standard output was lost: %w", err) }

// Begin implements [Transport]. What is written must have no line breaks.
func (s *Stdio) Begin() (io.WriteCloser, error) {
	s.sending <- struct{}{}
	defer func() { <-s.sending }()
	if err := s.flush(); err != nil {
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
	if m.ended {
		return 0, ErrClosed
	}
	m.to.sending <- struct{}{}
	defer func() { <-m.to.sending }()
	_, _ = m.to.writer.Write(part)
	if err := m.to.flush(); err != nil {
		return 0, err
	}
	return len(part), nil
}

func (m *stdioMessage) Close() error {
	if m.ended {
		return nil
	}
	m.ended = true
	return m.to.Send(nil) // the line break
}

// Close implements [Transport]. Standard streams carry no code and no reason. The
// error means that not everything sent was written.
func (s *Stdio) Close(int, string) (err error) {
	s.closing.Do(func() { err = s.close() })
	return err
}

func (s *Stdio) close() error {
	s.closed.Store(true)
	s.in.Close() // unread input is not an error
	late := time.AfterFunc(s.options.CloseTimeout, func() { s.out.Close() })
	s.sending <- struct{}{} // until the Send in progress has returned
	defer func() { <-s.sending }()
	inTime := late.Stop()
	closeErr := s.out.Close()
	err := s.writer.Flush()
	switch {
	case !inTime && err != nil:
		return fmt.Errorf("what was sent did not leave within %v, and the rest is given up: %w", s.options.CloseTimeout, err)
	case err != nil:
		return outputLost(err)
	case inTime:
		return closeErr
	}
	return nil
}
