package client

import (
	"context"
	"errors"
	"sync"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Communicate gives the process input and closes its stdin, gathers what it writes
// from its first event on, and blocks until it has closed. stdout has the output of
// a terminal too. A process that was started without input must get none.
//
// Errors are those of [Process.Wait], a [*MissingOutputError] when output was not
// kept any more, or an [*OutputSizeError] beyond [MaxOutputBytes]; with them comes
// what was gathered. They do nothing to the process. That it ended before it had
// read its input is not an error.
func (p *Process) Communicate(ctx context.Context, stdin []byte) (stdout, stderr []byte, exit Exit, err error) {
	if p.input == nil && len(stdin) > 0 {
		return nil, nil, Exit{ProcessID: p.ID()}, ErrNoStdin
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var writer sync.WaitGroup
	writer.Go(func() {
		if _, err := p.write(ctx, stdin); ctx.Err() == nil && !errors.Is(err, ErrNoStdin) {
			_ = p.CloseStdin() // it has one
		}
	})
	defer writer.Wait()
	defer cancel(errStreamOver)

	var out, errs gathered
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

func gather(event Event, stdout, stderr *gathered, missing *uint64) error {
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
