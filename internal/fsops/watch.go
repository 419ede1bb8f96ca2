package fsops

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/gitignore"
	"github.com/execwire/execwire/internal/notify"
)

// WatchRequest describes what to watch.
type WatchRequest struct {
	// Owner is the owner that the watch counts for: see WatcherOptions.Watches.
	Owner string
	// Path is the directory. Links in it are followed, those below it are not.
	Path string
	// Recursive watches what is below it too.
	Recursive bool
	// Ignore are paths, relative to it, of which nothing is reported, with all below.
	Ignore gitignore.Patterns
	// Settle is how long there must be no change before changes are reported. Continuous changes are
	// reported after ten times as long, but at most after the larger of Settle and 10 s. 0: at once.
	Settle time.Duration
}

// Watch is a directory that is watched. It must be closed. Its goroutine collects the changes,
// whether or not Next is called.
type Watch struct {
	path      string
	identity  identity
	recursive bool
	ignore    gitignore.Patterns
	limit     int // of directories
	settle    time.Duration
	watcher   *Watcher
	inotify   *inotify
	queue     eventQueue
	ctx       context.Context // until Close
	cancel    context.CancelCauseFunc
	leave     func()

	wanted chan struct{} // Next waits for a batch
	given  chan Batch
	ended  chan struct{} // closed at the end
	err    error         // why, when ended is closed

	// Of the goroutine.
	top         *node
	pathWatcher pathWatcher
	directories int
	pending     pending
	settling    settling
	begun       bool  // the watch has begun
	stale       bool  // events were lost, and the tree has to be looked at again
	over        error // the root is lost
}

var (
	errWatchClosed        = errors.New("the watch was closed")
	errTooManyDirectories = errors.New("the watch reaches too many directories")
)

const watching = "watch"

// Watch begins to watch a directory. All changes after its return are reported. If recursive its time
// is proportional to the number of directories; it is aborted when ctx ends.
func (w *Watcher) Watch(ctx context.Context, r WatchRequest) (*Watch, error) {
	at, err := cleanPath(watching, r.Path)
	if err != nil {
		return nil, err
	}
	i, leave, err := w.enter(watching, at, r.Owner, w.watchQuota())
	if err != nil {
		return nil, err
	}
	watch := &Watch{
		path: at, recursive: r.Recursive, ignore: r.Ignore, limit: w.options.Directories, settle: r.Settle, watcher: w, inotify: i,
		queue:   eventQueue{limit: w.options.PendingBytes, signal: notify.NewSignal()},
		pending: pending{limit: w.options.PendingBytes},
		wanted:  make(chan struct{}), given: make(chan Batch), ended: make(chan struct{}), leave: leave,
	}
	watch.ctx, watch.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	watch.settling.timer = time.NewTimer(0)
	watch.settling.timer.Stop()
	watch.top = &node{watch: watch}
	watch.pathWatcher = pathWatcher{inotify: i, path: at, notify: watch.queue.notePathChange}
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

// begin watches the existing directories.
func (w *Watch) begin(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { w.cancel(context.Cause(ctx)) })
	defer stop()
	end, err := w.pathWatcher.resolve()
	if err != nil {
		return unwatchable(watching, w.path, err)
	}
	m, err := end.stat()
	end.release()
	switch {
	case err != nil:
		return failed(watching, w.path, err)
	case m.Type != Directory:
		return newError(NotADirectory, watching, w.path, "it is not a directory: watch the one that it is in")
	}
	w.identity = m.identity
	if err := w.scan(w.top, false); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if w.top.mark == nil {
		return newError(NotFound, watching, w.path, "it was removed meanwhile")
	}
	w.begun = true
	return nil
}

// Next blocks until there are changes, or ctx ends. If the directory itself is lost the last batch
// reports that, and then Next fails. One goroutine may call it at a time.
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

// Close ends the watch, and returns when its goroutine has ended.
func (w *Watch) Close() {
	w.cancel(errWatchClosed)
	<-w.ended
	w.release()
}

func (w *Watch) release() {
	w.cancel(errWatchClosed)
	w.settling.timer.Stop()
	w.pathWatcher.close()
	w.top.unwatchTree()
	w.leave()
}

// run handles events until the watch is closed or lost.
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
		case <-w.queue.signal.C():
			w.handleEvents(w.queue.take())
		case <-w.settling.timer.C:
			w.settling.isOver = true
			w.rescan()
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

// rescanDelay is how long a watch that lost events waits at least before it scans again.
const rescanDelay = 100 * time.Millisecond

// handleEvents handles what was queued.
func (w *Watch) handleEvents(t queuedEvents) {
	if w.over != nil {
		return
	}
	if t.err != nil {
		w.lose(w.top, LostNoWatches, "the system stopped to report changes: "+t.err.Error())
	}
	if t.lost && !w.stale {
		w.stale = true
		w.settling.end()
	}
	for _, n := range t.events {
		if w.stale || w.over != nil || w.ctx.Err() != nil {
			break
		}
		w.handleEvent(n)
	}
	if t.pathChanged {
		w.checkRoot(t.pathEvents)
	}
	switch {
	case w.over != nil:
		w.settling.isOver, w.stale = true, false
	case w.stale:
		w.settling.extend(max(w.settle, rescanDelay))
	case !w.pending.isEmpty():
		w.settling.extend(w.settle)
	}
}

// rescan scans again after events were lost.
func (w *Watch) rescan() {
	if !w.stale {
		return
	}
	w.stale = false
	w.pending.lost = nil // which is found again
	w.pending.overflow()
	_ = w.scan(w.top, false) // what it fails with has been reported
	if w.top.gone && w.over == nil {
		w.lose(w.top, LostRemoved, "it was removed")
	}
}

// maxLost is how many lost directories are reported one by one.
const maxLost = 1000

// lose records that the directory of a node is no longer watched. With the root the watch ends.
func (w *Watch) lose(n *node, why LostReason, message string) {
	if w.over != nil {
		return
	}
	if n != w.top && len(w.pending.lost) == maxLost {
		n, message = w.top, fmt.Sprintf("more than %d directories below it cannot be watched; the last one: %s", maxLost, message)
	}
	if n != w.top {
		w.pending.lost = append(w.pending.lost, Lost{Path: n.path(), Reason: why, Message: message})
		return
	}
	w.pending.lost = append(w.pending.lost, Lost{Reason: why, Message: message})
	w.over = newError(NotFound, watching, w.path, message)
}

// loseUnwatchable loses a directory that cannot be watched. It fails while the watch
// begins, unless it is because of one directory.
func (w *Watch) loseUnwatchable(n *node, err error) error {
	at := n.path()
	w.detach(n)
	typed := unwatchable(watching, path.Join(w.path, at), err)
	if err == errTooManyDirectories {
		typed = newError(WatchUnavailable, watching, w.path,
			fmt.Sprintf("it has more than the %d directories that a watch reaches (watched_directories_per_watch): ignore some", w.limit)).withLimit(int64(w.limit))
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

// checkRoot ends the watch if its path resolves to another directory.
func (w *Watch) checkRoot(doubts uint32) {
	if w.over != nil {
		return
	}
	end, err := w.pathWatcher.resolve()
	if err == nil {
		m, statErr := end.stat()
		end.release()
		if statErr == nil && m.identity == w.identity && w.inotify.isAlive(w.top.mark) {
			return
		}
	}
	if err != nil && !isMissing(err) {
		_ = w.loseUnwatchable(w.top, err) // fails only while the watch begins
		return
	}
	// Events of the directory itself may still be pending.
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
