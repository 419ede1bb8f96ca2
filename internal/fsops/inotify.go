package fsops

import (
	"encoding/binary"
	"errors"
	"os"
	"strconv"
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

	mu      sync.Mutex
	closed  bool                // guarded by mu; no events are delivered any more
	marks   map[int]*mark       // guarded by mu; by watch descriptor
	watches map[*Watch]struct{} // guarded by mu
}

// mark is a directory that the kernel watches, for all its nodes and path watchers.
type mark struct {
	wd    int
	dead  bool                                 // guarded by mu of inotify; the kernel has ended it
	nodes map[*node]struct{}                   // guarded by mu of inotify; receive all events
	names map[string]map[*pathWatcher]struct{} // guarded by mu of inotify; receive creation and removal of a name
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
	i := &inotify{fd: fd, file: os.NewFile(uintptr(fd), "inotify"), done: make(chan struct{}),
		marks: make(map[int]*mark), watches: make(map[*Watch]struct{})}
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
	for w := range i.watches {
		w.queue.fail(err)
	}
	for _, m := range i.marks {
		m.notifyAll(0)
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

// deliver passes an event to the nodes and path watchers that it concerns. mu is held.
func (i *inotify) deliver(wd int, n inotifyEvent) {
	if n.mask&unix.IN_Q_OVERFLOW != 0 {
		i.deliverOverflow()
		return
	}
	m, ok := i.marks[wd]
	if !ok {
		return // nothing watches it any more
	}
	for node := range m.nodes {
		node.watch.queue.push(node, n)
	}
	for l := range m.names[n.name] {
		l.notify(n.mask)
	}
	if n.mask&unix.IN_UNMOUNT != 0 {
		m.notifyAll(n.mask)
	}
	if n.mask&unix.IN_IGNORED != 0 {
		m.dead = true
		delete(i.marks, wd)
		m.notifyAll(n.mask)
	}
}

// deliverOverflow reports to all watches that the kernel has dropped events. mu is held.
func (i *inotify) deliverOverflow() {
	for w := range i.watches {
		w.queue.lose()
	}
	for _, m := range i.marks {
		m.notifyAll(0)
	}
}

func (m *mark) notifyAll(mask uint32) {
	for _, watchers := range m.names {
		for l := range watchers {
			l.notify(mask)
		}
	}
}

// markLocked watches an open directory. mu is held.
func (i *inotify) markLocked(dir descriptor, mask uint32) (*mark, error) {
	if i.closed {
		return nil, os.ErrClosed
	}
	// IN_MASK_ADD keeps the events that are already watched.
	mask |= unix.IN_ONLYDIR | unix.IN_MASK_ADD
	wd, err := retried(func() (int, error) {
		return unix.InotifyAddWatch(i.fd, "/proc/self/fd/"+strconv.Itoa(int(dir)), mask)
	})
	if err != nil {
		return nil, err
	}
	m, ok := i.marks[wd]
	if !ok {
		m = &mark{wd: wd, nodes: make(map[*node]struct{}), names: make(map[string]map[*pathWatcher]struct{})}
		i.marks[wd] = m
	}
	return m, nil
}

// dropLocked removes the watch of a directory without receivers. mu is held.
func (i *inotify) dropLocked(m *mark) {
	if m.dead || len(m.nodes) > 0 || len(m.names) > 0 {
		return
	}
	m.dead = true
	delete(i.marks, m.wd)
	if !i.closed {
		_, _ = unix.InotifyRmWatch(i.fd, uint32(m.wd)) // fails if the directory is gone
	}
}

// watchAll delivers all further events of an open directory to a node.
func (i *inotify) watchAll(dir descriptor, n *node) (*mark, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m, err := i.markLocked(dir, allChanges)
	if err == nil {
		m.nodes[n] = struct{}{}
	}
	return m, err
}

// unwatchAll ends the delivery of events to a node.
func (i *inotify) unwatchAll(n *node, m *mark) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(m.nodes, n)
	i.dropLocked(m)
}

// isAlive reports whether the directory of a mark is still watched.
func (i *inotify) isAlive(m *mark) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !m.dead
}

// watchName notifies a pathWatcher when a name in an open directory is created or removed.
func (i *inotify) watchName(dir descriptor, name string, l *pathWatcher) (*mark, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m, err := i.markLocked(dir, nameChanges)
	if err != nil {
		return nil, err
	}
	watchers, ok := m.names[name]
	if !ok {
		watchers = make(map[*pathWatcher]struct{})
		m.names[name] = watchers
	}
	watchers[l] = struct{}{}
	return m, nil
}

// unwatchName ends the notification of a pathWatcher about a name.
func (i *inotify) unwatchName(l *pathWatcher, m *mark, name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(m.names[name], l)
	if len(m.names[name]) == 0 {
		delete(m.names, name)
	}
	i.dropLocked(m)
}

// follow delivers overflows and failures to a watch.
func (i *inotify) follow(w *Watch) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.watches[w] = struct{}{}
}

func (i *inotify) unfollow(w *Watch) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.watches, w)
}
