package jsonrpc

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"sync"
	"time"
)

// Limits of a Stdio.
const (
	// DefaultMessageLimit is the longest message, in bytes without its line
	// break.
	DefaultMessageLimit = 64 << 20
	// DefaultOutputBuffer is how many bytes wait to be written before Send blocks.
	DefaultOutputBuffer = 128 << 10
	// DefaultCloseTimeout is how long Close waits for what was sent to leave.
	DefaultCloseTimeout = 5 * time.Second
)

// StdioOptions are the limits of a [Stdio]; zero means the default.
type StdioOptions struct {
	MessageLimit int64         // longest line that is received, in bytes; DefaultMessageLimit
	OutputBuffer int           // bytes that may wait to be written; DefaultOutputBuffer
	CloseTimeout time.Duration // for what waits when Close is called; DefaultCloseTimeout
}

// Stdio is a [Transport] of one JSON value a line. Blank lines are ignored, a
// carriage return before the line break is a blank, and the last line needs no
// break. One goroutine of its own writes; Close waits for it.
type Stdio struct {
	in      io.ReadCloser
	out     io.WriteCloser
	options StdioOptions

	reader  *bufio.Reader // of Receive, with what follows
	line    []byte
	failure error

	mu      sync.Mutex // guards what follows
	changed sync.Cond
	pending []byte // sent and not yet taken by the writing goroutine
	closed  bool
	lost    error // of a write; nothing can be sent any more
	written chan struct{}
}

var _ Transport = (*Stdio)(nil)

// NewStdio returns a transport over in and out, which it closes. Their Close
// must make a blocked Read or Write return, as that of a pipe does;
// [OpenStdio] opens the standard streams of the program so.
func NewStdio(in io.ReadCloser, out io.WriteCloser, options StdioOptions) *Stdio {
	if options.MessageLimit == 0 {
		options.MessageLimit = DefaultMessageLimit
	}
	if options.OutputBuffer == 0 {
		options.OutputBuffer = DefaultOutputBuffer
	}
	if options.CloseTimeout == 0 {
		options.CloseTimeout = DefaultCloseTimeout
	}
	s := &Stdio{in: in, out: out, options: options, reader: bufio.NewReaderSize(in, 64<<10), written: make(chan struct{})}
	s.changed.L = &s.mu
	go s.write()
	return s
}

// Receive implements [Transport].
func (s *Stdio) Receive() ([]byte, error) {
	for s.failure == nil {
		s.line = s.line[:0]
		line, err := s.readLine()
		if err != nil {
			s.failure = err
		}
		if line = bytes.TrimRight(line, " \t\r\n"); len(bytes.TrimLeft(line, " \t\r")) > 0 {
			return line, nil
		}
	}
	return nil, s.failure
}

// readLine returns the next line, and the error that followed it.
func (s *Stdio) readLine() ([]byte, error) {
	for {
		part, err := s.reader.ReadSlice('\n')
		if int64(len(s.line)+len(part)) > s.options.MessageLimit+2 {
			return nil, &TooLargeError{What: "line", Limit: s.options.MessageLimit}
		}
		if len(s.line) == 0 && err == nil {
			return part, nil
		}
		s.line = append(s.line, part...)
		if err != bufio.ErrBufferFull {
			return s.line, err
		}
	}
}

// Prove implements [Transport]: standard streams prove nothing.
func (s *Stdio) Prove(context.Context) error { return ErrCannotProve }

// Peer implements [Transport].
func (s *Stdio) Peer() string { return "exec-server stdio" }
