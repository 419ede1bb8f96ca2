package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// ErrNoStdin is what [Process.Write] fails with when the process was started
// without input: Command.PipeStdin gives it some.
var ErrNoStdin = errors.New("the process was started without a pipe for its stdin")

// ErrStdinClosed is what errors.Is finds in what [Process.Write] fails with when
// the process takes no input any more: CloseStdin was called, or it has closed its
// stdin itself, or ended.
var ErrStdinClosed = errors.New("the process's stdin is closed")

// Write gives the process input. It blocks until all of data is on its way: of what
// the process has not read, as much as the server's window is waiting here and as
// much there. What is on its way survives lost connections. Errors are
// [ErrNoStdin], [ErrStdinClosed] and those of [Process.Wait].
func (p *Process) Write(data []byte) (int, error) { return p.write(context.Background(), data) }

func (p *Process) write(ctx context.Context, data []byte) (int, error) {
	if p.input == nil {
		return 0, ErrNoStdin
	}
	n, err := p.input.write(ctx, data)
	if errors.Is(err, errExpired) {
		<-p.over
		if err = p.err; err == nil {
			err = fmt.Errorf("%w: it has ended", ErrStdinClosed)
		}
	}
	return n, err
}

// CloseStdin ends the process's input after what was written; a terminal gets its
// end-of-file character. A Write that is going on fails. It never blocks, and the
// only error is [ErrNoStdin].
func (p *Process) CloseStdin() error {
	if p.input == nil {
		return ErrNoStdin
	}
	p.input.end()
	return nil
}

// errExpired is why a processInput ended with the process.
var errExpired = errors.New("the process is over")

// processInput passes what is written to the one who reads, without keeping it. What
// was written, or ended, is known to the pump when that is over: a process that is
// given up afterwards gets it.
type processInput struct {
	writing chan struct{} // holds a token while somebody writes
	offered chan []byte   // from who writes to who reads
	took    chan int      // how much of that the pump has
	ended   chan struct{} // closed when nothing more is written
	refused chan struct{} // closed when nobody reads any more
	expired chan struct{} // closed when the process is over
	once    [3]sync.Once  // of these three
}

func newProcessInput() *processInput {
	return &processInput{
		writing: make(chan struct{}, 1), offered: make(chan []byte), took: make(chan int),
		ended: make(chan struct{}), refused: make(chan struct{}), expired: make(chan struct{}),
	}
}

func (in *processInput) end() { in.once[0].Do(func() { close(in.ended) }) }

// expire says that the process is over. A nil input has nobody to tell.
func (in *processInput) expire() {
	if in != nil {
		in.once[2].Do(func() { close(in.expired) })
	}
}

func (in *processInput) write(ctx context.Context, data []byte) (written int, err error) {
	select {
	case in.writing <- struct{}{}:
		defer func() { <-in.writing }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	for err = in.closed(); err == nil && len(data) > 0; {
		select {
		case in.offered <- data:
			select {
			case n := <-in.took:
				data, written = data[n:], written+n
			case <-in.refused:
				err = in.closed()
			}
		case <-in.ended:
			err = in.closed()
		case <-in.refused:
			err = in.closed()
		case <-in.expired:
			err = in.closed()
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return written, err
}

// closed returns why nothing can be written, or nil.
func (in *processInput) closed() error {
	for _, why := range []struct {
		is  <-chan struct{}
		err error
	}{
		{in.expired, errExpired},
		{in.ended, ErrStdinClosed},
		{in.refused, fmt.Errorf("%w: it takes no more", ErrStdinClosed)},
	} {
		select {
		case <-why.is:
			return why.err
		default:
		}
	}
	return nil
}

// Read implements io.Reader, for the one who passes the input on, and calls added
// when it has what was read.
func (in *processInput) Read(space []byte) (int, error) {
	select {
	case data := <-in.offered:
		return copy(space, data), nil
	case <-in.ended:
		return 0, io.EOF
	case <-in.refused:
		return 0, errInterrupted
	}
}

func (in *processInput) added(n int) {
	select {
	case in.took <- n:
	case <-in.refused:
	}
}

func (in *processInput) ending() bool {
	select {
	case <-in.ended:
		return true
	default:
		return false
	}
}

func (in *processInput) interruptible() bool { return true }
func (in *processInput) interrupt()          { in.once[1].Do(func() { close(in.refused) }) }
func (in *processInput) release()            {}
