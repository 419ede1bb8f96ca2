package secretfile

import (
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// checkInterval is how often files are looked at, at most.
const checkInterval = time.Second

// Watched is a value that is made from files, and made again when it is used
// after they changed. It looks at them at most once a second and has no
// goroutine. It may be used concurrently.
type Watched[T any] struct {
	load   func() (T, []string, error)
	broken func(error)
	now    func() time.Time

	value atomic.Pointer[T]
	next  atomic.Int64 // when to look at the files again, in Unix nanoseconds

	mu     sync.Mutex // held by the one that looks
	stamps map[string]stamp
	again  bool // the system could not read what is there; it has been told
}

// stamp changes when a file does: when it is written, replaced, or given other
// permissions. The zero stamp is that of a file that cannot be examined.
type stamp struct {
	dev, ino, size uint64
	changed        syscall.Timespec // inode change time, which cannot be set
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	st := info.Sys().(*syscall.Stat_t)
	return stamp{dev: st.Dev, ino: st.Ino, size: uint64(st.Size), changed: st.Ctim}
}

// Watch makes the value by load, whose error it returns. load also returns the
// files that it read, or failed to read: what to look at. When a later load
// fails the value stays what it was and broken is told why, once for each
// change; broken must not block, and nil is not told. If it was the system that
// failed, and not what is in the files, they are read again without a change.
// now is the clock; nil is time.Now.
func Watch[T any](load func() (T, []string, error), broken func(error), now func() time.Time) (*Watched[T], error) {
	w := &Watched[T]{load: load, broken: broken, now: now}
	if w.broken == nil {
		w.broken = func(error) {}
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

// Get returns the value. It may read files; it never waits for another Get that
// does.
func (w *Watched[T]) Get() T {
	if now := w.now(); w.due(now) && w.mu.TryLock() {
		defer w.mu.Unlock()
		w.next.Store(now.Add(checkInterval).UnixNano())
		w.look()
	}
	return *w.value.Load()
}

// due reports whether it is time to look, or the clock was set back.
func (w *Watched[T]) due(now time.Time) bool {
	left := time.Duration(w.next.Load() - now.UnixNano())
	return left <= 0 || left > 2*checkInterval
}

// look makes the value again if there is a reason to. mu is held.
func (w *Watched[T]) look() {
	changed := w.changed()
	if !changed && !w.again {
		return
	}
	err := w.reload()
	told := w.again && !changed
	w.again = isShortage(err)
	if err != nil && !(told && w.again) {
		w.broken(err)
	}
}

// isShortage reports whether err is of the system, which may well do it later,
// and says nothing about the files.
func isShortage(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && slices.Contains([]syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR, syscall.EAGAIN, syscall.EIO, syscall.ESTALE, syscall.ETIMEDOUT,
	}, errno)
}

func (w *Watched[T]) changed() bool {
	return !maps.Equal(w.stamps, stampsOf(slices.Collect(maps.Keys(w.stamps))))
}

// loadTries bounds how often files are read that change all the time.
const loadTries = 5

// reload makes the value from files that did not change while they were read.
// Which files those are is only known afterwards, so the first time takes two.
func (w *Watched[T]) reload() error {
	before := stampsOf(slices.Collect(maps.Keys(w.stamps)))
	for try := 1; ; try++ {
		value, files, err := w.load()
		w.stamps = stampsOf(files)
		if !maps.Equal(before, w.stamps) && try < loadTries {
			before = w.stamps
			continue
		}
		if err != nil {
			return err
		}
		w.value.Store(&value)
		return nil
	}
}

func stampsOf(paths []string) map[string]stamp {
	stamps := make(map[string]stamp, len(paths))
	for _, path := range paths {
		stamps[path] = stampOf(path)
	}
	return stamps
}
