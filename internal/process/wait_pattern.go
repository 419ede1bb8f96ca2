package process

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
)

// WaitPattern waits until the output after the event afterSeq matches the pattern, and reports whether it did before
// the wait was over or the process closed. It looks at one stream, or with stream 0 at every stream by itself; at all
// of the output that is retained when it is called, also with a wait of 0, and at what comes. A match needs output: at
// the end of a log that said nothing even the empty expression has not matched. The beginning of the text is where it
// begins to look; where output is missing it begins anew.
//
// It is an observer and counts as a reader: it never holds the process up. It returns the cause of ctx when that ends,
// and the errors of eventlog.Log.NewReader.
func (p *Process) WaitPattern(
	ctx context.Context, pattern *Pattern, stream eventlog.Stream, afterSeq uint64, wait time.Duration,
) (PatternMatch, bool, error) {
	reader, err := p.log.NewReader(afterSeq)
	if err != nil {
		return PatternMatch{}, false, err
	}
	defer reader.Close()
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	search := patternSearch{pattern: pattern, only: stream}
	for seen, there := uint64(0), p.log.Stats().LastSeq; ; {
		batch, err := reader.Next(waiting, 0)
		switch {
		case errors.Is(err, io.EOF):
			search.lookAll(true)
			return search.match, search.found(), nil
		case ctx.Err() != nil:
			return PatternMatch{}, false, context.Cause(ctx)
		case err != nil && waiting.Err() == nil:
			return PatternMatch{}, false, err
		}
		seen = max(seen, search.takeAll(reader, batch))
		search.lookAll(false)
		if search.found() {
			return search.match, true, nil
		}
		if waiting.Err() != nil && (seen >= there || err != nil) {
			return PatternMatch{}, false, nil
		}
		sleep(waiting, search.pause())
	}
}

// takeAll takes a batch and, up to what is searched at once, all that is there after it. It returns the seq it came to.
func (s *patternSearch) takeAll(reader *eventlog.Reader, batch eventlog.Batch) (seen uint64) {
	for bytes, ok := 0, true; ok; {
		for _, e := range batch.Events {
			s.take(e)
			seen = e.Seq
			bytes += len(e.Data)
		}
		if s.found() || bytes >= patternFresh {
			return seen
		}
		// What it fails with, the next wait meets too.
		batch, ok, _ = reader.TryNext(patternFresh)
	}
	return seen
}
