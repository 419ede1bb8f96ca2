package fsops

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// WatcherOptions limits the resources of watches. All fields must be above 0.
type WatcherOptions struct {
	// Watches is how many watches of directories one owner may have at once.
	Watches int
	// AwaitedPaths is how many paths one owner may await at once, over all its
	// calls.
	AwaitedPaths int
	// Directories is how many directories one watch may reach.
	Directories int
	// PendingBytes bounds the changes of one watch that are not read, as bytes of names with an
	// overhead for each. Beyond that the watch overflows.
	PendingBytes int
}

// Watcher reports changes of files, by inotify. All its watches share one inotify instance, because
// the number of instances of a user is small. The instance and its goroutine exist while there is a
// watch, and from Keep to Close. The watcher of another process uses an instance of its own, which
// may be lent: two processes that share an instance could remove each other's watches. The system
// calls are used directly, because libraries take paths instead of descriptors, do not watch trees
// or miss changes while they enter one, and do not support two watches of one directory.
type Watcher struct {
	options WatcherOptions

	mu            sync.Mutex
	inotify       *inotify       // guarded by mu; nil while there are no watches, unless keepsInstance
	keepsInstance bool           // guarded by mu; the instance stays when there are no watches
	reserve       []int          // guarded by mu; instances that are not lent
	reserved      int            // guarded by mu; capacity of reserve
	lent          map[string]int // guarded by mu; instances that came from the reserve, by owner
	users         int            // guarded by mu; of inotify
	watches       map[string]int // guarded by mu; by owner
	awaited       map[string]int // guarded by mu; by owner
}

// NewWatcher returns a watcher. Unless Keep is called it holds nothing while there are no watches,
// so it need not be closed.
func NewWatcher(options WatcherOptions) *Watcher {
	return &Watcher{options: options, watches: make(map[string]int), awaited: make(map[string]int), lent: make(map[string]int)}
}

// Keep opens the inotify instance and a reserve of instances for [Watcher.Lend], and keeps them open
// until Close, so that watches do not fail when other programs of the user hold all instances. If
// none is available, the first watch that opens one keeps it, and the reserve is filled with
// instances that are given back.
func (w *Watcher) Keep(reserve int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keepsInstance, w.reserved = true, reserve
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

// Close undoes Keep: it closes the instance, or lets the last watch close it. Instances in reserve
// are closed at once, those that are lent when they are given back. It may be called again.
func (w *Watcher) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keepsInstance, w.reserved = false, 0
	for _, fd := range w.reserve {
		_ = unix.Close(fd)
	}
	w.reserve = nil
	w.closeUnused()
}

// closeUnused closes the instance if no watch uses it, unless it is to stay open and works. mu is
// held.
func (w *Watcher) closeUnused() {
	if w.inotify != nil && w.users == 0 && (!w.keepsInstance || w.inotify.hasFailed()) {
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
	return newError(q.kind, verb, path,
		fmt.Sprintf("%d are watched or awaited already, and there may be %d: end some", q.counts[owner], q.limit)).withLimit(int64(q.limit))
}

// release is called with mu of Watcher held.
func (q quota) release(owner string) {
	if q.counts[owner] -= q.n; q.counts[owner] == 0 {
		delete(q.counts, owner)
	}
}

func (w *Watcher) watchQuota() quota { return quota{TooManyWatches, w.watches, 1, w.options.Watches} }

func (w *Watcher) awaitQuota(n int) quota {
	return quota{TooManyAwaitedPaths, w.awaited, n, w.options.AwaitedPaths}
}

// CountWatch counts a watch that another process has for an owner, until leave is called, once. It
// fails as [Watcher.Watch] does if there are too many.
func (w *Watcher) CountWatch(owner, path string) (leave func(), err error) {
	return w.count(watching, path, owner, w.watchQuota())
}

// CountAwaited counts paths that another process awaits for an owner, until leave is called, once.
// It fails as [Watcher.AwaitPaths] does if there are too many.
func (w *Watcher) CountAwaited(owner string, missing, present []string) (leave func(), err error) {
	all := append(missing[:len(missing):len(missing)], present...)
	if len(all) == 0 {
		return nil, noPathsError()
	}
	return w.count(awaiting, all[0], owner, w.awaitQuota(len(all)))
}

func (w *Watcher) count(verb, path, owner string, q quota) (leave func(), err error) {
	if path, err = cleanPath(verb, path); err != nil {
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
		q.release(owner)
	}, nil
}

// enter counts a watch of an owner and returns the instance. The caller calls leave once.
func (w *Watcher) enter(verb, path, owner string, q quota) (i *inotify, leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := q.check(verb, path, owner); err != nil {
		return nil, nil, err
	}
	w.closeUnused() // it may have failed while there were no watches
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

// leave closes the instance with its last user, unless it is to stay open. It holds mu meanwhile, so
// that there are never two.
func (w *Watcher) leave(owner string, q quota) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q.release(owner)
	w.users--
	w.closeUnused()
}

// unwatchable returns the typed error for a path that cannot be watched.
func unwatchable(verb, path string, err error) *Error {
	why := ""
	switch {
	case errors.Is(err, unix.ENOSPC):
		why = "the server's user has no more inotify watches: raise the sysctl fs.inotify.max_user_watches, or user.max_inotify_watches of its user namespace"
	case errors.Is(err, unix.EMFILE):
		why = "the server's user has no more inotify instances, or the server no more descriptors: raise the sysctl fs.inotify.max_user_instances, or user.max_inotify_instances of its user namespace, or the limit of open files"
	case errors.Is(err, os.ErrClosed):
		return newError(Failed, verb, path, "nothing is watched any more")
	default:
		return failed(verb, path, err)
	}
	typed := newError(WatchUnavailable, verb, path, why)
	errors.As(err, &typed.Errno)
	return typed
}
