package jsonrpc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Limits of a Stdio.
const (
	// DefaultMessageLimit is the longest message, in bytes.
	DefaultMessageLimit = 64 << 20
	// DefaultOutputBuffer is how many bytes wait to be written before Send blocks.
	DefaultOutputBuffer = 128 << 10
	// DefaultCloseTimeout is how long Close waits for what was sent to leave.
	DefaultCloseTimeout = 5 * time.Second
)

// keptLine is how big a buffer for lines may be that is kept between them.
const keptLine = 1 << 20

// StdioOptions are the limits of a [Stdio]; zero means the default.
type StdioOptions struct {
	MessageLimit int           // longest line received, in bytes without its break; DefaultMessageLimit
	OutputBuffer int           // bytes that may wait to be written; DefaultOutputBuffer
	CloseTimeout time.Duration // for what waits when Close is called; DefaultCloseTimeout
}

// withDefaults also refuses what makes no sense.
func (o StdioOptions) withDefaults() StdioOptions {
	if o.MessageLimit < 0 || o.OutputBuffer < 0 || o.CloseTimeout < 0 {
		panic(fmt.Sprintf("jsonrpc: negative limits in %+v", o))
	}
	if o.MessageLimit == 0 {
		o.MessageLimit = DefaultMessageLimit
	}
	if o.OutputBuffer == 0 {
		o.OutputBuffer = DefaultOutputBuffer
	}
	if o.CloseTimeout == 0 {
		o.CloseTimeout = DefaultCloseTimeout
	}
	return o
}

// Stdio is a [Transport] of one message a line. Blank lines are ignored, a line
// may end in a carriage return and a line feed, and the last one needs neither.
// One goroutine of its own writes; Close waits for it.
type Stdio struct {
	in      io.ReadCloser
	out     io.WriteCloser
	options StdioOptions
	closing sync.Once

	// Of the goroutine that calls Receive.
	reader   *bufio.Reader
	line     []byte // a line that does not fit into the reader's buffer
	received error  // what ended receiving

	mu      sync.Mutex // guards what follows
	work    sync.Cond  // pending has bytes, or closed is set
	room    sync.Cond  // pending has room, or lost or closed are set
	pending []byte     // sent, and not yet taken by the goroutine that writes
	closed  bool
	lost    error // why writing failed
	written chan struct{}
}

var (
	_ Transport  = (*Stdio)(nil)
	_ HalfCloser = (*Stdio)(nil)
)

// NewStdio returns a transport over in and out, which it closes. Their Close
// must make a Read and a Write that block return; [OpenStdio] opens the standard
// streams of the program so.
func NewStdio(in io.ReadCloser, out io.WriteCloser, options StdioOptions) *Stdio {
	s := &Stdio{
		in: in, out: out, options: options.withDefaults(),
		reader: bufio.NewReaderSize(in, 64<<10), written: make(chan struct{}),
	}
	s.work.L, s.room.L = &s.mu, &s.mu
	go s.write()
	return s
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

// readLine returns the next line without its break. With the error io.EOF it is
// the last one, with other errors there is none.
func (s *Stdio) readLine() ([]byte, error) {
	if s.line = s.line[:0]; cap(s.line) > keptLine {
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

// receiveError is what Receive returns for an error of readLine.
func (s *Stdio) receiveError(err error) error {
	var large *TooLargeError
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == io.EOF, errors.As(err, &large):
		return err
	case s.closed:
		return ErrClosed
	}
	return fmt.Errorf("standard input was lost: %w", err)
}

// Prove implements [Transport]: standard streams prove nothing.
func (s *Stdio) Prove(context.Context) error { return ErrCannotProve }

// Listens implements [HalfCloser].
func (s *Stdio) Listens() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost == nil && !s.closed && !isAbandoned(s.out)
}

// Peer implements [Transport].
func (s *Stdio) Peer() string { return "exec-server stdio" }
