package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ReadOptions says what to read of a process. The zero value reads from the
// beginning, as much as a page has, and waits for nothing.
type ReadOptions struct {
	// AfterSeq is the seq of the last event that the caller has.
	AfterSeq uint64
	// MaxBytes is the most output to return, in whole events, at least one event;
	// 0 or more than 1 MiB is 1 MiB.
	MaxBytes int
	// Wait is how long to wait for an event when there is none; 0 does not wait,
	// less than 0 waits until there is one.
	Wait time.Duration
}

// Page is what [Process.Read] returns.
type Page struct {
	// Events are those that follow, in order; what is not kept any more is a
	// [*GapEvent] among them. None if the wait was over first.
	Events []Event
	// AfterSeq is the cursor to go on with.
	AfterSeq uint64
	// Closed is whether there is nothing more to read, ever.
	Closed bool
}

// maxPageBytes is the most output of one Page.
const maxPageBytes = 1 << 20

// Read returns what is kept of the process's events behind a cursor, for programs
// that poll in the place of ranging over [Process.Events]. It reads what was
// received, without asking the server, and goes on when the process has ended.
// Unless somebody ranges over the events, what comes before ReadOptions.AfterSeq
// counts as taken, and the process is not let write more than a window beyond it.
//
// When the process cannot be followed any more and there is nothing more to read,
// the error is that of [Process.Wait]; when ctx is done, it wraps its cause.
func (p *Process) Read(ctx context.Context, options ReadOptions) (Page, error) {
	if options.Wait > 0 {
		waiting, cancel := context.WithTimeoutCause(ctx, options.Wait, errWaited)
		defer cancel()
		return p.feed.read(ctx, waiting, options)
	}
	return p.feed.read(ctx, ctx, options)
}

var errWaited = errors.New("the wait is over")

// read waits in waiting, which is ctx or ends before it.
func (f *processFeed) read(ctx, waiting context.Context, options ReadOptions) (Page, error) {
	for {
		page, news, err := f.page(options)
		if news == nil || options.Wait == 0 {
			return page, err
		}
		select {
		case <-news:
		case <-waiting.Done():
			if ctx.Err() != nil {
				err = fmt.Errorf("failed to read to the end: %w", context.Cause(ctx))
			}
			return page, err
		}
	}
}

// page returns what there is, or what to wait for beside it.
func (f *processFeed) page(options ReadOptions) (Page, <-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	after := max(options.AfterSeq, f.start)
	if after > f.last {
		return Page{}, nil, fmt.Errorf("failed to read: ReadOptions.AfterSeq is %d and the last event is %d", options.AfterSeq, f.last)
	}
	if len(f.readers) == 0 {
		f.take(after)
	}
	limit := options.MaxBytes
	if limit <= 0 || limit > maxPageBytes {
		limit = maxPageBytes
	}
	page := Page{AfterSeq: after}
	for event := f.behind(after); event != nil; event = f.behind(page.AfterSeq) {
		if output, ok := event.(*OutputEvent); ok {
			if limit -= len(output.Data); limit < 0 && len(page.Events) > 0 {
				break
			}
		}
		page.Events, page.AfterSeq = append(page.Events, event), event.After()
	}
	page.Closed = f.ended && (f.err == nil || f.hasClosed()) && page.AfterSeq == f.last
	switch {
	case len(page.Events) > 0 || page.Closed:
		return page, nil, nil
	case f.ended:
		return page, nil, f.err
	}
	f.awaited = true
	return page, f.news, nil
}
