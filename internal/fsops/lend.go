package fsops

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Lend returns an inotify instance for the watcher of another process, which receives a duplicate
// of the descriptor and calls [Watcher.Adopt]. It is a new one, or one of the reserve (see Keep) if
// the limit of the user is reached. The last half of the reserve is for owners that have none of
// it. The caller calls giveBack once, when the other process has ended; this removes the watches
// that it left. Lend does not block.
func (w *Watcher) Lend(owner string) (fd int, giveBack func(), err error) {
	if fd, err = openInstance(); err == nil {
		return fd, func() { w.takeBack(fd) }, nil
	}
	fd, ok := w.takeReserved(owner)
	if !ok {
		return 0, nil, err
	}
	return fd, func() {
		w.takeBack(fd)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.lent[owner]--; w.lent[owner] == 0 {
			delete(w.lent, owner)
		}
	}, nil
}

// takeReserved takes an instance out of the reserve for the owner.
func (w *Watcher) takeReserved(owner string) (fd int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := len(w.reserve) - 1
	if last < 0 || w.lent[owner] > 0 && len(w.reserve) <= w.reserved/2 {
		return 0, false
	}
	fd, w.reserve = w.reserve[last], w.reserve[:last]
	w.lent[owner]++
	return fd, true
}

// takeBack puts an instance into the reserve if that is not full, and closes it otherwise. If it
// were closed and another one opened, other programs of the user could take it in between.
func (w *Watcher) takeBack(fd int) {
	err := emptyInstance(fd)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && len(w.reserve) < w.reserved {
		w.reserve = append(w.reserve, fd)
		return
	}
	_ = unix.Close(fd)
}

// emptyInstance resets an instance that no other process has any more: its flags, its watches and
// its pending events.
func emptyInstance(fd int) error {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		return err
	}
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(info)) {
		var wd uint32
		if _, err := fmt.Sscanf(line, "inotify wd:%x ", &wd); err == nil {
			_, _ = unix.InotifyRmWatch(fd, wd) // fails if the directory is gone, and the watch with it
		}
	}
	buffer := make([]byte, readBufferBytes)
	for {
		if _, err := retried(func() (int, error) { return unix.Read(fd, buffer) }); err == unix.EAGAIN {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// Adopt makes the watcher use an inotify instance that the watcher of another process has lent,
// until Close. It takes ownership of the descriptor. A watcher that has an instance already closes
// the new one.
func (w *Watcher) Adopt(fd int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inotify != nil {
		_ = unix.Close(fd)
		return
	}
	w.keepsInstance, w.inotify = true, newInotify(fd)
}
