package fsops

import (
	"context"
	"io"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// walkNode is a directory of a tree that is walked, found in its parent; the root
// has none.
type walkNode struct {
	parent *walkNode
	name   string
	depth  int
	isLink bool // to a directory, and is followed
}

// path is relative to the root, for which it is "".
func (n *walkNode) path() string {
	names := n.below(nil)
	return strings.Join(names, "/")
}

// below returns the names that lead to a node from one above it.
func (n *walkNode) below(above *walkNode) []string {
	var names []string
	for ; n != above && n.parent != nil; n = n.parent {
		names = append(names, n.name)
	}
	slices.Reverse(names)
	return names
}

// openTree opens the directories of a walk. It keeps the last parent open: the directories that
// are found together are read together, and a path from the root can be very long.
type openTree struct {
	root     descriptor
	parent   *walkNode // nil: none is open
	parentFD descriptor
}

// open opens a directory. The caller releases it.
func (t *openTree) open(n *walkNode) (descriptor, error) {
	if n.parent == nil {
		// Not "." in it, which needs the permission to search.
		fd, err := unix.FcntlInt(uintptr(t.root), unix.F_DUPFD_CLOEXEC, 0)
		return descriptor(fd), err
	}
	if n.parent != t.parent {
		fd, err := t.reach(n.parent)
		if err != nil {
			return 0, err
		}
		t.releaseParent()
		t.parent, t.parentFD = n.parent, fd
	}
	return n.openIn(t.parentFD, openDirRead)
}

// reach opens a directory in which others are looked up.
func (t *openTree) reach(n *walkNode) (descriptor, error) {
	if n.parent != nil && n.parent == t.parent {
		return n.openIn(t.parentFD, openDirPath)
	}
	link := n // the nearest one, or the root
	for link.parent != nil && !link.isLink {
		link = link.parent
	}
	if link.parent == nil {
		return openBeneath(t.root, n.path(), openDirPath)
	}
	above, err := t.reach(link.parent)
	if err != nil {
		return 0, err
	}
	fd, err := link.openIn(above, openDirPath)
	above.release()
	if err != nil || link == n {
		return fd, err
	}
	defer fd.release()
	return openBeneath(fd, strings.Join(n.below(link), "/"), openDirPath)
}

// openIn opens a directory in its parent.
func (n *walkNode) openIn(parent descriptor, flags int) (descriptor, error) {
	if n.isLink {
		return openAt(parent, n.name, flags, 0)
	}
	return openNoFollow(parent, n.name, flags, 0)
}

func (t *openTree) releaseParent() {
	if t.parent != nil {
		t.parentFD.release()
	}
}

// release closes all directories.
func (t *openTree) release() {
	t.releaseParent()
	t.root.release()
}

const (
	// maxSortedNames is how many names of a directory are sorted at once. A larger
	// directory is read several times.
	maxSortedNames = 50_000
	// cancelCheckInterval is after how many names a listing looks whether it is still wanted.
	cancelCheckInterval = 1000
)

// sorted returns the next entries behind a name, sorted, at most so many, and
// whether there are more.
func (l *listing) sorted(ctx context.Context, after string, most int) (entries []Entry, more bool, err error) {
	if err := l.rewind(); err != nil {
		return nil, false, err
	}
	byName := func(a, b Entry) int { return strings.Compare(a.Name, b.Name) }
	for seen := 1; ; seen++ {
		e, err := l.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, false, err
		}
		if seen%cancelCheckInterval == 0 && ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		if e.Name <= after {
			continue
		}
		if entries = append(entries, e); len(entries) == 2*most {
			slices.SortFunc(entries, byName)
			entries, more = entries[:most], true
		}
	}
	slices.SortFunc(entries, byName)
	if len(entries) > most {
		entries, more = entries[:most], true
	}
	return entries, more, nil
}
