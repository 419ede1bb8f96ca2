package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// minJudgeDelay is how long after a change the orphans are looked at: changes come in swarms.
	minJudgeDelay = 100 * time.Millisecond
	// judgeShare bounds the time that is spent on it, as one part of so many.
	judgeShare = 50
)

// judgeDelay is called with mu held.
func (f *family) judgeDelay() time.Duration { return max(minJudgeDelay, judgeShare*f.cost) }

// waiter waits for a survey that began after it came, and for the end of the strays that it found.
type waiter struct {
	after uint64
	came  time.Time
	done  chan struct{}
}

// ownSession is that of this program. It is not for signalling.
func ownSession() int {
	session, err := unix.Getsid(0)
	if err != nil {
		return 0
	}
	return session
}

// startAdopting makes descendants whose parents have ended children of this program, which the kernel tells about
// with SIGCHLD when they end.
func (f *family) startAdopting() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.adopts == 0 {
		var before int32
		_ = unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&before)), 0, 0, 0)
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("failed to become the parent of orphans: %w", err)
		}
		f.reaper = before != 0
		f.orphans = make(chan os.Signal, 1) // delivery drops what has no room
		signal.Notify(f.orphans, syscall.SIGCHLD)
	}
	f.adopts++
	f.poke()
	return nil
}

// stopAdopting undoes startAdopting.
func (f *family) stopAdopting() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.adopts--
	if f.adopts > 0 {
		return
	}
	signal.Stop(f.orphans)
	f.orphans = nil
	if !f.reaper {
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	}
	for k, p := range f.kin {
		if p == nil {
			delete(f.kin, k)
		}
	}
	if len(f.left) == 0 {
		f.judgeAt = time.Time{}
	}
	f.poke()
}

// settle waits until all orphans were looked at anew, and those who had to be killed were.
func (f *family) settle(ctx context.Context) error {
	w := waiter{came: time.Now(), done: make(chan struct{})}
	f.mu.Lock()
	w.after = f.surveys
	f.waiters = append(f.waiters, w)
	f.judgeSoon(0)
	f.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isClear tells whether it is known that nothing descends any more from a process that was let go.
func (f *family) isClear(ctx context.Context, k *kin) bool {
	clear, remembered := f.recall(k)
	if !clear && remembered && f.settle(ctx) == nil {
		clear, _ = f.recall(k)
	}
	return clear
}

func (f *family) recall(k *kin) (clear, remembered bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, remembered = f.kin[k]
	return k.clear, remembered
}

// rest waits for the goroutine to end, if it has nothing to do.
func (f *family) rest() {
	f.mu.Lock()
	stopped, busy := f.stopped, make(chan struct{})
	if stopped == nil {
		f.mu.Unlock()
		return
	}
	f.resting = append(f.resting, busy)
	f.poke()
	f.mu.Unlock()
	select {
	case <-stopped:
	case <-busy:
	}
}

// judge does what has to be done about those who are nobody's to care for: adopted zombies, strays, and kin that
// no longer matter.
func (f *family) judge(d *division, judged bool, number uint64) {
	for _, p := range d.zombies {
		f.reap(p.pid)
	}
	f.killStrays(d)
	f.mu.Lock()
	var done []*Process
	pondering := false
	for k, p := range f.kin {
		_, left := f.left[k]
		riddle, _ := d.riddle(k)
		pondering = pondering || riddle && p == nil
		unneeded := !riddle && len(d.members[k]) == 0 && !d.suspected(k)
		switch {
		case !unneeded:
		case p == nil && k.gone <= number:
			k.clear = judged
			delete(f.kin, k)
		case left:
			done = append(done, p)
		}
	}
	f.waiters = slices.DeleteFunc(f.waiters, func(w waiter) bool {
		over := w.after < number && f.strays == nil && (!pondering || time.Since(w.came) > riddlePatience)
		if over {
			close(w.done)
		}
		return over
	})
	switch {
	case pondering && len(f.waiters) > 0:
		f.judgeSoon(killWait)
	case pondering:
		f.judgeSoon(f.judgeDelay())
	}
	f.mu.Unlock()
	for _, p := range done {
		p.letGoIfAlone()
	}
}

// reap reaps an adopted child, unless its number is that of a Process by now.
func (f *family) reap(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leaders[pid] {
		return
	}
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOHANG, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// killStrays takes a step in the killing of those who are left of processes that are over.
func (f *family) killStrays(d *division) {
	f.mu.Lock()
	active := map[*kin]bool{}
	for w := range f.sweeps {
		active[w.process.kin] = true
	}
	found := d.strays(func(k *kin) bool { return active[k] })
	for k, p := range f.kin {
		if p == nil {
			found = append(found, d.members[k]...)
		}
	}
	if f.strays == nil && len(found) > 0 {
		f.strays = &sweep{forced: true}
	}
	strays := f.strays
	f.mu.Unlock()
	if strays == nil {
		return
	}
	wait, done := strays.step(scene{members: found, forced: true, now: time.Now()})
	strays.next = time.Now().Add(wait)
	if done {
		f.mu.Lock()
		f.strays = nil
		f.mu.Unlock()
	}
}
