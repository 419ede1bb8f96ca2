package fsops

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// WatcherOptions bound what watches take. Each of them must be above 0.
type WatcherOptions struct {
	// Watches is how many watches of directories one owner may have at once.
	Watches int
	// AwaitedPaths is how many paths one owner may await at once, over all its
	// calls.
	AwaitedPaths int
	// Directories is how many directories one watch may reach.
	Directories int
	// PendingBytes is how much may wait for whoever takes what a watch has to tell,
	// as bytes of names with a few more for each. Beyond that the watch overflows.
	PendingBytes int
}

// Watcher tells what happens to files, by inotify. There is one instance of that
// for everybody, because a user has few of them; it and its goroutine exist while
// somebody watches, and from Keep to Close. The watcher of another process has an instance
// of its own, which may be lent: on one instance that is shared each could end the watches
// of the other. It is used through the system calls because libraries for it
// take paths and not descriptors, watch no trees or miss what happens while a
// tree is entered, and know no two who watch the same directory.
type Watcher struct {
	options WatcherOptions

	mu       sync.Mutex
	inotify  *inotify       // guarded by mu; nil while nobody watches, unless it is kept
	kept     bool           // guarded by mu; the instance stays when nobody watches
	reserve  []int          // guarded by mu; instances that nobody has been lent
	reserved int            // guarded by mu; how many of those there may be
	lent     map[string]int // guarded by mu; instances that came from the reserve, by owner
	users    int            // guarded by mu; of inotify
	watches  map[string]int // guarded by mu; by owner
	awaited  map[string]int // guarded by mu; by owner
}

// NewWatcher returns a watcher. Unless Keep is called it holds nothing while nobody
// watches, so there is nothing to close.
func NewWatcher(options WatcherOptions) *Watcher {
	return &Watcher{options: options, watches: make(map[string]int), awaited: make(map[string]int), lent: make(map[string]int)}
}

// Keep opens the inotify instance, and as many in reserve for [Watcher.Lend] as it is
// given, and keeps them until Close, so that watches do not fail when other programs of
// the user have all instances. If there is none now, the first watch that gets one keeps
// it, and the reserve is filled with what was lent.
func (w *Watcher) Keep(reserve int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept, w.reserved = true, reserve
	if w.inotify == nil {
		w.inotify, _ = openInotify() // a watch reports why not
	}
	for len(w.reserve) < w.reserved {
		fd, err := openInstance()
		if err != nil {
			return
		}
		w.reserve = append(w.reserve, fd)
	}
}

// Close ends the keeping of the instance, which is closed if nobody watches, and else
// with the last watch. Instances in reserve are closed, those that are lent when they are
// given back. Closing again does nothing.
func (w *Watcher) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept, w.reserved = false, 0
	for _, fd := range w.reserve {
		_ = unix.Close(fd)
	}
	w.reserve = nil
	w.closeUnused()
}

// closeUnused closes an instance that nobody uses, unless it is kept. One that has failed
// is no use to keep. mu is held.
func (w *Watcher) closeUnused() {
	if w.inotify != nil && w.users == 0 && (!w.kept || w.inotify.hasFailed()) {
		w.inotify.close()
		w.inotify = nil
	}
}

// quota is what is counted of an owner.
type quota struct {
	kind   Kind           // of the error
	counts map[string]int // guarded by mu of Watcher; by owner
	n      int            // what is counted
	limit  int
}

// check refuses what would be too many. It is called with mu of Watcher held.
func (q quota) check(verb, path, owner string) error {
	if q.counts[owner]+q.n <= q.limit {
		return nil
	}
	refusal := refused(q.kind, verb, path, fmt.Sprintf("%d are watched or awaited already, and there may be %d: end some", q.counts[owner], q.limit))
	refusal.Limit = int64(q.limit)
	return refusal
}

// giveBack is called with mu of Watcher held.
func (q quota) giveBack(owner string) {
	if q.counts[owner] -= q.n; q.counts[owner] == 0 {
		delete(q.counts, owner)
	}
}

// ofWatch and ofAwaited are what a watch counts for, and paths that are awaited.
func (w *Watcher) ofWatch() quota { return quota{TooManyWatches, w.watches, 1, w.options.Watches} }

func (w *Watcher) ofAwaited(n int) quota {
	return quota{TooManyAwaitedPaths, w.awaited, n, w.options.AwaitedPaths}
}

// CountWatch counts a watch for its owner that is elsewhere, until leave is called,
// once. It fails as [Watcher.Watch] does if there are too many.
func (w *Watcher) CountWatch(owner, path string) (leave func(), err error) {
	return w.count(watching, path, owner, w.ofWatch())
}

// CountAwaited counts paths for their owner that are awaited elsewhere, until leave is
// called, once. It fails as [Watcher.AwaitPaths] does if there are too many.
func (w *Watcher) CountAwaited(owner string, missing, present []string) (leave func(), err error) {
	all := append(missing[:len(missing):len(missing)], present...)
	if len(all) == 0 {
		return nil, nothingAwaited()
	}
	return w.count(awaiting, all[0], owner, w.ofAwaited(len(all)))
}

func (w *Watcher) count(verb, path, owner string, q quota) (leave func(), err error) {
	if path, err = cleaned(verb, path); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := q.check(verb, path, owner); err != nil {
		return nil, err
	}
	q.counts[owner] += q.n
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		q.giveBack(owner)
	}, nil
}

// enter counts something of an owner and returns the instance. leave is to be
// called once in the end.
func (w *Watcher) enter(verb, path, owner string, q quota) (i *inotify, leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := q.check(verb, path, owner); err != nil {
		return nil, nil, err
	}
	w.closeUnused() // it may have failed while nobody watched
	if w.inotify == nil {
		if w.inotify, err = openInotify(); err != nil {
			return nil, nil, unwatchable(verb, path, err)
		}
	}
	i = w.inotify
	w.users++
	q.counts[owner] += q.n
	return i, func() { w.leave(owner, q) }, nil
}

// leave ends the instance with the last that uses it, unless it is kept. What comes
// meanwhile waits, so that there are never two.
func (w *Watcher) leave(owner string, q quota) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q.giveBack(owner)
	w.users--
	w.closeUnused()
}

// unwatchable types what the kernel said about watching a path.
func unwatchable(verb, path string, err error) *Error {
	why := ""
	switch {
	case errors.Is(err, unix.ENOSPC):
		why = "the server's user has no more inotify watches: raise the sysctl fs.inotify.max_user_watches, or user.max_inotify_watches of its user namespace"
	case errors.Is(err, unix.EMFILE):
		why = "the server's user has no more inotify instances, or the server no more descriptors: raise the sysctl fs.inotify.max_user_instances, or user.max_inotify_instances of its user namespace, or the limit of open files"
	case errors.Is(err, os.ErrClosed):
		return refused(Failed, verb, path, "nothing is watched any more")
	default:
		return failed(verb, path, err).(*Error)
	}
	typed := refused(WatchUnavailable, verb, path, why)
	errors.As(err, &typed.Errno)
	return typed
}
