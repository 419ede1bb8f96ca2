package session

import (
	"container/list"
	"context"
	"sync"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/notify"
)

// feed is the queue of processes that have events for an attachment. It has no
// goroutine: the logs notify it. Its lock is the last in the lock order.
type feed struct {
	borrow func(*eventlog.Owner) // of [AttachRequest]

	mu       sync.Mutex
	queue    *list.List       // guarded by mu; of *item, those with events, each once
	items    map[string]*item // guarded by mu; by process id
	notices  map[string]*item // guarded by mu; queued releases by process id
	unread   int              // guarded by mu; items not read to the end
	failed   error            // guarded by mu; error of all further calls of next
	finished error            // guarded by mu; error of next once everything is read

	wake notify.Signal // there is something new
}

// item is a process in a feed, or a release.
type item struct {
	feed    *feed
	id      string          // of the process
	process *Process        // nil: a release
	log     *eventlog.Owner // nil for a release

	// Guarded by feed.mu.
	element *list.Element // in the queue; nil: not queued
	removed bool          // from the feed
	done    bool          // read to the end
}

func newFeed(borrow func(*eventlog.Owner)) *feed {
	return &feed{
		borrow: borrow, queue: list.New(), items: make(map[string]*item), notices: make(map[string]*item),
		wake: notify.NewSignal(),
	}
}

// add adds a process to the feed. An earlier item of the process was removed before.
func (f *feed) add(p *Process, log *eventlog.Owner) *item {
	it := &item{feed: f, id: p.id, process: p, log: log}
	f.mu.Lock()
	f.items[p.id] = it
	f.unread++
	f.mu.Unlock()
	if f.borrow != nil {
		f.borrow(log)
	}
	log.Notify(it.ready)
	return it
}

// ready queues the item. It is called with the lock of a log held.
func (it *item) ready() {
	f := it.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if it.removed || it.element != nil || f.failed != nil {
		return
	}
	f.push(it)
}

// push queues an item. mu is held.
func (f *feed) push(it *item) {
	it.element = f.queue.PushBack(it)
	f.wake.Set()
}

// remove removes the item from the feed; with tell it queues a release.
func (it *item) remove(tell bool) {
	f := it.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if it.removed {
		return
	}
	it.removed = true
	f.read(it)
	if it.element != nil { // or an attachment that does not read would keep the process
		f.queue.Remove(it.element)
		it.element = nil
	}
	if f.items[it.id] == it {
		delete(f.items, it.id)
	}
	if tell {
		f.queueRelease(it.id)
	}
}

// addRelease queues a release for a process that a stream owned before the feed
// began.
func (f *feed) addRelease(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queueRelease(id)
}

// queueRelease queues a release, unless one is queued: no event of the process was
// queued after it. mu is held.
func (f *feed) queueRelease(id string) {
	if f.failed != nil || f.notices[id] != nil {
		return
	}
	notice := &item{feed: f, id: id, removed: true}
	f.notices[id] = notice
	f.push(notice)
}

// read marks the item as read to the end. mu is held.
func (f *feed) read(it *item) {
	if !it.done {
		it.done = true
		f.unread--
		f.wake.Set()
	}
}

// fail ends the feed with an error and drops what is queued. Later calls change
// nothing.
func (f *feed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = err
		f.queue, f.notices = list.New(), nil // later calls of remove must not find their elements here
		f.wake.Set()
	}
}

// finish ends the feed with an error once everything is read.
func (f *feed) finish(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.finished = err
	f.wake.Set()
}

// item returns the item of a process, or nil.
func (f *feed) item(processID string) *item {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.items[processID]
}

// next implements [Attachment.Next].
func (f *feed) next(ctx context.Context, maxBytes int) (Delivery, error) {
	for {
		it, released, err := f.pop(ctx)
		switch {
		case err != nil:
			return Delivery{}, err
		case released:
			return Delivery{Released: it.id}, nil
		}
		batch, ok, err := it.log.TryNext(maxBytes)
		if err != nil {
			f.stop(it, err)
			continue
		}
		it.log.Notify(it.ready) // requeues it behind the others if there is more
		if ok {
			return Delivery{Process: it.process, Batch: batch}, nil
		}
	}
}

// stop is called when an item yields nothing more: its log is read to the end or has
// another owner.
func (f *feed) stop(it *item, err error) {
	if isOwnershipLost(err) {
		return // remove has marked it as read
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read(it)
}

// pop blocks until an item has events or a release is queued.
func (f *feed) pop(ctx context.Context) (it *item, released bool, err error) {
	for {
		it, released, err = f.tryPop()
		if it != nil || err != nil {
			return it, released, err
		}
		if err := notify.Wait(ctx, f.wake.C()); err != nil {
			return nil, false, err
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
		it.element = nil
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
