package secretfile

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// checkInterval is the minimum time between checks for changes.
const checkInterval = time.Second

// Watched is a value loaded from files, and reloaded on use after they changed.
// It checks the files at most once per second and has no goroutine. It may be
// used concurrently.
type Watched[T any] struct {
	load    func() (T, []string, error)
	onError func(error)
	now     func() time.Time

	value atomic.Pointer[T]
	next  atomic.Int64 // next check, as Unix time in nanoseconds

	mu     sync.Mutex // held while checking
	stamps map[string]stamp
	retry  bool // the last load failed for a reason of the system, which was reported
}

// Watch loads the value with load, whose error it returns. load also returns the
// files that it read, or failed to read, which are then watched. When a later
// load fails the previous value stays in use and onError is called, once per
// change; onError must not block and may be nil. After a failure of the system,
// rather than of the content, loading is retried without a change. now is the
// clock; nil means time.Now.
func Watch[T any](load func() (T, []string, error), onError func(error), now func() time.Time) (*Watched[T], error) {
	w := &Watched[T]{load: load, onError: onError, now: now}
	if w.onError == nil {
		w.onError = func(error) {}
	}
	if w.now == nil {
		w.now = time.Now
	}
	if err := w.reload(); err != nil {
		return nil, err
	}
	w.next.Store(w.now().Add(checkInterval).UnixNano())
	return w, nil
}

// Get returns the value. It may read files, but never waits for another Get that
// does.
func (w *Watched[T]) Get() T {
	if now := w.now(); w.due(now) && w.mu.TryLock() {
		defer w.mu.Unlock()
		w.next.Store(now.Add(checkInterval).UnixNano())
		w.check()
	}
	return *w.value.Load()
}

// Prepare loads the value at once, changed or not. apply puts it in use. An error changes
// nothing, and is not reported to onError. Prepare waits for a Get that reads files.
func (w *Watched[T]) Prepare() (apply func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	value, stamps, err := w.read()
	if err != nil {
		return nil, err
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stamps, w.retry = stamps, false // if files have changed since, the next check notices
		w.value.Store(&value)
	}, nil
}

// due reports whether it is time for a check, or the clock was set back.
func (w *Watched[T]) due(now time.Time) bool {
	left := time.Duration(w.next.Load() - now.UnixNano())
	return left <= 0 || left > 2*checkInterval
}

// check reloads the value if necessary. mu is held.
func (w *Watched[T]) check() {
	changed := w.changed()
	if !changed && !w.retry {
		return
	}
	err := w.reload()
	reported := w.retry && !changed
	w.retry = isShortage(err)
	if err != nil && !(reported && w.retry) {
		w.onError(err)
	}
}

// isShortage reports whether err is a transient failure of the system, unrelated
// to the content of the files.
func isShortage(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && slices.Contains(shortages, errno)
}

func (w *Watched[T]) changed() bool {
	return !maps.Equal(w.stamps, stampsOf(slices.Collect(maps.Keys(w.stamps))))
}

// maxLoads bounds how often files are reread that keep changing.
const maxLoads = 5

// reload loads the value. After an error the previous one stays. mu is held.
func (w *Watched[T]) reload() error {
	value, stamps, err := w.read()
	w.stamps = stamps
	if err == nil {
		w.value.Store(&value)
	}
	return err
}

// read loads a value from files that did not change meanwhile. Which files those are is
// known only afterwards, so the first load takes two attempts. mu is held.
func (w *Watched[T]) read() (value T, stamps map[string]stamp, err error) {
	before := stampsOf(slices.Collect(maps.Keys(w.stamps)))
	for try := 1; ; try++ {
		var files []string
		value, files, err = w.load()
		stamps = stampsOf(files)
		if maps.Equal(before, stamps) || try == maxLoads {
			return value, stamps, err
		}
		before = stamps
	}
}

func stampsOf(paths []string) map[string]stamp {
	stamps := make(map[string]stamp, len(paths))
	for _, path := range paths {
		stamps[path] = stampOf(path)
	}
	return stamps
}
