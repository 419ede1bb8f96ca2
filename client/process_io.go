package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/notify"
)

// ErrNoStdin is returned by [Process.Write] when the process was started without input;
// see Command.PipeStdin.
var ErrNoStdin = errors.New("the process was started without a pipe for its stdin")

// ErrStdinClosed is matched by errors.Is for [Process.Write] when the process accepts
// no more input: CloseStdin was called, or the process closed its stdin or ended.
var ErrStdinClosed = errors.New("the process's stdin is closed")

// Write writes input. It blocks until all of data is buffered: one window is buffered
// here and one on the server while the process does not read. Buffered input survives
// lost connections. Errors are [ErrNoStdin], [ErrStdinClosed] and those of
// [Process.Wait].
func (p *Process) Write(data []byte) (int, error) { return p.write(context.Background(), data) }

func (p *Process) write(ctx context.Context, data []byte) (int, error) {
	if p.stdin == nil {
		return 0, ErrNoStdin
	}
	select {
	case p.writing <- struct{}{}:
		defer func() { <-p.writing }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	n, err := p.stdin.write(ctx, data)
	if errors.Is(err, errProcessEnded) {
		<-p.over
		if err = p.err; err == nil {
			err = fmt.Errorf("%w: it has ended", ErrStdinClosed)
		}
	}
	return n, err
}

// CloseStdin ends the input after everything written; for a terminal with its
// end-of-file character. A concurrent Write fails. It never blocks, and the only error
// is [ErrNoStdin].
func (p *Process) CloseStdin() error {
	if p.stdin == nil {
		return ErrNoStdin
	}
	p.stdin.end()
	return nil
}

// Communicate writes input and closes stdin, collects the output from the first event
// on, and blocks until the process has closed. stdout includes terminal output. stdin
// must be empty for a process without input.
//
// Errors are those of [Process.Wait], a [*MissingOutputError] if output was evicted, or
// an [*OutputSizeError] beyond [MaxOutputBytes]; they are returned with the collected
// output and do not affect the process. It is not an error if the process ends without
// reading its input.
func (p *Process) Communicate(ctx context.Context, stdin []byte) (stdout, stderr []byte, exit Exit, err error) {
	if p.stdin == nil && len(stdin) > 0 {
		return nil, nil, Exit{ProcessID: p.ID()}, ErrNoStdin
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var writer sync.WaitGroup
	writer.Go(func() {
		if _, err := p.write(ctx, stdin); ctx.Err() == nil && !errors.Is(err, ErrNoStdin) {
			_ = p.CloseStdin() // it has input, so this cannot fail
		}
	})
	defer writer.Wait()
	defer cancel(errStreamOver)

	var out, errs limitedBuffer
	var missing uint64
	for event, err := range p.Events(ctx) {
		if err == nil {
			err = gather(event, &out, &errs, &missing)
		}
		if err != nil {
			return out.Bytes(), errs.Bytes(), Exit{ProcessID: p.ID()}, err
		}
	}
	exit, err = p.Wait(ctx)
	if missing = max(missing, exit.DroppedBytes); err == nil && missing > 0 {
		err = &MissingOutputError{DroppedBytes: missing}
	}
	return out.Bytes(), errs.Bytes(), exit, err
}

func gather(event Event, stdout, stderr *limitedBuffer, missing *uint64) error {
	switch e := event.(type) {
	case *OutputEvent:
		to := stdout
		if e.Stream == execwirev1.OutputStream_OUTPUT_STREAM_STDERR {
			to = stderr
		}
		_, err := to.Write(e.Data)
		return err
	case *GapEvent:
		*missing += e.DroppedBytes
	}
	return nil
}

// errProcessEnded is returned by write when the run has ended.
var errProcessEnded = errors.New("the process is over")

// write takes input. It blocks until all of data is taken, and returns how much was. It
// must not be called concurrently.
func (p *stdinPump) write(ctx context.Context, data []byte) (written int, err error) {
	for {
		n, wait, err := p.writeSome(data)
		if err != nil {
			return written, err
		}
		if written, data = written+n, data[n:]; len(data) == 0 {
			return written, nil
		}
		if n > 0 {
			continue
		}
		if err := notify.Wait(ctx, wait); err != nil {
			return written, err
		}
	}
}

// writeSome takes as much input as there is space for, or returns a channel to wait on.
func (p *stdinPump) writeSome(data []byte) (int, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopped:
		return 0, nil, errProcessEnded
	case p.ended:
		return 0, nil, ErrStdinClosed
	case p.discarded:
		return 0, nil, fmt.Errorf("%w: it takes no more", ErrStdinClosed)
	}
	n := copy(p.tail(), data)
	p.add(n)
	return n, p.spaceFreed.Wait(), nil
}
