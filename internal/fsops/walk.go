package fsops

import (
	"context"
	"errors"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of walks.
const (
	// MaxWalkDirectories is how many directories one walk reads at most. Those that
	// wait take some 100 bytes of memory each.
	MaxWalkDirectories = 250_000
	// maxWalkPath is the longest path, in bytes, of a directory that is read.
	maxWalkPath = 1 << 20
	// maxWalkTold is how many bytes of paths are told at once, but for one entry.
	maxWalkTold = 32 << 10
	// walkPatience is how long what was found may wait for more, while more
	// directories are read and entries looked at.
	walkPatience = 100 * time.Millisecond
)

// WalkOptions say what of a tree is told.
type WalkOptions struct {
	// MaxDepth is how deep directories are read: 0 reads the first alone.
	MaxDepth int
	// MaxDirectories is how many directories are read, the first one counted, at
	// most [MaxWalkDirectories].
	MaxDirectories int
	// MaxEntries is how many entries are told.
	MaxEntries uint64
	// FollowDirectoryLinks has links to directories be followed. Each directory is
	// read once.
	FollowDirectoryLinks bool
	// SkipHidden has directories whose names begin with a dot not be read.
	SkipHidden bool
	// Ignore is neither told nor read.
	Ignore Globs
	// WantMetadata has each entry be looked at.
	WantMetadata bool
}

// WalkEntry is something below a directory that is walked.
type WalkEntry struct {
	// Path is relative to the directory, and need not be UTF-8.
	Path string
	// Type is what it is.
	Type Type
	// Target is what it leads to: Type, or the type of the target of a link, if
	// links are followed; else zero.
	Target Type
	// Metadata is its own, if that is wanted and could be had; else zero.
	Metadata Metadata
	// LinkTarget is what is written in a link, if metadata is wanted.
	LinkTarget string
}

// WalkLimit is what a walk has come up against. The zero value is nothing.
type WalkLimit uint8

// The limits.
const (
	WalkedDirectories WalkLimit = iota + 1 // MaxDirectories
	WalkedEntries                          // MaxEntries
)

// WalkListener is told what a walk finds. An error of it ends the walk.
type WalkListener interface {
	// Entries is told entries, at least one and at most [MaxEntries], which are its
	// own.
	Entries([]WalkEntry) error
	// Error is told why a directory below the first could not be read to its end.
	Error(relative string, err *Error) error
}

// Walk tells what is below a directory, breadth first, the names of each directory
// sorted by their bytes, and what limit it has come up against. It follows no links
// that it was not told to follow: a directory that has become one since it was
// found is an error. The first directory may be a link. A root that is something
// else is NotADirectory without an errno.
func Walk(ctx context.Context, root string, options WalkOptions, listener WalkListener, how ...How) (WalkLimit, error) {
	root, err := cleaned("walk", root)
	if err != nil {
		return 0, err
	}
	t, err := locate("walk", root, how)
	if err != nil {
		return 0, err
	}
	defer t.release()
	fd, err := t.open(asDirectory, 0)
	if err != nil {
		if m, statErr := t.stat(); err == unix.ENOTDIR && statErr == nil && m.Type != Directory {
			return 0, refused(NotADirectory, "walk", root, "it is not a directory")
		}
		return 0, t.failed("walk", err)
	}
	w := &walk{ctx: ctx, options: options, listener: listener, rootPath: root}
	w.tree.root = fd
	defer w.tree.release()
	if options.FollowDirectoryLinks {
		w.read = make(map[identity]struct{})
	}
	err = w.run()
	if err == errWalkedEnough {
		err = nil
	}
	if err == nil {
		err = w.flush()
	}
	return w.limit, err
}

// errWalkedEnough ends a walk that has told as many entries as it may.
var errWalkedEnough = errors.New("enough entries were told")

// walk is one call of Walk.
type walk struct {
	ctx      context.Context
	options  WalkOptions
	listener WalkListener
	rootPath string

	tree   openTree
	queue  []*walkNode           // directories that were found and not read
	found  int                   // directories that were in the queue
	read   map[identity]struct{} // directories that were read, if links are followed
	limit  WalkLimit
	told   uint64      // entries
	batch  []WalkEntry // that are not told yet
	pathed int         // bytes of their paths
	since  time.Time   // when the last were told
}

func (w *walk) run() error {
	w.since = time.Now()
	w.enqueue(&walkNode{})
	for len(w.queue) > 0 {
		next := w.queue[0]
		w.queue[0], w.queue = nil, w.queue[1:]
		if w.ctx.Err() != nil {
			return context.Cause(w.ctx)
		}
		if w.isLate() {
			if err := w.flush(); err != nil {
				return err
			}
		}
		if err := w.directory(next); err != nil {
			return err
		}
	}
	return nil
}

// enqueue has a directory be read, unless too many are.
func (w *walk) enqueue(n *walkNode) {
	if w.found >= w.options.MaxDirectories {
		w.limit = WalkedDirectories
		return
	}
	w.found++
	w.queue = append(w.queue, n)
}

// directory tells what is in a directory.
func (w *walk) directory(n *walkNode) error {
	fd, err := w.tree.open(n)
	if err != nil {
		return w.failed(n.path(), err)
	}
	if w.read != nil {
		m, err := fd.stat()
		if err != nil {
			return w.failed(n.path(), err)
		}
		if _, again := w.read[m.identity]; again {
			return nil
		}
		w.read[m.identity] = struct{}{}
	}
	list, relative := newListing(fd, levelBytes), n.path()
	for after, more := "", true; more; {
		var entries []Entry
		entries, more, err = list.sorted(w.ctx, after, maxSortedNames)
		if err != nil {
			if w.ctx.Err() != nil {
				return context.Cause(w.ctx)
			}
			return w.failed(relative, err)
		}
		for _, e := range entries {
			if err := w.entry(n, fd, relative, e); err != nil {
				return err
			}
			after = e.Name
		}
	}
	return nil
}

// failed tells why a directory could not be read. One that was none when it was
// found can have become a link.
func (w *walk) failed(relative string, err error) error {
	if err := w.flush(); err != nil {
		return err
	}
	p := path.Join(w.rootPath, relative)
	if err == unix.ELOOP && !w.options.FollowDirectoryLinks {
		return w.listener.Error(relative, refused(SymlinkRefused, "list", p, "a part of the path has become a symbolic link"))
	}
	return w.listener.Error(relative, failedTyped("list", p, err))
}

// entry tells of an entry of a directory, and has it be read if it is one.
func (w *walk) entry(n *walkNode, dir descriptor, relative string, e Entry) error {
	told := WalkEntry{Path: e.Name}
	if relative != "" {
		told.Path = relative + "/" + e.Name
	}
	if !w.look(dir, e, &told) {
		return nil
	}
	isDirectory := told.Type == Directory || told.Target == Directory
	if w.options.Ignore.Match(told.Path, isDirectory) {
		return nil
	}
	if w.told == w.options.MaxEntries {
		w.limit = WalkedEntries
		return errWalkedEnough
	}
	w.told++
	w.batch, w.pathed = append(w.batch, told), w.pathed+len(told.Path)
	if len(w.batch) == MaxEntries || w.pathed >= maxWalkTold || w.options.WantMetadata && w.isLate() {
		if err := w.flush(); err != nil {
			return err
		}
	}
	switch {
	case !isDirectory, n.depth >= w.options.MaxDepth, w.options.SkipHidden && strings.HasPrefix(e.Name, "."):
		return nil
	case len(told.Path) > maxWalkPath:
		return w.failed(told.Path, unix.ENAMETOOLONG)
	}
	w.enqueue(&walkNode{parent: n, name: e.Name, depth: n.depth + 1, isLink: told.Type == Symlink})
	return nil
}

// look finds out what is wanted of an entry, and whether it is still there.
func (w *walk) look(dir descriptor, e Entry, into *WalkEntry) bool {
	into.Type = e.Type
	if e.Type == 0 || w.options.WantMetadata {
		m, err := statAt(dir, e.Name, unix.AT_SYMLINK_NOFOLLOW)
		switch {
		case err == unix.ENOENT:
			return false
		case err == nil:
			into.Type = m.Type
		}
		if w.options.WantMetadata {
			into.Metadata = m
		}
	}
	if into.Type != Symlink {
		into.Target = into.Type
		return true
	}
	if w.options.WantMetadata {
		into.LinkTarget, _ = readLinkAt(dir, e.Name)
	}
	if w.options.FollowDirectoryLinks {
		m, _ := statAt(dir, e.Name, 0)
		into.Target = m.Type
	}
	return true
}

// isLate reports whether what was found has waited long enough for more.
func (w *walk) isLate() bool { return time.Since(w.since) >= walkPatience }

// flush tells what was found.
func (w *walk) flush() error {
	if len(w.batch) == 0 {
		return nil
	}
	batch := w.batch
	w.batch, w.pathed = nil, 0
	err := w.listener.Entries(batch)
	w.since = time.Now()
	return err
}
