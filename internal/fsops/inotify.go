package fsops

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// The events of a directory that are watched: all changes, or only created and removed names.
// IN_EXCL_UNLINK excludes files that were unlinked.
const (
	allChanges  = nameChanges | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_EXCL_UNLINK
	nameChanges = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE
)

// inotify is one inotify instance. Its goroutine reads the events and delivers them without
// blocking.
type inotify struct {
	fd   int
	file *os.File      // of fd, in Go's poller
	done chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex
	closed bool          // guarded by mu; no events are delivered any more
	marks  map[int]*mark // guarded by mu; by watch descriptor
}

// mark is a directory that the kernel watches, for all its receivers.
type mark struct {
	wd        int
	dead      bool                             // guarded by mu of inotify; the kernel has ended it
	receivers map[string]map[receiver]struct{} // guarded by mu of inotify; by the name that they watch, or allNames
}

// allNames is for receivers of all events of a directory. No name has a slash.
const allNames = "/"

// receiver receives events of a directory. Its methods are called with mu of inotify held, and do
// not block.
type receiver interface {
	// receive receives an event. A receiver of one name also receives those that end the watch of
	// the directory.
	receive(inotifyEvent)
	// lose means that events were dropped.
	lose()
	// fail means that there will be no more events.
	fail(error)
}

// inotifyEvent is an event of the kernel.
type inotifyEvent struct {
	mask uint32
	name string // in the directory, or "" for the directory itself
}

func openInotify() (*inotify, error) {
	fd, err := openInstance()
	if err != nil {
		return nil, err
	}
	return newInotify(fd), nil
}

// openInstance opens an inotify instance that is not read.
func openInstance() (fd int, err error) {
	return unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
}

// newInotify starts to read an instance, and takes ownership of it.
func newInotify(fd int) *inotify {
	i := &inotify{fd: fd, file: os.NewFile(uintptr(fd), "inotify"), done: make(chan struct{}), marks: make(map[int]*mark)}
	go i.readAll()
	return i
}

// close removes all watches, and returns when the goroutine has ended.
func (i *inotify) close() {
	i.mu.Lock()
	i.closed = true
	i.mu.Unlock()
	_ = i.file.Close() // which has nothing to write
	<-i.done
}

// readBufferBytes is the size of a read.
const readBufferBytes = 64 << 10

func (i *inotify) readAll() {
	defer close(i.done)
	buffer := make([]byte, readBufferBytes)
	for {
		n, err := i.file.Read(buffer)
		if err != nil {
			i.fail(err)
			return
		}
		i.dispatch(buffer[:n])
	}
}

// fail ends all watches and waits, and rejects later ones, unless close ended the reading.
func (i *inotify) fail(err error) {
	if errors.Is(err, os.ErrClosed) {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	i.each(func(r receiver) { r.fail(err) })
}

// each calls f for each receiver. mu is held.
func (i *inotify) each(f func(receiver)) {
	for _, m := range i.marks {
		for _, receivers := range m.receivers {
			for r := range receivers {
				f(r)
			}
		}
	}
}

// hasFailed reports whether events are no longer delivered.
func (i *inotify) hasFailed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.closed
}

// dispatch delivers the events that were read.
func (i *inotify) dispatch(records []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for len(records) >= unix.SizeofInotifyEvent {
		// A record is descriptor s32, mask u32, cookie u32, length of the name u32,
		// and the name with zeros behind it.
		wd := int(int32(binary.NativeEndian.Uint32(records)))
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(records[12:]))
		name := strings.TrimRight(string(records[unix.SizeofInotifyEvent:end]), "\x00")
		i.deliver(wd, inotifyEvent{mask: binary.NativeEndian.Uint32(records[4:]), name: name})
		records = records[end:]
	}
}

// deliver passes an event to the receivers that it concerns. mu is held.
func (i *inotify) deliver(wd int, n inotifyEvent) {
	if n.mask&unix.IN_Q_OVERFLOW != 0 {
		i.each(receiver.lose)
		return
	}
	m, ok := i.marks[wd]
	if !ok {
		return // nothing watches it any more
	}
	deliverTo := func(name string) {
		for r := range m.receivers[name] {
			r.receive(n)
		}
	}
	if n.mask&(unix.IN_UNMOUNT|unix.IN_IGNORED) != 0 {
		for name := range m.receivers {
			deliverTo(name)
		}
	} else {
		deliverTo(allNames)
		deliverTo(n.name)
	}
	if n.mask&unix.IN_IGNORED != 0 {
		m.dead = true
		delete(i.marks, wd)
	}
}

// watch delivers to r the further events about a name in an open directory that the mask has, or about
// all names.
func (i *inotify) watch(dir descriptor, name string, mask uint32, r receiver) (*mark, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return nil, os.ErrClosed
	}
	// IN_MASK_ADD keeps the events that are already watched.
	mask |= unix.IN_ONLYDIR | unix.IN_MASK_ADD
	wd, err := retried(func() (int, error) { return unix.InotifyAddWatch(i.fd, dir.procPath(), mask) })
	if err != nil {
		return nil, err
	}
	m, ok := i.marks[wd]
	if !ok {
		m = &mark{wd: wd, receivers: make(map[string]map[receiver]struct{})}
		i.marks[wd] = m
	}
	if m.receivers[name] == nil {
		m.receivers[name] = make(map[receiver]struct{})
	}
	m.receivers[name][r] = struct{}{}
	return m, nil
}

// unwatch ends what watch began. It removes the watch of a directory without receivers.
func (i *inotify) unwatch(m *mark, name string, r receiver) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(m.receivers[name], r)
	if len(m.receivers[name]) == 0 {
		delete(m.receivers, name)
	}
	if m.dead || len(m.receivers) > 0 {
		return
	}
	m.dead = true
	delete(i.marks, m.wd)
	if !i.closed {
		_, _ = unix.InotifyRmWatch(i.fd, uint32(m.wd)) // fails if the directory is gone
	}
}

// isAlive reports whether the directory of a mark is still watched.
func (i *inotify) isAlive(m *mark) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !m.dead
}
