package session

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/execwire/execwire/internal/eventlog"
)

// feed is the queue of what the processes of a session have to say to the one
// who owns them. It has no goroutine: the logs tell it when there is something.
// Its lock is the last one that may be taken.
type feed struct {
	mu       sync.Mutex
	queue    []*item          // guarded by mu; those with something to say, each once
	items    map[string]*item // guarded by mu; by process id
	notices  map[string]*item // guarded by mu; those queued to say that they left
	unread   int              // guarded by mu; items not read to the end
	failed   error            // guarded by mu; what next returns from now on
	finished error            // guarded by mu; what it returns once everything is read

	wake  chan struct{} // holds a token when there is something new to look at
	ended chan struct{} // closed when failed is set
}

// item is the place of one process in a feed.
type item struct {
	feed    *feed
	process *Process
	cursor  *cursor

	// Guarded by feed.mu.
	queued   bool
	gone     bool // left the feed
	released bool // and the feed is to say so
	done     bool // read to the end
}

func newFeed() *feed {
	return &feed{
		items: make(map[string]*item), notices: make(map[string]*item),
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
	}
}

// add puts a process into the feed. One that is in it already left before.
func (f *feed) add(p *Process, c *cursor) *item {
	it := &item{feed: f, process: p, cursor: c}
	f.mu.Lock()
	f.items[p.id] = it
	f.unread++
	f.mu.Unlock()
	c.notify(it.ready)
	return it
}

// ready queues the item. It is called with locks of logs and spools held.
func (it *item) ready() {
	f := it.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if it.gone || it.queued || f.failed != nil {
		return
	}
	f.push(it)
}

// push is ready with mu held.
func (f *feed) push(it *item) {
	it.queued = true
	f.queue = append(f.queue, it)
	f.signal()
}

func (f *feed) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// leave takes the item out of the feed, which says so if tell is set. A notice
// that is still queued will do: nothing of the process came after it.
func (it *item) leave(tell bool) {
	f := it.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if it.gone {
		return
	}
	it.gone = true
	f.read(it)
	if f.items[it.process.id] == it {
		delete(f.items, it.process.id)
	}
	if !tell || f.failed != nil || f.notices[it.process.id] != nil {
		return
	}
	it.released = true
	f.notices[it.process.id] = it
	if !it.queued {
		f.push(it)
	}
}

// read counts the item as read to the end. mu is held.
func (f *feed) read(it *item) {
	if !it.done {
		it.done = true
		f.unread--
		f.signal()
	}
}

// fail ends the feed with an error, whatever is still in it. The first one
// counts.
func (f *feed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = err
		f.queue, f.notices = nil, nil
		close(f.ended)
		f.signal()
	}
}

// finish ends the feed with an error once everything is read.
func (f *feed) finish(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.finished = err
	f.signal()
}

// item returns the place of the process with that id, or nil.
func (f *feed) item(processID string) *item {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.items[processID]
}

// next is [Attachment.Next].
func (f *feed) next(ctx context.Context, maxBytes int) (Delivery, error) {
	it, batch, err := f.take(ctx, maxBytes)
	switch {
	case err != nil:
		return Delivery{}, err
	case len(batch.Events) == 0 && batch.Gap == nil:
		return Delivery{Released: it.process}, nil
	}
	return Delivery{Process: it.process, Batch: batch}, nil
}

// take blocks until an item has a batch, or with an empty batch until one has
// left.
func (f *feed) take(ctx context.Context, maxBytes int) (*item, eventlog.Batch, error) {
	for {
		it, released, err := f.pop(ctx)
		if err != nil || released {
			return it, eventlog.Batch{}, err
		}
		batch, ok, err := it.cursor.tryNext(maxBytes)
		if err != nil {
			f.stop(it, err)
			continue
		}
		it.cursor.notify(it.ready) // queued behind the others, if there is more
		if ok {
			return it, batch, nil
		}
	}
}

// stop is called when nothing more comes of an item: its log is at its end, or
// it left and somebody else owns the process.
func (f *feed) stop(it *item, err error) {
	if !errors.Is(err, io.EOF) {
		return // whoever took it away counts it
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read(it)
}

// pop blocks until there is an item that has something to say, or has left.
func (f *feed) pop(ctx context.Context) (it *item, released bool, err error) {
	for {
		it, released, err = f.tryPop()
		if it != nil || err != nil {
			return it, released, err
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

func (f *feed) tryPop() (it *item, released bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.failed == nil && len(f.queue) > 0 {
		it := f.queue[0]
		f.queue[0] = nil
		f.queue = f.queue[1:]
		it.queued = false
		if it.released {
			delete(f.notices, it.process.id)
			return it, true, nil
		}
		if !it.gone {
			return it, false, nil
		}
	}
	if f.failed != nil {
		return nil, false, f.failed
	}
	if f.finished != nil && f.unread == 0 {
		return nil, false, f.finished
	}
	return nil, false, nil
}
