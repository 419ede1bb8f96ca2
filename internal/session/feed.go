package session

import (
	"container/list"
	"context"
	"sync"

	"github.com/execwire/execwire/internal/eventlog"
)

// feed is the queue of what the processes of a session have to say to the one
// who owns them. It has no goroutine: the logs tell it when there is something.
// Its lock is the last one that may be taken.
type feed struct {
	mu       sync.Mutex
	queue    *list.List       // guarded by mu; of *item, those with something to say, each once
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
	id      string   // of the process
	process *Process // nil: all there is to say is that it left
	cursor  *cursor  // nil then, too

	// Guarded by feed.mu.
	place *list.Element // in the queue; nil: it is not there
	gone  bool          // left the feed
	done  bool          // read to the end
}

func newFeed() *feed {
	return &feed{
		queue: list.New(), items: make(map[string]*item), notices: make(map[string]*item),
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
	}
}

// add puts a process into the feed. One that is in it already left before.
func (f *feed) add(p *Process, c *cursor) *item {
	it := &item{feed: f, id: p.id, process: p, cursor: c}
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
	if it.gone || it.place != nil || f.failed != nil {
		return
	}
	f.push(it)
}

// push is ready with mu held.
func (f *feed) push(it *item) {
	it.place = f.queue.PushBack(it)
	f.signal()
}

func (f *feed) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// leave takes the item out of the feed, which says so if tell is set.
func (it *item) leave(tell bool) {
	f := it.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if it.gone {
		return
	}
	it.gone = true
	f.read(it)
	if it.place != nil { // whoever does not read must not keep the process
		f.queue.Remove(it.place)
		it.place = nil
	}
	if f.items[it.id] == it {
		delete(f.items, it.id)
	}
	if tell {
		f.tell(it.id)
	}
}

// released has the feed say that a stream owns a process, which was so before
// there was the feed.
func (f *feed) released(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tell(id)
}

// tell queues a notice that a process is not in the feed. One that is queued
// still will do: nothing of the process came after it. mu is held.
func (f *feed) tell(id string) {
	if f.failed != nil || f.notices[id] != nil {
		return
	}
	notice := &item{feed: f, id: id, gone: true}
	f.notices[id] = notice
	f.push(notice)
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
		f.queue, f.notices = list.New(), nil // those in the old one stay apart from it
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
		return Delivery{Released: it.id}, nil
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

// stop is called when nothing more comes of an item: its log is at its end or,
// freed, has too many readers, or it left and somebody else owns the process.
func (f *feed) stop(it *item, err error) {
	if isDismissed(err) {
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
	if f.failed != nil {
		return nil, false, f.failed
	}
	if first := f.queue.Front(); first != nil {
		it := f.queue.Remove(first).(*item)
		it.place = nil
		if it.process == nil {
			delete(f.notices, it.id)
			return it, true, nil
		}
		return it, false, nil
	}
	if f.finished != nil && f.unread == 0 {
		return nil, false, f.finished
	}
	return nil, false, nil
}
