package process

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/notify"
)

// Output is the output of a process: its event log, the streams that are read into it, and the terminal
// that shows it.
type Output struct {
	startedAt  time.Time // when the program was executed
	log        *eventlog.Log
	streams    []*stream
	lastOutput atomic.Int64 // time of the last output in ns since startedAt; 0: none
	onTerminal bool
	terminal   *terminal       // nil: pipes, or nothing is known of it, see Supervisor.Recover
	closed     context.Context // done in StateClosed
	setClosed  context.CancelCauseFunc
}

// Log returns the event log. Its exited event may come later than Exited, see the package comment.
func (o *Output) Log() *eventlog.Log { return o.log }

// LastOutput returns when output was last read, on any stream, or the start time if there was none.
// It never blocks.
func (o *Output) LastOutput() time.Time {
	return o.startedAt.Add(time.Duration(o.lastOutput.Load()))
}

// noteOutput records that output was read.
func (o *Output) noteOutput(at time.Time) { o.lastOutput.Store(int64(at.Sub(o.startedAt))) }

// OutputBlocked reports whether output is waiting that cannot be read because the window of the
// owner is used up. The process may then be unable to write. It never blocks.
func (o *Output) OutputBlocked() bool {
	return slices.ContainsFunc(o.streams, (*stream).isBlocked)
}

// closeStreams closes streams that are still open after the exit, held by descendants that were not
// found.
func (o *Output) closeStreams() {
	for _, s := range o.streams {
		s.end()
	}
}

// blockedOutputPoll is the interval of checks while output is blocked.
const blockedOutputPoll = 50 * time.Millisecond

// WaitIdle waits until the process has written nothing for a duration, counted from its last output
// or its start, and reports whether that happened within wait. A process that has exited is silent,
// whether its output was read or not; one that runs while its output is blocked by its owner is
// not. A wait of 0 checks once. If ctx ends it returns its cause.
func (p *Process) WaitIdle(ctx context.Context, silence, wait time.Duration) (bool, error) {
	return pollUntil(ctx, wait, nil, func() (idle bool, pause time.Duration) {
		// The order matters: output that is no longer blocked was read before, and LastOutput
		// includes it.
		if _, exited := p.Exit(); !exited && p.OutputBlocked() {
			return false, blockedOutputPoll
		}
		remaining := silence - time.Since(p.LastOutput())
		return remaining <= 0, remaining
	})
}

// pollUntil calls check until it is done, and reports whether it was within wait and before closed is
// closed. check returns the pause before its next call. If ctx ends it returns its cause.
func pollUntil(
	ctx context.Context, wait time.Duration, closed <-chan struct{}, check func() (done bool, pause time.Duration),
) (bool, error) {
	waitCtx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		done, pause := check()
		switch {
		case notify.IsClosed(closed):
			return false, nil
		case done:
			return true, nil
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case waitCtx.Err() != nil:
			return false, nil
		}
		sleep(waitCtx, pause, closed)
	}
}

// sleep waits for d, or until ctx ends or closed is closed.
func sleep(ctx context.Context, d time.Duration, closed <-chan struct{}) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-closed:
	}
}

// WaitPattern waits until the output after the event afterSeq matches the pattern, and reports
// whether it did within wait and before the process closed. It searches one stream, or with stream
// 0 each stream separately: all output that is retained, also with a wait of 0, and new output. A
// match needs output: in a log without output even the empty expression does not match. The start
// of the text is where the search begins; after missing output it begins anew.
//
// WaitPattern is an observer and counts as a reader: it never blocks the process. If ctx ends it
// returns its cause. Other errors are those of eventlog.Log.NewReader.
func (o *Output) WaitPattern(
	ctx context.Context, pattern *Pattern, stream eventlog.Stream, afterSeq uint64, wait time.Duration,
) (PatternMatch, bool, error) {
	reader, err := o.log.NewReader(afterSeq)
	if err != nil {
		return PatternMatch{}, false, err
	}
	defer reader.Close()
	waitCtx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	search := patternSearch{pattern: pattern, stream: stream}
	for seen, lastSeq := uint64(0), o.log.Stats().LastSeq; ; {
		batch, err := reader.Next(waitCtx, 0)
		switch {
		case errors.Is(err, io.EOF):
			search.searchAll(true)
			return search.match, search.found(), nil
		case ctx.Err() != nil:
			return PatternMatch{}, false, context.Cause(ctx)
		case err != nil && waitCtx.Err() == nil:
			return PatternMatch{}, false, err
		}
		seen = max(seen, search.addAvailable(reader, batch))
		search.searchAll(false)
		if search.found() {
			return search.match, true, nil
		}
		if waitCtx.Err() != nil && (seen >= lastSeq || err != nil) {
			return PatternMatch{}, false, nil
		}
		sleep(waitCtx, search.pause(), nil)
	}
}

// addAvailable adds a batch and, up to patternBatchBytes, all later output that is available. It
// returns the last sequence number that it added.
func (s *patternSearch) addAvailable(reader *eventlog.Reader, batch eventlog.Batch) (seen uint64) {
	for bytes, ok := 0, true; ok; {
		for _, e := range batch.Events {
			s.add(e)
			seen = e.Seq
			bytes += len(e.Data)
		}
		if s.found() || bytes >= patternBatchBytes {
			return seen
		}
		// The next wait returns the error.
		batch, ok, _ = reader.TryNext(patternBatchBytes)
	}
	return seen
}

// Closed returns a channel that is closed when the log has its last event.
func (o *Output) Closed() <-chan struct{} { return o.closed.Done() }

// AfterClosed calls f, in a goroutine of its own, when Closed is closed, which it may be already. It does not
// block.
func (o *Output) AfterClosed(f func()) { context.AfterFunc(o.closed, f) }

// StartedAt returns when the program was executed.
func (o *Output) StartedAt() time.Time { return o.startedAt }
