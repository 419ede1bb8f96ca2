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

// What the kernel is asked to tell of a directory: all that happens in it, or
// which names come and go. A file without a name is nothing in it any more.
const (
	allChanges  = nameChanges | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_EXCL_UNLINK
	nameChanges = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE
)

// inotify is one inotify instance. A goroutine of its own takes what the kernel
// tells and hands it on without ever waiting.
type inotify struct {
	fd   int
	file *os.File      // of fd, in Go's poller
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	closed  bool                // guarded by mu; nobody is told any more
	marks   map[int]*mark       // guarded by mu; by watch descriptor
	watches map[*Watch]struct{} // guarded by mu
}

// mark is a directory that the kernel watches, once for all who want to know.
type mark struct {
	wd    int
	dead  bool                             // guarded by mu of inotify; the kernel has ended it
	nodes map[*node]struct{}               // guarded by mu of inotify; who is told everything
	names map[string]map[*lookout]struct{} // guarded by mu of inotify; who is told that a name came or went
}

// notice is what the kernel says.
type notice struct {
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

// openInstance opens an inotify instance that nobody reads.
func openInstance() (fd int, err error) {
	return unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
}

// newInotify reads an instance, which it owns from then on.
func newInotify(fd int) *inotify {
	i := &inotify{fd: fd, file: os.NewFile(uintptr(fd), "inotify"), done: make(chan struct{}),
		marks: make(map[int]*mark), watches: make(map[*Watch]struct{})}
	go i.readAll()
	return i
}

// close ends the watching of everything, and returns when the goroutine has ended.
func (i *inotify) close() {
	i.mu.Lock()
	i.closed = true
	i.mu.Unlock()
	_ = i.file.Close() // which has nothing to write
	<-i.done
}

// noticeBytes is how much is taken from the kernel at once.
const noticeBytes = 64 << 10

func (i *inotify) readAll() {
	defer close(i.done)
	buffer := make([]byte, noticeBytes)
	for {
		n, err := i.file.Read(buffer)
		if err != nil {
			i.fail(err)
			return
		}
		i.dispatch(buffer[:n])
	}
}

// fail ends the watches and the waits, unless it was close that ended the reading,
// and has those that come be refused.
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
		m.pokeAll(0)
	}
}

// hasFailed reports whether nothing is told any more.
func (i *inotify) hasFailed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.closed
}

// dispatch hands notices on.
func (i *inotify) dispatch(records []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for len(records) >= unix.SizeofInotifyEvent {
		// A record is descriptor s32, mask u32, cookie u32, length of the name u32,
		// and the name with zeros behind it.
		wd := int(int32(binary.NativeEndian.Uint32(records)))
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(records[12:]))
		name := strings.TrimRight(string(records[unix.SizeofInotifyEvent:end]), "\x00")
		i.tell(wd, notice{mask: binary.NativeEndian.Uint32(records[4:]), name: name})
		records = records[end:]
	}
}

// tell hands a notice to whom it concerns. mu is held.
func (i *inotify) tell(wd int, n notice) {
	if n.mask&unix.IN_Q_OVERFLOW != 0 {
		i.tellOverflow()
		return
	}
	m, ok := i.marks[wd]
	if !ok {
		return // nobody wants to know any more
	}
	for node := range m.nodes {
		node.watch.queue.push(node, n)
	}
	for l := range m.names[n.name] {
		l.poke(n.mask)
	}
	if n.mask&unix.IN_UNMOUNT != 0 {
		m.pokeAll(n.mask)
	}
	if n.mask&unix.IN_IGNORED != 0 {
		m.dead = true
		delete(i.marks, wd)
		m.pokeAll(n.mask)
	}
}

// tellOverflow tells everybody that the kernel has dropped notices. mu is held.
func (i *inotify) tellOverflow() {
	for w := range i.watches {
		w.queue.lose()
	}
	for _, m := range i.marks {
		m.pokeAll(0)
	}
}

func (m *mark) pokeAll(mask uint32) {
	for _, lookouts := range m.names {
		for l := range lookouts {
			l.poke(mask)
		}
	}
}

// markLocked has the kernel watch an open directory. mu is held.
func (i *inotify) markLocked(dir descriptor, mask uint32) (*mark, error) {
	if i.closed {
		return nil, os.ErrClosed
	}
	// What is already told of the directory goes on being told.
	mask |= unix.IN_ONLYDIR | unix.IN_MASK_ADD
	wd, err := retried(func() (int, error) {
		return unix.InotifyAddWatch(i.fd, "/proc/self/fd/"+strconv.Itoa(int(dir)), mask)
	})
	if err != nil {
		return nil, err
	}
	m, ok := i.marks[wd]
	if !ok {
		m = &mark{wd: wd, nodes: make(map[*node]struct{}), names: make(map[string]map[*lookout]struct{})}
		i.marks[wd] = m
	}
	return m, nil
}

// dropLocked ends the watching of a directory that nobody wants to know of. mu is
// held.
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

// watchAll tells a node all that happens in an open directory from now on.
func (i *inotify) watchAll(dir descriptor, n *node) (*mark, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m, err := i.markLocked(dir, allChanges)
	if err == nil {
		m.nodes[n] = struct{}{}
	}
	return m, err
}

// leaveAll tells a node nothing any more.
func (i *inotify) leaveAll(n *node, m *mark) {
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

// watchName pokes a lookout when a name in an open directory comes or goes.
func (i *inotify) watchName(dir descriptor, name string, l *lookout) (*mark, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m, err := i.markLocked(dir, nameChanges)
	if err != nil {
		return nil, err
	}
	lookouts, ok := m.names[name]
	if !ok {
		lookouts = make(map[*lookout]struct{})
		m.names[name] = lookouts
	}
	lookouts[l] = struct{}{}
	return m, nil
}

// leaveName does not poke the lookout for a name any more.
func (i *inotify) leaveName(l *lookout, m *mark, name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(m.names[name], l)
	if len(m.names[name]) == 0 {
		delete(m.names, name)
	}
	i.dropLocked(m)
}

// follow has a watch be told of overflows and failures.
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
