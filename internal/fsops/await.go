package fsops

import (
	"context"
	"sync/atomic"
)

const awaiting = "await"

// Await waits for paths to come or go. It is used by one goroutine, and is to be
// closed.
type Await struct {
	paths []*awaited
	woken chan struct{} // has room for one
	leave func()
}

// awaited is a path that is waited for.
type awaited struct {
	lookout lookout
	exists  bool // what is waited for
	dirty   atomic.Bool
}

// Awaited is what was waited for.
type Awaited struct {
	// Index is which of the paths came or went, those that were missing first.
	Index int
	// Exists says that it leads to something now.
	Exists bool
}

// AwaitPaths begins to wait until one of the missing paths leads to something, or
// one of those that are present does not. Links are followed, also those that
// appear meanwhile. The paths count for their owner until the Await is closed.
func (w *Watcher) AwaitPaths(owner string, missing, present []string) (*Await, error) {
	n := len(missing) + len(present)
	if n == 0 {
		return nil, nothingAwaited()
	}
	a := &Await{woken: make(chan struct{}, 1)}
	for at, given := range append(missing[:len(missing):len(missing)], present...) {
		path, err := cleaned(awaiting, given)
		if err != nil {
			return nil, err
		}
		one := &awaited{lookout: lookout{path: path}, exists: at < len(missing)}
		one.dirty.Store(true)
		one.lookout.poke = func(uint32) { one.dirty.Store(true); a.wake() }
		a.paths = append(a.paths, one)
	}
	i, leave, err := w.enter(awaiting, a.paths[0].lookout.path, owner, w.ofAwaited(n))
	if err != nil {
		return nil, err
	}
	a.leave = leave
	for _, one := range a.paths {
		one.lookout.inotify = i
	}
	for _, one := range a.paths {
		if _, err := one.look(); err != nil {
			a.Close()
			return nil, err
		}
	}
	a.wake()
	return a, nil
}

func nothingAwaited() error { return refused(InvalidPath, awaiting, "nothing", "no path was given") }

// wake has Next look again.
func (a *Await) wake() {
	select {
	case a.woken <- struct{}{}:
	default:
	}
}

// Next blocks until what is awaited has happened, which may be at once, or ctx
// ends.
func (a *Await) Next(ctx context.Context) (Awaited, error) {
	for {
		for at, one := range a.paths {
			happened, err := one.lookAgain()
			if err != nil {
				return Awaited{}, err
			}
			if happened {
				return Awaited{Index: at, Exists: one.exists}, nil
			}
		}
		select {
		case <-a.woken:
		case <-ctx.Done():
			return Awaited{}, context.Cause(ctx)
		}
	}
}

// Close ends the waiting.
func (a *Await) Close() {
	for _, one := range a.paths {
		one.lookout.end()
	}
	a.leave()
}

// lookAgain looks if something may have changed.
func (a *awaited) lookAgain() (happened bool, err error) {
	if !a.dirty.Load() {
		return false, nil
	}
	return a.look()
}

// look reports whether what is awaited has happened.
func (a *awaited) look() (happened bool, err error) {
	a.dirty.Store(false)
	end, err := a.lookout.look()
	if err == nil {
		end.release()
	}
	switch {
	case err != nil && !leadsNowhere(err):
		return false, unwatchable("await", a.lookout.path, err)
	case (err == nil) == a.exists:
		a.dirty.Store(true) // for Next, which says so
		return true, nil
	case a.lookout.blind != nil:
		return false, unwatchable("await", a.lookout.path, a.lookout.blind)
	}
	return false, nil
}
