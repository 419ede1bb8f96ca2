package fsops

import (
	"cmp"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// node is a directory that a watch watches.
type node struct {
	watch    *Watch
	parent   *node // nil for the root
	name     string
	mark     *mark            // nil before it is watched
	children map[string]*node // directories
	device   uint64           // that it is on, when it is watched
	gone     bool             // it is not where it was
}

// path returns where the node is, relative to the root, which is ".".
func (n *node) path() string {
	var names []string
	for at := n; at.parent != nil; at = at.parent {
		names = append(names, at.name)
	}
	slices.Reverse(names)
	return cmp.Or(strings.Join(names, "/"), ".")
}

// receive, lose and fail implement receiver.
func (n *node) receive(e inotifyEvent) { n.watch.queue.push(n, e) }
func (n *node) lose()                  { n.watch.queue.lose() }
func (n *node) fail(err error)         { n.watch.queue.fail(err) }

// open opens a directory of the tree, if the root is still where it was.
func (w *Watch) open(relative string, flags int) (descriptor, error) {
	root, err := w.openRoot()
	if err != nil {
		return 0, err
	}
	defer root.release()
	return openBeneath(root, relative, flags)
}

// openRoot opens the directory that is watched. It is not held open, so that its
// file system can be unmounted.
func (w *Watch) openRoot() (descriptor, error) {
	root, err := openPath(w.path)
	if err != nil {
		return 0, err
	}
	m, err := root.stat()
	if err == nil && m.identity != w.identity {
		err = unix.ENOENT
	}
	if err != nil {
		root.release()
		return 0, err
	}
	return root, nil
}

// isGone reports whether an error means that a directory is not there any more.
func isGone(err error) bool {
	return err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP || err == unix.ESTALE
}

// scan watches the directory of a node and those below, and then looks at what is
// in them, so that nothing is missed. What it finds is reported, if tell.
func (w *Watch) scan(top *node, tell bool) error {
	root, err := w.openRoot()
	if err != nil {
		// It is lost, or comes back, and then all has to be looked at again.
		w.queue.notePathChange(0)
		w.queue.lose()
		return nil
	}
	defer root.release()
	waiting := []*node{top}
	for len(waiting) > 0 {
		n := waiting[0]
		waiting = waiting[1:]
		if w.ctx.Err() != nil {
			return nil
		}
		below, err := w.scanOne(root, n, tell)
		switch {
		case err == nil:
			waiting = append(waiting, below...)
		case isGone(err):
			w.detach(n) // and is reported of by the directory above
		default:
			if err := w.loseUnwatchable(n, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// scanOne scans one directory and returns those in it.
func (w *Watch) scanOne(root descriptor, n *node, tell bool) (below []*node, err error) {
	at := n.path()
	dir, err := openBeneath(root, at, openDirRead)
	if err != nil {
		return nil, err
	}
	defer dir.release()
	if err := w.attach(n, dir); err != nil || !tell && !w.recursive {
		return nil, err
	}
	missing := n.children
	n.children = nil
	list := newListing(dir, 32<<10)
	for {
		e, err := list.next()
		if err != nil {
			for _, child := range missing {
				child.unwatchTree()
			}
			if err == io.EOF {
				err = nil
			}
			return below, err
		}
		if e.Type == 0 {
			m, _ := statAt(dir, e.Name, unix.AT_SYMLINK_NOFOLLOW)
			e.Type = m.Type
		}
		p := path.Join(at, e.Name)
		if w.ignore.Match(p, e.Type == Directory) {
			continue
		}
		if tell {
			w.pending.add(Change{Path: p, Kind: Created, Type: e.Type})
		}
		if e.Type != Directory || !w.recursive {
			continue
		}
		child, ok := missing[e.Name]
		delete(missing, e.Name)
		if !ok {
			child = &node{watch: w, parent: n, name: e.Name}
		}
		n.adopt(child)
		below = append(below, child)
	}
}

// attach watches the open directory of a node.
func (w *Watch) attach(n *node, dir descriptor) error {
	if n.mark == nil && w.directories >= w.limit {
		return errTooManyDirectories
	}
	m, err := w.inotify.watch(dir, allNames, allChanges, n)
	if err != nil {
		return err
	}
	if n.mark != m {
		n.detachMark()
		n.mark = m
		w.directories++
	}
	here, err := dir.stat()
	n.device = here.identity.device
	return err
}

func (n *node) adopt(child *node) {
	if n.children == nil {
		n.children = make(map[string]*node)
	}
	n.children[child.name] = child
}

// detachMark does not watch the directory of the node any more.
func (n *node) detachMark() {
	if n.mark != nil {
		n.watch.inotify.unwatch(n.mark, allNames, n)
		n.watch.directories--
		n.mark = nil
	}
}

// detach takes a node out of the tree, with all below it.
func (w *Watch) detach(n *node) {
	if n.parent != nil && n.parent.children[n.name] == n {
		delete(n.parent.children, n.name)
	}
	n.unwatchTree()
}

// unwatchTree watches nothing at and below a node any more.
func (n *node) unwatchTree() {
	waiting := []*node{n}
	for len(waiting) > 0 {
		last := waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		waiting = slices.AppendSeq(waiting, maps.Values(last.children))
		last.detachMark()
		last.gone, last.children = true, nil
	}
}

const unmounted = "its file system was unmounted"

// handleEvent handles an event of the kernel.
func (w *Watch) handleEvent(t nodeEvent) {
	n := t.node
	isDirectory := t.mask&unix.IN_ISDIR != 0
	switch {
	case n.gone:
		return
	case t.mask&unix.IN_UNMOUNT != 0:
		for n.parent != nil && n.parent.device == n.device {
			n = n.parent
		}
		w.detach(n)
		w.lose(n, LostUnmounted, unmounted)
		return
	case t.mask&unix.IN_IGNORED != 0:
		if n == w.top {
			w.lose(n, LostRemoved, "it was removed")
		}
		return // reported by the event of the parent
	case t.name == "":
		return // of the directory itself; the parent has an event too
	}
	at := path.Join(n.path(), t.name)
	if w.ignore.Match(at, isDirectory) {
		return
	}
	switch {
	case t.mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0 && isDirectory:
		w.handleCreatedDirectory(n, t.name, at)
	case t.mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		w.pending.add(Change{Path: at, Kind: Created})
	case t.mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
		w.handleRemoved(n, t.name, at, t.mask&unix.IN_MOVED_FROM != 0)
	case t.mask&unix.IN_MODIFY != 0:
		w.pending.add(Change{Path: at, Kind: Modified})
	case t.mask&unix.IN_ATTRIB != 0:
		w.pending.add(Change{Path: at, Kind: MetadataChanged})
	}
}

// handleCreatedDirectory adds a directory that appeared in that of a node, unless a scan has found
// it already.
func (w *Watch) handleCreatedDirectory(n *node, name, at string) {
	known := n.children[name]
	if known != nil && w.isSameDirectory(known, at) {
		return
	}
	if known != nil {
		w.detach(known)
	}
	w.pending.add(Change{Path: at, Kind: Created, Type: Directory})
	if !w.recursive {
		return
	}
	child := &node{watch: w, parent: n, name: name}
	n.adopt(child)
	_ = w.scan(child, true) // what it fails with has been reported
}

// isSameDirectory reports whether the path of a node leads to what is watched.
func (w *Watch) isSameDirectory(n *node, at string) bool {
	dir, err := w.open(at, openDirPath)
	if err != nil {
		return false
	}
	defer dir.release()
	another := &node{watch: w, gone: true} // ignores events
	m, err := w.inotify.watch(dir, allNames, allChanges, another)
	if err != nil {
		return false
	}
	defer w.inotify.unwatch(m, allNames, another)
	return m == n.mark
}

// handleRemoved handles a name that was removed from the directory of a node. If two names were
// exchanged the kernel reports one as removed that exists: that is reported as created.
func (w *Watch) handleRemoved(n *node, name, at string, moved bool) {
	if child := n.children[name]; child != nil {
		w.detach(child)
	}
	if moved {
		if m, err := w.statBelow(n, name); err == nil {
			if m.Type == Directory {
				w.handleCreatedDirectory(n, name, at)
			} else {
				w.pending.add(Change{Path: at, Kind: Created, Type: m.Type})
			}
			return
		}
	}
	w.pending.add(Change{Path: at, Kind: Removed})
}

func (w *Watch) statBelow(n *node, name string) (Metadata, error) {
	dir, err := w.open(n.path(), openDirPath)
	if err != nil {
		return Metadata{}, err
	}
	defer dir.release()
	return statAt(dir, name, unix.AT_SYMLINK_NOFOLLOW)
}
