package fsops

import (
	"context"
	"io"
	"slices"
	"strings"
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

// maxOpenDirectories is how many directories of a walk are open besides its root.
const maxOpenDirectories = 16

// openTree has the directories open that a walk was in last: what is read next is
// mostly in one of them, and a path from the root can be very long.
type openTree struct {
	root   descriptor
	recent []openDirectory // the last used is the last
}

type openDirectory struct {
	node *walkNode
	fd   descriptor
}

// open opens a directory to be read. The descriptor is the tree's, and good until
// the next call.
func (t *openTree) open(n *walkNode) (descriptor, error) {
	if n.parent == nil {
		return t.root, nil
	}
	parent, err := t.reach(n.parent)
	if err != nil {
		return 0, err
	}
	return t.step(parent, n, asDirectory)
}

// reach opens a directory as what others are found in, from the nearest one that
// is open.
func (t *openTree) reach(n *walkNode) (descriptor, error) {
	if fd, ok := t.find(n); ok {
		return fd, nil
	}
	above := n.parent
	if n.isLink {
		fd, err := t.reach(above)
		if err != nil {
			return 0, err
		}
		return t.step(fd, n, asParent)
	}
	for !above.isLink && above.parent != nil && !t.has(above) {
		above = above.parent
	}
	from, err := t.reach(above)
	if err != nil {
		return 0, err
	}
	fd, err := openBeneath(from, strings.Join(n.below(above), "/"), asParent, 0)
	if err != nil {
		return 0, err
	}
	t.keep(n, fd)
	return fd, nil
}

// step opens a directory from its parent.
func (t *openTree) step(parent descriptor, n *walkNode, flags int) (descriptor, error) {
	var fd descriptor
	var err error
	if n.isLink {
		fd, err = openAt(parent, n.name, flags, 0)
	} else {
		fd, err = openStep(parent, n.name, flags, 0)
	}
	if err != nil {
		return 0, err
	}
	t.keep(n, fd)
	return fd, nil
}

func (t *openTree) has(n *walkNode) bool {
	return slices.ContainsFunc(t.recent, func(o openDirectory) bool { return o.node == n })
}

// find returns the descriptor of a directory that is open, and makes it the last
// used.
func (t *openTree) find(n *walkNode) (descriptor, bool) {
	if n.parent == nil {
		return t.root, true
	}
	at := slices.IndexFunc(t.recent, func(o openDirectory) bool { return o.node == n })
	if at < 0 {
		return 0, false
	}
	found := t.recent[at]
	t.recent = append(slices.Delete(t.recent, at, at+1), found)
	return found.fd, true
}

// keep has a directory stay open, in place of the one that was not used for
// longest.
func (t *openTree) keep(n *walkNode, fd descriptor) {
	if len(t.recent) == maxOpenDirectories {
		t.recent[0].fd.release()
		t.recent = slices.Delete(t.recent, 0, 1)
	}
	t.recent = append(t.recent, openDirectory{n, fd})
}

// release closes all directories.
func (t *openTree) release() {
	for _, o := range t.recent {
		o.fd.release()
	}
	t.root.release()
}

const (
	// maxSortedNames is how many names of a directory are sorted at once. A larger
	// directory is read several times.
	maxSortedNames = 50_000
	// lookEvery is after how many names a listing looks whether it is still wanted.
	lookEvery = 1000
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
		if seen%lookEvery == 0 && ctx.Err() != nil {
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
