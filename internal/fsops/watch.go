package fsops

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// WatchRequest says what to watch.
type WatchRequest struct {
	// Owner is on whose account it is: see WatcherOptions.Watches.
	Owner string
	// Path is the directory. Links in it are followed, those below it are not.
	Path string
	// Recursive watches what is below it too.
	Recursive bool
	// Ignore are paths, relative to it, of which nothing is told, with all below.
	Ignore Globs
	// Settle is for how long nothing must happen before changes are told. Changes
	// that go on draw that out to ten times as long, and to 10 seconds at most, but
	// not below Settle. Zero tells each change at once.
	Settle time.Duration
}

// Watch is a directory that is watched. It is to be closed. What happens is taken
// by a goroutine of its own, whether or not somebody takes it from there.
type Watch struct {
	path      string
	identity  identity
	recursive bool
	ignore    Globs
	limit     int // of directories
	settle    time.Duration
	watcher   *Watcher
	inotify   *inotify
	queue     noticeQueue
	ctx       context.Context // until Close
	cancel    context.CancelCauseFunc
	leave     func()

	wanted chan struct{} // somebody wants a batch and waits for it
	given  chan Batch
	ended  chan struct{} // closed at the end
	err    error         // why, when ended is closed

	// Of the goroutine.
	top         *node
	lookout     lookout
	directories int
	pending     pending
	settling    settling
	begun       bool  // the watch has begun
	stale       bool  // notices were lost, and the tree has to be looked at again
	over        error // the root is lost
}

var (
	errWatchClosed        = errors.New("the watch was closed")
	errTooManyDirectories = errors.New("the watch reaches too many directories")
)

const watching = "watch"

// Watch begins to watch a directory. All that happens after it has returned is
// told. It takes time in proportion to the directories below, if recursive, and
// ends early with ctx.
func (w *Watcher) Watch(ctx context.Context, r WatchRequest) (*Watch, error) {
	at, err := cleaned(watching, r.Path)
	if err != nil {
		return nil, err
	}
	i, leave, err := w.enter(watching, at, r.Owner, w.ofWatch())
	if err != nil {
		return nil, err
	}
	watch := &Watch{
		path: at, recursive: r.Recursive, ignore: r.Ignore, limit: w.options.Directories, settle: r.Settle, watcher: w, inotify: i,
		queue:   noticeQueue{limit: w.options.PendingBytes, signal: make(chan struct{}, 1)},
		pending: pending{limit: w.options.PendingBytes},
		wanted:  make(chan struct{}), given: make(chan Batch), ended: make(chan struct{}), leave: leave,
	}
	watch.ctx, watch.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	watch.settling.timer = time.NewTimer(0)
	watch.settling.timer.Stop()
	watch.top = &node{watch: watch}
	watch.lookout = lookout{inotify: i, path: at, poke: watch.queue.doubt}
	i.follow(watch)
	if err := watch.begin(ctx); err != nil {
		watch.release()
		return nil, err
	}
	if !watch.pending.isEmpty() { // what could not be watched
		watch.settling.extend(watch.settle)
	}
	go watch.run()
	return watch, nil
}

// begin watches what there is.
func (w *Watch) begin(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { w.cancel(context.Cause(ctx)) })
	defer stop()
	end, err := w.lookout.look()
	if err != nil {
		return unwatchable(watching, w.path, err)
	}
	m, err := end.stat()
	end.release()
	switch {
	case err != nil:
		return failed(watching, w.path, err)
	case m.Type != Directory:
		return refused(NotADirectory, watching, w.path, "it is not a directory: watch the one that it is in")
	}
	w.identity = m.identity
	if err := w.scan(w.top, false); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if w.top.mark == nil {
		return refused(NotFound, watching, w.path, "it was removed meanwhile")
	}
	w.begun = true
	return nil
}

// Next blocks until there is something to tell, or ctx ends. When the directory
// itself is lost the last batch says so, and then Next fails. It may be called by
// one goroutine at a time.
func (w *Watch) Next(ctx context.Context) (Batch, error) {
	select {
	case w.wanted <- struct{}{}:
		return <-w.given, nil
	case <-w.ended:
		return Batch{}, w.err
	case <-ctx.Done():
		return Batch{}, context.Cause(ctx)
	}
}

// Close ends the watch, and returns when nothing of it is left.
func (w *Watch) Close() {
	w.cancel(errWatchClosed)
	<-w.ended
	w.release()
}

func (w *Watch) release() {
	w.cancel(errWatchClosed)
	w.settling.timer.Stop()
	w.lookout.end()
	w.top.forget()
	w.inotify.unfollow(w)
	w.leave()
}

