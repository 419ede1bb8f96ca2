package fsops

import (
	"context"
	"sync/atomic"

	"github.com/execwire/execwire/internal/notify"
)

const awaiting = "await"

// Await waits until paths appear or disappear. One goroutine uses it and closes it.
type Await struct {
	paths []*awaited
	woken notify.Signal // Next has to look again
	leave func()
}

// awaited is one of the paths.
type awaited struct {
	pathWatcher pathWatcher
	exists      bool // what is waited for
	dirty       atomic.Bool
}

// Awaited is the result of a wait.
type Awaited struct {
	// Index is that of the path in missing followed by present.
	Index int
	// Exists reports whether the path exists now.
	Exists bool
}

// AwaitPaths begins to wait until one of the missing paths exists, or one of the present paths does
// not. Links are followed, also those that appear meanwhile. The paths count for their owner until
// the Await is closed.
func (w *Watcher) AwaitPaths(owner string, missing, present []string) (*Await, error) {
	n := len(missing) + len(present)
	if n == 0 {
		return nil, noPathsError()
	}
	a := &Await{woken: notify.NewSignal()}
	for at, given := range append(missing[:len(missing):len(missing)], present...) {
		path, err := cleanPath(awaiting, given)
		if err != nil {
			return nil, err
		}
		one := &awaited{pathWatcher: pathWatcher{path: path}, exists: at < len(missing)}
		one.dirty.Store(true)
		one.pathWatcher.notify = func(uint32) { one.dirty.Store(true); a.woken.Set() }
		a.paths = append(a.paths, one)
	}
	i, leave, err := w.enter(awaiting, a.paths[0].pathWatcher.path, owner, w.awaitQuota(n))
	if err != nil {
		return nil, err
	}
	a.leave = leave
	for _, one := range a.paths {
		one.pathWatcher.inotify = i
	}
	for _, one := range a.paths {
		if _, err := one.check(); err != nil {
			a.Close()
			return nil, err
		}
	}
	a.woken.Set()
	return a, nil
}

func noPathsError() error { return newError(InvalidPath, awaiting, "nothing", "no path was given") }

// Next blocks until one of the paths has changed as awaited, or ctx ends.
func (a *Await) Next(ctx context.Context) (Awaited, error) {
	for {
		for at, one := range a.paths {
			if !one.dirty.Load() {
				continue
			}
			happened, err := one.check()
			if err != nil {
				return Awaited{}, err
			}
			if happened {
				return Awaited{Index: at, Exists: one.exists}, nil
			}
		}
		if err := notify.Wait(ctx, a.woken.C()); err != nil {
			return Awaited{}, err
		}
	}
}

// Close ends the waiting.
func (a *Await) Close() {
	for _, one := range a.paths {
		one.pathWatcher.close()
	}
	a.leave()
}

// check reports whether what is awaited has happened.
func (a *awaited) check() (happened bool, err error) {
	a.dirty.Store(false)
	end, err := a.pathWatcher.resolve()
	if err == nil {
		end.release()
	}
	switch {
	case err != nil && !isMissing(err):
		return false, unwatchable("await", a.pathWatcher.path, err)
	case (err == nil) == a.exists:
		a.dirty.Store(true) // Next reports it
		return true, nil
	case a.pathWatcher.watchErr != nil:
		return false, unwatchable("await", a.pathWatcher.path, a.pathWatcher.watchErr)
	}
	return false, nil
}