// run takes what the kernel says until the watch is closed or lost.
func (w *Watch) run() {
	defer close(w.ended)
	for {
		var wanted chan struct{}
		if w.settling.isOver && !w.pending.isEmpty() && !w.stale {
			wanted = w.wanted
		}
		select {
		case <-w.ctx.Done():
			w.err = context.Cause(w.ctx)
			return
		case <-w.queue.signal:
			w.takeAll(w.queue.take())
		case <-w.settling.timer.C:
			w.settling.isOver = true
			w.catchUp()
		case <-wanted:
			batch := w.pending.take()
			w.resolve(batch.Changes)
			w.settling.end()
			w.given <- batch
			if w.over != nil {
				w.err = w.over
				return
			}
		}
	}
}

// overflowPause is how long a watch that lost notices waits at least before it
// looks at everything again, while more happens.
const overflowPause = 100 * time.Millisecond

// takeAll takes what was queued.
func (w *Watch) takeAll(t taken) {
	if w.over != nil {
		return
	}
	if t.err != nil {
		w.lose(w.top, LostNoWatches, "the system does not tell any more: "+t.err.Error())
	}
	if t.lost && !w.stale {
		w.stale = true
		w.settling.end()
	}
	for _, n := range t.notices {
		if w.stale || w.over != nil || w.ctx.Err() != nil {
			break
		}
		w.take(n)
	}
	if t.doubted {
		w.checkRoot(t.doubts)
	}
	switch {
	case w.over != nil:
		w.settling.isOver, w.stale = true, false
	case w.stale:
		w.settling.extend(max(w.settle, overflowPause))
	case !w.pending.isEmpty():
		w.settling.extend(w.settle)
	}
}

// catchUp looks at everything again after notices were lost.
func (w *Watch) catchUp() {
	if !w.stale {
		return
	}
	w.stale = false
	w.pending.lost = nil // which is found again
	w.pending.overflow()
	_ = w.scan(w.top, false) // what it fails with has been told
	if w.top.gone && w.over == nil {
		w.lose(w.top, LostRemoved, "it was removed")
	}
}

// tell notes a change, which has a meaning unless everything is looked at again.
func (w *Watch) tell(c Change) { w.pending.add(c) }

// maxLost is how many directories can be lost one by one.
const maxLost = 1000

// lose notes that the directory of a node is not watched any more. With the root
// everything is lost.
func (w *Watch) lose(n *node, why LostReason, message string) {
	if w.over != nil {
		return
	}
	if n != w.top && len(w.pending.lost) == maxLost {
		n, message = w.top, fmt.Sprintf("more than %d directories below it cannot be watched; the last one: %s", maxLost, message)
	}
	if n != w.top {
		w.pending.lose(Lost{Path: n.path(), Reason: why, Message: message})
		return
	}
	w.pending.lose(Lost{Reason: why, Message: message})
	w.over = refused(NotFound, watching, w.path, message)
}

// giveUp loses a directory that cannot be watched. It fails while the watch
// begins, unless it is because of one directory.
func (w *Watch) giveUp(n *node, err error) error {
	at := n.path()
	w.detach(n)
	typed := unwatchable(watching, path.Join(w.path, at), err)
	if err == errTooManyDirectories {
		typed = refused(WatchUnavailable, watching, w.path, fmt.Sprintf("it has more than the %d directories that a watch reaches (watched_directories_per_watch): ignore some", w.limit))
		typed.Limit = int64(w.limit)
	}
	reason := LostNoWatches
	if typed.Kind == PermissionDenied {
		reason = LostNotAllowed
	}
	if !w.begun && (n == w.top || reason == LostNoWatches) {
		return typed
	}
	w.lose(n, reason, typed.Err.Error())
	return nil
}

// checkRoot loses the root if the path leads elsewhere.
func (w *Watch) checkRoot(doubts uint32) {
	if w.over != nil {
		return
	}
	end, err := w.lookout.look()
	if err == nil {
		m, statErr := end.stat()
		end.release()
		if statErr == nil && m.identity == w.identity && w.inotify.isAlive(w.top.mark) {
			return
		}
	}
	if err != nil && !leadsNowhere(err) {
		_ = w.giveUp(w.top, err) // fails only while the watch begins
		return
	}
	// What the kernel says of the directory itself can be on its way still.
	if doubts&unix.IN_UNMOUNT != 0 {
		w.lose(w.top, LostUnmounted, unmounted)
		return
	}
	if !w.inotify.isAlive(w.top.mark) || doubts&(unix.IN_DELETE|unix.IN_MOVED_FROM) == unix.IN_DELETE {
		w.lose(w.top, LostRemoved, "it was removed")
		return
	}
	w.lose(w.top, LostMoved, "its path leads elsewhere now, or nowhere")
}
